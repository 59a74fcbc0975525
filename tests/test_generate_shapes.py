"""Images that are not square on disk: `anchored corrupt` in both layouts, its contact sheet, and reading them back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from images import encoded, picture, write_parquet
from PIL import Image

from anchored import data as sources
from anchored.cli import main
from anchored.corruptions import corrupt, tables
from anchored.corruptions.generate import Request, generate
from anchored.corruptions.readers import read_archive
from anchored.system.errors import InputError

SUITE = ("gaussian_noise", "zoom_blur", "snow", "fog", "caustic_refraction", "plasma_noise")


def landscapes(root: Path, height: int = 12, width: int = 20, count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Class folders `root`/test and `root`/train of PNG pictures; those of the test part and their labels."""
    images = np.stack([picture(i, height, width) for i in range(count)])
    labels = np.arange(count) % 2
    for part in ("train", "test"):
        for number, (image, label) in enumerate(zip(images, sorted(labels), strict=True)):
            file = root / part / ("cat", "dog")[label] / f"{number:02}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    return images, np.sort(labels)


@pytest.mark.parametrize("shape", [(12, 20), (20, 12)])
@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_of_any_shape(shape: tuple[int, int], workers: int, tmp_path: Path) -> None:
    images, labels = np.stack([picture(i, *shape) for i in range(6)]), np.arange(6) % 2
    given = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "wide.npz", **given)
    out = tmp_path / "out"
    generate(Request(f"npz:{tmp_path / 'wide.npz'}", suite=SUITE, severities=(2, 5), seed=4), out, workers=workers)
    for name in SUITE:
        whole = np.load(out / f"{name}.npy")
        assert whole.shape == (12, *shape, 3)
        for block, severity in zip(np.split(whole, 2), (2, 5), strict=True):
            np.testing.assert_array_equal(block, corrupt(images, name, severity, seed=4))
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["images"]["height"], manifest["images"]["width"]) == shape
    table, factor = tables.choose(None, 12, 12)  # by the shorter side
    assert manifest["table"] == {"name": table, "lengths_times": factor}
    archive = read_archive(out, verify=True)
    for name, severity in archive:
        read = archive.cell(name, severity).load()
        np.testing.assert_array_equal(read.images, corrupt(images, name, severity, seed=4))
        np.testing.assert_array_equal(read.labels, labels)


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_folders_of_any_shape(kind: str, tmp_path: Path) -> None:
    if kind == "folder":
        images, labels = landscapes(tmp_path / "data")
    else:
        images, labels = np.stack([picture(i, 12, 20) for i in range(6)]), np.arange(6) % 2
        for part in ("train", "test"):
            rows = [encoded(image) for image in images]
            write_parquet(tmp_path / "data" / f"{part}.parquet", rows, labels.tolist(), names=["cat", "dog"])
    spec, out = f"{kind}:{tmp_path / 'data'}", tmp_path / "out"
    generate(Request(spec, suite=SUITE, severities=(3,), layout="folder", codec="png"), out, workers=1)
    archive = read_archive(out, verify=True)
    for name in SUITE:
        cell = archive.cell(name, 3)
        expected = corrupt(images, name, 3, seed=0)
        np.testing.assert_array_equal(cell.load().images, expected)
        np.testing.assert_array_equal(cell.labels, labels)
        parts = list(cell.batches(4))
        np.testing.assert_array_equal(np.concatenate([part[0].numpy() for part in parts]), expected)
    # Asked for another size, they are cut as every picture is.
    assert cell.load(size=10).images.shape == (6, 10, 10, 3)


def test_several_sizes_are_refused_and_resized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landscapes(tmp_path / "data")
    Image.fromarray(picture(50, 20, 12)).save(tmp_path / "data" / "test" / "dog" / "99.png")
    spec, out = f"folder:{tmp_path / 'data'}", tmp_path / "out"
    for layout in ("arrays", "folder"):
        with pytest.raises(SystemExit):
            main(["corrupt", spec, "--suite", "contrast", "--layout", layout, "--out", str(out)])
        message = capsys.readouterr().err
        assert "different sizes: 20x12" in message and "12x20 (" in message and "99.png" in message
        assert "pass --image-size" in message and not out.exists()
    generate(Request(spec, suite=("contrast",), severities=(1,), layout="arrays", image_size=12), out, workers=1)
    assert np.load(out / "contrast.npy").shape == (7, 12, 12, 3)


def test_stored_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    landscapes(tmp_path / "data")
    out = tmp_path / "out"
    generate(Request(f"folder:{tmp_path / 'data'}", suite=("fog",), severities=(1,)), out, workers=1)
    odd = next((out / "fog").rglob("*.JPEG"))
    Image.fromarray(picture(1, 20, 20)).save(odd, "JPEG")
    cell = read_archive(out).cell("fog", 1)
    with pytest.raises(InputError, match="different sizes"):
        cell.load()
    assert cell.load(size=12).images.shape == (6, 12, 12, 3)


@pytest.mark.parametrize(("height", "width"), [(30, 50), (50, 30), (90, 150), (150, 90), (8, 200)])
def test_the_contact_sheet_keeps_the_shape_of_the_image(height: int, width: int, tmp_path: Path) -> None:
    Image.fromarray(picture(3, height, width)).save(tmp_path / "photo.png")
    sheet = tmp_path / "sheet.png"
    main(["corrupt", str(tmp_path / "photo.png"), "--suite", "snow", "ripple", "--preview", str(sheet)])
    with Image.open(sheet) as opened:
        page = np.asarray(opened.convert("RGB"))
    image = np.asarray(Image.open(tmp_path / "photo.png"))
    scale = min(1, 64 / max(height, width))
    high, wide = round(height * scale), round(width * scale)
    assert page.shape[0] == 20 + 2 * (17 + 3 + high)
    for row, name in enumerate(("snow", "ripple")):
        top = 37 + row * (20 + high)
        for column in range(6):
            done = corrupt(image[None], name, column, seed=0)[0] if column else image
            shown = Image.fromarray(done).resize((wide, high), Image.Resampling.BOX)
            left = 6 + column * (min(64, max(height, width)) + 3)
            np.testing.assert_array_equal(page[top : top + high, left : left + wide], np.asarray(shown))


def test_data_that_is_trained_on_stays_square(tmp_path: Path) -> None:
    """Only corrupted copies may have another shape: networks take square images."""
    landscapes(tmp_path / "data")
    with pytest.raises(InputError, match="is not square"):
        sources.load(f"folder:{tmp_path / 'data'}")
