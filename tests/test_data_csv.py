"""csv: columns, delimiters, parts and paths of tables as people write them, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from images import picture
from PIL import Image

from anchored import data as sources
from anchored.corruptions.decoded_copy import image_paths
from anchored.data.base import Data
from anchored.data.listings import whole_listing
from anchored.system.errors import InputError

ANIMALS = ("cat", "dog", "eel")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the pictures images/0.png to images/39.png."""
    (tmp_path / "pets" / "images").mkdir(parents=True)
    for seed in range(40):
        Image.fromarray(picture(seed)).save(tmp_path / "pets" / "images" / f"{seed}.png")
    return tmp_path / "pets"


def table(root: Path, row: Callable[[int], str], seeds: Any = range(30), head: str = "path,label", **how: Any) -> Path:
    """A table of the rows of `seeds`, below the header."""
    file = root / how.get("name", "pets.csv")
    end = how.get("end", "\n")
    text = end.join([head, *map(row, seeds)]) + end
    file.write_bytes(text.encode(how.get("encoding", "utf-8")))
    return file


def plain(seed: int) -> str:
    return f"images/{seed}.png,{ANIMALS[seed % 3]}"


def load(file: Path | str, **options: Any) -> Data:
    return sources.load(f"csv:{file}", **options)


def seeds(images: torch.Tensor) -> list[int]:
    known = {picture(seed).tobytes(): seed for seed in range(40)}
    return [known[image.numpy().tobytes()] for image in images]


def test_a_table_is_split_by_class_and_says_so(root: Path) -> None:
    file = table(root, plain)
    data = load(file, seed=5)
    assert data.name == "csv:pets" and data.classes == ANIMALS and data.flip
    assert data.split == "stratified 80 / 20 of 30 images, seed 5"
    assert torch.bincount(data.test.labels).tolist() == [2, 2, 2]
    assert sorted(seeds(data.train.images) + seeds(data.test.images)) == list(range(30))
    for part in (data.train, data.test):
        assert [seed % 3 for seed in seeds(part.images)] == part.labels.tolist()
    assert seeds(load(file, seed=5).test.images) == seeds(data.test.images) != seeds(load(file, seed=6).test.images)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_encodings_and_ends_of_lines(root: Path, delimiter: str, encoding: str, end: str) -> None:
    def row(seed: int) -> str:
        label = f'"é{delimiter} ""{ANIMALS[seed % 3]}"""'
        return delimiter.join([label, "7", f" images/{seed}.png "]) + delimiter * (seed % 2) + end * (seed % 5 == 0)

    head = delimiter.join(["label", "a, or b; or c" if delimiter == "\t" else "other", "path"])
    data = load(table(root, row, head=head, encoding=encoding, end=end))
    assert data.classes == tuple(f'é{delimiter} "{name}"' for name in ANIMALS)
    assert [seed % 3 for seed in seeds(data.train.images)] == data.train.labels.tolist()


@pytest.mark.parametrize("path", ["path", "File", "FILENAME", "filepath", "image", "Image_Path", "img"])
@pytest.mark.parametrize("label", ["label", "Class", "target", "category", "Y"])
def test_usual_names_of_columns_are_found(root: Path, path: str, label: str) -> None:
    listing = sources.listing(f"csv:{table(root, lambda seed: f'9,{plain(seed)}', head=f'width,{path}, {label} ')}")
    assert listing.classes == ANIMALS and len(listing.notes) == 1 and len(listing) == 6


def test_of_several_columns_the_most_usual_is_taken_and_the_others_are_noted(root: Path) -> None:
    file = table(root, lambda seed: f"{seed % 2},{plain(seed)}", head="class,path,label")
    data = load(file)
    assert data.classes == ANIMALS and data.notes[0] == "labels are column 'label'; class would do too"
    assert load(f"{file}?label=class").classes == ("0", "1")


@pytest.mark.parametrize("between", ["&", ","])
def test_columns_are_chosen_by_name(root: Path, between: str) -> None:
    def row(seed: int) -> str:
        return f"images/{seed}.png,x,{ANIMALS[seed % 3]},{'test' if seed % 5 == 0 else 'train'}"

    file = table(root, row, head='"where, from",label,what & why,use')
    data = load(f"{file}?path=where, from{between}label=What & Why{between}split=use")
    assert data.name == "csv:pets" and data.classes == ANIMALS and len(data.test) == 6
    assert data.split == "as given (train and test of the split column)"
    for spec, message in {
        "?path=where": "unknown column of pets.csv 'where'. Did you mean 'where, from'?",
        "?labels=label": "unknown part of csv:.* 'labels'. Did you mean 'label'",
        "?path=": "path is one column, path=COLUMN; got 'path='",
        "?label=a&label=b": "label is one column, label=COLUMN; got 'label=b'",
    }.items():
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            load(f"{file}{spec}")


