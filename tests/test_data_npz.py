"""npz: the accepted layouts of images and labels, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from images import picture

from anchored import data as sources
from anchored.system.errors import InputError

IMAGES = np.stack([picture(seed, 8) for seed in range(12)])
LABELS = np.arange(12) % 3


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def load(path: Path, **options):
    return sources.load(f"npz:{path}", **options)


def saved(folder: Path, **arrays) -> Path:
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:6], "y_test": LABELS[:6], **arrays}
    np.savez_compressed(folder / "set.npz", **{key: value for key, value in arrays.items() if value is not None})
    return folder / "set.npz"


GREY = IMAGES[..., :1]


@pytest.mark.parametrize(
    ("images", "shown"),
    [
        (IMAGES, IMAGES),
        (IMAGES.transpose(0, 3, 1, 2), IMAGES),
        (GREY, np.repeat(GREY, 3, 3)),
        (GREY[..., 0], np.repeat(GREY, 3, 3)),
        (GREY.transpose(0, 3, 1, 2), np.repeat(GREY, 3, 3)),
    ],
    ids=["NHWC", "NCHW", "NHW1", "NHW", "N1HW"],
)
def test_layouts_come_out_alike(tmp_path, images, shown):
    data = load(saved(tmp_path, x_train=images, y_train=LABELS[:, None].astype(np.uint8), classes=["a", "b", "c"]))
    assert torch.equal(data.train.images, torch.from_numpy(shown)) and data.train.labels.tolist() == LABELS.tolist()
    assert data.name == "npz:set" and data.classes == ("a", "b", "c") and data.split == "as given (x_train, x_test)"


@pytest.mark.parametrize("classes", [["a", "é"], np.array([b"a", "é".encode()]), np.array([["a"], ["é"]])])
def test_class_names_are_text_or_bytes(tmp_path, classes):
    data = load(saved(tmp_path, y_train=LABELS % 2, y_test=LABELS[:6] % 2, classes=classes))
    assert data.classes == ("a", "é")


def test_medmnist_names_and_val_without_test(tmp_path):
    arrays = {"train_images": IMAGES, "train_labels": LABELS, "val_images": IMAGES[:3], "val_labels": LABELS[:3]}
    np.savez(tmp_path / "a.npz", **arrays)
    assert load(tmp_path / "a.npz").split == "as given (train_images, val_images)"
    np.savez(tmp_path / "a.npz", **arrays, test_images=IMAGES[3:9], test_labels=LABELS[3:9])
    data = load(tmp_path / "a.npz")
    assert data.split == "as given (train_images, test_images)"
    assert torch.equal(data.test.images, torch.from_numpy(IMAGES[3:9])) and data.classes == ("0", "1", "2")


def test_without_test_a_stratified_split_is_made(tmp_path):
    data = load(saved(tmp_path, x_test=None, y_test=None), seed=2)
    assert data.split == "stratified 80 / 20 of x_train, seed 2"
    assert torch.bincount(data.test.labels).tolist() == [1, 1, 1] and len(data.train) == 9
    for part in (data.train, data.test):
        for image, label in zip(part.images, part.labels, strict=True):
            assert LABELS[(image.numpy() == IMAGES).all((1, 2, 3)).argmax()] == label


def test_images_are_resized_on_request(tmp_path):
    for images in (IMAGES, GREY):
        data = load(saved(tmp_path, x_train=images), size=16)
        assert data.train.images.shape == (12, 16, 16, 3) and data.test.images.shape == (6, 16, 16, 3)
        assert abs(float(data.train.images.double().mean()) - images.mean()) < 2
    path = saved(tmp_path, x_train=IMAGES[:, :6])
    with pytest.raises(InputError, match=r"x_train: images are not square \(8x6 pixels\); pass --image-size"):
        load(path)
    assert load(path, size=6).train.images.shape == (12, 6, 6, 3)
    with pytest.raises(InputError, match="train has images of 8x8 and test of 4x4 pixels; pass --image-size"):
        load(saved(tmp_path, x_test=IMAGES[:6, :4, :4]))


HOLE = (IMAGES / 255).astype(np.float32)
HOLE[3, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": IMAGES / 255}, r"x_train: images are uint8 from 0 to 255; got float64 from 0 to 1\."),
        ({"x_test": HOLE[:6]}, r"x_test: images are uint8 from 0 to 255; got float32 with 1 NaN"),
        ({"x_train": IMAGES.astype(np.int64)}, "got int64 from 0 to 255"),
        ({"x_train": IMAGES[:, :3, :, :]}, r"got \[12, 3, 8, 3\], which could be either"),
        ({"x_train": np.zeros((12, 8, 8, 4), np.uint8)}, r"got \[12, 8, 8, 4\], which is neither"),
        ({"x_train": IMAGES.reshape(12, -1)}, r"got \[12, 192\]\."),
        ({"x_train": IMAGES[:, :0]}, "no pixels|either|neither"),
        ({"y_train": LABELS + 0.5}, "y_train: labels are classes .*; got numbers like 0.5"),
        ({"y_train": LABELS + 1j}, "y_train: labels are integers, text or booleans, one an image; got complex128"),
        ({"y_train": np.where(LABELS == 1, np.nan, LABELS)}, "4 labels are missing, in rows 1, 4, 7 and 1 more"),
        ({"y_train": np.eye(3, dtype=int)[LABELS]}, r"\[N\] or \[N, 1\]; got \[12, 3\]. Of one-hot labels"),
        ({"y_train": LABELS[:-1]}, "got 11 labels for 12 images"),
        ({"y_train": LABELS - 1}, "labels are 0 or more; train has -1"),
        ({"y_test": LABELS[:6] + 1}, "there are none of class 3"),
        ({"classes": ["a", "b"]}, "labels are 0 to 1, as there are 2 classes; train has 2"),
        ({"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "train has no images"),
        ({"y_train": LABELS * 0, "y_test": LABELS[:6] * 0}, "at least 2 classes"),
        ({"x_train": None}, "the arrays are x_train, .*; found y_train, x_test, y_test"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        load(saved(tmp_path, **arrays))


def test_pickled_arrays_and_files_are_never_run(tmp_path):
    flag = tmp_path / "ran"
    objects = np.empty(12, object)
    objects[0] = Touch(flag)
    with pytest.raises(InputError, match="the array y_train cannot be read"):
        load(saved(tmp_path, y_train=objects))
    (tmp_path / "evil.npz").write_bytes(pickle.dumps(Touch(flag)))
    with pytest.raises(InputError, match=r"not a readable \.npz file"):
        load(tmp_path / "evil.npz")
    assert not flag.exists()


def test_wrong_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        load(tmp_path / "none.npz")
    path = saved(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"not a readable \.npz file"):
        load(path)
    damaged = bytearray(whole)
    damaged[200:400] = bytes(200)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="the array x_train cannot be read"):
        load(path)
    np.save(tmp_path / "single.npy", IMAGES)
    with pytest.raises(InputError, match=r"not a \.npz file but a single array"):
        load(tmp_path / "single.npy")


def test_memory_is_checked_before_reading(tmp_path):
    path = saved(tmp_path, x_train=np.zeros((12, 1000, 1000), np.uint8))  # some kilobytes on disk
    with pytest.raises(InputError, match="the arrays x_train and x_test take 12 MB, more than 1 MB"):
        load(path, memory_limit=1_000_000)
    with pytest.raises(InputError, match="18 images of 1000x1000 pixels take 54 MB, more than 20 MB"):
        load(path, size=1000, memory_limit=20_000_000)


def test_anomalies_need_no_labels(tmp_path):
    np.savez(tmp_path / "odd.npz", x_test=IMAGES, x_train=IMAGES[:2])
    name, images = sources.load_anomalies(f"npz:{tmp_path / 'odd.npz'}", like=sources.load("digits"), size=8)
    assert name == "odd" and torch.equal(images.images, torch.from_numpy(IMAGES))
