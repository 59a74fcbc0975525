"""The README's Python blocks run, in order, in one namespace, and its commands run on small data."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from fixtures import ROOT
from images import class_folders
from safetensors.torch import save_file

from anchored.cli import main

README = (ROOT / "README.md").read_text()
# What makes each command small: later flags win.
SMALL = {
    "compare": "--model timm:test_vit --weights w.safetensors --epochs 1 --on clean --anomalies digits --batch-size 8",
    "evaluate": "--severities 3 --limit 2",
}


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert "tensor" in capsys.readouterr().out


def test_the_main_command_is_the_compare_of_the_embedded_data() -> None:
    assert ".venv/bin/anchored compare\n" in README


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    class_folders(tmp_path / "photos", {"cat": 24, "dog": 24}, side=48)
    next((tmp_path / "photos").rglob("*.*")).rename(tmp_path / "photo.jpg")
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", num_classes=7).state_dict(), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        program, command, *flags = shlex.split(line)
        assert program == "anchored"
        main([command, *flags, *shlex.split(SMALL.get(command, ""))])
    assert (tmp_path / "model.onnx").stat().st_size > 0
    assert len(list((tmp_path / "runs" / "photos-3-seeds" / "runs").iterdir())) == 9
