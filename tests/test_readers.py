"""Readers of corrupted test sets: official layouts, our own folders; what is missing, damaged or mixed up."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders, encoded, picture, write_parquet
from PIL import Image

from anchored import data as sources
from anchored.corruptions import corrupt, readers, suite
from anchored.corruptions.generate import Request, generate
from anchored.corruptions.readers import read_archive
from anchored.system.errors import InputError

N = 6
LABELS = np.array([0, 1, 2, 0, 1, 2])


def arrays(root: Path, names: tuple[str, ...], *, dtype: type = np.uint8, repeat: int = 5) -> dict[str, np.ndarray]:
    """A folder like CIFAR-10-C of N images; what it holds."""
    root.mkdir(exist_ok=True)
    whole = {name: np.stack([picture(100 * i + k, 9) for k in range(5 * N)]) for i, name in enumerate(names)}
    for name, images in whole.items():
        np.save(root / f"{name}.npy", images)
    np.save(root / "labels.npy", np.tile(LABELS, repeat).astype(dtype))
    return whole


def folders(root: Path, name: str, severities: tuple[str, ...]) -> None:
    """`root/name/severity/class/file.JPEG` of three images in two classes."""
    for number, severity in enumerate(severities):
        for label, file in ((0, "b"), (0, "a"), (1, "c")):
            path = root / name / severity / f"n0{label}" / f"{file}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture(ord(file) + 10 * number, 16)).save(path)


@pytest.mark.parametrize(("dtype", "repeat"), [(np.uint8, 5), (np.int64, 5), (np.int64, 1)])
@pytest.mark.parametrize("which", ["c", "c-bar"])
def test_arrays_are_severity_major(dtype: type, repeat: int, which: str, tmp_path: Path) -> None:
    names = suite(which, table="cifar")
    whole = arrays(tmp_path, names, dtype=dtype, repeat=repeat)
    archive = read_archive(tmp_path, labels=torch.from_numpy(LABELS), strict=True)
    assert archive.names == names and archive.severities == (1, 2, 3, 4, 5) and not archive.missing
    assert list(archive)[:2] == [(names[0], 1), (names[0], 2)] and len(list(archive)) == 5 * len(names)
    for name, severity in archive:
        cell = archive.cell(name, severity)
        images = cell.load()
        np.testing.assert_array_equal(images.images, whole[name][(severity - 1) * N : severity * N])
        np.testing.assert_array_equal(images.labels, LABELS)
    parts = list(cell.batches(4))
    assert [len(part[0]) for part in parts] == [4, 2] and torch.equal(
        torch.cat([part[2] for part in parts]), torch.arange(N)
    )
    np.testing.assert_array_equal(torch.cat([part[0] for part in parts]), whole[name][-N:])
    np.testing.assert_array_equal(cell.load(part=torch.tensor([5, 2])).images, whole[name][-N:][[5, 2]])


def test_missing_corruptions_are_said(tmp_path: Path) -> None:
    arrays(tmp_path, suite("c-mce"))
    with pytest.warns(
        UserWarning, match=r"15 of 19 corruptions found .*missing: speckle_noise, gaussian_blur, spatter"
    ):
        archive = read_archive(tmp_path)
    assert archive.missing == ("speckle_noise", "gaussian_blur", "spatter", "saturate") and len(archive.notes) == 1
    with pytest.raises(InputError, match="15 of 19"):
        read_archive(tmp_path, strict=True)
    with pytest.raises(InputError, match="unknown corruption of this archive 'spatter'"):
        archive.cell("spatter", 1)
    # Both suites in one folder: what is missing of either counts.
    for name in suite("c-bar", table="cifar")[:-1]:
        np.save(tmp_path / f"{name}.npy", np.zeros((5 * N, 9, 9, 3), np.uint8))
    with pytest.warns(UserWarning, match=r"24 of 29 .*saturate, transverse_chromatic_abberation"):
        read_archive(tmp_path)


def test_imagenet_folders_with_both_namings_of_severities(tmp_path: Path) -> None:
    common, strengths = tmp_path / "c", tmp_path / "bar"
    for name in suite("c"):
        folders(common, name, ("1", "2", "3", "4", "5"))
    for name, values in readers.bar.IMAGENET.items():
        folders(strengths, name, tuple(f"{value:.2f}" for value in values))
    for root in (common, strengths):
        archive = read_archive(root, strict=True)
        assert archive.severities == (1, 2, 3, 4, 5) and not archive.notes
        for number, severity in enumerate(archive.severities):
            cell = archive.cell(archive.names[3], severity)
            # In the order of classes, then of file names.
            np.testing.assert_array_equal(cell.labels, [0, 0, 1])
            expected = [np.asarray(Image.open(file)) for file in cell._files]
            assert [file.name for file in cell._files] == ["a.JPEG", "b.JPEG", "c.JPEG"]
            np.testing.assert_array_equal(cell.load().images, np.stack(expected))
            again = Image.open(common / "fog" / str(number + 1) / "n00" / "a.JPEG")
            np.testing.assert_array_equal(cell.load().images[0], np.asarray(again))
    assert archive.cell("caustic_refraction", 2).load(size=8).images.shape == (3, 8, 8, 3)
    # The strength 2.00 of checkerboard_cutout is severity 1; the folder 2 would be severity 2.
    assert archive._places["checkerboard_cutout", 1].name == "2.00"
    # Class names given: labels follow their order.
    named = read_archive(common, classes=("n01", "absent", "n00"))
    np.testing.assert_array_equal(named.cell("fog", 1).labels, [0, 2, 2])
    with pytest.raises(InputError, match="there is no class n01"):
        read_archive(common, classes=("n00",)).cell("fog", 1)
    # The official archive unpacks into groups.
    (common / "blur").mkdir()
    for name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"):
        (common / name).rename(common / "blur" / name)
    assert read_archive(common, strict=True).names == suite("c")


def test_folders_that_lack_images_or_severities_are_refused(tmp_path: Path) -> None:
    for name in ("fog", "frost"):
        folders(tmp_path, name, ("1", "2", "3", "4", "5"))
    (tmp_path / "frost" / "4" / "n00" / "a.JPEG").unlink()
    with pytest.warns(UserWarning, match="2 of 19"):
        archive = read_archive(tmp_path)
    archive.cell("fog", 4)
    with pytest.raises(InputError, match=r"this has 2, the others 3\. They differ in n00/a"):
        archive.cell("frost", 4)
    for path in (tmp_path / "frost" / "4").rglob("*.JPEG"):
        path.unlink()
    for folder in (tmp_path / "frost" / "4" / "n00", tmp_path / "frost" / "4" / "n01", tmp_path / "frost" / "4"):
        folder.rmdir()
    with pytest.warns(UserWarning, match="2 of 19"), pytest.raises(InputError, match="severity 4 is missing"):
        read_archive(tmp_path)
    (tmp_path / "frost" / "6").mkdir()
    with pytest.warns(UserWarning, match="2 of 19"), pytest.raises(InputError, match="named 1 to 5; found 6"):
        read_archive(tmp_path)


def test_labels_are_checked(tmp_path: Path) -> None:
    arrays(tmp_path, suite("c"))
    with pytest.raises(InputError, match=r"2 of 6 differ, the first at 0"):
        read_archive(tmp_path, labels=torch.tensor([1, 0, 2, 0, 1, 2]))
    with pytest.raises(InputError, match="has 6 images a cell, the test set 5"):
        read_archive(tmp_path, labels=torch.from_numpy(LABELS[:5]))
    shuffled = np.tile(LABELS, 5)
    shuffled[7] = 0
    np.save(tmp_path / "labels.npy", shuffled)
    with pytest.raises(InputError, match="repeated for every severity"):
        read_archive(tmp_path)
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(InputError, match=r"no labels\.npy"):
        read_archive(tmp_path)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        read_archive(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"files like fog\.npy .* found nothing"):
        read_archive(tmp_path)
    whole = arrays(tmp_path, suite("c"))
    for broken, message in (
        (whole["fog"][:-1], r"uint8 \[30, H, W, 3\]; got uint8 \[29, 9, 9, 3\]"),
        (whole["fog"].astype(np.float32), "got float32"),
    ):
        np.save(tmp_path / "fog.npy", broken)
        with pytest.raises(InputError, match=message):
            read_archive(tmp_path)
    np.save(tmp_path / "fog.npy", whole["fog"])
    content = (tmp_path / "fog.npy").read_bytes()
    (tmp_path / "fog.npy").write_bytes(content[:-5])
    with pytest.raises(InputError, match=r"fog\.npy is not a readable \.npy file"):
        read_archive(tmp_path)


def test_published_sums_are_compared_where_they_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sum of a stand-in of the right shape: black images, which take no room on disk."""
    with open(tmp_path / "contrast.npy", "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (50_000, 32, 32, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 50_000 * 32 * 32 * 3)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10_000) % 10, 5).astype(np.uint8))
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    monkeypatch.setattr(readers, "PUBLISHED", sums)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the 18 missing ones
        read_archive(tmp_path, verify=True)
        with open(tmp_path / "contrast.npy", "r+b") as file:
            file.seek(1000)
            file.write(b"\1")
        read_archive(tmp_path)
        with pytest.raises(InputError, match=r"contrast\.npy differ from the MD5 sums published"):
            read_archive(tmp_path, verify=True)


def test_own_arrays_are_read_back(tmp_path: Path) -> None:
    request = Request("digits", suite=("contrast", "fog"), severities=(2, 4), limit=50, seed=3)
    generate(request, tmp_path / "out")
    test = sources.load("digits").test
    archive = read_archive(tmp_path / "out", labels=test.labels, strict=True, verify=True)
    assert archive.names == ("fog", "contrast") and archive.severities == (2, 4)
    assert "seed 3" in archive.source and "frost" in archive.source
    for name, severity in archive:
        cell = archive.cell(name, severity)
        positions = cell.index.numpy()
        assert len(cell) == 50 and torch.equal(cell.labels, test.labels[cell.index])
        expected = corrupt(test.images.numpy()[positions], name, severity, seed=3, index=positions)
        np.testing.assert_array_equal(cell.load().images, expected)
    (tmp_path / "out" / "fog.npy").unlink()
    with pytest.warns(UserWarning, match="1 of 2 corruptions found"):
        read_archive(tmp_path / "out")


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_own_folders_are_read_back_in_the_order_of_the_test_set(kind: str, tmp_path: Path) -> None:
    if kind == "folder":
        class_folders(tmp_path / "data" / "train", {"ant": 2, "bee": 2}, side=12)
        class_folders(tmp_path / "data" / "test", {"ant": 3, "bee": 2}, side=12)
    else:
        # Class names out of alphabetical order, labels mixed: folders alone would tell neither.
        rows = [encoded(picture(i, 12)) for i in range(5)]
        for part in ("train", "test"):
            write_parquet(tmp_path / "data" / f"{part}.parquet", rows, [1, 0, 1, 0, 0], names=["wasp", "ant"])
    spec, out = f"{kind}:{tmp_path / 'data'}", tmp_path / "out"
    generate(Request(spec, suite=("impulse_noise",), severities=(5,), layout="folder", codec="png"), out)
    test = sources.load(spec).test
    archive = read_archive(out, labels=test.labels, verify=True)
    cell = archive.cell("impulse_noise", 5)
    assert torch.equal(cell.labels, test.labels)
    np.testing.assert_array_equal(cell.load().images, corrupt(test.images.numpy(), "impulse_noise", 5, seed=0))
    path = next(out.rglob("*.png"))
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    with pytest.raises(InputError, match="differ from the MD5 sums of the manifest"):
        read_archive(out, verify=True)
    path.unlink()
    with pytest.raises(InputError, match="this has 4, the others 5"):
        read_archive(out).cell("impulse_noise", 5)


def test_unfinished_folders_are_refused(tmp_path: Path) -> None:
    arrays(tmp_path, suite("c"))
    (tmp_path / ".anchored").mkdir()
    with pytest.raises(InputError, match="is unfinished"):
        read_archive(tmp_path)