def test_a_file_may_have_a_question_mark_or_a_comma_in_its_name(root: Path) -> None:
    for name in ("a?path=b.csv", "a,b.csv"):
        assert load(table(root, plain, name=name)).classes == ANIMALS


@pytest.mark.parametrize("column", ["split", "Set", "subset", "part", "fold"])
@pytest.mark.parametrize(
    ("train", "test", "validation"), [("train", "test", "val"), ("Training", "testing", "validation")]
)
def test_split_columns(root: Path, column: str, train: str, test: str, validation: str) -> None:
    words = [train, train, test, validation]
    file = table(root, lambda seed: f"{plain(seed)},{words[seed % 4]}", head=f"path,label,{column}")
    data = load(file)
    assert seeds(data.train.images) == [seed for seed in range(30) if seed % 4 < 2]
    assert seeds(data.test.images) == [seed for seed in range(30) if seed % 4 == 2]
    assert data.split == "as given (train and test of the split column)"
    assert data.notes[0].startswith("validation is not used")
    assert len(load(f"{file}?split=").test) == 6


def test_validation_is_the_test_part_where_there_is_none_and_train_alone_is_split(root: Path) -> None:
    def split(*words: str) -> Path:
        return table(root, lambda seed: f"{plain(seed)},{words[seed % len(words)]}", head="path,label,split")

    data = load(split("train", "valid"))
    assert data.split == "as given (train and validation of the split column)" and len(data.test) == 15
    assert load(split("train")).split == "stratified 80 / 20 of 30 images, seed 0"
    with pytest.raises(InputError, match="there is test, validation in the split column but no train"):
        load(split("test", "val"))
    with pytest.raises(InputError, match=r"20 of 30 say otherwise: 'tset' \(line 3\), '' \(line 4\), .* and 17 more"):
        load(split("train", "tset", ""))
    with pytest.raises(InputError, match=r"none with csv:FILE\?split="):
        load(split("0", "1", "2"))


def test_two_tables_by_name_or_in_a_folder(root: Path) -> None:
    train, test = table(root, plain, range(30), name="train.csv"), table(root, plain, range(30, 36), name="TEST.csv")
    data = load(root)
    assert data.name == "csv:pets" and data.split == "as given (train train, test TEST)"
    assert seeds(data.train.images) == list(range(30)) and seeds(data.test.images) == list(range(30, 36))
    again = load(f"{train},{test}?path=path")
    assert again.name == "csv:pets" and torch.equal(again.test.images, data.test.images)
    shift = table(root, plain, range(30, 36), name="shift.csv")
    assert load(f"{train},{shift}").name == "csv:pets,shift"
    table(root, plain, range(36, 39), name="val.csv")
    assert load(root).notes[0].startswith("val.csv is not used")
    table(root, lambda seed: f"images/{seed}.png", range(30, 36), head="path", name="TEST.csv")  # to be labelled
    data = load(root)
    assert data.split == "as given (train train, test val); TEST has no labels" and len(data.test) == 3
    (root / "val.csv").unlink()
    with pytest.raises(
        InputError, match=r"TEST\.csv: the label column .* To have a part of train\.csv split off: csv:"
    ):
        load(root)
    test.unlink()
    assert load(root).split.startswith("stratified")
    with pytest.raises(InputError, match="two tables are train and test already; leave out split=label"):
        load(f"{train},{shift}?split=label")


def test_labels_of_two_tables_are_read_as_one(root: Path) -> None:
    train = table(root, lambda seed: f"images/{seed}.png,{seed % 3}", name="a.csv")
    test = table(root, lambda seed: f"images/{seed}.png,x", range(30, 33), name="b.csv")
    with pytest.raises(InputError, match="there are none of class x"):  # text, as one of them is
        load(f"{train},{test}")
    table(root, lambda seed: f"images/{seed}.png,", range(30, 33), name="b.csv")
    with pytest.raises(InputError, match=r"b\.csv: every image has a label; 3 labels are missing, in lines 2, 3, 4\."):
        load(f"{train},{test}")


def test_paths_are_relative_to_the_table_or_whole_and_of_windows(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "tables").mkdir()
    monkeypatch.setenv("HOME", str(root))

    def row(seed: int) -> str:
        ways = [f"../images/{seed}.png", str(root / f"images/{seed}.png"), rf"..\images\{seed}.png"]
        return f"{[*ways, f'~/images/{seed}.png'][seed % 4]},{ANIMALS[seed % 3]}"

    file = table(root, row, name="tables/pets.csv")
    monkeypatch.chdir(tmp_path)
    data = load(os.path.relpath(file))
    assert sorted(seeds(data.train.images) + seeds(data.test.images)) == list(range(30))


