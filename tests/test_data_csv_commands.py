"""Real images behind a csv: compared, streamed, evaluated on and corrupted by the commands."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from fixtures import ROOT, shared
from images import class_folders
from PIL import Image
from test_stream import stream

from anchored import data as sources
from anchored.cli import main
from anchored.comparison.inputs import prepare
from anchored.data.base import TEST_WORDS, TRAIN_WORDS
from anchored.data.parquet import IMAGE_COLUMNS, LABEL_COLUMNS
from anchored.data.stream import Streamed
from anchored.data.table import COLUMNS
from anchored.evaluation.rows import read_rows
from anchored.evaluation.scores import read_scores
from anchored.evaluation.settings import EvaluationSettings
from anchored.system.errors import InputError

MODEL = ["--model", "tiny_model:tiny", "--epochs", "1", "--batch-size", "8", "--methods", "standard"]
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
KEPT = ("ship", "dog", "airplane")


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNG files of real images of three classes, and tables of them: of text, of 1..N, of both parts, of anomalies."""
    root = tmp_path_factory.mktemp("real")
    found = pq.ParquetFile(shared("ANCHORED_DATA", "data") / "cifar10" / "test.parquet")
    rows = next(found.iter_batches(300)).to_pylist()
    (root / "png").mkdir()
    written = []
    for number, row in enumerate(rows):
        if NAMES[row["label"]] in KEPT:
            Image.open(io.BytesIO(row["image"]["bytes"])).save(root / "png" / f"{number}.png")
            written.append((f"png/{number}.png", NAMES[row["label"]], ("test", "train", "train")[len(written) % 3]))
    places = {name: number for number, name in enumerate(KEPT, 1)}

    def write(name: str, header: list[str], cells: list[tuple[object, ...]]) -> None:
        with open(root / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *cells])

    write("text.csv", ["path", "label", "split"], list(written))
    write("numbers.csv", ["image", "class", "set"], [(path, places[label], part) for path, label, part in written])
    write("whole.csv", ["image", "class"], [(path, places[label]) for path, label, _ in written])
    class_folders(root / "noise", {"x": 12}, side=32)
    write("odd.csv", ["file"], [(f"noise/x/{number:03}.png",) for number in range(12)])
    return root


