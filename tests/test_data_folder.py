"""folder: layouts, every kind of picture people have, damaged files, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures import shared
from images import class_folders, picture
from PIL import Image

from anchored import data as sources
from anchored.data.images import fit
from anchored.system.errors import InputError


def load(root: Path, **options):
    return sources.load(f"folder:{root}", **options)


def expected(seeds, side=8):
    return torch.from_numpy(np.stack([picture(seed, side) for seed in seeds]))


@pytest.mark.parametrize(("names", "used"), [(("train", "test", "val"), "test"), (("Train", "valid"), "valid")])
def test_parts_are_read_as_given_and_test_goes_before_val(tmp_path, names, used):
    root = tmp_path / "pets"
    for seed, name in enumerate(names):
        class_folders(root / name, {"dog": 3, "cat": 2, "eel": 4}, seed=10_000 * seed)
    data = load(root)
    assert data.name == "folder:pets" and data.classes == ("cat", "dog", "eel")
    assert [note.partition(" is not used")[0] for note in data.notes] == list(names[2:])
    assert data.split == f"as given ({names[0]}, {used})"
    # class_folders counts dog 0, cat 1, eel 2; classes come out sorted
    seeds = [1000, 1001, 0, 1, 2, 2000, 2001, 2002, 2003]
    assert torch.equal(data.train.images, expected(seeds))
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert torch.equal(data.test.images, expected([10_000 * names.index(used) + seed for seed in seeds]))


def test_without_parts_a_stratified_split_is_made_and_said(tmp_path):
    root = class_folders(tmp_path / "pets", {"a": 20, "b": 10, "c": 2})
    data = load(root, seed=4)
    assert data.split == "stratified 80 / 20 of 32 images, seed 4"
    assert torch.bincount(data.test.labels).tolist() == [4, 2, 1]
    assert torch.bincount(data.train.labels).tolist() == [16, 8, 1]
    assert len(torch.cat([data.train.images, data.test.images]).unique(dim=0)) == 32
    assert torch.equal(data.test.images, load(root, seed=4).test.images)
    assert not torch.equal(data.test.images, load(root, seed=5).test.images)
    shutil.rmtree(root)
    class_folders(root / "train", {"a": 5, "b": 5})
    assert load(root).split.startswith("stratified")


def test_a_test_folder_without_classes_leaves_the_test_to_val(tmp_path):
    root = tmp_path / "x"
    class_folders(root / "train", {"a": 3, "b": 3})
    class_folders(root, {"test": 4})
    with pytest.raises(InputError, match="test has 4 images but no folders in it"):
        load(root)
    class_folders(root / "val", {"a": 1, "b": 1}, seed=100)
    data = load(root)
    assert data.split == "as given (train, val)" and torch.equal(data.test.images, expected([100, 1100]))


def test_labels_of_a_test_part_with_fewer_classes_are_those_of_train(tmp_path):
    class_folders(tmp_path / "train", {"a": 2, "b": 2, "c": 2})
    class_folders(tmp_path / "test", {"c": 2})
    data = load(tmp_path)
    assert data.test.labels.tolist() == [2, 2] and data.notes == ("no test images of class a, b",)


def test_a_class_may_be_called_train(tmp_path):
    root = class_folders(tmp_path / "vehicles", {"bus": 5, "car": 5, "train": 5})
    assert load(root).classes == ("bus", "car", "train")


def test_nested_hidden_linked_and_foreign_files(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 6, "b": 6, "b/deep/er": 4, ".hidden": 3, "__MACOSX": 1})
    (root / "a/.DS_Store").write_bytes(b"x")
    (root / "a/Thumbs.db").write_bytes(b"x")
    (root / "a/notes.txt").write_text("x")
    (root / "b/raw.heic").write_text("x")
    Image.fromarray(picture(1)).save(root / "loose.PNG")
    (root / "a/loop").symlink_to(root / "a", target_is_directory=True)
    (root / "c").symlink_to(class_folders(tmp_path / "elsewhere", {"c": 3}) / "c", target_is_directory=True)
    data = load(root)
    assert data.classes == ("a", "b", "c")
    counts = torch.bincount(torch.cat([data.train.labels, data.test.labels])).tolist()
    assert counts == [6, 10, 3]
    assert data.notes == (
        "images in no class folder, left out: 1 in x",
        "files that are no images, left out: 2 in x (.heic, .txt)",
    )


def kinds(tmp_path: Path) -> dict[str, tuple[Path, np.ndarray]]:
    """Every kind of picture: name -> (file, the uint8 RGB it stands for)."""
    rgb = picture(0, 6)
    grey = rgb[..., 0]
    out = {}

    def save(name: str, image: Image.Image, shown: np.ndarray, **options: object) -> None:
        image.save(tmp_path / name, **options)
        out[name] = (tmp_path / name, shown)

    save("rgb.png", Image.fromarray(rgb), rgb)
    for suffix in ("bmp", "ppm", "tif", "PNG"):
        save(f"rgb2.{suffix}", Image.fromarray(rgb), rgb)
    save("lossless.webp", Image.fromarray(rgb), rgb, lossless=True)
    flat = np.full((6, 6, 3), 77, np.uint8)
    for suffix in ("jpg", "jpeg"):
        save(f"flat.{suffix}", Image.fromarray(flat), flat)
    three = np.repeat(grey[..., None], 3, 2)
    save("grey.png", Image.fromarray(grey), three)
    save("bits.png", Image.fromarray(grey > 127), np.where(three > 127, 255, 0).astype(np.uint8))
    save("grey16.png", Image.fromarray(grey.astype(np.uint16) * 257), three)
    save("grey16.tif", Image.fromarray(grey.astype(np.uint16) * 257), three)
    few = (rgb // 128) * 255
    save("palette.png", Image.fromarray(few).quantize(8), few)
    save("palette.gif", Image.fromarray(few).quantize(8), few)
    alpha = np.zeros((6, 6, 1), np.uint8)
    alpha[:3] = 255
    white = np.where(alpha == 255, rgb, 255).astype(np.uint8)
    save("alpha.png", Image.fromarray(np.concatenate([rgb, alpha], 2)), white)
    save("grey_alpha.png", Image.fromarray(np.concatenate([three[..., :1], alpha], 2)), np.where(alpha, three, 255))
    key = few.copy()
    key[0, 0] = (255, 0, 0)
    shown = np.where((key == (255, 0, 0)).all(2, keepdims=True), 255, key).astype(np.uint8)
    save("key.png", Image.fromarray(key), shown, transparency=(255, 0, 0))
    indexed = Image.fromarray(key).quantize(8)
    save("palette_key.png", indexed, shown, transparency=indexed.getpixel((0, 0)))
    ink = np.zeros((6, 6, 4), np.uint8)
    ink[..., 0] = 255
    save(
        "cmyk.tif",
        Image.frombytes("CMYK", (6, 6), ink.tobytes()),
        np.broadcast_to(np.array([0, 255, 255], np.uint8), (6, 6, 3)),
    )
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    save("turned.png", Image.fromarray(rgb), np.rot90(rgb, -1), exif=exif)
    exif[0x0112] = 2
    save("mirrored.webp", Image.fromarray(rgb), rgb[:, ::-1], exif=exif, lossless=True)
    frames = [Image.fromarray(few).quantize(8), Image.fromarray(255 - few).quantize(8)]
    save("moving.gif", frames[0], few, save_all=True, append_images=frames[1:])
    return out


def test_every_kind_of_picture_comes_out_as_rgb(tmp_path):
    (tmp_path / "flat").mkdir()
    files = kinds(tmp_path / "flat")
    images = sources.load_anomalies(f"folder:{tmp_path / 'flat'}", like=sources.load("digits"), size=6)[1].images
    for (name, (_, shown)), image in zip(sorted(files.items()), images, strict=True):
        assert np.array_equal(image.numpy(), shown), name


def test_cmyk_and_progressive_jpeg_are_close(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 2, "b": 2}, side=16)
    colour = np.full((16, 16, 3), (200, 60, 30), np.uint8)
    Image.fromarray(colour).convert("CMYK").save(root / "a/c.jpg")
    Image.fromarray(colour).save(root / "a/p.jpg", progressive=True)
    images = sources.load_anomalies(f"folder:{root / 'a'}", like=sources.load("digits"), size=16)[1].images
    assert int((images[2:].int() - torch.from_numpy(colour)).abs().max()) <= 4


def test_fit_cuts_the_centre_of_the_resized_picture():
    image = np.zeros((40, 80, 3), np.uint8)
    image[:, 20:60] = 200  # the central square
    out = fit(Image.fromarray(image), 20)
    assert out.shape == (20, 20, 3) and out[:, 1:-1].min() >= 199
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, None, None] * 4, (64, 64, 3))
    whole, half = fit(Image.fromarray(ramp), 16), fit(Image.fromarray(ramp), 16, crop=0.5)
    assert whole[0, 0, 0] < 10 and whole[-1, 0, 0] > 240
    assert int(half[0, 0, 0]) == pytest.approx(64, abs=5) and int(half[-1, 0, 0]) == pytest.approx(188, abs=5)
    for interpolation in ("nearest", "bilinear", "bicubic", "lanczos"):
        for size, crop in ((7, 0.875), (33, 0.95), (224, 0.9)):
            assert fit(Image.fromarray(image), size, interpolation, crop).shape == (size, size, 3)
    assert np.array_equal(fit(Image.fromarray(image[:, :40]), 40, crop=0.5), image[:, :40])


def test_very_long_pictures_are_cut_before_they_are_enlarged(monkeypatch):
    widths = []
    resize = Image.Image.resize

    def watched(self, size, *arguments, **options):
        widths.append(max(size))
        return resize(self, size, *arguments, **options)

    monkeypatch.setattr(Image.Image, "resize", watched)
    strip = np.full((2, 30_000, 3), 90, np.uint8)
    strip[:, :14_000] = 0
    assert fit(Image.fromarray(strip), 224).tolist() == np.full((224, 224, 3), 90).tolist()
    assert fit(Image.fromarray(strip.transpose(1, 0, 2)), 224, crop=0.875).min() == 90
    assert max(widths) <= 256 * 16  # not 224 * 15,000: a gigabyte for one picture


def test_pictures_of_the_size_already_stay_whole_and_a_mixture_is_noted(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 5, "b": 5}, side=16)
    data = load(root, size=16, crop=0.875)
    assert len(torch.cat([data.train.images, data.test.images, expected(range(5), 16)]).unique(dim=0)) == 10
    assert data.notes == ()
    Image.fromarray(picture(5, 30, 20)).save(root / "a/0000.png")
    notes = load(root, size=16, crop=0.875).notes
    assert notes == ("images of 16x16 pixels already, taken whole: 8 of 9; the others are cut from the centre of 18",)
    with pytest.raises(InputError, match=r"20x30|30x20"):
        load(root)


def damage(root: Path) -> None:
    whole = (root / "a/001.png").read_bytes()
    (root / "a/001.png").write_bytes(whole[: len(whole) // 2])
    (root / "a/002.png").write_bytes(b"")
    (root / "b/000.jpg").write_text("<html>404</html>")
    Image.fromarray(np.zeros((8, 8), np.float32)).save(root / "b/float.tif")
    bomb = bytearray(whole)
    bomb[16:24] = (50_000).to_bytes(4, "big") * 2  # a header that promises 50,000 x 50,000 pixels
    (root / "b/bomb.png").write_bytes(bomb)


def test_unreadable_pictures_are_left_out_and_named(tmp_path):
    root = tmp_path / "x"
    class_folders(root / "train", {"a": 6, "b": 6})
    class_folders(root / "test", {"a": 2, "b": 2}, seed=50)
    damage(root / "train")
    data = load(root)
    assert torch.equal(data.train.images, expected([0, 3, 4, 5, 1000, 1001, 1002, 1003, 1004, 1005]))
    assert data.train.labels.tolist() == [0] * 4 + [1] * 6
    (note,) = data.notes
    assert note.startswith("unreadable images, left out: 5 of 15: train/a/001.png (")
    assert "train/a/002.png (no known image format), train/b/000.jpg (no known image format) and 2 more" in note
    assert str(tmp_path) not in note
    with pytest.raises(InputError, match=r"train/a/001\.png is not a readable image"):
        load(root, strict=True)


def test_pictures_that_pillow_gives_to_other_programs_are_left_out(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 5, "b": 5})
    Image.fromarray(picture(0)).save(root / "a/000.png", "EPS")
    (note,) = load(root).notes
    assert note == "unreadable images, left out: 1 of 8: a/000.png (no known image format)"


def test_a_class_left_without_readable_pictures_is_refused(tmp_path):
    root = tmp_path / "x"
    class_folders(root / "train", {"a": 2, "b": 2})
    class_folders(root / "test", {"a": 2, "b": 2})
    for file in (root / "train/b").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(InputError, match="there are none of class b"):
        load(root)
    for file in (root / "train/a").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(InputError, match="none of the 4 images is readable; train/a/000"):
        load(root)


def test_broken_metadata_does_not_cost_a_picture(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 2, "b": 2})
    Image.fromarray(np.full((8, 8, 3), 9, np.uint8)).save(
        root / "a/000.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12"
    )
    images = sources.load_anomalies(f"folder:{root / 'a'}", like=sources.load("digits"), size=8, strict=True)[1].images
    assert len(images) == 3


def refused(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    one = class_folders(tmp_path / "one", {"a": 3})
    wrapped = class_folders(tmp_path / "wrapped/inner", {"a": 3, "b": 3}).parent
    hollow = class_folders(tmp_path / "hollow", {"a": 3, "b": 3, "c": 0, "d": 0})
    (hollow / "c/x.heic").write_text("x")
    stranger = tmp_path / "stranger"
    class_folders(stranger / "train", {"a": 3, "b": 3})
    class_folders(stranger / "test", {"a": 3, "b": 3, "c": 1})
    single = class_folders(tmp_path / "single", {"a": 3, "b": 1})
    no_train = class_folders(tmp_path / "no_train/test", {"a": 3, "b": 3}).parent
    unsorted = class_folders(tmp_path / "unsorted", {"train": 3, "test": 3})
    flat = class_folders(tmp_path, {"flat": 3}) / "flat"
    return {
        "missing": (tmp_path / "nowhere", "there is no such folder"),
        "file": (tmp_path / "file", "that is a file"),
        "empty": (tmp_path / "empty", "empty has neither folders nor images in it"),
        "flat": (flat, "flat has 3 images but no folders in it"),
        "one": (one, "at least 2 classes, one folder each; there is only a"),
        "wrapped": (wrapped, "Did you mean folder:.*wrapped/inner, which has 2 folders"),
        "hollow": (hollow, r"every class folder holds images .*; none in c \(it has \.heic\), d"),
        "stranger": (stranger, "every class of test is a class of train too; these are not: c"),
        "single": (single, "at least 2 images of every class; class 'b' has 1"),
        "no_train": (no_train, "there is test but no train"),
        "unsorted": (unsorted, "one folder a class; train has no folder in it"),
    }


@pytest.mark.parametrize(
    "case",
    ["missing", "file", "empty", "flat", "one", "wrapped", "hollow", "stranger", "single", "no_train", "unsorted"],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path, case):
    root, message = refused(tmp_path)[case]
    with pytest.raises(InputError, match=message):
        load(root)


def test_memory_is_checked_before_decoding(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 5, "b": 5})
    for file in root.glob("*/*"):
        file.write_bytes(b"never decoded")
    with pytest.raises(InputError, match="10 images of 1000x1000 pixels take 30 MB, more than 20 MB"):
        load(root, size=1000, memory_limit=20_000_000)


def test_names_that_are_not_utf8_can_still_be_written(tmp_path):
    root = class_folders(tmp_path / "x", {"a": 3, "b": 3})
    try:
        os.rename(root / "a", os.path.join(os.fsencode(root), b"caf\xe9"))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    data = load(root)
    assert data.classes == ("b", "caf?") and len(data.train) == 4


def test_anomalies_are_the_test_part_or_everything(tmp_path):
    like = sources.load("digits")
    root = tmp_path / "x"
    class_folders(root / "train", {"a": 3, "b": 3})
    class_folders(root / "test", {"b": 2, "z": 1}, seed=100)
    name, images = sources.load_anomalies(f"folder:{root}", like=like, size=8)
    assert name == "x" and torch.equal(images.images, expected([100, 101, 1100]))
    assert len(sources.load_anomalies(f"folder:{root / 'train'}", like=like, size=8)[1]) == 6
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="there are no images in it"):
        sources.load_anomalies(f"folder:{tmp_path / 'none'}", like=like, size=8)


def test_real_photographs_of_several_kinds_load_at_another_size(tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(shared("ANCHORED_DATA", "data") / "pacs_64" / "photo.parquet").slice(0, 900).to_pylist()
    for number, row in enumerate(table[::20]):
        folder = tmp_path / f"class{row['label']}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(row["image"]["bytes"])
    data = load(tmp_path, size=48, crop=0.875, interpolation="bicubic")
    assert len(data.train) + len(data.test) == 45 and data.notes == () and data.train.images.shape[1:] == (48, 48, 3)
    assert 60 < float(data.train.images.double().mean()) < 200
