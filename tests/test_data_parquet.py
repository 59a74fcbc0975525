"""parquet: layouts, labels and pictures as Hugging Face writes them, and what is refused."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fixtures import shared
from images import encoded, picture, write_parquet

from anchored import data as sources
from anchored.system.errors import InputError

NAMES = ("cat", "dog", "eel")


def shard(path, seeds, *, side=8, names=NAMES, kind="PNG", **more):
    """A file of the pictures of `seeds`; the label is the seed modulo 3."""
    return write_parquet(
        path, [encoded(picture(s, side), kind) for s in seeds], [s % 3 for s in seeds], names=names, **more
    )


def expected(seeds, side=8):
    return torch.from_numpy(np.stack([picture(seed, side) for seed in seeds]))


def test_shards_of_train_and_test_are_read_in_order(tmp_path):
    root = tmp_path / "pets"
    shard(root / "data/train-00000-of-00002-aa.parquet", range(20))
    shard(root / "data/train-00001-of-00002-bb.parquet", range(20, 33), kind="WEBP")
    shard(root / "data/test-00000-of-00001.parquet", range(50, 59))
    shard(root / "data/validation-00000-of-00001.parquet", range(60, 63))
    calls = []
    data = sources.load(f"parquet:{root}", progress=lambda done, total: calls.append((done, total)))
    assert data.name == "parquet:pets" and data.classes == NAMES and data.flip
    assert len(data.notes) == 1 and "validation-00000-of-00001.parquet is not used" in data.notes[0]
    assert torch.equal(data.train.images, expected(range(33)))
    assert data.train.labels.tolist() == [s % 3 for s in range(33)]
    assert torch.equal(data.test.images, expected(range(50, 59)))
    assert "train-00001" in data.split and "test-00000" in data.split and "validation" not in data.split
    assert calls == [(i, 33) for i in range(1, 34)] + [(i, 9) for i in range(1, 10)]


def test_two_files_and_other_column_names(tmp_path):
    a = shard(tmp_path / "photo.parquet", range(12), columns=("img", "fine_label"))
    b = shard(tmp_path / "sketch.parquet", range(30, 36), columns=("img", "fine_label"))
    data = sources.load(f"parquet:{a},{b}")
    assert data.name == "parquet:photo,sketch" and "train photo, test sketch" in data.split
    assert torch.equal(data.test.images, expected(range(30, 36)))
    assert data.classes == NAMES


def test_a_folder_without_test_is_split_by_class_and_says_so(tmp_path):
    shard(tmp_path / "x/train.parquet", range(60), names=None)
    data = sources.load(f"parquet:{tmp_path / 'x'}", seed=5)
    assert data.split == "stratified 80 / 20 of train.parquet, seed 5" and data.classes == ("0", "1", "2")
    assert torch.bincount(data.test.labels).tolist() == [4, 4, 4] and len(data.train) == 48
    both = torch.cat([data.train.images, data.test.images])
    assert len(both.unique(dim=0)) == 60
    for part in (data.train, data.test):
        for image, label in zip(part.images, part.labels, strict=True):
            seed = next(s for s in range(60) if np.array_equal(picture(s), image.numpy()))
            assert seed % 3 == int(label)
    assert not torch.equal(data.test.images, sources.load(f"parquet:{tmp_path / 'x'}", seed=6).test.images)


def test_validation_is_the_test_part_where_there_is_no_test_and_latest_is_no_test(tmp_path):
    shard(tmp_path / "train.parquet", range(9))
    shard(tmp_path / "latest.parquet", range(9, 12))
    assert sources.load(f"parquet:{tmp_path}").split.startswith("stratified")
    shard(tmp_path / "val_x.parquet", range(12, 18))
    assert torch.equal(sources.load(f"parquet:{tmp_path}").test.images, expected(range(12, 18)))


def test_sizes_are_kept_or_fitted(tmp_path):
    shard(tmp_path / "train.parquet", range(9), side=12)
    shard(tmp_path / "test.parquet", range(9, 12), side=10)
    with pytest.raises(InputError, match="train has images of 12x12 and test of 10x10 pixels; pass --image-size"):
        sources.load(f"parquet:{tmp_path}")
    data = sources.load(f"parquet:{tmp_path}", size=10)
    assert data.train.images.shape == (9, 10, 10, 3)
    assert torch.equal(data.test.images, expected(range(9, 12), 10))  # has the size: pixel for pixel


def test_images_of_different_or_oblong_sizes_need_an_image_size(tmp_path):
    mixed = [encoded(picture(0, 8)), encoded(picture(1, 9)), encoded(picture(2, 8))] * 3
    path = write_parquet(tmp_path / "mixed.parquet", mixed, [0, 1, 2] * 3)
    with pytest.raises(InputError, match=r"different sizes: .*(8x8.*9x9|9x9.*8x8).*pass --image-size"):
        sources.load(f"parquet:{path}")
    assert sources.load(f"parquet:{path}", size=6).train.images.shape[1:] == (6, 6, 3)
    path = write_parquet(tmp_path / "oblong.parquet", [encoded(picture(i, 8, 12)) for i in range(6)], [0, 1] * 3)
    with pytest.raises(InputError, match=r"not square \(12x8 pixels\); pass --image-size"):
        sources.load(f"parquet:{path}")
    assert sources.load(f"parquet:{path}", size=8).train.images.shape[1:] == (8, 8, 3)


def test_unreadable_pictures_are_left_out_and_named_or_refused(tmp_path):
    good = [encoded(picture(i)) for i in range(30)]
    bad: list[bytes | None] = [*good]
    bad[4], bad[11], bad[20] = None, b"not a picture", good[20][:60]
    train = write_parquet(tmp_path / "train.parquet", bad, [i % 2 for i in range(30)])
    test = write_parquet(tmp_path / "test.parquet", good[:6], [0, 1] * 3)
    data = sources.load(f"parquet:{train},{test}")
    assert data.train.images.shape[0] == 27
    assert torch.equal(data.train.images, expected([i for i in range(30) if i not in (4, 11, 20)]))
    assert data.train.labels.tolist() == [i % 2 for i in range(30) if i not in (4, 11, 20)]
    (note,) = data.notes
    assert note.startswith("unreadable images, left out: 3 of 30: train.parquet row 4")
    assert "train.parquet row 4 (it has no bytes), train.parquet row 11 (no known image format)" in note
    with pytest.raises(InputError, match="row 4 is not a readable image"):
        sources.load(f"parquet:{train},{test}", strict=True)


@pytest.mark.parametrize(
    ("labels", "kind", "names", "message"),
    [
        ([0, 1, 7] * 3, None, NAMES, "labels are 0 to 2, as there are 3 classes; train has 7"),
        ([0, 1, -1] * 3, None, NAMES, "train has -1"),
        ([0, 1, None] * 3, None, NAMES, "every image has a label; 3 labels are missing"),
        ([0.0, 1.0, 2.5] * 3, pa.float64(), None, "labels are classes .*; got numbers like 2.5"),
        ([[0], [1], [2]] * 3, pa.list_(pa.int64()), None, "one an image; column 'label' holds list<"),
        (["a", "b", "c"] * 3, pa.string(), None, "train has text like a and test has integers like 0"),
        ([0, 0, 0] * 3, None, NAMES, "there are none of class dog, eel"),
    ],
)
def test_wrong_labels_are_refused(tmp_path, labels, kind, names, message):
    pictures = [encoded(picture(i)) for i in range(9)]
    train = write_parquet(tmp_path / "train.parquet", pictures, labels, names=names, label_type=kind)
    test = shard(tmp_path / "test.parquet", range(9), names=names)
    with pytest.raises(InputError, match=message):
        sources.load(f"parquet:{train},{test}")


@pytest.mark.parametrize(("label", "message"), [(7, "train has 7"), (-1, "train has -1")])
def test_wrong_labels_are_refused_before_a_split(tmp_path, label, message):
    pictures = [encoded(picture(i)) for i in range(9)]
    path = write_parquet(tmp_path / "x.parquet", pictures, [0, 1] * 4 + [label], names=NAMES)
    with pytest.raises(InputError, match=message):
        sources.load(f"parquet:{path}")


def test_wrong_files_are_refused(tmp_path):
    good = shard(tmp_path / "good.parquet", range(6))
    cases = {
        f"{tmp_path}/none": "there is no file or folder",
        f"{good},{good},{good}": "at most two files, train.parquet,test.parquet; got 3",
    }
    (tmp_path / "empty").mkdir()
    cases[f"{tmp_path}/empty"] = "has no .parquet file"
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(good.read_bytes()[:-100])
    cases[str(broken)] = "not a readable parquet file"
    damaged = tmp_path / "damaged.parquet"
    content = bytearray(good.read_bytes())
    content[4:600] = bytes(596)
    damaged.write_bytes(content)
    cases[str(damaged)] = "damaged.parquet"
    cases[str(shard(tmp_path / "columns.parquet", range(6), columns=("photo", "label")))] = (
        r"image column is named image or img or images; the columns are photo, label\. Is it photo\? Rename it to image"
    )
    cases[str(shard(tmp_path / "label.parquet", range(6), columns=("image", "target")))] = (
        r"the label column is named label or .*; the columns are image, target\. Is it target\? Rename it to label"
    )
    text = tmp_path / "text.parquet"
    pq.write_table(pa.table({"image": ["a", "b"] * 3, "label": [0, 1] * 3}), text)
    cases[str(text)] = "images are struct<bytes, path> or binary; column 'image' is string"
    other = shard(tmp_path / "other.parquet", range(6), names=("cat", "dog", "fox"))
    cases[f"{good},{other}"] = "class 2 is 'eel' and 'fox'"
    shard(tmp_path / "odd/test.parquet", range(6))
    shard(tmp_path / "odd/more.parquet", range(6))
    cases[f"{tmp_path}/odd"] = "files with train and with test in their names; found more.parquet, test.parquet"
    for path, message in cases.items():
        with pytest.raises(InputError, match=message):
            sources.load(f"parquet:{path}")


def test_memory_is_checked_before_decoding(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", [b"never decoded"] * 20, [0, 1] * 10)
    with pytest.raises(InputError, match="20 images of 100x100 pixels take 600 KB, more than 500 KB"):
        sources.load(f"parquet:{path}", size=100, memory_limit=500_000)


def test_anomalies_need_no_labels(tmp_path):
    like = sources.load("digits")
    pictures = [{"bytes": encoded(picture(i))} for i in range(5)]
    pq.write_table(pa.table({"image": pictures}), tmp_path / "odd.parquet")
    name, images = sources.load_anomalies(f"parquet:{tmp_path / 'odd.parquet'}", like=like, size=8)
    assert name == "odd" and torch.equal(images.images, expected(range(5))) and images.labels.tolist() == [-1] * 5
    pq.write_table(pa.table({"image": [*pictures, {"bytes": b"x"}]}), tmp_path / "odd.parquet")
    with pytest.warns(UserWarning, match=r"unreadable images, left out: 1 of 6: odd\.parquet row 5"):
        assert len(sources.load_anomalies(f"parquet:{tmp_path / 'odd.parquet'}", like=like, size=8)[1]) == 5
    shard(tmp_path / "set/train.parquet", range(9))
    shard(tmp_path / "set/test.parquet", range(9, 14))
    name, images = sources.load_anomalies(f"parquet:{tmp_path / 'set'}", like=like, size=8)
    assert name == "set" and torch.equal(images.images, expected(range(9, 14)))


def test_cifar10_is_read_pixel_for_pixel_in_seconds():
    start = time.monotonic()
    data = sources.load(f"parquet:{shared('ANCHORED_DATA', 'data') / 'cifar10' / 'test.parquet'}")
    assert len(data.train) == 8000 and len(data.test) == 2000 and data.classes[0] == "airplane"
    assert time.monotonic() - start < 15
    everything = sources.load_anomalies(
        f"parquet:{shared('ANCHORED_DATA', 'data') / 'cifar10' / 'test.parquet'}", like=data, size=32
    )[1]
    mean, std = sources.channel_statistics(everything)  # published values of the test set
    assert mean == pytest.approx((0.4942, 0.4851, 0.4504), abs=1e-4)
    assert std == pytest.approx((0.2467, 0.2429, 0.2616), abs=1e-4)