def test_missing_files_are_named_together(root: Path) -> None:
    file = table(root, lambda seed: f"images/{seed * 2}.png,{ANIMALS[seed % 3]}")
    for act in (load, lambda spec: whole_listing(f"csv:{spec}")):
        with pytest.raises(InputError) as raised:
            act(file)
        assert (
            "image files that are not there: 10 of 30: pets.csv line 22 (images/40.png), pets.csv line 23 "
            f"(images/42.png), pets.csv line 24 (images/44.png) and 7 more. Relative paths start at {root}."
        ) in str(raised.value)
    (root / "images/folder.png").mkdir()
    with pytest.raises(InputError, match=r"not there: 1 of 31: pets.csv line 32 \(images/folder.png\)"):
        load(table(root, lambda seed: plain(seed) if seed < 30 else "images/folder.png,cat", range(31)))


def test_an_image_twice_is_used_once_and_has_one_label(root: Path) -> None:
    def row(seed: int) -> str:
        return plain(seed % 20) if seed % 2 else f"images/../images/./{plain(seed % 20).removeprefix('images/')}"

    data = load(table(root, row))
    assert sorted(seeds(data.train.images) + seeds(data.test.images)) == list(range(20))
    assert data.notes[0].startswith("rows of an image that is there already, left out: 10: pets.csv line 22 (")
    with pytest.raises(InputError, match=r"pets\.csv line 2 \(images/0\.png\) has 'cat' and line 32 has 'dog'"):
        load(table(root, lambda seed: plain(seed) if seed < 30 else "./images/0.png,dog", range(31)))


def test_an_image_of_train_and_test_is_refused(root: Path) -> None:
    table(root, plain, name="train.csv")
    table(root, lambda seed: f"./{plain(seed)}", range(27, 33), name="test.csv")
    with pytest.raises(
        InputError, match=r"both train and test, .*; 3 are: test\.csv line 2 \(\./images/27\.png\) is tra"
    ):
        load(root)
    file = table(
        root,
        lambda seed: f"{plain(seed % 30)},{'test' if seed >= 29 else 'train'}",
        range(32),
        head="path,label,split",
    )
    with pytest.raises(InputError, match=r"; 2 are: pets\.csv line 32 \(images/0.png\) is pets\.csv line 2 "):
        load(file)


def test_unreadable_images_are_left_out_and_counted_or_refused(root: Path) -> None:
    for seed in (4, 11):
        (root / f"images/{seed}.png").write_bytes(b"no picture")
    table(root, plain, name="train.csv")
    table(root, plain, range(30, 36), name="test.csv")
    data = load(root)
    assert seeds(data.train.images) == [seed for seed in range(30) if seed not in (4, 11)]
    assert data.train.labels.tolist() == [seed % 3 for seed in seeds(data.train.images)]
    assert data.notes[-1].startswith("unreadable images, left out: 2 of 30: train.csv line 6 (images/4.png) (no known")
    with pytest.raises(InputError, match=r"train\.csv line 6 \(images/4\.png\) is not a readable image"):
        load(root, strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; a table has a header"),
        ("\n \n", "is empty; a table has a header"),
        ("\ufeff", "is empty; a table has a header"),
        ("path,label\n", r"no rows below the header \(path, label\)"),
        ("images/0.png,cat\nimages/1.png,dog\n", r"the first line \(the header\) names them, are images/0.png, cat\."),
        ("picture,label\nimages/0.png,cat\n", r"are picture, label\. Another one is chosen with csv:FILE\?path=COLUMN"),
        ("path,kind\nimages/0.png,cat\n", r"label column .*, are path, kind\. .* with csv:FILE\?label=COLUMN"),
        ("path\nimages/0.png\n", "the label column is named"),
        ("path|label\nimages/0.png|cat\n", r"are path\|label\."),
        ("path,label,path\nimages/0.png,cat,x\n", "columns have different names; 'path' is there twice"),
        ("path,label\nimages/0.png,cat\n,dog\n", "every image has a path; 1 path is missing, in line 3"),
        (
            "path,label\nimages/0.png,a,b\nimages/1.png\n",
            r"header, 2 .*; 2 do not: line 2 has 3, line 3 has 1\. A cell",
        ),
        ('path,label\nimages/0.png,cat\nimages/1.png,"dog\n\n', r"line 3 cannot be read \(unexpected end of data\)"),
        ('path,label\n"images/0.png"x,cat\n', r"line 2 cannot be read \(',' expected after '\"'\)"),
        ("path,label\nimages/0.png,cat\nimages/1.png,cat\n", "at least 2 classes; all images are 'cat'"),
        ("path,label\nimages/0.png,cat\nimages/1.png,dog\n", "at least 2 images of every class; class 'cat' has 1"),
    ],
)
def test_tables_that_cannot_be_trained_on(root: Path, text: str, message: str) -> None:
    (root / "x.csv").write_text(text, encoding="utf-8")
    for act in (sources.load, sources.listing):
        with pytest.raises(InputError, match=message):
            act(f"csv:{root / 'x.csv'}")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_other_encodings_are_refused(root: Path, encoding: str) -> None:
    file = table(root, lambda seed: f"images/{seed}.png,caf\u00e9", encoding=encoding)
    with pytest.raises(InputError, match=r"a table is UTF-8 text; this is not.*Save it as UTF-8"):
        load(file)


