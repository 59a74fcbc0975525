"""`anchored corrupt`: both layouts against `corrupt` itself, resuming after kill -9, errors, a full disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders, encoded, picture, write_parquet
from PIL import Image

from anchored import data as sources
from anchored.cli import main
from anchored.corruptions import corrupt, suite, units
from anchored.corruptions.generate import Request, generate
from anchored.corruptions.units import Unit, encode_image, parse_severities, peer_seed
from anchored.data.images import fit
from anchored.system.errors import InputError


def tree(out: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file()
    }


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of bad input: one line, status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["corrupt", *arguments])
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and "Traceback" not in errors and len(errors.strip().splitlines()) == 1
    return errors


def test_arrays_hold_what_corrupt_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(
        [
            "corrupt",
            "digits",
            "--suite",
            "fog",
            "c-bar",
            "--severities",
            "2",
            "4-5",
            "--seed",
            "7",
            "--limit",
            "80",
            "--out",
            str(out),
        ]
    )
    assert capsys.readouterr().out.strip() == str(out / "manifest.json")
    manifest = json.loads((out / "manifest.json").read_text())
    index = np.array(manifest["images"]["positions"])
    test = sources.load("digits").test.subset(torch.from_numpy(index))
    names = ("fog", *suite("c-bar", table="cifar"))
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*(f"{n}.npy" for n in names), "labels.npy", "manifest.json"]
    )
    for name in names:
        whole = np.load(out / f"{name}.npy")
        assert whole.dtype == np.uint8 and whole.shape == (3 * len(test), 32, 32, 3)
        for block, severity in zip(np.split(whole, 3), (2, 4, 5), strict=True):
            np.testing.assert_array_equal(block, corrupt(test.images.numpy(), name, severity, seed=7, index=index))
    labels = np.load(out / "labels.npy")
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, np.tile(test.labels.numpy(), 3))
    for name, about in manifest["files"].items():
        content = (out / name).read_bytes()
        assert about == {"md5": hashlib.md5(content).hexdigest(), "bytes": len(content)}
    assert manifest["settings"]["seed"] == 7 and manifest["table"] == {"name": "cifar", "lengths_times": 1.0}
    assert manifest["images"]["count"] == len(test) and manifest["versions"]["pillow"]


def test_processes_and_modes_change_nothing_but_what_they_say(tmp_path: Path) -> None:
    wide = {"data": "digits", "suite": ("gaussian_noise", "zoom_blur"), "severities": (3,), "limit": 100}
    one = generate(Request(**wide), tmp_path / "one", workers=1)  # type: ignore[arg-type]
    two = generate(Request(**wide), tmp_path / "two", workers=2)  # type: ignore[arg-type]
    assert tree(one.parent) == tree(two.parent)
    fast = generate(Request(**wide, exact=False), tmp_path / "fast", workers=1)  # type: ignore[arg-type]
    exact, quick = (np.load(path.parent / "zoom_blur.npy").astype(int) for path in (one, fast))
    assert 0 < np.abs(exact - quick).max() <= 1
    # An image of a limited set is the one of the full set: its position counts, not its row.
    positions = np.array(json.loads(one.read_text())["images"]["positions"])
    test = sources.load("digits").test
    np.testing.assert_array_equal(
        np.load(tmp_path / "one" / "gaussian_noise.npy"),
        corrupt(test.images.numpy()[positions], "gaussian_noise", 3, seed=0, index=positions),
    )
    assert np.bincount(test.labels[positions], minlength=10).min() >= 9  # stratified


def test_folder_layout_keeps_names_and_holds_what_corrupt_gives(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "data" / "test", {"cat": 5, "dog": 4}, side=20)
    class_folders(tmp_path / "data" / "train", {"cat": 2, "dog": 2}, side=20)
    Image.fromarray(picture(77, 20)).save(root / "cat" / "deep.jpg", quality=95)
    (root / "dog" / "more").mkdir()
    Image.fromarray(picture(78, 20)).save(root / "dog" / "more" / "inner.png")
    spec = f"folder:{tmp_path / 'data'}"
    main(["corrupt", spec, "--suite", "contrast", "shot_noise", "--severities", "1", "--out", str(tmp_path / "jpeg")])
    main(["corrupt", spec, "--suite", "contrast", "--codec", "png", "--out", str(tmp_path / "png"), "--workers", "2"])
    test = sources.load(spec).test
    done = corrupt(test.images.numpy(), "shot_noise", 1, seed=0)
    relative = [*(f"cat/{i:03}" for i in range(5)), "cat/deep", *(f"dog/{i:03}" for i in range(4)), "dog/more/inner"]
    for image, name in zip(done, relative, strict=True):
        path = tmp_path / "jpeg" / "shot_noise" / "1" / (name + (".jpg" if name == "cat/deep" else ".JPEG"))
        assert path.read_bytes() == encode_image(image, "jpeg")
        with Image.open(path) as opened:
            assert opened.format == "JPEG" and opened.size == (20, 20)
            ours = opened.quantization
    quality = tmp_path / "85.jpg"
    Image.fromarray(done[0]).save(quality, quality=85)
    with Image.open(quality) as opened:
        assert opened.quantization == ours
    for severity in range(1, 6):
        for image, name in zip(corrupt(test.images.numpy(), "contrast", severity, seed=0), relative, strict=True):
            with Image.open(tmp_path / "png" / "contrast" / str(severity) / f"{name}.png") as opened:
                np.testing.assert_array_equal(np.asarray(opened), image)
    listed = dict(line.split("  ")[::-1] for line in (tmp_path / "jpeg" / "checksums.md5").read_text().splitlines())
    assert len(listed) == 22
    for path, digest in listed.items():
        assert hashlib.md5((tmp_path / "jpeg" / path).read_bytes()).hexdigest() == digest
    assert not (tmp_path / "jpeg" / ".anchored").exists()


def test_parquet_and_npz_are_streamed_to_the_same_images(tmp_path: Path) -> None:
    """Sources that are not loaded as a whole give the images of `load`, whichever layout their arrays have."""
    pixels = np.stack([picture(i, 12) for i in range(12)])
    labels = np.arange(12) % 2
    write_parquet(tmp_path / "p" / "train.parquet", [encoded(image) for image in pixels[:6]], labels[:6].tolist())
    write_parquet(tmp_path / "p" / "test.parquet", [encoded(image) for image in pixels[6:]], labels[6:].tolist())
    half = {"x_train": pixels[:6], "y_train": labels[:6]}
    np.savez(tmp_path / "rows.npz", **half, x_test=pixels[6:], y_test=labels[6:])
    np.savez_compressed(tmp_path / "planes.npz", **half, x_test=pixels[6:].transpose(0, 3, 1, 2), y_test=labels[6:])
    np.savez(tmp_path / "fortran.npz", **half, x_test=np.asfortranarray(pixels[6:]), y_test=labels[6:])
    for spec in ("parquet:p", "npz:rows.npz", "npz:planes.npz", "npz:fortran.npz"):
        kind, name = spec.split(":")
        spec, out = f"{kind}:{tmp_path / name}", tmp_path / f"out-{name}"
        generate(Request(spec, suite=("contrast",), severities=(3,)), out)
        np.testing.assert_array_equal(np.load(out / "contrast.npy"), corrupt(pixels[6:], "contrast", 3, seed=0))
        np.testing.assert_array_equal(np.load(out / "labels.npy"), labels[6:])
    grey = tmp_path / "grey.npz"
    np.savez(grey, x_train=pixels[..., 0], y_train=labels)
    parts = {"train": 10, "test": 2}
    for part, count in parts.items():
        generate(Request(f"npz:{grey}", suite=("contrast",), severities=(3,), part=part), tmp_path / part)
        images = getattr(sources.load(f"npz:{grey}"), part).images.numpy()
        assert len(images) == count
        np.testing.assert_array_equal(np.load(tmp_path / part / "contrast.npy"), corrupt(images, "contrast", 3, seed=0))


def test_peer_random_numbers_are_those_of_seeded_official_codes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    generate(Request("digits", suite=("gaussian_noise",), severities=(2,), limit=20, seed=5, peer_rng=True), out)
    positions = json.loads((out / "manifest.json").read_text())["images"]["positions"]
    image = sources.load("digits").test.images[positions[3]].numpy()
    np.random.seed(peer_seed(5, 2, positions[3]))  # noqa: NPY002
    x = image / 255.0
    official = np.clip(x + np.random.normal(size=x.shape, scale=0.06), 0, 1) * 255  # noqa: NPY002
    np.testing.assert_array_equal(np.load(out / "gaussian_noise.npy")[3], np.uint8(official))


def test_finished_folders_are_left_alone_and_other_work_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["digits", "--suite", "contrast", "--severities", "1", "--out", str(out)]
    main(["corrupt", *arguments])
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    main(["corrupt", *arguments])
    assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}
    capsys.readouterr()
    assert "seed: 0 there, 3 here" in fails([*arguments, "--seed", "3"], capsys)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("mine")
    assert "is not empty" in fails([*arguments[:-1], str(stranger)], capsys)
    assert [path.name for path in stranger.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--severities", "0"], "severities are 1 to 5; got 0"),
        (["--severities", "2-6"], "severities are 1 to 5; got 2-6"),
        (["--severities", "high"], "severities are 1 to 5, written like 1-5"),
        (["--suite", "fogg"], "Did you mean 'fog'"),
        (["--table", "imagnet"], "Did you mean 'imagenet'"),
        (["--split", "tset"], "Did you mean 'test'"),
        (["--layout", "array"], "Did you mean 'arrays'"),
        (["--codec", "png"], "Add --layout folder"),
        (["--layout", "folder", "--codec", "gif"], "unknown codec 'gif'"),
        (["--image-size", "1"], "at least 8 px"),
        (["--limit", "0"], "limit is at least 1"),
        (["--workers", "0"], "workers is at least 1"),
        (["--crop", "2"], "crop is"),
        (["--frost-dir", "/nowhere"], "frost_dir must hold frost1.png"),
        (["--preview", "sheet.gif"], "--preview is a PNG file"),
    ],
)
def test_bad_flags_end_with_one_message_and_nothing_written(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert message in fails(["digits", "--out", str(out), *flags], capsys)
    assert not out.exists()


def test_bad_data_ends_with_one_message_and_nothing_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    pixels, labels = np.stack([picture(i, 12) for i in range(8)]), np.arange(8) % 2
    bad = {
        "float": ({"x": pixels / 255.0, "y": labels}, "images are uint8 from 0 to 255; got float64"),
        "wide": ({"x": pixels.astype(np.uint16), "y": labels}, "got uint16"),
        "empty": ({"x": pixels[:0], "y": labels[:0]}, "has no images"),
        "one": ({"x": pixels[:, :1, :1, 0], "y": labels}, "at least 8 px, not 1 x 1"),
        "low": ({"x": pixels[:, :7], "y": labels}, "at least 8 px, not 7 x 12"),
        "flat": ({"x": pixels[0, 0], "y": labels}, "[N, H, W]"),
    }
    for name, (arrays, message) in bad.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, x_train=arrays["x"], y_train=arrays["y"], x_test=arrays["x"], y_test=arrays["y"])
        assert message in fails([f"npz:{path}", "--out", str(out)], capsys)
        assert not out.exists()
    (tmp_path / "nothing").mkdir()
    assert "neither folders nor images" in fails([f"folder:{tmp_path / 'nothing'}", "--out", str(out)], capsys)
    assert "Did you mean 'digits'" in fails(["digit", "--out", str(out)], capsys)
    mixed = class_folders(tmp_path / "mixed", {"cat": 8, "dog": 8}, side=12)
    Image.fromarray(picture(1, 16)).save(mixed / "cat" / "large.png")
    assert "pass --image-size" in fails([f"folder:{mixed}", "--split", "train", "--out", str(out)], capsys)
    assert "say where to write" in fails(["digits"], capsys)
    assert not out.exists()


def test_unwritable_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to --out" in fails(["digits", "--out", str(tmp_path / "file" / "out")], capsys)
    assert "cannot write --preview" in fails(["digits", "--preview", str(tmp_path / "file" / "a.png")], capsys)


@pytest.mark.parametrize("layout", ["arrays", "folder"])
def test_a_full_disk_leaves_nothing_half_written(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the second corruption, then has room again."""
    out = tmp_path / "out"
    arguments = ["digits", "--suite", "contrast", "fog", "--severities", "1-2", "--limit", "30", "--layout", layout]
    arguments += ["--out", str(out)]
    whole = {"_write_at": units._write_at, "_write_file": units._write_file}

    def full(name: str) -> object:
        def write(*given: object) -> object:
            path = next(value for value in given[::-1] if isinstance(value, Path))
            if "fog" in str(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return whole[name](*given)  # type: ignore[operator]

        return write

    for name in whole:
        monkeypatch.setattr(units, name, full(name))
    assert "No space left on device" in fails(arguments, capsys)
    there = sorted(path.relative_to(out).parts[0] for path in tree(out) for path in [out / path])
    assert set(there) == {".anchored", "contrast.npy" if layout == "arrays" else "contrast"}
    assert not list((out / ".anchored").glob("*.npy")) or layout == "folder"
    assert not list(out.rglob("*.tmp")) and not list(out.rglob("fog.npy"))
    monkeypatch.undo()
    main(["corrupt", *arguments])
    main(["corrupt", *arguments[:-1], str(tmp_path / "undisturbed")])
    assert tree(out) == tree(tmp_path / "undisturbed")


def test_a_disk_too_small_is_noticed_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    message = fails(["digits", "--out", str(tmp_path / "out")], capsys)
    assert "19 arrays of 0.00691 GB need 0.131 GB more, but only 0.001 GB are free" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layout", ["arrays", "folder"])
def test_kill_9_resumes_to_the_same_bytes(layout: str, tmp_path: Path) -> None:
    request = Request("digits", suite=("gaussian_noise", "spatter", "elastic_transform"), layout=layout, image_size=48)
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "anchored", "corrupt", "digits", "--suite", *request.suite, "--layout", layout]
    command += ["--image-size", "48", "--workers", "2", "--out", str(out)]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    first = out / "gaussian_noise.npy" if layout == "arrays" else out / "gaussian_noise" / "2"
    deadline = time.monotonic() + 300  # a busy machine may take a minute to import torch
    while not first.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the command ended before it could be killed"
    assert (out / ".anchored").exists() and not (out / "manifest.json").exists()
    kept = first.stat().st_mtime_ns if layout == "arrays" else None
    generate(request, out, workers=2)
    generate(request, tmp_path / "whole", workers=1)
    assert tree(out) == tree(tmp_path / "whole")
    if kept is not None:
        assert first.stat().st_mtime_ns == kept, "what was finished is not made again"


