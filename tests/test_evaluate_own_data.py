"""`anchored evaluate RUN` without --data: the run's own test images, found again, and never those it was trained on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures import ROOT
from images import class_folders, encoded, picture, write_parquet
from PIL import Image
from saved_run import CLASSES, saved_run

import anchored.data as sources
from anchored.cli import main
from anchored.data.base import ImageSet, Options
from anchored.data.listings import decode_rows
from anchored.data.recorded import source_of
from anchored.evaluation.rows import read_rows
from anchored.evaluation.scores import read_scores
from anchored.system.files import read_json, write_json

COUNTS = dict.fromkeys(CLASSES, 10)
QUICK = ["--device", "cpu"]


def run_on(folder: Path, spec: str, method: str = "masking", **more: object) -> Path:
    """A saved run that says it was trained on `spec`, as training does."""
    data = sources.load(spec, size=16)
    told = {"data": data.name, "split": data.split, "train_size": len(data.train), "source": source_of(spec), **more}
    return saved_run(folder, method, **told).folder


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    """What the command says to them; it does nothing."""
    out = tmp_path / "refused"
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *arguments, *QUICK, "--out", str(out)])
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and not out.exists(), errors
    (line,) = [line for line in errors.splitlines() if not line.startswith("Note: ")]
    return line


def evaluated(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str = "out") -> str:
    """The notes of an evaluation into tmp_path/name."""
    main(["evaluate", *arguments, *QUICK, "--out", str(tmp_path / name)])
    return capsys.readouterr().err


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, the current one, with photos/ in it; the data has no test part of its own."""
    project = tmp_path / "project"
    class_folders(project / "photos", COUNTS, side=16)
    monkeypatch.chdir(project)
    return project


