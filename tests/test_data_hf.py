"""hf: data sets saved by Hugging Face `datasets`, the Hub without a network, and what is refused."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
import torch
from images import encoded, picture
from PIL import Image

from anchored import data as sources
from anchored.data import hf
from anchored.data.listings import whole_listing
from anchored.system.errors import InputError

NAMES = ("cat", "dog", "eel")


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("datasets", reason="the package datasets is not installed: anchored[datasets]")


@pytest.fixture
def build(library):
    """A function of the seeds of pictures, and columns besides, that makes a split; labels: the seed modulo 3."""

    def make(seeds, *, names=NAMES, side=8, columns=("image", "label"), **more):
        kinds = {columns[0]: library.Image(), columns[1]: library.ClassLabel(names=list(names))}
        values = {
            columns[0]: [{"bytes": encoded(picture(seed, side)), "path": f"{seed}.png"} for seed in seeds],
            columns[1]: [seed % 3 for seed in seeds],
        }
        for name, (kind, column) in more.items():
            kinds[name], values[name] = kind, column
        return library.Dataset.from_dict(values, features=library.Features(kinds))

    return make


@pytest.fixture
def save(library, tmp_path):
    """Writes splits to a folder and gives its spec."""

    def write(name="pets", /, **splits):
        library.DatasetDict(splits).save_to_disk(tmp_path / name)
        return f"hf:{tmp_path / name}"

    return write


def expected(seeds, side=8):
    return torch.from_numpy(np.stack([picture(seed, side) for seed in seeds]))


def test_saved_splits_are_read_in_order(build, save):
    spec = save(train=build(range(200)), test=build(range(300, 309)), validation=build(range(400, 403)))
    data = sources.load(spec)
    assert data.name == "hf:pets" and data.classes == NAMES and data.flip
    assert len(data.notes) == 1 and data.notes[0].startswith("validation is not used")
    assert torch.equal(data.train.images, expected(range(200)))  # more than a batch of rows
    assert data.train.labels.tolist() == [seed % 3 for seed in range(200)]
    assert torch.equal(data.test.images, expected(range(300, 309))) and data.split == "as given (train, test)"
    listing = sources.listing(spec, part="test")
    (png,) = listing.pictures(np.array([4]))
    assert png == encoded(picture(304)) and listing.called(4) == "test row 4"  # stored bytes, not decoded
    assert listing.labels.tolist() == [seed % 3 for seed in range(300, 309)]
    shift = whole_listing(spec)
    assert shift.name == "pets" and shift.classes == NAMES and shift.split == "all 9 rows of test"
    assert list(shift.pictures(np.array([4]))) == [png] and torch.equal(shift.labels, listing.labels)


def test_rows_chosen_and_shuffled_before_saving_keep_their_labels(build, save):
    shuffled = build(range(60)).shuffle(seed=1).select(range(40))
    data = sources.load(save(train=shuffled, test=build(range(3))))
    for image, label in zip(data.train.images, data.train.labels.tolist(), strict=True):
        assert next(seed for seed in range(60) if np.array_equal(picture(seed), image.numpy())) % 3 == label


def test_without_a_test_split_a_part_of_every_class_is_split_off(build, library, tmp_path):
    build(range(60)).save_to_disk(tmp_path / "one")
    data = sources.load(f"hf:{tmp_path / 'one'}", seed=5)
    assert data.split == "stratified 80 / 20 of all (60 images), seed 5"
    assert torch.bincount(data.test.labels).tolist() == [4, 4, 4] and len(data.train) == 48
    assert len(torch.cat([data.train.images, data.test.images]).unique(dim=0)) == 60
    for part in (data.train, data.test):
        for image, label in zip(part.images, part.labels.tolist(), strict=True):
            assert next(seed for seed in range(60) if np.array_equal(picture(seed), image.numpy())) % 3 == label
    library.DatasetDict(train=build(range(60))).save_to_disk(tmp_path / "two")
    again = sources.load(f"hf:{tmp_path / 'two'}", seed=5)
    assert torch.equal(again.test.images, data.test.images) and "of train (60 images)" in again.split
    assert not torch.equal(sources.load(f"hf:{tmp_path / 'two'}", seed=6).test.images, data.test.images)


@pytest.mark.parametrize("missing", [-1, None])
def test_validation_stands_in_for_a_test_split_without_labels(build, save, missing):
    train, validation, test = build(range(30)), build(range(40, 46)), build(range(50, 53))
    kinds, hidden = test.features, [missing] * 3
    test = test.remove_columns("label").add_column("label", hidden, feature=kinds["label"])
    data = sources.load(save(train=train, validation=validation, test=test))
    assert torch.equal(data.test.images, expected(range(40, 46)))
    assert data.split == "as given (train, validation); test has no labels"
    with pytest.raises(InputError, match=r"there are none in test\. To have a part of train split off"):
        sources.load(save("x", train=train, test=test))
    data = sources.load(save("y", train=train, validation=validation, test=test.remove_columns("label")))
    assert torch.equal(data.test.images, expected(range(40, 46)))


def test_columns_are_found_by_type_and_of_several_by_name(build, save, library):
    one = build(range(12), columns=("photo", "species"), size=(library.Value("int64"), range(12)))
    data = sources.load(save("a", train=one, test=one))
    assert data.notes == () and data.train.labels.tolist() == [seed % 3 for seed in range(12)]
    coarse = (library.ClassLabel(names=["land", "sea"]), [seed % 3 // 2 for seed in range(12)])
    masks = (library.Image(), [{"bytes": encoded(picture(100 + seed))} for seed in range(12)])
    two = build(range(12), columns=("img", "fine_label"), coarse_label=coarse, mask=masks)
    data = sources.load(save("b", train=two, test=two))
    assert data.classes == NAMES and torch.equal(data.test.images, expected(range(12)))
    assert data.notes == ("labels are column 'fine_label'; coarse_label would do too",)
    numbered = two.remove_columns(["fine_label", "coarse_label"]).add_column("kind", [seed % 2 for seed in range(12)])
    data = sources.load(save("c", train=numbered, test=numbered))
    assert data.classes == ("0", "1") and data.notes == ("labels are column 'kind', the only one of integers",)
    named = numbered.add_column("label", [seed % 3 for seed in range(12)])
    data = sources.load(save("d", train=named, test=named))
    assert data.classes == ("0", "1", "2") and data.notes == ()


def test_pictures_of_every_kind_are_decoded_as_in_class_folders(library, save, tmp_path):
    grey, alpha = picture(1)[..., 0], np.dstack([picture(2), picture(3)[..., :1]])
    turned = Image.fromarray(picture(4))
    exif = turned.getexif()
    exif[0x0112] = 6
    made = {
        "grey.png": Image.fromarray(grey),
        "alpha.png": Image.fromarray(alpha),
        "palette.png": Image.fromarray(picture(5)).quantize(),
        "cmyk.jpg": Image.fromarray(picture(6)).convert("CMYK"),
        "turned.png": turned,
        "deep.png": Image.fromarray(grey.astype(np.uint16) * 257),
    }
    paths = []
    for label, part in [(a, b) for a in "ab" for b in ("train", "test")]:
        for name, image in made.items():
            path = tmp_path / "folders" / part / label / name
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, **({"exif": exif} if name == "turned.png" else {}))
            paths.append(path)
    kinds = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["a", "b"])})
    splits = {}
    for part in ("train", "test"):
        files = sorted(path for path in paths if path.parts[-3] == part)
        rows = {"image": [str(file) for file in files], "label": [file.parts[-2] for file in files]}
        splits[part] = library.Dataset.from_dict(rows, features=kinds)  # of paths, which saving turns into bytes
    of_folders = sources.load(f"folder:{tmp_path / 'folders'}")
    data = sources.load(save("kinds", **splits))
    assert torch.equal(data.train.images, of_folders.train.images) and data.classes == of_folders.classes
    assert torch.equal(data.train.labels, of_folders.train.labels)


def test_pictures_left_in_their_files_are_read_from_there(library, tmp_path):
    names = [str(tmp_path / f"{seed}.png") for seed in range(4)]
    for seed in range(3):
        Image.fromarray(picture(seed)).save(names[seed])
    dataset = library.Dataset.from_dict({"image": names}, features=library.Features({"image": library.Image()}))
    *read, missing = hf._pictures(dataset, "image", np.arange(4), "hf:x")
    assert [file.name for file in (*read, missing)] == ["0.png", "1.png", "2.png", "3.png"]


def test_unreadable_pictures_are_left_out_and_named_or_refused(build, save, library):
    bad = build(range(30)).cast_column("image", library.Image(decode=False))
    swaps = {
        4: None,
        11: {"bytes": b"not a picture", "path": None},
        20: {"bytes": encoded(picture(20))[:60], "path": None},
    }
    cells = [swaps.get(row, cell) for row, cell in enumerate(bad["image"])]
    kind = library.Image()
    bad = bad.remove_columns("image").add_column("image", cells, feature=kind)
    spec = save(train=bad, test=build(range(6)))
    data = sources.load(spec)
    good = [row for row in range(30) if row not in swaps]
    assert torch.equal(data.train.images, expected(good)) and data.train.labels.tolist() == [row % 3 for row in good]
    (note,) = data.notes
    assert "3 of 30: train row 4 (it has no bytes), train row 11 (no known image format), train row 20" in note
    with pytest.raises(InputError, match="train row 4 is not a readable image"):
        sources.load(spec, strict=True)


def test_memory_is_checked_before_decoding_and_sizes_are_fitted(build, save):
    spec = save(train=build(range(12), side=12), test=build(range(6), side=10))
    with pytest.raises(InputError, match="18 images of 100x100 pixels take 540 KB, more than 500 KB"):
        sources.load(spec, size=100, memory_limit=500_000)
    with pytest.raises(InputError, match="train has images of 12x12 and test of 10x10 pixels; pass --image-size"):
        sources.load(spec)
    assert torch.equal(sources.load(spec, size=10).test.images, expected(range(6), 10))


def test_wrong_columns_labels_and_splits_are_refused(build, save, library):
    good = build(range(12))
    text = good.remove_columns("label").add_column("label", list("abcabcabcabc"))
    masks = (library.Image(), [{"bytes": encoded(picture(seed))} for seed in range(12)])
    kinds = (library.ClassLabel(names=["x", "y"]), [0, 1] * 6)
    partly = good.remove_columns("label").add_column(
        "label", [0, 1, None] * 4, feature=library.ClassLabel(names=list(NAMES))
    )
    negative = good.remove_columns("label").add_column("label", [0, 1, -1] * 4)
    cases = [
        (
            {"train": text.rename_column("label", "kind")},
            r"labels are the column of type ClassLabel, or else of integers, or one named .* kind \(string\)",
        ),
        ({"train": good.remove_columns("image")}, r"column of type Image; the columns are label \(ClassLabel\)\. cast"),
        (
            {"train": build(range(12), columns=("a", "label"), b=masks)},
            r"a \(Image\), label \(ClassLabel\), b \(Image\)",
        ),
        ({"train": build(range(12), columns=("image", "a"), b=kinds)}, r"Of several one is named label or labels or"),
        ({"train": partly}, "train: every image has a label; 4 labels are missing, in rows 2, 5, 8 and 1 more"),
        ({"train": negative}, "labels are 0 or more; train has -1"),
        ({"train": good, "test": negative}, "test has -1"),
        ({"train": good, "test": text}, "train has integers like 0 and test has text like a"),
        ({"train": good, "test": build(range(6), names=("cat", "dog", "fox"))}, "class 2 is 'eel' and 'fox'"),
        ({"train": good, "test": good.select([])}, "or has a split without rows"),
        ({"fold_1": good, "fold_2": good}, "one split is named train or training; the splits are fold_1, fold_2"),
        ({"train": good.select(range(3))}, "at least 2 images of every class; class 'cat' has 1"),
    ]
    for number, (splits, message) in enumerate(cases):
        with pytest.raises(InputError, match=message):
            sources.load(save(f"case{number}", **splits))


def test_folders_that_were_not_saved_or_not_completely_are_refused(build, save, tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(InputError, match=r"no folder written by save_to_disk .* with parquet:.*plain"):
        sources.load(f"hf:{tmp_path / 'plain'}")
    with pytest.raises(InputError, match=r"there is no folder .*gone; an id on the Hub is NAME or OWNER/NAME"):
        sources.load(f"hf:{tmp_path / 'gone'}")
    spec = save(train=build(range(30)))
    (arrow,) = (tmp_path / "pets/train").glob("*.arrow")
    whole = arrow.read_bytes()
    arrow.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is damaged, not completely copied, or"):
        sources.load(spec)
    arrow.unlink()
    with pytest.raises(InputError, match="is damaged, not completely copied, or"):
        sources.load(spec)
    with pytest.raises(InputError, match=f"Did you mean hf:{tmp_path / 'pets'}"):
        sources.load(str(tmp_path / "pets"))


def test_anomalies_need_no_labels(build, save):
    like = sources.load("digits")
    test = build(range(50, 55)).remove_columns("label")
    name, images = sources.load_anomalies(save("odd", train=build(range(9)), test=test), like=like, size=8)
    assert name == "odd" and torch.equal(images.images, expected(range(50, 55))) and set(images.labels.tolist()) == {-1}
    assert len(sources.load_anomalies(save("all", train=test), like=like, size=8)[1]) == 5
    with pytest.raises(InputError, match="the splits are a, b"):
        sources.load_anomalies(save("none", a=test, b=test), like=like, size=8)


def test_the_hub_is_asked_for_the_id_and_its_configuration(build, library, monkeypatch):
    asked = []

    def answer(*arguments):
        asked.append(arguments)
        return library.DatasetDict(train=build(range(12)), test=build(range(6)))

    monkeypatch.setattr(library, "load_dataset", answer)
    monkeypatch.setattr(hf, "_unreachable", lambda _: "")
    assert sources.load("hf:owner/pets").name == "hf:owner/pets"
    assert sources.load("hf:pets@small").name == "hf:pets@small"
    assert asked == [("owner/pets", None), ("pets", "small")]

    def fail(*_):
        raise ValueError("Config name is missing.\nPlease pick one of: ['a', 'b']\nExample of usage:\n\t`load(...)`")

    monkeypatch.setattr(library, "load_dataset", fail)
    with pytest.raises(InputError, match=r"pick one of: \['a', 'b'\]\. A configuration is chosen with hf:ID@CONFIG\.$"):
        sources.load("hf:owner/pets")


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_without_a_network_the_error_comes_at_once_and_says_where_a_copy_can_be_put(
    library, monkeypatch, tmp_path, how
):
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", how == "offline")
    monkeypatch.setattr(library.config, "HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    reason = "HF_HUB_OFFLINE is set" if how == "offline" else "[Cc]onnect"
    start = time.monotonic()
    with pytest.raises(
        InputError, match=rf"Hub cannot be reached \(.*{reason}.*save_to_disk\(FOLDER\).*hf:FOLDER"
    ) as raised:
        sources.load("hf:owner/tiny")
    assert str(tmp_path / "cache") in str(raised.value) and "HF_DATASETS_OFFLINE=1" in str(raised.value)
    assert time.monotonic() - start < 10 and (how == "offline") == library.config.HF_HUB_OFFLINE


def test_without_a_network_a_copy_in_the_cache_is_used(build, library, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    build(range(12)).to_parquet(tmp_path / "tiny.parquet")
    library.load_dataset("parquet", data_files={"train": str(tmp_path / "tiny.parquet")}, cache_dir=str(cache))
    (made,) = (cache / "parquet").glob("*/*/*/dataset_info.json")  # as what comes from the Hub lies there, but its name
    target = cache / "owner___tiny" / "default" / "0.0.0" / "abc"
    target.parent.mkdir(parents=True)
    made.parent.rename(target)
    for file in target.glob("parquet-*"):
        file.rename(target / file.name.replace("parquet-", "tiny-"))
    info = (target / "dataset_info.json").read_text()
    (target / "dataset_info.json").write_text(info.replace('"dataset_name": "parquet"', '"dataset_name": "tiny"'))
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(library.config, "HF_ENDPOINT", "http://127.0.0.1:9")
    data = sources.load("hf:owner/tiny", seed=1)
    assert len(data.train) == 9 and data.classes == NAMES and data.name == "hf:owner/tiny"


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for act in (sources.load, sources.listing):
        with pytest.raises(InputError, match=r"needs the package datasets: pip install 'anchored\[datasets\]'"):
            act(f"hf:{tmp_path}")
