"""Arms of one's own: names, order, baselines, further pairs, what they differ in and what they cost."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_report_folder import Effect, Plan, build
from test_report_page import Page

from anchored.evaluation import summaries
from anchored.evaluation.metrics import mcnemar
from anchored.evaluation.rows import read_rows, write_rows
from anchored.evaluation.scores import read_scores
from anchored.report import present, summarise, write_report
from anchored.report.budget import Budget, cautions
from anchored.report.contents import contents
from anchored.report.naming import pair
from anchored.report.settings_table import settings_table
from anchored.report.summary import headline
from anchored.report.verdict import verdict
from anchored.system.errors import InputError

ARMS: dict[str, dict[str, Any]] = {
    "masked": {"method": "masking", "masked_target": "label"},
    "plain": {"method": "standard"},
    "augmix": {"method": "standard", "augmentation": "crop_flip+augmix"},
    "both": {"method": "masking", "masked_target": "label", "augmentation": "crop_flip+augmix", "alpha": 0.1},
}
EFFECTS = {
    "masked": Effect(88.0, 50.0, 0.1, 1.0),
    "plain": Effect(90.0, 45.0, 0.1, 0.8),
    "augmix": Effect(90.0, 55.0, 0.1, 0.8),
    "both": Effect(89.0, 58.0, 0.1, 1.0),
}
PLAN = Plan(effects=EFFECTS, arms=ARMS, baseline="plain", pairs=("both:augmix",), corruptions=("fog", "snow"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("arms"), PLAN)


def page_of(out: Path) -> Page:
    return Page((out / "report.html").read_text(encoding="utf-8"))


# --- order and baseline ---------------------------------------------------------------------------------------


def test_arms_stand_in_the_order_of_the_config_with_the_baseline_first(folder: Path) -> None:
    summary = summarise(read_rows(folder / "rows.jsonl"), folder)
    assert summary.arms == ("plain", "masked", "augmix", "both")
    assert summary.baselines == dict.fromkeys(("masked", "augmix", "both"), "plain")


def test_without_a_baseline_in_the_config_its_first_arm_is_the_baseline(tmp_path: Path) -> None:
    out = build(tmp_path, replace(PLAN, baseline=None))
    assert set(summarise(read_rows(out / "rows.jsonl"), out).baselines.values()) == {"masked"}


def test_from_rows_alone_the_standard_arm_is_the_baseline_and_of_several_the_first(folder: Path) -> None:
    rows = read_rows(folder / "rows.jsonl")
    assert set(headline(rows).baselines.values()) == {"plain"}
    named = [row.replaced(arm="standard") if row.arm == "augmix" else row for row in rows]
    assert set(headline(named).baselines.values()) == {"standard"}
    assert headline([row for row in rows if row.method != "standard"]).baselines == {}


@pytest.mark.parametrize("baseline", ["augmix", "augmix-seed0"])
def test_every_number_is_against_the_baseline_that_was_asked_for(folder: Path, tmp_path: Path, baseline: str) -> None:
    summary = summarise(read_rows(folder / "rows.jsonl"), folder, baseline=baseline)
    assert summary.arms[0] == "augmix" and set(summary.baselines.values()) == {"augmix"}
    for (arm, key), delta in summary.deltas.items():
        assert delta.mean == pytest.approx(summary.stats[arm, key].mean - summary.stats["augmix", key].mean)
    out = shutil.copytree(folder, tmp_path / "copy")
    write_report(out, baseline=baseline)
    words = page_of(out).words
    assert "Differences from augmix" in words and "compared with augmix." in words
    mine, theirs = (
        read_scores(out / "runs" / f"{name}-seed0" / "scores" / "clean.parquet") for name in ("both", "augmix")
    )
    assert f"{mcnemar(mine['correct'], theirs['correct']):.2g} against augmix" in words
    assert ",augmix," in (out / "table.csv").read_text() and ",plain," not in (out / "table.csv").read_text()


def test_a_baseline_that_is_not_there_is_refused_with_the_names_that_are(folder: Path) -> None:
    for call in (
        lambda: write_report(folder, baseline="plan"),
        lambda: headline(read_rows(folder / "rows.jsonl"), "plan"),
    ):
        with pytest.raises(InputError, match=r"'plan'\. Did you mean 'plain'\? Choices: .*both.*plain-seed0"):
            call()


def test_a_baseline_of_the_config_without_rows_counts_for_none(folder: Path) -> None:
    rows = [row for row in read_rows(folder / "rows.jsonl") if row.arm != "plain"]
    assert summarise(rows, folder).baselines == dict.fromkeys(("augmix", "both"), "masked")


def test_arms_of_one_name_are_compared_with_the_baseline_that_agrees_with_them(folder: Path) -> None:
    rows = read_rows(folder / "rows.jsonl")
    more = [row.replaced(model="wrn40_2", value=row.value / 2) for row in rows if row.arm in ("plain", "masked")]
    summary = headline([*rows, *more], configs=[json.loads((folder / "config.json").read_text())])
    assert summary.baselines["masked, wrn40_2"] == "plain, wrn40_2"
    assert summary.baselines["masked, resnet9"] == "plain, resnet9"
    delta = summary.deltas["masked, wrn40_2", "top1:clean"]
    assert delta.mean == pytest.approx(summary.deltas["masked, resnet9", "top1:clean"].mean / 2)


def test_mean_corruption_errors_are_relative_to_the_baselines_run_of_the_same_seed(tmp_path: Path) -> None:
    from anchored.corruptions import suite

    plan = replace(PLAN, corruptions=suite("c-mce"), severities=(1, 5), n=100, seeds=(0, 1), anomalies=(), scores=False)
    found = contents([build(tmp_path, replace(plan, thumbnails=False, curves=False))])

    def errors(run: str) -> dict[str, float]:
        return summaries.errors([row for row in found.rows if row.run == run])

    for seed in (0, 1):
        mce = {row.arm: row.value for row in found.rows if row.metric == "mce" and row.seed == seed}
        assert mce["plain"] == pytest.approx(100.0)
        assert mce["both"] == pytest.approx(summaries.mce(errors(f"both-seed{seed}"), errors(f"plain-seed{seed}")))
    other = contents([tmp_path], baseline="both", rows=found.rows)
    assert {row.value for row in other.rows if row.metric == "mce" and row.arm == "both"} == {100.0}
    published = contents([tmp_path], baseline="alexnet", rows=found.rows)
    assert published.summary.baselines["both"] == "plain"
    assert all(row.value != 100.0 for row in published.rows if row.metric == "mce")


# --- pairs ----------------------------------------------------------------------------------------------------


def test_a_pair_has_its_own_differences_with_intervals_and_a_sentence(folder: Path) -> None:
    (view,) = contents([folder]).pairs
    assert view.baselines == {"both": "augmix"}
    delta = view.deltas["both", "top1:c"]
    assert delta.mean == pytest.approx(view.stats["both", "top1:c"].mean - view.stats["augmix", "top1:c"].mean)
    alone = summarise(read_rows(folder / "rows.jsonl"), folder, baseline="augmix").deltas["both", "top1:c"]
    assert delta.over_images == alone.over_images
    write_report(folder)
    words = page_of(folder).words
    assert "both against augmix: better in accuracy under shift" in words
    assert "both against augmix" in (folder / "table.md").read_text()


def test_pairs_can_be_given_and_wrong_ones_are_refused(folder: Path) -> None:
    found = contents([folder], pairs=["both:masked", "masked:augmix"])
    assert [view.arms for view in found.pairs] == [("masked", "both"), ("augmix", "masked")]
    with pytest.raises(InputError, match=r"'bot'.*Did you mean 'both'"):
        contents([folder], pairs=["bot:augmix"])
    for text in ("both", "both:both", "a:b:c"):
        with pytest.raises(InputError, match=r"two arms, A:B.*got '.*Arms: plain, masked, augmix, both"):
            contents([folder], pairs=[text])
    assert pair("standard, timm:a:standard, timm:b", ["standard, timm:a", "standard, timm:b"]) == (
        "standard, timm:a", "standard, timm:b"
    )  # fmt: skip


def test_pairs_of_a_config_whose_arms_are_not_in_the_report_are_left_out(folder: Path) -> None:
    rows = [row for row in read_rows(folder / "rows.jsonl") if row.arm != "both"]
    assert contents([folder], rows=rows).pairs == ()


# --- what they differ in, and what they cost ------------------------------------------------------------------


def test_settings_that_differ_are_a_table_and_those_without_effect_are_none(folder: Path) -> None:
    table = settings_table(summarise(read_rows(folder / "rows.jsonl"), folder))
    assert set(table.fields) == {"method", "augmentation", "alpha"}
    lines = {arm: dict(zip(table.fields, values, strict=True)) for arm, values in table.lines}
    assert lines["plain"] == {"method": "standard", "augmentation": "geometric", "alpha": "–"}
    assert lines["both"] == {"method": "masking", "augmentation": "crop_flip+augmix", "alpha": "0.1"}


def test_from_old_rows_what_differs_is_what_they_say(tmp_path: Path) -> None:
    out = build(tmp_path, Plan())
    table = settings_table(summarise(read_rows(out / "rows.jsonl"), out))
    lines = {arm: dict(zip(table.fields, values, strict=True)) for arm, values in table.lines}
    assert lines["masking-label"]["masked target"] == "label" and lines["standard"]["masked target"] == "–"
    assert "model" not in table.fields and "seed" not in table.fields


BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "masked": {"forward_passes": 8.04, "parameters": 1001, "seconds": 12.0, "arithmetic": "bfloat16"},
    "plain": {"forward_passes": 8, "parameters": 1000, "seconds": 10.0, "arithmetic": "bfloat16"},
    "augmix": {"forward_passes": 24, "parameters": 1000, "seconds": 30.0, "arithmetic": "float32"},
}


def test_the_budget_is_read_from_the_runs_and_said_on_page_terminal_and_in_markdown(tmp_path: Path) -> None:
    out = build(tmp_path, replace(PLAN, budgets=BUDGETS))
    console = Console(file=io.StringIO(), width=100)
    present(read_rows(out / "rows.jsonl"), out, console)
    printed = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    told = "forward passes an image are 8 (plain and masked) and 24 (augmix)"
    for text in (printed, page_of(out).words, (out / "table.md").read_text()):
        assert told in text and "the arithmetic of training is bfloat16 (plain and masked) and float32 (augmix)" in text
    lines = {
        line.split("|")[1].strip(): line for line in (out / "table.md").read_text().splitlines() if "| 8 |" in line
    }
    assert lines["augmix"].split("|")[2:-1] == [" 24 ", " 8 ", " 1,000 ", " 30.0 ", " float32 "]
    assert lines["both"].split("|")[2:-1] == [" – ", " 8 ", " – ", " – ", " – "]


def test_what_rows_say_of_a_budget_goes_before_what_its_folder_says(tmp_path: Path) -> None:
    out = build(tmp_path, replace(PLAN, budgets=BUDGETS, seeds=(0, 1)))
    rows = read_rows(out / "rows.jsonl")
    more = [row.replaced(forward_passes=20.0 + row.seed) if row.arm == "augmix" else row for row in rows]
    write_rows(out / "rows.jsonl", more)
    found = {budget.arm: budget for budget in contents([out]).budgets}
    assert found["augmix"].passes == 20.5 and found["augmix"].seconds == 30.0
    assert contents([out]).summary.arms == ("plain", "masked", "augmix", "both"), "a budget tells no arms apart"


def test_budgets_within_one_percent_or_unknown_need_no_care() -> None:
    def budget(arm: str, passes: float | None, *arithmetic: str) -> Budget:
        return Budget(arm, passes, None, None, None, arithmetic)

    assert cautions([budget("a", 100.0, "float32"), budget("b", 100.9, "float32"), budget("c", None)]) == ()
    assert len(cautions([budget("a", 100.0), budget("b", 101.5)])) == 1
    assert len(cautions([budget("a", 1.0, "float32"), budget("b", 1.0, "bfloat16", "float32")])) == 1


def test_a_damaged_run_json_is_named(tmp_path: Path) -> None:
    out = build(tmp_path, replace(PLAN, budgets=BUDGETS))
    (out / "runs" / "plain-seed0" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"plain-seed0/run\.json is not JSON"):
        write_report(out)


# --- the whole ------------------------------------------------------------------------------------------------


def test_what_is_printed_is_what_the_page_says(tmp_path: Path) -> None:
    out = build(tmp_path, PLAN)
    console = Console(file=io.StringIO(), width=80)
    present(read_rows(out / "rows.jsonl"), out, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert verdict(summarise(read_rows(out / "rows.jsonl"), out)) in printed
    assert "both against augmix: better in accuracy under shift" in printed
    assert max(len(line) for line in printed.splitlines() if "    anchored " not in line and str(out) not in line) <= 80
    words = page_of(out).words
    for line in printed[printed.index("Best under shift") :].split("\n\n")[0].splitlines():
        assert line in words


def test_rows_alone_and_the_folder_say_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    shutil.copy(folder / "rows.jsonl", tmp_path / "rows" / "rows.jsonl")
    write_report(tmp_path / "rows")
    write_report(folder)
    alone, whole = (
        np.genfromtxt(out / "table.csv", delimiter=",", skip_header=1, usecols=4) for out in (tmp_path / "rows", folder)
    )
    assert sorted(alone) == sorted(whole)


@pytest.mark.parametrize("count", [1, 2, 4, 9, 12])
def test_any_number_of_arms_has_a_page_and_a_table_that_fits(tmp_path: Path, count: int) -> None:
    names = ["plain", *(f"an-arm-with-a-long-name-of-its-own-{number}" for number in range(count - 1))]
    effects = {name: Effect(90.0 - i / 2, 48.0 + i, 0.1, 1.0) for i, name in enumerate(names)}
    plan = Plan(effects=effects, arms={name: {"method": "standard"} for name in names}, corruptions=("fog",), n=100)
    out = build(tmp_path, plan)
    for width in (80, 120):
        console = Console(file=io.StringIO(), width=width)
        present(read_rows(out / "rows.jsonl"), out, console)
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        shown = [line for line in printed.splitlines() if "    anchored " not in line and str(out) not in line]
        assert max(map(len, shown)) <= width and "…" not in printed
    page = page_of(out)
    assert all(name in page.words for name in names)
    assert all(len(str(a.get("aria-label"))) > 40 for a in page.all("svg") if a.get("role") == "img")