def test_units_noted_as_done_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted within a file: the rest is made; whole lines of the notes count, a torn one does not."""
    request = Request("digits", suite=("contrast",), severities=(1, 2))
    monkeypatch.setattr(units, "_UNIT_BYTES", 100 * 32 * 32 * 3)
    generate(request, tmp_path / "whole", workers=1)
    out, made = tmp_path / "out", []
    original = units.make_unit

    def make_unit(plan: units.Plan, unit: Unit) -> list[str]:
        made.append(unit)
        if len(made) == 5:
            raise KeyboardInterrupt
        return original(plan, unit)

    monkeypatch.setattr("anchored.corruptions.pool.make_unit", make_unit)
    with pytest.raises(KeyboardInterrupt):
        generate(request, out, workers=1)
    with open(out / ".anchored" / "contrast.done", "a") as file:
        file.write("\n2 40")
    before = made.copy()
    generate(request, out, workers=1)
    assert made[5:] and not set(made[5:]) & set(before[:4])
    assert tree(out) == tree(tmp_path / "whole")


def test_unreadable_images_are_left_out_and_named(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "data", {"cat": 10, "dog": 10}, side=12)
    listing = sources.listing(f"folder:{root}")
    broken = next(iter(listing.pictures(np.array([1]))))
    assert isinstance(broken, Path)
    broken.write_bytes(b"no picture")
    path = generate(Request(f"folder:{root}", suite=("contrast",), severities=(1,)), tmp_path / "out")
    manifest = json.loads(path.read_text())
    assert manifest["images"]["count"] == 3 and manifest["images"]["positions"] == [0, 2, 3]
    assert broken.name in manifest["images"]["notes"][0]


def test_the_contact_sheet_shows_every_corruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "sheet.png"
    main(["corrupt", "digits", "--preview", str(sheet), "--severities", "5"])
    assert capsys.readouterr().out.strip() == str(sheet)
    Image.fromarray(picture(3, 40, 50)).save(tmp_path / "photo.png")
    main(["corrupt", str(tmp_path / "photo.png"), "--image-size", "36", "--suite", "contrast", "--preview", str(sheet)])
    with Image.open(sheet) as opened:
        page = np.asarray(opened.convert("RGB"))
    with Image.open(tmp_path / "photo.png") as opened:
        image = fit(opened, 36)
    row = [image, *(corrupt(image[None], "contrast", s, seed=0)[0] for s in range(1, 6))]
    assert page.shape[0] == 20 + 17 + 3 + 36
    for column, shown in enumerate(row):
        left = 6 + column * 39
        np.testing.assert_array_equal(page[37:73, left : left + 36], shown)


def test_severities_as_people_write_them() -> None:
    assert parse_severities(["1-5"]) == (1, 2, 3, 4, 5) == parse_severities([5, 4, 3, 2, 1])
    assert parse_severities(["1,3", "5"]) == (1, 3, 5) and parse_severities(["2-3", "3"]) == (2, 3)
    for bad in (["-1"], ["3-2"], [""], ["1.5"], []):
        with pytest.raises(InputError, match="severities are 1 to 5"):
            parse_severities(bad)
