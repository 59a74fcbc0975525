"""doctor: what it says of this machine, of the extras and of the data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anchored.cli import main


def test_doctor_names_versions_devices_extras_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "iSUN").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.parquet").touch()
    main(["doctor", "--root", str(tmp_path)])
    lines = {line[:14].strip(): line[15:] for line in capsys.readouterr().out.splitlines()}
    assert lines["torch"] == torch.__version__.split("+")[0] and "trains in" in lines["cpu"] and "[onnx]" in lines
    assert lines["data"] == f"{tmp_path}: cifar10, isun, parquet:{tmp_path / 'mine'}"
    main(["doctor", "--root", str(tmp_path / "nowhere")])
    assert "nothing yet" in capsys.readouterr().out
