"""A setting is declared once: its flag, file, field of an arm, column and hash follow from that."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from fixtures import ROOT

from anchored.arms.arm import FIELDS
from anchored.arms.prediction import PredictionSettings
from anchored.arms.run_config import RunConfig
from anchored.arms.setting import dashed, declared
from anchored.arms.training_data import TrainingData
from anchored.cli import main, parser
from anchored.evaluation.rows import read_rows
from anchored.system.errors import InputError

KINDS = (RunConfig, TrainingData, PredictionSettings)
# Names that are words of other things too, or of the data and not of a setting there.
SHARED_WORDS = {"method", "model", "recipe", "seed", "weights", "schedule", "references", "precision", "select"}
SHARED_WORDS |= {"labels", "label_noise", "protocol", "k"}
SMALL = ["--model", "tiny_model:tiny", "--train-limit", "128", "--limit", "20", "--batch-size", "16", "--epochs", "4"]
SMALL += ["--on", "clean", "--anomalies", "--references", "30"]


def test_each_method_setting_is_declared_in_one_place() -> None:
    names = {field.name for field, its in declared(RunConfig) if its.of == "method"} - SHARED_WORDS
    assert names >= {"masked_target", "masked_bn", "recalibrate_bn", "reference_source", "mask_until"}
    for name in names:
        found = [
            str(path.relative_to(ROOT))
            for path in (ROOT / "anchored").rglob("*.py")
            for line in path.read_text().splitlines()
            if line.strip().startswith((f"{name}: str =", f"{name}: int =", f"{name}: float =", f'"{name}":'))
        ]
        assert [file for file in found if "method/" not in file] == ["anchored/arms/run_config.py"], name


def test_every_setting_has_a_flag_of_its_name_and_default() -> None:
    for command in ("compare", "train"):
        flags = parser().parse_args([command])[command]
        for kind in KINDS:
            for field, its in declared(kind):
                if its.flag and not (command == "train" and kind is PredictionSettings) and field.name != "k":
                    assert flags[field.name] == field.default, field.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_is_said(kind: type) -> None:
    for field, its in declared(kind):
        assert its.help and its.of in ("method", "training", "data", "prediction")
        if its.choices or its.holds is not None:
            values = {"method": "standard", "model": "resnet9", "recipe": None, "seed": 0} if kind is RunConfig else {}
            wrong = "nothing" if its.choices else -1
            with pytest.raises(InputError, match=rf"{dashed(field.name)}|{field.name}"):
                kind(**{**values, field.name: wrong})


def test_a_setting_reaches_run_row_file_and_hash(tmp_path: Path) -> None:
    arms = ["--arm", "all: masking alpha=1", "--arm", "half: masking alpha=1 mask_until=0.5"]
    main(["compare", *SMALL, *arms, "--out", str(tmp_path / "out")])
    assert {(row.arm, row.mask_until) for row in read_rows(tmp_path / "out" / "rows.jsonl")} == {
        ("all", 1.0),
        ("half", 0.5),
    }
    for name, masked in (("all", [True] * 4), ("half", [True, True, False, False])):
        folder = tmp_path / "out" / "runs" / f"{name}-seed0"
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["loss_masked"] is not None for line in lines] == masked
        assert json.loads((folder / "run.json").read_text())["config"]["mask_until"] == (1.0 if name == "all" else 0.5)
    assert "mask_until" in FIELDS and "mask_until: 0.5" in (tmp_path / "out" / "flags.yaml").read_text()
    hashes = [arm["hash"] for arm in json.loads((tmp_path / "out" / "config.json").read_text())["arms"].values()]
    assert hashes[0] != hashes[1]


def test_a_setting_without_effect_has_no_value_in_the_row() -> None:
    masking = RunConfig("masking", "resnet9", None, 0, mask_until=0.5, masked_bn="update")  # type: ignore[arg-type]
    vanilla = dataclasses.replace(masking, method="vanilla")
    its = {field.name: its for field, its in declared(RunConfig)}
    for name in ("mask_until", "masked_bn", "masked_target"):
        assert getattr(vanilla, name) == getattr(masking, name)
        assert its[name].without is None and "vanilla" not in its[name].methods
