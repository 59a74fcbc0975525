"""What `anchored evaluate` says to bad input: one line, status 2; and what is allowed, with a note."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders, encoded, picture, write_parquet
from PIL import Image

from anchored.cli import main
from anchored.data.base import Options
from anchored.data.listings import whole_listing
from anchored.evaluation.cell_images import streamed
from anchored.evaluation.rows import Cell, read_rows
from anchored.evaluation.run_folders import is_run
from anchored.evaluation.scores import read_scores, score
from anchored.method.protocols import direct
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

QUICK = ["--device", "cpu", "--image-size", "16"]


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"folder:{class_folders(tmp_path / 'data', {'red': 10, 'green': 10, 'blue': 10}, side=16)}"


def refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "refused"
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *arguments, "--out", str(out)])
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and message in errors and "Traceback" not in errors, errors
    assert not (out / "rows.jsonl").exists()


def test_bad_flags_are_one_line(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["tiny_model:colour", "--data", data, *QUICK]
    for arguments, message in (
        (["tiny_model:colour"], "--data says where the test images are"),
        (["resnet10", "--data", data], "is no folder of a run and no model"),
        ([str(tmp_path), "--data", data], "it has no run.json"),
        ([*model, "--on", "imagenet-q"], "Did you mean 'imagenet-r'"),
        ([*model, "--on", "fogg"], "Did you mean 'fog'"),
        ([*model, "--severities", "6"], "severities are 1 to 5; got 6"),
        ([*model, "--baseline", "nobody"], "--baseline is one of the models or alexnet"),
        ([*model, "--std", "1", "0", "1"], "--std takes three numbers"),
        ([*model, "--weights", "none", "none"], "one value for all models"),
        (["tiny_model:colour", "tiny_model:colour", "--data", data, *QUICK], "is given twice"),
        (["tiny_model:colour", "--data", data], "pass --image-size"),
        ([*model, "--on", "isun"], "unknown benchmark 'isun'"),
        ([*model, "--anomalies", "isun", "--root", str(tmp_path / "r")], f"Put it at {tmp_path / 'r' / 'iSUN'}"),
        ([*model, "--on", "imagenet-r", "--root", str(tmp_path / "r")], f"Put it at {tmp_path / 'r' / 'imagenet-r'}"),
        (["fold:" + str(tmp_path / "none"), "--data", data], "is no folder of a run"),
    ):
        refused(arguments, message, capsys, tmp_path)


def test_a_torchvision_model_with_random_weights_is_evaluated_and_said_to_guess(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--weights", "none", "--data", data, "--image-size", "32", "--device", "cpu"]
    main(["evaluate", "torchvision:shufflenet_v2_x0_5", *flags, "--out", str(out)])
    assert "has random weights (--weights none): its accuracy is that of guessing" in capsys.readouterr().err
    rows = read_rows(out / "rows.jsonl")
    assert {(row.weights, row.recipe, row.model) for row in rows} == {
        ("random", "untrained", "torchvision:shufflenet_v2_x0_5")
    }
    assert all(np.isfinite(row.value) for row in rows)


def test_one_class_sets(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = class_folders(tmp_path / "one", {"red": 4}, side=16)
    model = ["tiny_model:colour", *QUICK]
    refused([*model, "--data", f"folder:{one}"], "at least 2 classes", capsys, tmp_path)
    refused([*model, "--data", data, "--on", f"folder:{one}"], "at least 2 of its classes", capsys, tmp_path)
    odd = class_folders(tmp_path / "odd", {"moss": 4}, side=16)  # anomalies may well be of one kind
    main(["evaluate", *model, "--data", data, "--anomalies", f"folder:{odd}", "--out", str(tmp_path / "out")])
    assert any(row.metric == "auroc" and row.n_other == 4 for row in read_rows(tmp_path / "out" / "rows.jsonl"))


def test_labels_out_of_range(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [encoded(picture(i, 16)) for i in range(6)]
    path = write_parquet(tmp_path / "bad.parquet", images, [0, 1, 2, 3, 0, 1], names=["red", "green", "blue"])
    model = ["tiny_model:colour", "--data", data, *QUICK]
    refused([*model, "--on", f"parquet:{path}"], "there are 3 classes; there is 3", capsys, tmp_path)
    stored = tmp_path / "c"
    stored.mkdir()
    np.save(stored / "fog.npy", np.zeros((30, 16, 16, 3), np.uint8))
    np.save(stored / "labels.npy", np.tile([0, 1, 2, 0, 1, 7], 5))
    refused([*model, "--on", f"c:{stored}"], "labels are 0 to 2, as there are 3 classes; there is 7", capsys, tmp_path)
    with pytest.raises(InputError, match="labels must lie in"):
        score(
            direct(torch.nn.Flatten()),
            torch.zeros((2, 1, 1, 3), dtype=torch.uint8),
            torch.tensor([0, 3]),
            torch.arange(2),
            Preprocess(1, (0, 0, 0), (1, 1, 1)),
            device=torch.device("cpu"),
        )


def test_a_missing_corruption_is_named_and_an_error_where_asked(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "c"
    stored.mkdir()
    np.save(stored / "fog.npy", np.zeros((30, 16, 16, 3), np.uint8))
    np.save(stored / "labels.npy", np.tile([0, 0, 1, 1, 2, 2], 5))
    model = ["tiny_model:colour", "--data", data, *QUICK, "--on", f"c:{stored}"]
    main(["evaluate", *model, "--severities", "1", "--out", str(tmp_path / "out")])
    assert "1 of 19 corruptions found in c: fog; missing:" in capsys.readouterr().err
    metrics = {row.metric for row in read_rows(tmp_path / "out" / "rows.jsonl")}
    assert "top1_mean" in metrics and "mce" not in metrics
    assert "1 of 19 corruptions found" in (tmp_path / "out" / "report.html").read_text()
    refused([*model, "--strict"], "1 of 19 corruptions found", capsys, tmp_path)
    refused([*model[:-1], f"c-bar:{stored}"], "has no corruption of c-bar", capsys, tmp_path)


def test_logits_that_are_no_numbers(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["tiny_model:not_a_number", "--data", data, *QUICK]
    refused(
        model,
        "tiny_model-not_a_number on clean: logits must be numbers; they are NaN",
        capsys,
        tmp_path,
    )


def test_anomalies_that_are_the_test_images(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["tiny_model:colour", "--data", data, *QUICK, "--anomalies", data]
    refused(model, "but 3 of its classes are classes of the models", capsys, tmp_path)
    refused([*model, "--exclude-classes", "known"], "all are of excluded classes", capsys, tmp_path)


def test_another_evaluation_in_the_folder_is_refused(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["evaluate", "tiny_model:colour", "--data", data, *QUICK, "--out", str(tmp_path / "refused")])
    (tmp_path / "refused" / "rows.jsonl").unlink()
    more = ["tiny_model:colour", "--data", data, *QUICK]
    refused([*more, "--limit", "3"], "holds another evaluation", capsys, tmp_path)
    refused([*more, "--mean", "0.5", "0.5", "0.5"], "another model called tiny_model-colour", capsys, tmp_path)


def test_unreadable_images_are_left_out_and_counted(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "data", {"blue": 6, "green": 6, "red": 6}, side=16)
    (root / "green" / "001.png").write_bytes(b"no image")
    listing = whole_listing(f"folder:{root}")
    rows = torch.arange(len(listing))
    cell = streamed(Cell("set"), listing, listing.labels, rows, Options(16))
    for size in (1, 4, 7, 100):  # with 1, nothing of a part can be read
        parts = list(cell.parts(size))
        positions = torch.cat([part for part, _ in parts])
        assert max(len(part) for part, _ in parts) <= size
        assert positions.tolist() == [i for i in range(18) if i != 7] and cell.left_out == {7}
        for part, images in parts:
            for position, image in zip(part.tolist(), images, strict=True):
                expected = np.asarray(Image.open(root / listing.called(position)))
                np.testing.assert_array_equal(image.numpy(), expected)
    with pytest.raises(InputError, match=r"001\.png is not a readable image"):
        list(streamed(Cell("set"), listing, listing.labels, rows, Options(16, strict=True)).parts(5))
    assert len(cell.take(torch.tensor([7]))) == 0
    np.testing.assert_array_equal(cell.take(torch.tensor([8, 7, 0])), cell.take(torch.tensor([8, 0])))
    out = tmp_path / "out"
    command = [
        "evaluate",
        "tiny_model:colour",
        "--data",
        f"folder:{root}",
        "--part",
        "all",
        *QUICK,
        "--out",
        str(out),
    ]
    main(command)
    assert len(read_scores(out / "runs" / "tiny_model-colour" / "scores" / "clean.parquet")["index"]) == 17
    assert {row.n for row in read_rows(out / "rows.jsonl")} == {17}
    notes = json.loads((out / "config.json").read_text())["data"]["notes"]
    assert any("unreadable images, left out: 1: green/001.png" in note for note in notes)


def test_a_set_of_which_nothing_can_be_read(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = class_folders(tmp_path / "broken", {"red": 2, "green": 2}, side=16)
    for file in broken.rglob("*.png"):
        file.write_bytes(b"no image")
    model = ["tiny_model:colour", "--data", data, *QUICK, "--on", f"folder:{broken}"]
    refused(model, "broken: none of the 4 images is readable", capsys, tmp_path)


def test_what_is_a_run(tmp_path: Path) -> None:
    assert is_run(str(tmp_path)) and is_run("runs/x") and is_run("fold:runs/x") and is_run("resnet10")
    assert not any(map(is_run, ("resnet18", "timm:hf_hub:timm/x", "torchvision:resnet18", "my.module:net")))