def test_the_run_and_its_fold_know_their_data(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_on(tmp_path / "run", "folder:photos")
    assert "Note: --data folder:photos (the run's own)\n" in evaluated([str(run)], tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    both = evaluated([str(run), f"fold:{run}"], tmp_path, capsys, "both")
    assert f"Note: --data folder:{photos / 'photos'} (the runs' own)\n" in both
    for out in ("out", "both"):
        config = read_json(tmp_path / out / "config.json")
        assert (config["data"]["name"], config["data"]["test_size"]) == ("folder:photos", 8)
        assert config["settings"]["data"].endswith("photos")
    one, other = (read_scores(tmp_path / out / "runs" / "run" / "scores" / "clean.parquet") for out in ("out", "both"))
    for column, values in one.items():
        np.testing.assert_array_equal(values, other[column])


def test_data_that_is_gone_is_named(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_on(tmp_path / "run", "folder:photos")
    (photos / "photos").rename(photos / "elsewhere")
    gone = f"trained on folder:{photos / 'photos'}, which is not there; pass --data."
    assert f"the run was {gone}" in refused([str(run)], capsys, tmp_path)
    assert f"the run was {gone}" in refused([f"fold:{run}"], capsys, tmp_path)
    other = run_on(tmp_path / "other", "folder:elsewhere")
    assert f"the run {run} was {gone}" in refused([str(other), str(run)], capsys, tmp_path)
    evaluated([str(run), "--data", "folder:elsewhere"], tmp_path, capsys)
    assert {row.n for row in read_rows(tmp_path / "out" / "rows.jsonl")} == {8}


def test_runs_that_disagree_are_told_apart(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_folders(photos / "b" / "photos", COUNTS, side=16, seed=7)
    one, other = run_on(tmp_path / "one", "folder:photos"), run_on(tmp_path / "other", "folder:b/photos", "standard")
    line = refused([str(one), str(other)], capsys, tmp_path)
    assert f"{one} on folder:photos, {other} on folder:b/photos" in line and "--data" in line
    same = run_on(tmp_path / "same", f"folder:{photos / 'photos'}", "standard")  # other words for the same place
    assert "(the runs' own)" in evaluated([str(one), str(same)], tmp_path, capsys)


def test_a_folder_here_that_is_not_the_recorded_one_is_told(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_on(tmp_path / "run", "folder:photos")
    class_folders(tmp_path / "copy" / "photos", COUNTS, side=16)
    monkeypatch.chdir(tmp_path / "copy")
    notes = evaluated([str(run)], tmp_path, capsys)
    assert f"--data folder:photos (the run's own; {photos / 'photos'} is another place and is not used)" in notes


def test_data_that_has_changed_since_is_refused_as_it_may_mix_training_and_test_images(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_on(tmp_path / "run", "folder:photos")
    class_folders(photos / "photos", {**COUNTS, "emu": 12}, side=16)
    line = refused([str(run)], capsys, tmp_path)
    assert "split stratified 80 / 20 of 40 images, seed 0" in line and "of 42 images" in line and "--data" in line
    notes = evaluated([str(run), "--data", "folder:photos"], tmp_path, capsys)
    assert "of 42 images, seed 0: images it was trained on may be among the test images" in notes
    notes = evaluated([str(run), "--part", "all"], tmp_path, capsys, "all")
    assert f"Note: --part all: the training images of {run} are among those" in notes
    assert {row.n for row in read_rows(tmp_path / "all" / "rows.jsonl")} == {42}


def test_a_run_of_the_hub_comes_without_its_data(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    repository = tmp_path / "hub" / "models--someone--net"
    data = sources.load("folder:photos", size=16)
    told = {"data": data.name, "split": data.split, "source": source_of("folder:photos")}
    saved_run(repository / "snapshots" / "abc", model="resnet9", **told)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (photos / "photos").rename(photos / "mine")
    for spec in ("someone/net", "fold:someone/net"):
        line = refused([spec], capsys, tmp_path)
        assert f"the run was trained on folder:{photos / 'photos'}, which is not there; pass --data." in line
    evaluated(["someone/net", "fold:someone/net", "--data", "folder:mine"], tmp_path, capsys)
    rows = read_rows(tmp_path / "out" / "rows.jsonl")
    assert {row.run for row in rows} == {"someone-net", "someone-net-folded"}
    assert "someone/else is no folder here" in refused(["someone/else"], capsys, tmp_path)


def test_an_imported_checkpoint_without_data_has_none_of_its_own(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = saved_run(tmp_path / "imported").folder
    assert "no model says one" in refused([str(imported)], capsys, tmp_path)
    run = run_on(tmp_path / "run", "folder:photos", "standard")
    assert "--data folder:photos" in evaluated([str(imported), str(run)], tmp_path, capsys)


# --- runs from before the source was recorded


def test_an_older_run_has_the_data_of_its_comparison(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", "folder:photos", "--model", "tiny_model:tiny", "--image-size", "16", "--epochs", "1"]
    main(["compare", *flags, *QUICK, "--on", "clean", "--anomalies", "photos", "--out", str(tmp_path / "c")])
    run = tmp_path / "c" / "runs" / "vanilla-seed0"
    info = read_json(run / "run.json")
    info.pop("source", None)
    write_json(run / "run.json", info)
    notes = evaluated([str(run)], tmp_path, capsys)
    assert "Note: --data folder:photos (the run's own)" in notes
    before, after = (
        read_scores(folder / "runs" / "vanilla-seed0" / "scores" / "clean.parquet")
        for folder in (tmp_path / "c", tmp_path / "out")
    )
    for column, values in before.items():
        np.testing.assert_array_equal(after[column], values, err_msg=column)
    monkeypatch.chdir(tmp_path)
    assert "the run was trained on folder:photos, which is not there; pass --data." in refused(
        [str(run)], capsys, tmp_path
    )
    alone = Path(shutil.copytree(run, tmp_path / "alone"))
    assert "the runs say folder:photos, but not where that is" in refused([str(alone)], capsys, tmp_path)


def test_an_older_run_of_embedded_data_needs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests")
    golden = ROOT / "tests" / "golden" / "comparison" / "runs" / "vanilla-seed0"
    alone = Path(shutil.copytree(golden, tmp_path / "alone"))
    for number, run in enumerate((golden, alone)):
        notes = evaluated([str(run), "--limit", "50"], tmp_path, capsys, str(number))
        assert "Note: --data digits (the run's own)" in notes and "trained on may be" not in notes
        assert {row.n for row in read_rows(tmp_path / str(number) / "rows.jsonl")} == {50}


# --- the test images are those that training did not see


@pytest.mark.parametrize("kind", ["folder", "npz", "parquet", "hf"])
def test_evaluation_and_training_split_the_data_alike(kind: str, tmp_path: Path) -> None:
    """Of data without a test part: what `evaluate` lists is what `load` holds out, and none of it is trained on."""
    counts = {"a": 13, "b": 9, "c": 5}
    images = [picture(seed, 16) for seed in range(sum(counts.values()))]
    labels = np.repeat(np.arange(3), list(counts.values()))
    path = tmp_path / "data"
    if kind == "folder":
        class_folders(path, counts, side=16)
    elif kind == "npz":
        path = path.with_suffix(".npz")
        np.savez(path, x_train=np.stack(images), y_train=labels)
    elif kind == "parquet":
        path = write_parquet(path.with_suffix(".parquet"), [encoded(image) for image in images], labels.tolist())
    else:
        datasets = pytest.importorskip("datasets")
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(counts))})
        columns = {"image": [Image.fromarray(image) for image in images], "label": labels.tolist()}
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(path)
    data = sources.load(f"{kind}:{path}", size=16)
    listing = sources.listing(f"{kind}:{path}", part="test")
    tested, _ = decode_rows(listing, torch.arange(len(listing)), Options(16))
    assert listing.split == data.split and isinstance(data.test, ImageSet) and isinstance(data.train, ImageSet)
    assert torch.equal(tested.images, data.test.images) and torch.equal(tested.labels, data.test.labels)
    trained = {image.numpy().tobytes() for image in data.train.images}
    assert len(trained) + len(tested) == len(images)
    assert trained.isdisjoint(image.numpy().tobytes() for image in tested.images)
