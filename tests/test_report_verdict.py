"""The one sentence: what it claims follows from the numbers, for help, no difference, harm and gaps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_report_folder import HELP, Effect, Plan, build

from anchored.evaluation.rows import read_rows
from anchored.report import summarise, verdict
from anchored.report.differences import Delta
from anchored.report.measures import Measure
from anchored.report.numbers import verdict_on


def sentence(out: Path, plan: Plan) -> str:
    build(out, plan)
    text = verdict(summarise(read_rows(out / "rows.jsonl"), out))
    assert text.endswith(".") and not re.search(r"\.\s", text), f"more than one sentence: {text}"
    return text


def two(standard: Effect, masking: Effect) -> dict[str, Effect]:
    return {"standard": standard, "masking-uniform": masking}


SAME = Effect(90.0, 50.0, 0.1, 1.0)


def test_help_with_one_seed_gives_the_interval_over_images_and_says_there_is_no_spread(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan())
    assert text.startswith("Masking with the label target helped resnet9 on digits: ")
    assert re.search(r"accuracy under shift \(c\) rose by 8\.\d points \[\+\d\.\d to \+\d\.\d\]", text)
    assert re.search(r"calibration error under shift fell by 0\.0\d\d \[−", text)
    assert re.search(r"anomaly AUROC \(photos\) rose by \d+\.\d points", text)
    assert "one seed, so there is no spread over seeds; 95 % intervals over test images" in text
    assert re.search(r"; masking with the uniform target \+5\.\d points under shift \[", text)


def test_several_seeds_give_the_spread_over_them(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(seeds=(0, 1, 2, 3)))
    assert "helped resnet9" in text and "(95 % intervals over 4 seeds and over test images)" in text
    assert "one seed" not in text


def test_no_difference_is_called_that(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(effects=two(SAME, SAME), n=1500, n_other=600))
    assert text.startswith("Masking with the uniform target made no clear difference to resnet9 on digits: ")
    assert text.count("did not clearly change") == 4
    assert "helped" not in text and "harm" not in text


def test_a_gain_too_small_for_its_seeds_is_no_difference(tmp_path: Path) -> None:
    """Half a point of gain and seeds that differ by more: not a finding, whatever the mean says."""
    effects = two(SAME, Effect(90.0, 50.5, 0.1, 1.0))
    text = sentence(tmp_path, Plan(effects=effects, seeds=(0, 1), seed_noise=3.0, anomalies=()))
    assert "made no clear difference" in text


def test_a_network_that_lost_its_accuracy_was_not_helped(tmp_path: Path) -> None:
    """Better calibrated, but at chance: clean accuracy is weighed as the other measures are."""
    plan = Plan(effects=two(SAME, Effect(20.0, 50.0, 0.02, 1.0)), corruptions=(), anomalies=(), n=2000)
    assert "helped" not in sentence(tmp_path, plan)


@pytest.mark.parametrize(
    ("mean", "interval", "expected"),
    [
        (6.0, (8.9e-16, 14.0), "unclear"),
        (-6.0, (-14.0, -8.9e-16), "unclear"),
        (0.04, (0.01, 0.07), "unclear"),
        (6.0, (0.1, 14.0), "better"),
    ],
)
def test_neither_rounding_nor_what_the_table_cannot_show_is_a_difference(
    mean: float, interval: tuple[float, float], expected: str
) -> None:
    delta = Delta({0: mean}, over_images=interval)
    assert verdict_on(delta, Measure("top1:clean", "top1", "clean", ())) == expected


def test_harm_is_called_that(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(effects=two(SAME, Effect(84.0, 43.0, 0.25, 0.2))))
    assert text.startswith("Masking with the uniform target did harm to resnet9 on digits: ")
    assert re.search(r"accuracy under shift \(c\) fell by [67]\.\d points \[−", text)
    assert "calibration error under shift rose by" in text and "anomaly AUROC (photos) fell by" in text
    assert "clean accuracy fell by" in text and "at a cost" not in text


def test_mixed_effects_name_both_sides(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(effects=two(SAME, Effect(90.0, 57.0, 0.1, 0.0))))
    assert "had mixed effects on resnet9 on digits" in text
    assert re.search(r"better in [^,]*accuracy[^,]* and worse in anomaly AUROC", text)


def test_the_price_on_clean_images_is_named(tmp_path: Path) -> None:
    text = sentence(tmp_path / "a", Plan(effects=two(SAME, Effect(84.0, 57.0, 0.1, 1.5))))
    assert re.search(r"mixed effects .* worse in clean accuracy: .*clean accuracy fell by [56]\.\d points", text)
    only = Plan(effects=two(SAME, Effect(84.0, 50.0, 0.1, 1.0)), corruptions=(), anomalies=(), n=2000)
    text = sentence(tmp_path / "b", only)
    assert "clean accuracy fell by" in text and "helped" not in text


def test_the_better_target_under_shift_is_judged_even_where_the_other_is_better_elsewhere(tmp_path: Path) -> None:
    effects = {**HELP, "masking-uniform": Effect(93.0, 58.0, 0.02, 2.0), "masking-label": Effect(95.0, 50.0, 0.0, 3.0)}
    text = sentence(tmp_path, Plan(effects=effects))
    assert text.startswith("Masking with the uniform target helped")
    assert "; masking with the label target +5" in text


def test_one_seed_without_scores_claims_nothing(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(scores=False))
    assert text.startswith("Whether masking with the label target helped resnet9 on digits cannot be told")
    assert "one seed, so there is no spread over seeds, and no scores per image" in text


@pytest.mark.parametrize(
    ("kept", "start", "holds"),
    [
        (("vanilla", "masking-label"), "The standard method was not run", "masking with the label target 89"),
        (("standard", "vanilla"), "Masking was not run", "49.0 % under shift, +1.2 points against standard"),
        (("standard",), "Masking was not run", "standard 89.8 % clean"),
        (("vanilla",), "Neither masking nor the standard method was run", "vanilla 90"),
    ],
)  # fmt: skip
def test_what_can_be_said_without_standard_or_masking(
    tmp_path: Path, kept: tuple[str, ...], start: str, holds: str
) -> None:
    text = sentence(tmp_path, Plan(effects={name: HELP[name] for name in kept}))
    assert text.startswith(start) and holds in text and "one seed" in text
    assert "helped" not in text.replace("whether masking helped cannot be told", "")


def test_without_a_shift_or_anomalies_the_sentence_keeps_to_what_was_measured(tmp_path: Path) -> None:
    text = sentence(tmp_path, Plan(corruptions=(), anomalies=(), effects=two(SAME, Effect(95.0, 0.0, 0.05))))
    assert "under shift" not in text and "AUROC" not in text
    assert "clean accuracy rose by" in text and "calibration error fell" in text
