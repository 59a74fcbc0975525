"""What was written before the package got its rooms still reads, predicts, trains and draws the same.

`golden/` holds a small comparison (its command is in config.json) and the help of every command, made by that version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from fixtures import ROOT
from safetensors.torch import load_file

import anchored
from anchored import corruptions
from anchored.cli import main, parser
from anchored.evaluation.rows import read_rows, write_rows
from anchored.report import write_report

GOLDEN = Path(__file__).parent / "golden"
COMPARISON = GOLDEN / "comparison"
RUNS = ("standard-seed0", "vanilla-seed0", "masking-uniform-seed0")


def machine() -> dict[str, str]:
    """What decides in which order sums are taken."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return {
        "torch": torch.__version__.partition("+")[0],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": model.group(1) if model else "",
    }


def same_machine() -> bool:
    """Whether the bits of the fixture can be expected here."""
    return bool(json.loads((GOLDEN / "machine.json").read_text()) == machine())


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden comparison, computed again."""
    out = tmp_path_factory.mktemp("golden") / "again"
    words = json.loads((COMPARISON / "config.json").read_text())["command"].split()[1:]
    words[words.index("golden")] = str(out)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        main(words)
    finally:
        torch.set_num_threads(threads)
    return out


def part(new: Any, old: Any) -> Any:
    """What of `new` `old` has as well."""
    return {key: part(new[key], old[key]) for key in old} if isinstance(old, dict) else new


@pytest.mark.parametrize("name", RUNS)
def test_the_same_weights(again: Path, name: str) -> None:
    old = COMPARISON / "runs" / name / "model.safetensors"
    new = again / "runs" / name / "model.safetensors"
    if same_machine():
        assert new.read_bytes() == old.read_bytes()
    for key, value in load_file(old).items():
        torch.testing.assert_close(load_file(new)[key], value, rtol=1e-2, atol=1e-3)


def test_the_same_settings_and_hash(again: Path) -> None:
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (COMPARISON, again))
    assert new["config_hash"] == old["config_hash"] or not same_machine()
    assert part(new["settings"], old["settings"]) == old["settings"]
    for name in RUNS:
        old, new = (json.loads((folder / "runs" / name / "run.json").read_text()) for folder in (COMPARISON, again))
        assert part(new["config"], old["config"]) == old["config"]
        assert set(old) <= set(new)


def test_the_same_rows(again: Path) -> None:
    def told(line: str) -> dict[str, object]:
        values = json.loads(line)
        return {k: v for k, v in values.items() if k not in ("value", "config_hash")}

    old, new = ((folder / "rows.jsonl").read_text().splitlines() for folder in (COMPARISON, again))
    assert len(new) == len(old)
    for before, after in zip(old, new, strict=True):
        assert {key: told(after)[key] for key in told(before)} == told(before)
        if same_machine():
            assert json.loads(after)["value"] == json.loads(before)["value"]


def test_old_rows_read_as_before(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", read_rows(COMPARISON / "rows.jsonl"))
    old, new = ((folder / "rows.jsonl").read_text().splitlines() for folder in (COMPARISON, tmp_path))
    for before, after in zip(old, new, strict=True):
        assert {key: json.loads(after)[key] for key in json.loads(before)} == json.loads(before)


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_predicts_what_it_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests")
    from anchored import data

    run = anchored.load(COMPARISON / "runs" / name)
    scores = pq.read_table(COMPARISON / "runs" / name / "scores" / "corruptions-fog-3.parquet")
    index = torch.from_numpy(scores["index"].to_numpy().copy())
    images = data.load("digits", size=32).test.take(index)
    images = corruptions.corrupt(images, "fog", 3, seed=0, index=index.numpy())
    prediction = run.predict(images.numpy())
    np.testing.assert_allclose(prediction.energy.numpy(), scores["energy"].to_numpy(), rtol=1e-3, atol=1e-3)


def test_an_old_report_is_drawn_again(tmp_path: Path) -> None:
    shutil.copytree(COMPARISON, tmp_path / "old")
    (tmp_path / "old" / "table.csv").unlink()
    write_report(tmp_path / "old")
    assert (tmp_path / "old" / "table.csv").read_text() == (COMPARISON / "table.csv").read_text()
    assert (tmp_path / "old" / "report.html").stat().st_size > 10_000


def test_an_old_file_of_flags_still_holds() -> None:
    flags = parser().parse_args(["compare", "--config", str(COMPARISON / "flags.yaml")])
    assert flags.compare.references == 16 and flags.compare.precision == "float32"


@pytest.mark.parametrize("file", sorted((GOLDEN / "help").iterdir()), ids=lambda file: file.stem)
def test_every_flag_is_still_there(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", "100")
    with pytest.raises(SystemExit):
        main([*([] if file.stem == "anchored" else [file.stem]), "--help"])
    new = capsys.readouterr().out
    flags = re.compile(r"^  (-[\w-]+(?:, --[\w-]+)*|\{[\w,]+\}|[a-z]\w+)(?= |$)", re.M)
    defaults = re.compile(r"\(type: [^)]*?default: ([^)]*)\)")
    old = file.read_text()
    assert set(flags.findall(old)) - {"{compare", "usage"} <= set(flags.findall(new))
    squeezed = [" ".join(text.split()) for text in (old, new)]
    assert len(defaults.findall(squeezed[0])) <= len(defaults.findall(squeezed[1]))
    for flag, default in _defaults(old).items():
        if flag != "--model":  # that of the recipe, where it has one, else the same as before
            assert _defaults(new)[flag] == default, flag


def _defaults(text: str) -> dict[str, str]:
    """Flag -> its default, as the help prints it."""
    found = {}
    for block in re.split(r"\n(?=  -)", text):
        name = re.match(r"  (?:-\w, )?(--[\w-]+)", block)
        value = re.search(r"default: ((?:\[[^\]]*\]|[^)])*)\)", " ".join(block.split()))
        if name and value:
            found[name.group(1)] = value.group(1)
    return found
