"""`anchored compare`, end to end: what it writes, bad input, and resuming after kill -9 to the same bits."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from images import class_folders
from PIL import Image

import anchored
from anchored.cli import main
from anchored.evaluation.rows import read_rows
from anchored.evaluation.scores import read_scores
from anchored.runs import run as runs
from anchored.system.files import in_use

TESTS = Path(__file__).parent
QUICK = ["--model", "tiny_model:tiny", "--on", "clean", "gaussian_noise", "--severities", "3", "--limit", "120"]


def test_compare_writes_everything_and_says_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["compare", *QUICK, "--epochs", "2", "--masked-target", "uniform", "label", "--out", str(out)]
    main(arguments)
    printed = capsys.readouterr().out
    assert "masking" in printed and "one seed" in printed and "report.html" in printed
    rows = read_rows(out / "rows.jsonl")
    assert {row.arm for row in rows} == {"standard", "vanilla", "masking-uniform", "masking-label"}
    assert {row.benchmark for row in rows} == {"clean", "corruptions", "photos"}
    for row in rows:
        folder = out / "runs" / row.run / "scores"
        if row.metric == "top1":
            name = "clean" if row.benchmark == "clean" else "corruptions-gaussian_noise-3"
            scores = read_scores(folder / f"{name}.parquet")
            assert row.n == 120 and row.value == pytest.approx(100 * scores["correct"].mean())
    for name in ("config.json", "report.html", "table.md"):
        assert (out / name).stat().st_size > 0
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")} | {out: (out / "rows.jsonl").read_bytes()}
    main(arguments)  # finished: nothing is trained again
    assert (out / "rows.jsonl").read_bytes() == before[out]

    run = runs.load(out / "runs" / "masking-uniform-seed0")
    clean = read_scores(out / "runs" / "masking-uniform-seed0" / "scores" / "clean.parquet")
    test = anchored.data.load("digits").test.images[torch.from_numpy(clean["index"].copy())]
    np.testing.assert_array_equal(run.predict(test).logits.argmax(1).numpy(), clean["prediction"])
    spread = run.predict(test[:3], protocol="k_random", k=5)
    assert spread.std is not None and spread.std.shape == (3, 10)

    picture = tmp_path / "one.png"
    Image.fromarray(test[0].numpy()).save(picture)
    main(["predict", str(run.folder), str(picture), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["class"] == str(clean["prediction"][0])


def test_own_folder_and_a_pretrained_timm_model(tmp_path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    class_folders(tmp_path / "pictures", {"cat": 30, "dog": 30}, side=48)
    torch.manual_seed(0)
    net = timm.create_model("test_vit", num_classes=7)
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    flags = ["--data", f"folder:{tmp_path / 'pictures'}", "--model", "timm:test_vit", "--epochs", "1"]
    flags += ["--weights", str(tmp_path / "weights.safetensors"), "--batch-size", "8", "--on", "clean"]
    flags += ["--methods", "standard", "masking", "--anomalies", "digits", "--out", str(tmp_path / "out")]
    main(["compare", *flags])
    info = json.loads((tmp_path / "out" / "runs" / "masking-uniform-seed0" / "run.json").read_text())
    assert info["config"]["recipe"]["name"] == "finetune" and info["stems"] and info["classes"] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "digit"], "unknown data 'digit'. Did you mean 'digits'"),
        (["--data", "folder:/nowhere/at/all"], "/nowhere/at/all"),
        (["--model", "resnet10"], "Did you mean 'resnet18'"),
        (["--methods", "vanila"], "Did you mean 'vanilla'"),
        (["--masked-target", "none"], "masked-target is one of uniform, label"),
        (["--masked-bn", "drop"], "masked-bn is one of"),
        (["--alpha", "1.5"], "[0, 1]; got 1.5"),
        (["--epochs", "0"], "epochs is at least 1"),
        (["--lr", "-1"], "lr is a positive number"),
        (["--references", "99999"], "at most the 1347 training images"),
        (["--recalibrate-bn", "99999"], "at most the 1347 training images"),
        (["--protocol", "k_random", "--k", "5000"], "k = 5000"),
        (["--severities", "6"], "severities are 1 to 5; got 6"),
        (["--on", "clean", "fogg"], "Did you mean 'fog'"),
        (["--anomalies", "photo"], "unknown"),
        (["--recipe", "quick"], "unknown recipe 'quick'"),
        (["--device", "tpu"], "device 'tpu' is not on this machine"),
        (["--weights", "/no/weights.pt"], "/no/weights.pt"),
        (["--limit", "0"], "limit is at least 1"),
        (["--seeds", "1", "1"], "seeds takes one or more different values"),
    ],
)
def test_bad_input_ends_with_one_message_and_nothing_written(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--out", str(out), *flags])
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in errors and "Traceback" not in errors
    assert not out.exists()


def test_a_changed_model_of_the_same_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tiny_model
    from torch import nn

    arguments = ["compare", *QUICK, "--methods", "standard", "--epochs", "1", "--out", str(tmp_path / "out")]
    main(arguments)
    before = tiny_model.tiny
    monkeypatch.setattr(tiny_model, "tiny", lambda num_classes: nn.Sequential(before(num_classes), nn.Tanh()))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and "the model or its weights differ" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["a file", "below a file"])
def test_a_place_that_is_no_folder_is_one_message(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    out = tmp_path / "file" / ("out" if place == "below a file" else "")
    with pytest.raises(SystemExit) as ended:
        main(["compare", *QUICK, "--methods", "standard", "--epochs", "1", "--out", str(out)])
    assert ended.value.code == 2 and "Error: cannot write" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "x"


def test_too_few_steps_and_steps_without_a_mask_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [
            "compare",
            *QUICK,
            "--methods",
            "standard",
            "masking",
            "--epochs",
            "1",
            "--train-limit",
            "200",
            "--out",
            str(tmp_path),
        ]
    )
    said = capsys.readouterr().err
    assert "each run takes only 1 step (" in said and "none of the 1 steps of seed 0 is masked" in said


def test_another_comparison_in_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", *QUICK, "--methods", "standard", "--epochs", "1", "--out", str(tmp_path / "out")]
    main(arguments)
    with pytest.raises(SystemExit):
        main([*arguments, "--seeds", "4", "--epochs", "2"])
    assert "(epochs: 1 there, 2 here)" in capsys.readouterr().err


def test_two_processes_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", *QUICK, "--methods", "standard", "--epochs", "1", "--out", str(tmp_path / "out")]
    main(arguments)
    with in_use(tmp_path / "out"), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and "another process is working in" in capsys.readouterr().err
    main(arguments)


def test_a_loss_that_is_not_finite_stops_with_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *QUICK, "--methods", "standard", "--lr", "1e30", "--out", str(tmp_path / "out")])
    assert ended.value.code == 1 and "at step" in capsys.readouterr().err


def digest(out: Path) -> dict[str, str]:
    """What must come out the same: weights, references, scores and rows."""
    files = [out / "rows.jsonl", *out.rglob("*.safetensors"), *out.rglob("scores/*.parquet")]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def start(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "anchored", "compare", *QUICK, "--methods", "standard", "masking"]
    command += ["--epochs", "12", "--batch-size", "64", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_kill_9_at_any_moment_resumes_to_the_same_bits(tmp_path: Path) -> None:
    assert start(tmp_path / "whole").wait() == 0
    out = tmp_path / "killed"
    log = out / "runs" / "standard-seed0" / "log.jsonl"
    kills = 0
    for delay in (0.0, 0.4, 0.9):
        process = start(out)
        deadline = time.monotonic() + 60
        seen = log.stat().st_size if log.exists() else 0
        while time.monotonic() < deadline and process.poll() is None:
            if log.exists() and b"checkpoint" in log.read_bytes()[seen:]:
                break
            if (out / "runs" / "masking-seed0").exists() or (out / "runs" / "masking-uniform-seed0").exists():
                break
            time.sleep(0.02)
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2, "the runs ended before they could be killed"
    assert start(out).wait() == 0
    assert digest(out) == digest(tmp_path / "whole")
    resumes = 0
    for path in out.rglob("log.jsonl"):
        reached = 0
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "resume":
                resumes += 1
                assert reached - event["step"] <= 1347 // 64, "a resume repeats at most one epoch"
            reached = max(reached, event["step"])
    assert resumes >= 1
