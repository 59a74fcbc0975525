"""The command line: versions, help, YAML files of flags, and predict on good and bad images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fixtures import ROOT
from PIL import Image

from anchored.cli import main, parser

TINY = ["--model", "tiny_model:tiny", "--epochs", "1", "--train-limit", "64", "--limit", "100"]


def flags(*arguments: str) -> dict[str, object]:
    parsed = parser().parse_args(list(arguments))
    return dict(parsed[parsed.subcommand].as_dict())


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == 0
    assert capsys.readouterr().out.startswith("anchored 0.")


@pytest.mark.parametrize("command", ["compare", "train", "evaluate"])
def test_help_is_in_groups(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command, "--help") == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert "running:" in headings and len(headings) >= 4


def test_a_file_of_flags_is_read_as_people_write_it(tmp_path: Path) -> None:
    file = tmp_path / "flags.yaml"
    file.write_text("methods: standard\nseeds: 3\non: clean\nlr: 1e-3\ntrain-limit: 64\nsmoke: true\nanomalies: []\n")
    found = flags("compare", "--config", str(file), "--epochs", "2")
    expected = {"methods": ["standard"], "seeds": [3], "on": ["clean"], "lr": 0.001, "train_limit": 64, "epochs": 2}
    assert {name: found[name] for name in expected} == expected
    assert found["smoke"] is True and found["anomalies"] == []
    file.write_text("method: masking\nmasked_target: label\n")
    assert flags("train", "--config", str(file))["masked_target"] == "label", "one value is meant in train"


def test_an_unknown_flag_in_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flags.yaml"
    file.write_text("epoch: 3\n")
    assert ended("compare", "--config", str(file)) == 2
    assert "does not accept option 'epoch'" in capsys.readouterr().err


def test_flags_of_a_run_hold_the_whole_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("recipe: cpu_quick\nclip: 1\n")
    main(["train", *TINY[:6], "--recipe", str(recipe), "--set", "ema_decay=0.9", "--out", str(tmp_path / "a")])
    recipe.unlink()
    main(["train", "--config", str(tmp_path / "a" / "flags.yaml"), "--out", str(tmp_path / "b")])
    main(["train", "--config", str(tmp_path / "a" / "flags.yaml"), "--set", "clip=null", "--out", str(tmp_path / "c")])
    made = [json.loads((tmp_path / name / "run.json").read_text())["config"]["recipe"] for name in "abc"]
    assert made[0] == made[1] and made[0]["clip"] == 1 and made[0]["ema_decay"] == 0.9 and made[2]["clip"] is None


def test_train_is_the_only_command_of_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ended("compare") == 2
    assert "train is the only command" in capsys.readouterr().err


@pytest.mark.filterwarnings("always")
def test_k_without_a_protocol_that_draws_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["compare", *TINY, "--methods", "vanilla", "--on", "clean", "--anomalies"]
    main([*common, "--k", "3", "--out", str(tmp_path / "a")])
    assert "--k has no effect" in capsys.readouterr().err
    main([*common, "--k", "3", "--protocol", "k_random", "--out", str(tmp_path / "b")])
    assert "--k has no effect" not in capsys.readouterr().err


def test_predict_says_what_it_can_and_names_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "out" / "runs" / "standard-seed0"
    main(["compare", *TINY, "--methods", "standard", "--on", "clean", "--anomalies", "--out", str(tmp_path / "out")])
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number}.png")
    (pictures / "broken.png").write_bytes(b"no image")
    (pictures / "notes.txt").write_text("passed over")
    capsys.readouterr()
    assert ended("predict", str(run), str(pictures), str(tmp_path / "nowhere.png"), "--json") == 2
    out, err = capsys.readouterr()
    images = [json.loads(line)["image"] for line in out.splitlines()]
    assert images == [str(pictures / "0.png"), str(pictures / "1.png")]
    assert "2 of 4 images cannot be read" in err and "broken.png" in err and "nowhere.png" in err
    main(["predict", str(run), str(pictures / "0.png")])
    assert ended("predict", str(tmp_path / "out"), str(pictures)) == 2
    assert f"Runs in it: {run}" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    main(["train", *TINY[:-2], "--out", str(tmp_path / "run")])
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    command = [sys.executable, "-m", "anchored", "predict", str(tmp_path / "run"), *3000 * [str(tmp_path / "a.png")]]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen([*command, "--json"], stdout=-1, stderr=-1, cwd=ROOT, env=environment) as running:
        assert running.stdout is not None and running.stderr is not None
        assert json.loads(running.stdout.readline())["image"].endswith("a.png")
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141
