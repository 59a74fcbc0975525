"""Labels as people have them (text, 1..N, sparse, floats, booleans), alike in parquet, npz, hf and csv files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from images import encoded, picture, write_parquet
from PIL import Image

from anchored import data as sources
from anchored.data.class_maps import scored_classes
from anchored.data.labels import POSITIONS, from_cells, from_numpy, from_text, numbered
from anchored.data.listings import whole_listing
from anchored.system.errors import InputError

FORMATS = ("parquet", "npz", "hf", "csv")
NAMED = ("parquet", "npz", "hf")  # those whose files can state class names


def write(
    kind: str, root: Path, train: Sequence[Any], test: Sequence[Any] | None, names: Sequence[str] | None = None
) -> str:
    """Files of pictures 0, 1, ... with these labels, and of pictures 100, 101, ... for the test part; their spec."""
    parts = {"train": (range(len(train)), train)}
    if test is not None:
        parts["test"] = (range(100, 100 + len(test)), test)
    root.mkdir(exist_ok=True)
    if kind == "npz":
        arrays: dict[str, Any] = {} if names is None else {"classes": list(names)}
        for part, (seeds, labels) in parts.items():
            arrays |= {f"x_{part}": np.stack([picture(s) for s in seeds]), f"y_{part}": np.array(labels)}
        np.savez(root / "set.npz", **arrays)
        return f"npz:{root / 'set.npz'}"
    if kind == "csv":
        for part, (seeds, labels) in parts.items():
            for seed in seeds:
                Image.fromarray(picture(seed)).save(root / f"{seed}.png")
            with open(root / f"{part}.csv", "w", newline="") as file:
                csv.writer(file).writerows(
                    [["path", "label"], *((f"{s}.png", x) for s, x in zip(seeds, labels, strict=True))]
                )
        return f"csv:{root}"
    if kind == "parquet":
        for part, (seeds, labels) in parts.items():
            pictures = [encoded(picture(seed)) for seed in seeds]
            write_parquet(root / f"{part}.parquet", pictures, labels, names=names, label_type=pa.array(labels).type)
        return f"parquet:{root}"
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed: anchored[datasets]")
    label = datasets.ClassLabel(names=list(names)) if names else None
    splits = {}
    for part, (seeds, labels) in parts.items():
        kinds = {
            "image": datasets.Image(),
            "label": label
            or datasets.Features.from_arrow_schema(pa.schema([("label", pa.array(labels).type)]))["label"],
        }
        values = {"image": [{"bytes": encoded(picture(s)), "path": None} for s in seeds], "label": list(labels)}
        splits[part] = datasets.Dataset.from_dict(values, features=datasets.Features(kinds))
    datasets.DatasetDict(splits).save_to_disk(root / "saved")
    return f"hf:{root / 'saved'}"


def shown(images: torch.Tensor) -> list[int]:
    """The seeds of generated pictures."""
    known = {picture(seed).tobytes(): seed for seed in (*range(60), *range(100, 160))}
    return [known[image.numpy().tobytes()] for image in images]


CASES = {
    "text": (["dog", "cat", "Eel"], ("Eel", "cat", "dog"), "are text, numbered 0..2 in the order of code points: Eel"),
    "accents": (["é", "z", "a b"], ("a b", "z", "é"), "labels are text, numbered 0..2"),
    "digits as names": (["007", "01", "x"], ("007", "01", "x"), "labels are text, numbered 0..2"),
    "from one": (list(range(1, 13)), tuple(map(str, range(1, 13))), "labels 1..12 are numbered 0..11;"),
    "sparse": ([42, 3, 7], ("3", "7", "42"), "labels 3, 7, 42 are numbered 0..2 in this order"),
    "sparse from 0": ([0, 40, 7], ("0", "7", "40"), "labels 0, 7, 40 are numbered 0..2 in this order"),
    "large": ([2**62, 10**12], (str(10**12), str(2**62)), "are numbered 0..1 in this order"),
    "booleans": ([True, False], ("False", "True"), "False, True"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", FORMATS)
def test_labels_become_numbers_and_their_own_names(kind: str, case: str, tmp_path: Path) -> None:
    given, classes, note = CASES[case]
    train, test = given * 4, given[::-1]
    spec = write(kind, tmp_path / "a", train, test)
    data = sources.load(spec)
    assert data.classes == classes
    assert [data.classes[number] for number in data.train.labels] == list(map(str, train))
    assert [data.classes[number] for number in data.test.labels] == list(map(str, test))
    (told,) = data.notes
    assert note in told and told.endswith("class names are the labels themselves")
    for part in ("train", "test"):
        listing = sources.listing(spec, part=part)
        assert torch.equal(listing.labels, getattr(data, part).labels)
        assert listing.classes == classes and listing.notes == data.notes
    made = sources.load(write(kind, tmp_path / "b", train, None))  # 20 % of every class are the test part
    assert made.classes == classes and made.test.labels.unique().tolist() == list(range(len(classes)))
    for half in (made.train, made.test):
        for seed, number in zip(shown(half.images), half.labels.tolist(), strict=True):
            assert classes[number] == str(train[seed])


@pytest.mark.parametrize("kind", FORMATS)
def test_integers_from_0_stay_as_they_are_without_a_word(kind: str, tmp_path: Path) -> None:
    data = sources.load(write(kind, tmp_path, [2, 0, 1] * 4, [1, 2, 0]))
    assert data.classes == ("0", "1", "2") and data.notes == ()
    assert data.train.labels.tolist() == [2, 0, 1] * 4 and data.test.labels.tolist() == [1, 2, 0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("labels", "classes"), [([0.0, 1.0], ("0", "1")), ([5.0, 2.0], ("2", "5"))])
def test_floats_without_a_fraction_are_integers(
    kind: str, labels: list[float], classes: tuple[str, ...], tmp_path: Path
) -> None:
    data = sources.load(write(kind, tmp_path, labels * 4, labels))
    assert data.classes == classes
    assert [int(data.classes[number]) for number in data.train.labels] == [int(label) for label in labels * 4]
    assert ("labels are floating-point numbers without a fraction" in " ".join(data.notes)) == (kind != "csv")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_renumbering_trains_on_the_same_tensors(kind: str, tmp_path: Path) -> None:
    plain = sources.load(write(kind, tmp_path / "a", [0, 1, 2] * 8, None), seed=3)
    moved = sources.load(write(kind, tmp_path / "b", [11, 20, 300] * 8, None), seed=3)
    for part in ("train", "test"):
        assert torch.equal(getattr(plain, part).labels, getattr(moved, part).labels)
        assert torch.equal(getattr(plain, part).images, getattr(moved, part).images)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("labels", [["a", "b", "c"], [1, 2, 3], [3, 7, 42], [0, 1, 2]])
def test_train_and_test_agree(kind: str, labels: list[Any], tmp_path: Path) -> None:
    data = sources.load(write(kind, tmp_path / "fewer", labels * 4, [labels[2], labels[0]]))
    assert data.test.labels.tolist() == [2, 0] and f"no test images of class {labels[1]}" in data.notes
    spec = write(kind, tmp_path / "more", labels[:2] * 4, labels)
    for act in (sources.load, sources.listing):
        with pytest.raises(InputError, match=f"every class of the test images .* none of class {labels[2]}"):
            act(spec)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("label", ["cat", 0, 1, 7, True])
def test_one_class_is_refused(kind: str, label: Any, tmp_path: Path) -> None:
    for test in ([label] * 2, None):
        spec = write(kind, tmp_path / str(test is None), [label] * 6, test)
        with pytest.raises(InputError, match=f"at least 2 classes; all images are '{label}'"):
            sources.load(spec)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("labels", [["a", "", "b", "  ", "c", "a"], [1.0, float("nan"), 2.0, float("nan"), 1.0, 2.0]])
@pytest.mark.parametrize("part", ["train", "test"])
def test_missing_labels_are_refused_by_row(kind: str, labels: list[Any], part: str, tmp_path: Path) -> None:
    good = [value for value in labels if str(value).strip() not in ("", "nan")]
    spec = write(kind, tmp_path, *((labels, good) if part == "train" else (good, labels)))
    where = "lines 3, 5" if kind == "csv" else "rows 1, 3"
    with pytest.raises(InputError, match=f"every image has a label; 2 labels are missing, in {where}"):
        sources.load(spec)


@pytest.mark.parametrize("kind", ["parquet", "hf"])
@pytest.mark.parametrize("labels", [["a", None, "b", "a"], [1, None, 2, 1], [True, None, False, True]])
def test_nulls_are_refused_by_row(kind: str, labels: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"every image has a label; 1 label is missing, in row 1\."):
        sources.load(write(kind, tmp_path, labels, labels[2:]))


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize(("train", "test"), [(["a", "b"], [0, 1]), ([1, 2], ["1", "2"]), ([True, False], [0, 1])])
def test_labels_of_two_types_are_refused(kind: str, train: list[Any], test: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"labels are of one type throughout; train has \w+ like .* and test has"):
        sources.load(write(kind, tmp_path, train * 4, test))


def test_files_of_one_part_share_a_type_and_their_names(tmp_path: Path) -> None:
    pictures = [encoded(picture(seed)) for seed in range(4)]
    for number, labels in enumerate((["b", "c"] * 2, ["a", "c"] * 2)):
        write_parquet(tmp_path / f"train-{number}.parquet", pictures, labels, label_type=pa.string())
    write_parquet(tmp_path / "test.parquet", pictures, list("abca"), label_type=pa.large_string())
    data = sources.load(f"parquet:{tmp_path}")
    assert data.classes == ("a", "b", "c") and data.train.labels.tolist() == [1, 2, 1, 2, 0, 2, 0, 2]
    write_parquet(tmp_path / "train-1.parquet", pictures, [1, 2, 1, 2])
    with pytest.raises(InputError, match=r"train-0.parquet has text like b and train-1.parquet has integers like 1"):
        sources.load(f"parquet:{tmp_path}")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", "y", "x", "z"] * 3).dictionary_encode(),
        pa.array(["x", "y", "x", "z"] * 3, pa.large_string()),
        pa.array([5, 9, 5, 30] * 3, pa.decimal128(10, 0)),
        pa.array([5, 9, 5, 30] * 3, pa.uint64()).dictionary_encode(),
        pa.array([5, 9, 5, 30] * 3, pa.float16()),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_other_types_of_arrow(column: pa.Array, tmp_path: Path) -> None:
    images = pa.array([{"bytes": encoded(picture(seed))} for seed in range(12)])
    pq.write_table(pa.table({"image": images, "label": column}), tmp_path / "x.parquet", row_group_size=5)
    data = sources.load(f"parquet:{tmp_path / 'x.parquet'}")
    values = [str(int(value) if not isinstance(value, str) else value) for value in column.to_pylist()]
    for half in (data.train, data.test):
        for seed, number in zip(shown(half.images), half.labels.tolist(), strict=True):
            assert data.classes[number] == values[seed]


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_class_names_of_the_file_give_the_order_of_text(kind: str, tmp_path: Path) -> None:
    names = ["zebra", "ant", "cow"]
    data = sources.load(write(kind, tmp_path / "a", ["ant", "zebra"] * 4, ["ant"], names))
    assert data.classes == tuple(names) and data.train.labels.tolist() == [1, 0] * 4
    assert data.notes[0] == "labels are text, numbered in the order of the class names of the file: zebra, ant, cow"
    assert "no training images of class cow" in data.notes
    with pytest.raises(InputError, match=r"class names of the file are zebra, ant, cow; .* none of them: 'Ant', 'dog'"):
        sources.load(write(kind, tmp_path / "b", ["Ant", "zebra", "dog"] * 4, ["ant"], names))
    data = sources.load(write(kind, tmp_path / "c", [True, False] * 4, [True], names[:2]))
    assert data.train.labels.tolist() == [1, 0] * 4 and data.classes == ("zebra", "ant")


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("labels", [[1, 2, 3], [0, 1, 7], [0, 1, -1]])
def test_integers_beyond_the_class_names_stay_an_error(kind: str, labels: list[int], tmp_path: Path) -> None:
    if kind == "hf":  # `datasets` refuses to write others than -1
        labels = [0, 1, -1]
    with pytest.raises(InputError, match=r"labels are 0 to 2, as there are 3 classes; train has (-1|3|7)"):
        sources.load(write(kind, tmp_path, labels * 4, labels, ["a", "b", "c"]))


@pytest.mark.parametrize("kind", NAMED)
def test_named_classes_without_images_keep_their_place(kind: str, tmp_path: Path) -> None:
    data = sources.load(write(kind, tmp_path, [0, 2] * 4, [2, 0], ["a", "b", "c", "d"]))
    assert data.classes == ("a", "b", "c", "d") and data.train.labels.tolist() == [0, 2] * 4
    assert data.notes == ("no training images of class b, d", "no test images of class b, d")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_class_lost_among_integers_from_0_stays_an_error_and_so_do_negative_ones(kind: str, tmp_path: Path) -> None:
    for number, (labels, message) in enumerate(
        [([0, 1, 3, 4], "up to 4 but no 2"), ([0, 2], "up to 2 but no 1"), ([-1, 0, 1], "0 or more; train has -1")]
    ):
        with pytest.raises(InputError, match=message):
            sources.load(write(kind, tmp_path / str(number), labels * 4, labels))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0.5, 1.0]), "got numbers like 0.5"),
        (np.array([np.inf, 1.0]), "got numbers like inf"),
        (np.array([1e300, 1.0]), "got numbers like 1e"),
        (np.array([2**63, 1], np.uint64), r"below 2\^63; got 9223372036854775808"),
        (np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"), "one an image; got datetime64"),
        (np.array([b"\xff", b"a"]), "labels of bytes are UTF-8"),
        (np.eye(2), r"got \[2, 2\]\. Of one-hot labels, save y.argmax\(1\)"),
        (np.array([1, 2, 3]), "got 3 labels for 2 images"),
    ],
)
def test_what_is_no_label_is_refused(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_numpy(labels, 2, "x")


def test_bytes_and_columns_of_one_are_read_as_their_text() -> None:
    found = from_numpy(np.array([["b"], ["é"], ["b"]]).astype("U"), 3, "x")
    assert found.used() == ["b", "é"] and found.codes.tolist() == [0, 1, 0]
    assert from_numpy(np.array([b"b", "é".encode()]), 2, "x").used() == ["b", "é"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2", "10"], "integers"),
        (["1.0", "2.", "-3"], "integers"),
        (["01", "2"], "text"),  # a name: as a number it would be written otherwise
        (["1", "2", "J", "Q"], "text"),
        (["1e3", "x"], "text"),
        (["False", "True"], "text"),
        (["None", "Some"], "text"),
    ],
)
def test_what_is_written_in_cells(cells: list[str], kind: str) -> None:
    assert from_cells(cells, "x").kind == kind


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["0.5", "1"], "got numbers like 0.5"),
        (["1e3", "1"], "got numbers like 1e3"),
        ([str(2**63), "1"], r"below 2\^63"),
        (["a", "NaN", "null", "<NA>"], "3 labels are missing, in rows 1, 2, 3"),
    ],
)
def test_cells_that_are_no_labels(cells: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_cells(cells, "x")


def test_names_that_look_alike_are_noted() -> None:
    found = numbered("x", from_text(["Cat", "cat ", "dog", "dog"] * 3, "x"), None, None, 0)
    assert found.classes == ("Cat", "cat ", "dog")
    assert found.notes[-1] == "classes that differ in case or spaces alone: 'Cat' and 'cat '"


@pytest.mark.parametrize("kind", FORMATS)
def test_test_sets_alone(kind: str, tmp_path: Path) -> None:
    text = whole_listing(write(kind, tmp_path / "text", ["b", "a"] * 4, ["b"] * 3))
    assert text.classes == ("b",) and text.labels.tolist() == [0, 0, 0] and len(text.notes) == 1
    # Integers may be positions among the classes of a model, whatever part of them is there.
    some = whole_listing(write(kind, tmp_path / "some", [1, 2, 3] * 4, [3, 1]))
    assert some.classes == ("0", "1", "2", "3") and some.labels.tolist() == [3, 1] and some.notes == ()
    far = whole_listing(write(kind, tmp_path / "far", [1, 5 * POSITIONS] * 4, [5 * POSITIONS, 1]))
    assert far.classes == ("1", str(5 * POSITIONS)) and far.labels.tolist() == [1, 0]


def test_classes_that_models_lack_are_listed_in_runs() -> None:
    found = scored_classes("set", [str(number) for number in range(9)], {"model": ["3", "7", "1"]})
    assert found.note == "set: classes that not all models have, left out: 6 of 9: 0, 2, 4..6, 8"
    assert found.names == ("1", "3", "7")


def test_a_column_named_label_goes_before_other_integers(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed: anchored[datasets]")
    kinds = {"image": datasets.Image(), "id": datasets.Value("int64"), "label": datasets.Value("string")}
    values = {
        "image": [{"bytes": encoded(picture(seed)), "path": None} for seed in range(12)],
        "id": list(range(12)),
        "label": ["b", "a"] * 6,
    }
    datasets.Dataset.from_dict(values, features=datasets.Features(kinds)).save_to_disk(tmp_path / "x")
    data = sources.load(f"hf:{tmp_path / 'x'}")
    assert data.classes == ("a", "b") and len(data.notes) == 1
    hidden = datasets.Dataset.from_dict({**values, "label": ["", None] * 6}, features=datasets.Features(kinds))
    train = datasets.Dataset.from_dict(values, features=datasets.Features(kinds))
    datasets.DatasetDict(train=train, validation=train, test=hidden).save_to_disk(tmp_path / "y")
    assert sources.load(f"hf:{tmp_path / 'y'}").split == "as given (train, validation); test has no labels"