def test_compare_and_evaluate_on_tables(cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    flags = ["--on", "clean", "--anomalies", f"csv:{cifar / 'odd.csv'}", "--out", str(out)]
    main(["compare", "--data", f"csv:{cifar / 'numbers.csv'}", *MODEL, *flags])
    note = "labels 1..3 are numbered 0..2; class names are the labels themselves"
    captured = capsys.readouterr()
    assert f"Note: {note}" in captured.err and "report.html" in captured.out
    config = json.loads((out / "config.json").read_text())["data"]
    assert note in config["notes"] and config["classes"] == ["1", "2", "3"] and config["name"] == "csv:numbers"
    run = out / "runs" / "standard-seed0"
    assert json.loads((run / "run.json").read_text())["classes"] == ["1", "2", "3"]
    rows = read_rows(out / "rows.jsonl")
    assert {row.benchmark for row in rows} == {"clean", "odd"} and {row.data for row in rows} == {"csv:numbers"}
    labels = read_scores(run / "scores" / "clean.parquet")["label"]
    test = sources.listing(f"csv:{cifar / 'text.csv'}", part="test")
    assert [str(KEPT.index(test.classes[label]) + 1) for label in test.labels] == [str(label + 1) for label in labels]

    evaluated = tmp_path / "evaluated"
    main(
        [
            "evaluate", str(run), "--data", f"csv:{cifar / 'numbers.csv'}", "--on", "clean",
            f"csv:{cifar / 'whole.csv'}", "--anomalies", f"csv:{cifar / 'odd.csv'}?path=file", "--out", str(evaluated),
        ]
    )  # fmt: skip
    scores = evaluated / "runs" / "standard-seed0" / "scores"
    names = {path.stem for path in scores.iterdir()}
    assert names == {"clean", "whole", "odd"}
    again = read_scores(scores / "clean.parquet")
    np.testing.assert_array_equal(again["energy"], read_scores(run / "scores" / "clean.parquet")["energy"])
    every = read_scores(scores / "whole.parquet")
    with open(cifar / "whole.csv", newline="") as file:
        given = [int(row["class"]) - 1 for row in csv.DictReader(file)]
    assert every["label"].tolist() == given


def test_text_and_numbers_of_the_same_images_train_alike(cifar: Path) -> None:
    text, numbers = (sources.load(f"csv:{cifar / name}") for name in ("text.csv", "numbers.csv"))
    assert text.classes == tuple(sorted(KEPT)) and numbers.classes == ("1", "2", "3")
    for part in ("train", "test"):
        one, other = getattr(text, part), getattr(numbers, part)
        assert torch.equal(one.images, other.images)
        assert [text.classes[a] for a in one.labels] == [KEPT[int(numbers.classes[b]) - 1] for b in other.labels]


def test_streamed_tables_are_those_in_memory(cifar: Path, tmp_path: Path) -> None:
    spec = f"csv:{cifar / 'text.csv'}"
    given = dataclasses.replace(stream(cifar, methods=("standard",), image_size=24), data=spec)
    streamed = prepare(given).first.data
    memory = sources.load(spec, size=24)
    assert isinstance(streamed.train, Streamed) and streamed.classes == memory.classes
    assert streamed.notes == memory.notes and streamed.split == memory.split
    for part in ("train", "test"):
        one, other = getattr(streamed, part), getattr(memory, part)
        assert torch.equal(one.take(torch.arange(len(one))), other.images) and torch.equal(one.labels, other.labels)
    out = tmp_path / "out"
    main(["compare", "--data", spec, *MODEL, "--image-size", "24", "--stream", "--on", "clean", "--out", str(out)])
    assert (out / "report.html").stat().st_size > 0


@pytest.mark.parametrize("layout", ["arrays", "folder"])
def test_tables_are_corrupted_in_both_layouts(cifar: Path, layout: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ["--suite", "fog", "--severities", "2", "--layout", layout, "--workers", "1", "--out", str(out)]
    main(["corrupt", f"csv:{cifar / 'text.csv'}", *flags])
    test = sources.listing(f"csv:{cifar / 'text.csv'}", part="test")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["classes"] == list(test.classes) and manifest["images"]["count"] == len(test)
    if layout == "arrays":
        assert np.load(out / "labels.npy").tolist() == test.labels.tolist()
    else:
        made = [path.relative_to(out / "fog" / "2").with_suffix("") for path in (out / "fog" / "2").glob("*/png/*.*")]
        assert test.files is not None
        names = zip(test.labels.tolist(), test.files, strict=True)
        assert sorted(made) == sorted(Path(test.classes[label], name).with_suffix("") for label, name in names)


def test_tables_are_test_sets_and_so_are_saved_data_sets() -> None:
    for on in ("csv:x.csv", "csv:x.csv?label=y", "hf:saved", "folder:x", "parquet:x", "npz:x"):
        assert EvaluationSettings(models=("m",), on=("clean", on)).on[1] == on
    for on in ("csv:", "csv", "tsv:x"):
        with pytest.raises(InputError, match=r"unknown benchmark .*csv:PATH"):
            EvaluationSettings(models=("m",), on=(on,))


def test_the_page_on_data_names_every_source_and_column() -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for written in (*sources.sources(), *(f"`{name}`" for names in COLUMNS.values() for name in names)):
        assert written in page, written
    for name in LABEL_COLUMNS + IMAGE_COLUMNS:
        assert f"`{name}`" in page, name
    for word in (*TRAIN_WORDS, *TEST_WORDS[0], *TEST_WORDS[1]):
        assert f"`{word}`" in page, word
