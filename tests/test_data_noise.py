from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures import shared
from torch import Tensor

from anchored.data.base import ImageSet
from anchored.data.noise import noisy_labels, read_labels, relabelled
from anchored.system.errors import InputError

LABELS = torch.arange(1000) % 10


def write(path: Path, values: Any) -> Path:
    """`values` in the format that the suffix names."""
    kind = path.suffix
    if kind == ".npy":
        np.save(path, values)
    elif kind == ".npz":
        np.savez(path, **values)
    elif kind == ".pt":
        torch.save(values, path)
    elif kind == ".json":
        path.write_text(json.dumps(values))
    else:
        path.write_text(values)
    return path


# --- random labels


@pytest.mark.parametrize("rate", [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3337, 1.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_exactly_that_many_labels_move_each_to_another_class(rate: float, classes: int) -> None:
    labels = LABELS % classes
    noisy = noisy_labels(labels, rate, classes, seed=0)
    assert int((noisy != labels).sum()) == round(rate * 1000)
    assert noisy.dtype == torch.int64 and int(noisy.min()) >= 0 and int(noisy.max()) < classes
    assert torch.equal(labels, LABELS % classes), "the labels given stay"


def test_every_other_class_is_as_likely() -> None:
    labels = torch.full((9000,), 3)
    counts = Counter(noisy_labels(labels, 1.0, 10, seed=1).tolist())
    assert set(counts) == set(range(10)) - {3}
    assert all(abs(count - 1000) < 5 * (9000 / 9 * 8 / 9) ** 0.5 for count in counts.values())


def test_seeds_decide_and_more_noise_keeps_the_less() -> None:
    some, more = noisy_labels(LABELS, 0.1, 10, seed=2), noisy_labels(LABELS, 0.2, 10, seed=2)
    moved = some != LABELS
    assert torch.equal(more[moved], some[moved])
    torch.manual_seed(5)
    assert torch.equal(noisy_labels(LABELS, 0.1, 10, seed=2), some)
    assert not torch.equal(noisy_labels(LABELS, 0.1, 10, seed=3), some)


@pytest.mark.parametrize(
    ("rate", "classes", "says"),
    [
        (-0.1, 10, r"in \[0, 1\]; got -0.1"),
        (20, 10, r"in \[0, 1\]; got 20"),
        (float("nan"), 10, r"in \[0, 1\]; got nan"),
        (0.1, 1, "at least 2 classes; got 1"),
    ],
)
def test_rates_and_classes_out_of_range(rate: float, classes: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        noisy_labels(LABELS, rate, classes, seed=0)


# --- labels from a file

GIVEN = torch.tensor([2, 0, 1, 2, 2])
LIST = GIVEN.tolist()


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("l.npy", "", GIVEN.numpy()),
        ("l.npy", "", GIVEN.numpy()[:, None].astype(np.uint8)),
        ("l.npz", ":noisy", {"clean": GIVEN.numpy() * 0, "noisy": GIVEN.numpy()}),
        ("l.npz", "", {"only": GIVEN.numpy()}),
        ("l.txt", "", "2\n0\n1\n2\n2\n"),
        ("l.csv", "", "2\n0\n1\n2\n2\n"),
        ("l.csv", ":noisy", "file,clean,noisy\na.png,0,2\nb.png,0,0\nc.png,0,1\nd.png,0,2\ne.png,0,2\n"),
        ("l.json", "", LIST),
        ("l.json", ":b", {"a": [0] * 5, "b": LIST}),
        ("l.pt", "", GIVEN),
        ("l.pt", ":worse_label", {"clean_label": GIVEN.numpy() * 0, "worse_label": GIVEN.numpy()}),
        ("l.pt", ":aggre_label", {"clean_label": [0] * 5, "aggre_label": GIVEN.to(torch.uint8)}),
    ],
)
def test_every_format(tmp_path: Path, name: str, key: str, values: Any) -> None:
    found = read_labels(f"{write(tmp_path / name, values)}{key}", 5, 3)
    assert torch.equal(found, GIVEN) and found.dtype == torch.int64


def test_arrays_saved_under_numpy_1_are_read(tmp_path: Path) -> None:
    # CIFAR-10N was saved in 2021: its pickle names numpy.core, which NumPy 2 calls numpy._core.
    path = tmp_path / "l.pt"
    torch.save({"label": GIVEN.numpy()}, path, _use_new_zipfile_serialization=False)
    old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert old != path.read_bytes()
    path.write_bytes(old)
    assert torch.equal(read_labels(str(path), 5, 3), GIVEN)


class Malicious:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("executed"),)


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, save in (("l.pt", torch.save), ("l.npy", lambda value, path: np.save(path, [value], allow_pickle=True))):
        save(Malicious(), tmp_path / name)
        with pytest.raises(InputError, match="the file cannot be read"):
            read_labels(str(tmp_path / name), 5, 3)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "key", "values", "says"),
    [
        ("l.npy", "", np.array([2, 0, 1]), "one an image; got 3 labels for 5 images"),
        ("l.npy", "", np.array([2, 0, 1, 2, 3]), "0 to 2, as there are 3 classes; got 3"),
        ("l.txt", "", "2 0 1 2 -1", "0 to 2, as there are 3 classes; got -1"),
        ("l.npy", "", np.array([2.5] * 5), "labels are integers from 0; got float64 like 2.5"),
        ("l.npy", "", np.zeros((5, 3), int), r"got \[5, 3\]"),
        ("l.txt", "", "2 0 cat 2 2", "cannot be read .*cat"),
        ("l.json", "", ["a"] * 5, "labels are integers"),
        ("l.npz", "", {"a": LIST, "b": LIST}, "several in it; write FILE:KEY. Keys: a, b"),
        ("l.npz", ":noise", {"noisy": LIST, "clean": LIST}, "unknown key of labels from l.npz 'noise'. Did you mean"),
        ("l.npy", ":noisy", np.array(LIST), "without keys. Leave out :noisy"),
        ("l.csv", "", "1,2\n3,4\n", "2 columns without names"),
        ("l.csv", ":a", "a,b\n1\n", "different numbers of columns"),
        ("l.csv", ":file", "file,a,b\nx,1,2\n", "unknown key of labels from l.csv 'file'.*Choices: a, b"),
        ("l.json", "", "{broken", "labels are"),
        ("l.xls", "", "2", "comes? in a file of type .npy, .npz"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, name: str, key: str, values: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_labels(f"{write(tmp_path / name, values)}{key}", 5, 3)


@pytest.mark.parametrize("name", ["l.npy", "l.npz", "l.json", "l.pt"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(InputError, match=f"labels from {name}: the file cannot be read"):
        read_labels(str(tmp_path / name), 5, 3)


def test_no_file() -> None:
    with pytest.raises(InputError, match=r"there is no file nowhere.npy:key. Written FILE or FILE:KEY"):
        read_labels("nowhere.npy:key", 5, 3)


# --- what rows say


def images(labels: Tensor) -> ImageSet:
    return ImageSet(torch.zeros(len(labels), 2, 2, 3, dtype=torch.uint8), labels)


def test_rows_say_the_rate_or_the_part_that_differs(tmp_path: Path) -> None:
    train = images(LABELS)
    assert relabelled(train, 10) is None
    noisy = relabelled(train, 10, rate=0.15, seed=4)
    assert noisy is not None and noisy.label_noise == 0.15
    assert torch.equal(noisy.images.labels, noisy_labels(LABELS, 0.15, 10, 4)) and noisy.images.images is train.images
    assert noisy.note == "label noise 0.15: 150 of 1,000 labels moved to another class, seed 4"
    path = write(
        tmp_path / "human.npy", np.where(np.arange(1000) < 250, (np.arange(1000) + 1) % 10, np.arange(1000) % 10)
    )
    given = relabelled(train, 10, labels=str(path))
    assert given is not None and given.label_noise == 0.25
    assert given.note == "labels from human.npy: 250 of 1,000 differ from the data's own"
    with pytest.raises(InputError, match="made noisy or given, not both"):
        relabelled(train, 10, rate=0.1, labels=str(path))
    with pytest.raises(InputError, match="label noise is"):
        relabelled(train, 10, rate=-0.1)


@pytest.mark.parametrize(("key", "rate"), [("worse_label", 0.4021), ("aggre_label", 0.0903), ("random_label1", 0.1723)])
def test_the_noise_rates_of_cifar_10n(key: str, rate: float) -> None:
    path = shared("ANCHORED_DATA", "data") / "cifar10" / "cifar10n_labels_train.npz"
    clean = images(read_labels(f"{path}:clean_label", 50_000, 10))
    noisy = relabelled(clean, 10, labels=f"{path}:{key}")
    assert noisy is not None and noisy.label_noise == pytest.approx(rate, abs=0.0005)