def test_places_without_a_table_are_refused(root: Path) -> None:
    cases = {
        f"{root}/none.csv": "there is no file or folder .*none.csv",
        f"{root}": r"a folder holds train.csv and test.csv \(or val.csv\); found no .csv",
        "a,b,c": "there is no file or folder a",
    }
    for spec, message in cases.items():
        with pytest.raises(InputError, match=message):
            load(spec)
    file = table(root, plain)
    with pytest.raises(InputError, match=f"found pets.csv. Did you mean csv:{file}?"):
        load(root)
    with pytest.raises(InputError, match="at most two files"):
        load(f"{file},{file},{file}")


def test_anomalies_are_the_test_part_or_everything_and_need_no_labels(root: Path) -> None:
    like = sources.load("digits")
    file = table(root, lambda seed: f"images/{seed % 6}.png", range(7), head="img", name="odd.csv")
    with pytest.warns(UserWarning, match="rows of an image that is there already, left out: 1: odd.csv line 8"):
        name, images = sources.load_anomalies(f"csv:{file}?path=img", like=like, size=8)
    assert name == "odd" and seeds(images.images) == list(range(6)) and images.labels.tolist() == [-1] * 6
    table(root, plain, name="train.csv")
    table(root, lambda seed: f"images/{seed}.png,", range(30, 35), name="test.csv")
    name, images = sources.load_anomalies(f"csv:{root}", like=like, size=8)
    assert name == "pets" and seeds(images.images) == list(range(30, 35))
    file = table(root, lambda seed: f"{plain(seed)},{['train', 'val'][seed % 2]}", head="path,label,split")
    assert len(sources.load_anomalies(f"csv:{file}", like=like, size=8)[1]) == 15


def test_listings_hold_files_and_the_same_order_as_in_memory(root: Path) -> None:
    spec = f"csv:{table(root, plain)}"
    data = sources.load(spec, seed=2)
    for part in ("train", "test"):
        listing = sources.listing(spec, part=part, seed=2)
        files = list(listing.pictures(np.arange(len(listing))))
        assert all(isinstance(file, Path) for file in files)
        assert [int(file.stem) for file in files if isinstance(file, Path)] == seeds(getattr(data, part).images)
        assert torch.equal(listing.labels, getattr(data, part).labels)
        assert listing.called(0) == f"pets.csv line {int(files[0].stem) + 2} (images/{files[0].stem}.png)"  # type: ignore
    everything = whole_listing(spec)
    assert everything.name == "pets" and everything.classes == ANIMALS and len(everything) == 30
    unlabelled = whole_listing(f"csv:{table(root, lambda seed: f'images/{seed}.png', head='path')}")
    assert unlabelled.classes == () and set(unlabelled.labels.tolist()) == {-1}


def test_copies_of_files_from_anywhere_have_names_of_their_own(root: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "images", tmp_path / "pets" / "pets" / "images"):
        place.mkdir(parents=True)
        Image.fromarray(picture(50)).save(place / "0.png")
    rows = ["images/0.png", "../images/0.png", str(root / "pets/images/0.png"), "./images/2.png", "images/1.png"]
    file = table(root, lambda row: f"{rows[row]},{'cat' if row < 4 else 'dog'}", range(5))
    names = image_paths(whole_listing(f"csv:{file}"), np.arange(5), ".jpg")
    assert len({name.lower() for name in names}) == 5
    for name in names:
        assert (
            name.startswith(("cat/", "dog/"))
            and ".." not in name
            and not name.startswith("/")
            and name.endswith(".jpg")
        )
