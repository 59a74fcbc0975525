"""Arms: how they are written, what they change, what they share, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fixtures import ROOT

from anchored import Arm, load
from anchored.arms.arm import FIELDS, ArmSettings
from anchored.arms.recipe import Recipe
from anchored.arms.recipe_choice import recipe
from anchored.arms.recipes import RECIPES
from anchored.arms.run_config import RunConfig
from anchored.arms.setting import Setting, declared
from anchored.cli import main, parser
from anchored.commands import compare as compare_flags
from anchored.commands import training_flags
from anchored.comparison.inputs import prepare
from anchored.comparison.settings import Comparison, comparison
from anchored.evaluation.rows import read_rows
from anchored.system.errors import InputError

SMALL = ["--model", "tiny_model:tiny", "--on", "clean", "fog", "--severities", "3", "--limit", "60", "--epochs", "1"]
SMALL += ["--train-limit", "200", "--batch-size", "32", "--references", "40"]


def made(*arms: str, **settings: Any) -> Comparison:
    chosen = settings.pop("recipe", recipe("cpu_quick"))
    return comparison("digits", "tiny_model:tiny", chosen, arms=[Arm.parse(text) for text in arms], **settings)


def compare(out: Path, *flags: str) -> Path:
    main(["compare", *SMALL, "--out", str(out), *flags])
    return out


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *SMALL, *flags])
    assert ended.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    return lines[0]


def test_what_is_written_is_what_is_meant() -> None:
    policy = "crop_flip+randaugment(magnitude=12)"
    arm = Arm.parse(f"both: masking masked-target=label augmentation='{policy}' lr=0.01")
    fields = {"masked_target": "label", "augmentation": policy, "lr": 0.01}
    assert arm == Arm("both", "masking", fields) == Arm.of("both", {"method": "masking", **fields})
    found = made(
        "plain: standard", "both: masking masked_target=label lr=1e-2 schedule=periodic recipe.schedule=cosine"
    )
    both = found.arm("both")
    assert (both.config.recipe.lr, both.config.schedule, both.config.recipe.schedule) == (0.01, "periodic", "cosine")
    assert found.arm("plain").config.recipe == recipe("cpu_quick")


def test_an_arm_changes_what_it_names_and_nothing_else() -> None:
    shared = made("plain: standard").arms[0].flat()
    for name, value in {"lr": 0.05, "weights": "w.pt", "train_limit": 100, "label_noise": 0.2, "epochs": 3}.items():
        arm = made("plain: standard", f"other: standard {name}={value}").arm("other").flat()
        assert {key for key in arm if arm[key] != shared[key]} == {name}


def test_every_field_has_one_place() -> None:
    names = [field.name for field, _ in declared(RunConfig)]
    assert len(set(FIELDS)) == len(FIELDS) and {"recipe", "protocol", "k", "alpha", "train_limit"} <= set(FIELDS)
    flat = made("plain: standard").arms[0].flat()
    assert set(FIELDS) == set(flat) - {"method"}
    assert not set(names) & {field.name for field in dataclasses.fields(Recipe)} - {"schedule", "model"}


def test_an_arm_with_its_own_recipe_keeps_what_flags_say_for_all() -> None:
    given = {"epochs": 3}
    found = made(
        "plain: standard", "tuned: standard recipe=finetune lr=0.001",
        recipe=recipe("cpu_quick", fields=given), overrides=given,
    )  # fmt: skip
    assert found.arm("tuned").config.recipe == recipe("finetune", fields={"epochs": 3, "lr": 0.001})


def test_methods_are_short_for_their_arms(tmp_path: Path) -> None:
    by_method = compare(tmp_path / "methods", "--methods", "standard", "masking", "--masked-target", "label")
    texts = ["--arm", "standard: standard", "--arm", "masking-label: masking masked_target=label"]
    by_arm = compare(tmp_path / "arms", *texts)
    for run in ("standard-seed0", "masking-label-seed0"):
        files = [folder / "runs" / run / "model.safetensors" for folder in (by_method, by_arm)]
        assert files[0].read_bytes() == files[1].read_bytes()
    rows = [
        [dataclasses.replace(row, config_hash="") for row in read_rows(f / "rows.jsonl")] for f in (by_method, by_arm)
    ]
    assert rows[0] == rows[1]


def test_arms_can_be_added_and_what_is_finished_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plain, other = ["--arm", "plain: standard"], ["--arm", "aug: standard augmentation=none"]
    anchored = ["--arm", "anchored: vanilla", "--arm", "spread: vanilla protocol=k_random k=5"]
    compare(out, *plain)
    stamp = (out / "runs" / "plain-seed0" / "model.safetensors").stat().st_mtime_ns
    scores = (out / "runs" / "plain-seed0" / "scores" / "clean.parquet").stat().st_mtime_ns
    compare(out, *plain, *anchored, "--baseline", "anchored")
    assert (out / "runs" / "plain-seed0" / "model.safetensors").stat().st_mtime_ns == stamp
    assert (out / "runs" / "plain-seed0" / "scores" / "clean.parquet").stat().st_mtime_ns == scores
    assert {row.arm for row in read_rows(out / "rows.jsonl")} == {"plain", "anchored", "spread"}
    config = json.loads((out / "config.json").read_text())
    assert config["baseline"] == "anchored" and list(config["arms"]) == ["plain", "anchored", "spread"]
    # Arms that differ only in how they predict are trained once.
    twins = [out / "runs" / f"{name}-seed0" for name in ("anchored", "spread")]
    assert twins[0].joinpath("model.safetensors").read_bytes() == twins[1].joinpath("model.safetensors").read_bytes()
    assert json.loads((twins[1] / "run.json").read_text())["trained_as"] == "anchored-seed0"
    assert load(twins[1]).config.arm_name == "spread"
    rows = [row for row in read_rows(out / "rows.jsonl") if row.arm == "spread"]
    assert {(row.protocol, row.k) for row in rows} == {("k_random", 5)}
    compare(out, *plain, *other, "--seeds", "0", "1")
    assert {row.run for row in read_rows(out / "rows.jsonl")} == {
        f"{a}-seed{s}" for a in ("plain", "aug") for s in (0, 1)
    }
    assert set(json.loads((out / "config.json").read_text())["arms"]) == {"plain", "anchored", "spread", "aug"}


def test_a_changed_arm_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = compare(tmp_path / "out", "--arm", "plain: standard", "--arm", "other: standard lr=0.1")
    before = (out / "config.json").read_bytes()
    said = refused(capsys, "--arm", "plain: standard", "--arm", "other: standard lr=0.01", "--out", str(out))
    assert "arm other: lr: 0.1 there, 0.01 here" in said and "plain" not in said
    assert (out / "config.json").read_bytes() == before
    assert "limit: 60 there, 50 here" in refused(capsys, "--arm", "plain: standard", "--limit", "50", "--out", str(out))


def test_a_file_of_arms_and_the_file_that_is_written(tmp_path: Path) -> None:
    file = tmp_path / "arms.yaml"
    fields = {"method": "masking", "masked_target": "label", "alpha": 0.5}
    file.write_text(yaml.safe_dump({"arms": {"plain": "standard", "half": fields}, "baseline": "plain"}))
    first = compare(tmp_path / "first", "--config", str(file))
    main(["compare", "--config", str(first / "flags.yaml"), "--out", str(tmp_path / "second")])
    rows = [read_rows(tmp_path / name / "rows.jsonl") for name in ("first", "second")]
    assert rows[0] == rows[1] and {row.alpha for row in rows[0]} == {0.0, 0.5}


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        (["plain standard"], 'an arm is written "NAME: METHOD FIELD=VALUE ..."'),
        (["plain:"], 'an arm is written "NAME: METHOD'),
        (["plain: lr=0.1"], 'an arm is written "NAME: METHOD'),
        (["a/b: standard"], "letters, digits"),
        (["..: standard"], "letters, digits"),
        ([": standard"], "letters, digits"),
        (["plain: standart"], "Did you mean 'standard'"),
        (["plain: standard lr"], "FIELD=VALUE; got 'lr'"),
        (["plain: standard augmentaton=crop"], "Did you mean 'augmentation'"),
        (["plain: standard lr=0.1 lr=0.2"], "given twice"),
        (["plain: standard lr=0.1 recipe.lr=0.2"], "given twice"),
        (["plain: standard seed=3"], "unknown field of the arm plain: 'seed'"),
        (["plain: standard lr=fast"], "the arm plain: lr is a number"),
        (["plain: standard epochs=0"], "the arm plain: epochs is at least 1"),
        (["m: masking alpha=2"], "the arm m: alpha is the probability of masking"),
        (["m: masking masked_target=none"], "the arm m: masked-target is one of uniform, label"),
        (["plain: standard alpha=0.5"], "alpha has no effect: it needs the method masking"),
        (["v: vanilla masked_bn=update"], "masked_bn has no effect: it needs the method masking"),
        (["plain: standard references=5"], "references has no effect: it needs an anchored method"),
        (["plain: standard protocol=k_random"], "protocol has no effect: it needs an anchored method"),
        (["v: vanilla k=5"], "k has no effect: it needs the protocol k_random or transduction"),
        (["plain: standard gamma=0.5"], "gamma has no effect: it needs the schedule multistep"),
        (["plain: standard ema_steps=5"], "ema_steps has no effect: it needs an ema_decay"),
        (["a: standard", "b: standard"], "the arms a and b are alike"),
        (["a: standard", "b: standard lr=0.2"], "the arms a and b are alike"),
        (["a: masking", "b: masking masked_target=uniform"], "the arms a and b are alike"),
        (["a: standard", "a: vanilla"], "two are called a"),
        (["a: vanilla references=9999"], "references is at most the 200 training images"),
        (["a: standard", "b: standard model=timm:resnet18"], "want images of another"),
        (["a: standard", "b: standard recipe=quick"], "the arm b: unknown recipe 'quick'"),
    ],
)
def test_misuse_is_one_line(arms: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [part for arm in arms for part in ("--arm", arm)]
    assert message in refused(capsys, *flags, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_misuse_of_the_flags_around_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--arm", "plain: standard", "--arm", "fast: standard lr=0.5", "--out", str(tmp_path / "out")]
    assert "Did you mean 'plain'" in refused(capsys, *both, "--baseline", "plane")
    assert "A:B; got 'plain'" in refused(capsys, *both, "--report-pairs", "plain")
    assert "Did you mean 'fast'" in refused(capsys, *both, "--report-pairs", "plain:fest")
    assert "not by both" in refused(capsys, *both, "--methods", "standard")
    assert "takes one value with --arm" in refused(capsys, *both, "--masked-target", "label", "uniform")
    assert not (tmp_path / "out").exists()


def test_arms_may_train_on_other_parts_of_the_data(tmp_path: Path) -> None:
    arms = ["all: standard", "half: standard train_limit=100", "noisy: standard label_noise=0.5"]
    found = prepare(made(*arms, train_limit=200, on=("clean",), anomalies=()))
    sizes = {name: len(inputs.data.train) for name, inputs in found.inputs.items()}
    assert sizes == {"all": 200, "half": 100, "noisy": 200}
    labels = {name: inputs.data.train.labels for name, inputs in found.inputs.items()}
    assert (labels["noisy"] != labels["all"]).float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert found.inputs["noisy"].label_noise == 0.5 and found.inputs["all"].label_noise == 0.0
    test = [inputs.data.test.labels for inputs in found.inputs.values()]
    assert all(torch.equal(test[0], other) for other in test)


def test_a_smoke_test_keeps_the_ratio_of_epochs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arms = ["--arm", "once: standard", "--arm", "twice: standard epochs=24", "--smoke", "--train-limit", "100"]
    small = [flag for flag in SMALL if flag not in ("--epochs", "1")]
    main(["compare", *small, "--out", str(out), *arms])
    epochs = {name: load(out / "runs" / f"{name}-seed0").config.recipe.epochs for name in ("once", "twice")}
    assert epochs == {"once": 2, "twice": 4}


@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name]().model])
def test_a_recipe_carries_its_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, size = RECIPES[name]().model, RECIPES[name]().image_size
    flags = parser().parse_args(["train", "--recipe", name]).train
    assert training_flags.comparison(flags, methods=("masking",), masked_target=("uniform",)).model == model
    if not str(model).startswith("torchvision:"):
        main(["train", "--recipe", name, "--plan"])
        assert f"{model}, " in capsys.readouterr().out
    main(["train", "--recipe", name, "--model", "tiny_model:tiny", "--plan", "--train-limit", "200"])
    said = " ".join(capsys.readouterr().err.split())
    assert f"the recipe {name} is made for {model} at {size} px; it trains tiny_model:tiny here" in said


def test_settings_that_come_later_leave_older_hashes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    field = next(field for field, _ in declared(RunConfig) if field.name == "select")
    before = made("plain: standard").identity()
    late: Setting = dataclasses.replace(field.metadata["setting"], hashed=False)
    assert not late.hashed
    monkeypatch.setattr("anchored.comparison.settings._LATE", {"select": "last"})
    without = made("plain: standard").identity()
    assert set(before) - set(without) == {"select"} and "select" not in without["arms"]["plain"]
    assert made("plain: standard", val_fraction=0.5, select="nll").identity()["select"] == "nll"


def test_an_arm_is_frozen_and_its_settings_can_be_compared() -> None:
    arm = Arm("plain", "standard", {"lr": 0.1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        arm.name = "other"  # type: ignore[misc]
    assert hash(arm) == hash(Arm("plain", "standard", {"lr": 0.1}))
    assert isinstance(made("plain: standard").arms[0], ArmSettings)
    with pytest.raises(InputError, match="is a mapping of fields, method among them"):
        Arm.of("plain", {"lr": 1})


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_read(file: Path) -> None:
    words = re.search(r"anchored (compare .*)", file.read_text()).group(1).split()  # type: ignore[union-attr]
    flags = parser().parse_args([word.replace("examples/", f"{ROOT}/examples/") for word in words]).compare
    found = compare_flags.described(flags)
    assert [arm.name for arm in found.arms] == list(flags.arms) and len(found.arms) >= 5
    assert found.model == "resnet9" and found.baseline == flags.baseline
