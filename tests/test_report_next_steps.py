"""What to try where an arm is worse: changes that bear on it, as commands that the command line takes."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_report_folder import SHARED, Effect, Plan, build

from anchored.arms.recipe_choice import recipe
from anchored.cli import parser
from anchored.evaluation.rows import read_rows
from anchored.report import judge, summarise, verdict
from anchored.report.judgement import ArmJudgement, Judgement
from anchored.report.next_steps import Step

GOOD = Effect(90.0, 50.0, 0.05, 1.2)
WORSE = {
    "clean": replace(GOOD, clean=82.0),
    "shifted": replace(GOOD, shifted=40.0),
    "calibration": replace(GOOD, overconfidence=0.3),
    "anomalies": replace(GOOD, separation=0.2),
}
OLD = "anchored compare --data digits --model resnet9 --methods standard vanilla masking --out runs/a"


def judged(out: Path, plan: Plan, **config: Any) -> Judgement:
    build(out, replace(plan, curves=False, thumbnails=False))
    said = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**said, **config}))
    return judge(summarise(read_rows(out / "rows.jsonl"), out))


def steps(found: Judgement, arm: str) -> tuple[Step, ...]:
    (each,) = (each for each in found.arms if each.arm == arm)
    return each.steps


def flags_of(command: str, expected: str) -> dict[str, Any]:
    """The flags of a command, as the command line reads them."""
    words = shlex.split(command)
    assert words[:2] == ["anchored", expected]
    return dict(parser().parse_args(words[1:])[expected].as_dict())


@pytest.mark.parametrize(
    ("arm", "aspect", "change", "flags"),
    [
        ("masking-uniform", "clean", "the label target", {"masked_target": ["label"]}),
        ("masking-label", "clean", "alpha 0.125 instead of 0.25", {"alpha": 0.125, "masked_target": ["label"]}),
        ("masking-label", "shifted", "alpha 0.125 instead of 0.25", {"alpha": 0.125}),
        ("masking-uniform", "calibration", "the label target", {"masked_target": ["label"]}),
        ("masking-label", "calibration", "batch norm estimated again on 1,000 images", {"recalibrate_bn": 1000}),
        ("vanilla", "clean", "12 epochs instead of 8, for every arm", {"epochs": 12}),
        ("vanilla", "shifted", "masking with the label target", {"methods": ["standard", "masking"]}),
    ],
)
def test_where_an_arm_is_worse_a_change_of_training_is_a_command(
    tmp_path: Path, arm: str, aspect: str, change: str, flags: dict[str, Any]
) -> None:
    plan = Plan(effects={"standard": GOOD, arm: WORSE[aspect]}, command=OLD, n=1500, n_other=500)
    (step,) = steps(judged(tmp_path, plan), arm)
    assert step.change == change and aspect in step.aspects
    read = flags_of(step.command, "compare")
    assert {name: read[name] for name in flags} == flags
    assert read["data"] == "digits" and read["out"].startswith("runs/a-"), "the folder of the results is left alone"


@pytest.mark.parametrize("arm", ["masking-label", "vanilla"])
def test_worse_anomalies_of_an_anchored_arm_are_evaluated_with_several_references(tmp_path: Path, arm: str) -> None:
    plan = Plan(effects={"standard": GOOD, arm: WORSE["anomalies"]}, seeds=(0, 1), command=OLD, n=1500, n_other=500)
    settings = {"data": "digits", "on": ["clean", "c"], "anomalies": ["photos"], "limit": 500, "severities": [1, 3]}
    (step,) = steps(judged(tmp_path, plan, settings=settings), arm)
    read = flags_of(step.command, "evaluate")
    assert read["models"] == [f"runs/a/runs/{name}-seed{seed}" for name in ("standard", arm) for seed in (0, 1)]
    assert (read["protocol"], read["k"], read["baseline"]) == ("k_random", 10, "standard-seed0")
    assert (read["data"], read["on"], read["anomalies"]) == ("digits", ["clean", "c"], ["photos"])
    assert (read["limit"], read["severities"]) == (500, [1, 3])
    assert read["out"] == "runs/a-k_random"


def test_one_change_may_serve_two_aspects_and_is_said_once(tmp_path: Path) -> None:
    both = replace(GOOD, clean=82.0, overconfidence=0.3)
    plan = Plan(effects={"standard": GOOD, "masking-uniform": both}, command=OLD, n=1500)
    (step,) = steps(judged(tmp_path, plan), "masking-uniform")
    assert step.aspects == ("clean", "calibration")
    assert verdict(summarise(read_rows(tmp_path / "rows.jsonl"), tmp_path)).count("the label target") == 1


def test_what_another_arm_is_already_is_not_suggested(tmp_path: Path) -> None:
    effects = {"standard": GOOD, "masking-label": GOOD, "masking-uniform": WORSE["clean"]}
    (step,) = steps(judged(tmp_path, Plan(effects=effects, command=OLD, n=1500)), "masking-uniform")
    assert step.change == "alpha 0.125 instead of 0.25"


def test_a_standard_arm_is_never_told_to_change_what_it_has_not(tmp_path: Path) -> None:
    """Whatever it is worse in: no alpha, target or references, and more epochs only for stronger augmentation."""
    arms = {"plain": {"method": "standard"}, "augmix": {"method": "standard", "augmentation": "crop_flip+augmix"},
            "other": {"method": "standard", "lr": 0.9}}  # fmt: skip
    bad = Effect(80.0, 35.0, 0.3, 0.1)
    plan = Plan(effects={"plain": GOOD, "augmix": bad, "other": bad}, arms=arms, command=ARMS_COMMAND, n=1500)
    found = judged(tmp_path, plan)
    (step,) = steps(found, "augmix")
    assert step.aspects == ("clean", "shifted") and step.change == "12 epochs instead of 8, for every arm"
    assert steps(found, "other") == ()


# --- comparisons by arms --------------------------------------------------------------------------------------

ARMS_COMMAND = "anchored compare --data digits --arm 'plain: standard' --arm 'm: masking references=50' --out runs/a"


def arm_words(command: str) -> list[str]:
    words = shlex.split(command)
    return [words[i + 1] for i, word in enumerate(words) if word == "--arm"]


def test_in_a_comparison_by_arms_the_changed_one_is_an_arm_more_in_the_same_folder(tmp_path: Path) -> None:
    arms = {"plain": {"method": "standard"},
            "m": {"method": "masking", "masked_target": "label", "augmentation": "crop+x(p=0.5, q=1)"}}  # fmt: skip
    plan = Plan(effects={"plain": GOOD, "m": WORSE["clean"]}, arms=arms, command=ARMS_COMMAND, n=1500)
    (step,) = steps(judged(tmp_path, plan), "m")
    assert arm_words(step.command)[:2] == ["plain: standard", "m: masking references=50"], "as they were"
    name, _, spec = arm_words(step.command)[2].partition(": ")
    assert name == "m-alpha-0.125"
    assert shlex.split(spec) == ["masking", "augmentation=crop+x(p=0.5, q=1)", "masked_target=label", "alpha=0.125"]
    assert shlex.split(step.command)[-4:-2] == ["--out", "runs/a"]


def test_arms_that_methods_gave_are_written_out_beside_the_new_one(tmp_path: Path) -> None:
    arms = {"standard": {"method": "standard"}, "masking-uniform": {"method": "masking"},
            "masking-label": {"method": "masking", "masked_target": "label"}}  # fmt: skip
    plan = Plan(effects={"standard": GOOD, "masking-uniform": GOOD, "masking-label": WORSE["clean"]}, arms=arms, n=1500)
    command = "anchored compare --data digits --methods standard masking --masked-target uniform label --seeds 0"
    build(tmp_path / "known", plan)
    settings = json.loads((tmp_path / "known" / "config.json").read_text())["settings"]
    settings |= {"methods": ["standard", "masking"], "masked_target": ["uniform", "label"]}
    found = judged(tmp_path, replace(plan, command=command), settings=settings)
    (step,) = steps(found, "masking-label")
    assert arm_words(step.command) == [
        "standard: standard",
        "masking-uniform: masking",
        "masking-label: masking masked_target=label",
        "masking-label-alpha-0.125: masking masked_target=label alpha=0.125",
    ]
    words = shlex.split(step.command)
    assert "--methods" not in words and words[words.index("--masked-target") + 1] == "uniform"
    assert words[words.index("--out") + 1] == "runs/compare-digits-abc123", "where it went without --out"


@pytest.mark.parametrize(
    "config",
    [
        {"command": ""},
        {"command": "python mine.py"},
        {"command": "anchored compare --data 'unfinished"},
        {"settings": {}},
        {"settings": {"recipe": {"name": "another"}}},
    ],
)
def test_where_it_is_not_known_how_the_change_is_only_said(tmp_path: Path, config: dict[str, Any]) -> None:
    arms = {"plain": {"method": "standard"}, "m": {"method": "masking", "masked_target": "label"}}
    plan = Plan(effects={"plain": GOOD, "m": WORSE["clean"]}, arms=arms, command=ARMS_COMMAND, n=1500)
    (step,) = steps(judged(tmp_path, plan, **config), "m")
    assert step.command == "" and step.change == "alpha 0.125 instead of 0.25"
    text = " ".join(verdict(summarise(read_rows(tmp_path / "rows.jsonl"), tmp_path)).split())
    assert (
        "To try for clean accuracy: alpha 0.125 instead of 0.25 (masking too often leaves a network underfit)." in text
    )


# --- evaluations and seeds ------------------------------------------------------------------------------------


def test_an_evaluation_is_repeated_with_the_other_protocol_and_training_only_named(tmp_path: Path) -> None:
    effect = replace(GOOD, clean=82.0, separation=0.2)
    command = "anchored evaluate runs/a/runs/x runs/a/runs/y --data digits --anomalies photos --protocol one_random"
    plan = Plan(effects={"standard": GOOD, "masking-label": effect}, command=command, n=1500, n_other=500)
    clean, anomalies = steps(judged(tmp_path, plan, models={}), "masking-label")
    assert clean.command == "" and clean.change.startswith("alpha")
    read = flags_of(anomalies.command, "evaluate")
    assert (read["protocol"], read["k"], read["out"]) == ("k_random", 10, "runs/evaluation-k_random")
    assert read["models"] == ["runs/a/runs/x", "runs/a/runs/y"]


@pytest.mark.parametrize("flags", ["--seeds 3", "--seed=3", ""])
def test_one_seed_comes_with_the_command_for_three(tmp_path: Path, flags: str) -> None:
    plan = Plan(effects={"standard": GOOD, "vanilla": GOOD}, command=f"{OLD} {flags}", seeds=(3,))
    step = judged(tmp_path, plan).seed_step
    assert step is not None
    read = flags_of(step.command, "compare")
    assert read["seeds"] == [3, 4, 5] and read["out"] == "runs/a-3-seeds"
    assert judged(tmp_path / "two", replace(plan, seeds=(0, 1))).seed_step is None


def test_nothing_is_suggested_where_nothing_is_worse(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(effects={"standard": GOOD, "masking-label": GOOD}, command=OLD))
    assert all(isinstance(arm, ArmJudgement) and arm.steps == () for arm in found.arms)


def test_every_field_of_a_synthetic_arm_is_one_that_arms_may_change() -> None:
    """The specs above are written from names that settings really have."""
    fields = set(vars(recipe("cpu_quick"))) | {"recipe", "masked_target", "recalibrate_bn", "protocol", "k"}
    assert set(SHARED) <= fields
