"""The verdict: its claims follow from the numbers, for help, no difference, harm and gaps, for one arm and many."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from test_report_folder import HELP, Effect, Plan, build

from anchored.evaluation.rows import read_rows
from anchored.report import judge, summarise, verdict
from anchored.report.differences import Delta
from anchored.report.judgement import ASPECTS, Judgement
from anchored.report.measures import Measure
from anchored.report.numbers import verdict_on
from anchored.report.summary import Summary
from anchored.report.terminal import print_verdict


def summary_of(out: Path, plan: Plan) -> Summary:
    build(out, plan)
    return summarise(read_rows(out / "rows.jsonl"), out)


def text_of(out: Path, plan: Plan) -> str:
    """The verdict in one line; its lines are short, commands apart."""
    text = verdict(summary_of(out, plan))
    assert max(len(line) for line in text.splitlines() if "    anchored " not in line) <= 80
    return " ".join(text.split())


def words(found: Judgement, arm: str) -> dict[str, str]:
    (judged,) = (each for each in found.arms if each.arm == arm)
    return {aspect.name: aspect.word for aspect in judged.aspects}


def two(standard: Effect, masking: Effect) -> dict[str, Effect]:
    return {"standard": standard, "masking-uniform": masking}


SAME = Effect(90.0, 50.0, 0.1, 1.0)


def test_help_with_one_seed_gives_intervals_over_images_and_says_there_is_no_spread(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Plan())
    found, text = judge(summary), " ".join(verdict(summary).split())
    assert words(found, "masking-label") == {
        "clean": "not clear", "shifted": "better", "calibration": "better", "anomalies": "better"
    }  # fmt: skip
    assert text.startswith(
        "resnet9 on digits, one seed: 3 arms compared with standard. Best under shift (c): masking-l"
    )
    assert re.search(r"shifted better c 4\d\.\d → 5\d\.\d %, \+8\.\d \[\+\d\.\d to \+\d\.\d\]", text)
    assert re.search(r"anomalies better photos 7\d\.\d → 8\d\.\d %, \+1\d\.\d \[\+", text)
    assert "One seed, so there is no spread over seeds; [ ]: 95 % interval over test images." in text
    assert "masking-uniform does harm: clean accuracy −2.8 [−" in text


def test_the_numbers_behind_the_words_are_those_of_the_table(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Plan(seeds=(0, 1)))
    for arm in judge(summary).arms:
        for part in arm.parts:
            mine, theirs = (summary.stats[name, part.measure.key].mean for name in (arm.arm, "standard"))
            assert (part.after, part.before) == pytest.approx((mine, theirs))
            assert part.delta is summary.deltas[arm.arm, part.measure.key]
            assert part.after - part.before == pytest.approx(part.delta.mean)


def test_several_seeds_give_the_spread_over_them(tmp_path: Path) -> None:
    text = text_of(tmp_path, Plan(seeds=(0, 1, 2, 3)))
    assert "95 % intervals over 4 seeds and over test images; clear is what excludes zero in both" in text
    assert "One seed" not in text and "one seed" not in text


def test_no_difference_is_called_that(tmp_path: Path) -> None:
    text = text_of(tmp_path, Plan(effects=two(SAME, SAME), n=1500, n_other=600))
    assert "masking-uniform against standard: no clear difference in clean accuracy, accuracy under shift, " in text
    assert not re.search(r"better|worse|harm", text.replace("lower is better", ""))


def test_a_gain_too_small_for_its_seeds_is_no_difference(tmp_path: Path) -> None:
    """Half a point of gain and seeds that differ by more: not a finding, whatever the mean says."""
    effects = two(SAME, Effect(90.0, 50.5, 0.1, 1.0))
    found = judge(summary_of(tmp_path, Plan(effects=effects, seeds=(0, 1), seed_noise=3.0, anomalies=())))
    assert words(found, "masking-uniform")["shifted"] == "not clear"


def test_two_seeds_that_agree_while_the_images_do_not_are_no_difference(tmp_path: Path) -> None:
    """Over seeds alone the interval would exclude zero; over so few images it does not."""
    effects = two(SAME, Effect(92.0, 50.0, 0.1, 1.0))
    summary = summary_of(tmp_path, Plan(effects=effects, seeds=(0, 1), seed_noise=0.0, anomalies=(), n=100))
    delta = summary.deltas["masking-uniform", "top1:clean"]
    assert delta.over_seeds is not None and delta.over_seeds[0] > 0
    assert words(judge(summary), "masking-uniform")["clean"] == "not clear"


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


def test_harm_is_called_that_where_it_is(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Plan(effects=two(SAME, Effect(84.0, 43.0, 0.25, 0.2))))
    assert words(judge(summary), "masking-uniform") == dict.fromkeys(ASPECTS, "worse")
    text = " ".join(verdict(summary).split())
    assert "worse in clean accuracy, accuracy under shift, calibration and anomaly rejection" in text
    assert re.search(r"clean worse 89\.\d → 8\d\.\d %, −5\.\d \[−", text)


def test_aspects_that_go_different_ways_are_named_each(tmp_path: Path) -> None:
    text = text_of(tmp_path, Plan(effects=two(SAME, Effect(90.0, 57.0, 0.1, 0.0))))
    assert re.search(
        r"better in accuracy under shift[^;]*; worse in anomaly rejection; no clear difference in clean", text
    )


# --- mixed within an aspect -----------------------------------------------------------------------------------


def merged(out: Path, *plans: Plan) -> Summary:
    """One comparison of rows with other benchmarks each, whose runs have the same names."""
    rows = []
    for number, plan in enumerate(plans):
        folder = build(out / str(number), plan)
        rows += [row for row in read_rows(folder / "rows.jsonl") if number == 0 or row.benchmark != "clean"]
        for path in (folder / "runs").rglob("*.parquet"):
            place = out / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.write_bytes(path.read_bytes())
    return summarise(rows, out)


def test_benchmarks_and_sets_that_go_different_ways_are_mixed_and_calibration_too(tmp_path: Path) -> None:
    plain = Plan(effects=two(SAME, Effect(90.0, 60.0, 0.1, 2.0)), anomalies=("photos",))
    bar = replace(plain, shift="c-bar", effects=two(SAME, Effect(90.0, 40.0, 0.1, 0.2)), anomalies=("svhn",))
    summary = merged(tmp_path, plain, bar)
    judged = judge(summary)
    assert words(judged, "masking-uniform")["shifted"] == words(judged, "masking-uniform")["anomalies"] == "mixed"
    shifted = judged.arms[0].aspects[1]
    assert {part.place: part.outcome for part in shifted.parts} == {
        "all shifts": "unclear", "c": "better", "c-bar": "worse"
    }  # fmt: skip
    text = " ".join(verdict(summary).split())
    assert "mixed in accuracy under shift and anomaly rejection" in text
    assert re.search(r"c-bar 5\d\.\d → 4\d\.\d %, −\d+\.\d \[[^]]*\], worse", text)


def test_where_a_word_holds_for_a_part_the_part_is_named(tmp_path: Path) -> None:
    plain = Plan(effects=two(SAME, replace(SAME, separation=1.0)), anomalies=("photos",), n_other=400)
    other = replace(plain, shift="c-bar", effects=two(SAME, replace(SAME, separation=0.5)), anomalies=("svhn",))
    anomalies = judge(merged(tmp_path, plain, other)).arms[0].aspects[3]
    assert {part.place: part.outcome for part in anomalies.parts}["photos"] == "unclear"
    assert anomalies.word == "worse"
    whole = {part.place: part.outcome for part in anomalies.parts}["mean of sets"] == "worse"
    assert anomalies.where == (() if whole else ("svhn",))


# --- several arms ---------------------------------------------------------------------------------------------


def test_the_best_arm_is_best_only_where_it_is_clearly_above_all_others(tmp_path: Path) -> None:
    near = {**HELP, "masking-uniform": Effect(89.5, 53.0, 0.1, 1.2)}
    found = judge(summary_of(tmp_path / "a", Plan(effects=near)))
    assert found.standing is not None and len(found.standing.rivals) == 1
    text = text_of(tmp_path / "b", Plan(effects=near))
    assert re.search(r"None is clearly the best under shift \(c\): masking-\w+ has the highest mean, 5\d\.\d %, not "
                     r"clearly above masking-\w+ \(\+?\d\.\d \[−\d\.\d to \+\d\.\d\]\)\.", text)  # fmt: skip
    apart = {**HELP, "masking-label": Effect(89.5, 60.0, 0.1, 1.2)}
    assert "Best under shift (c): masking-label, 62.8 %, clearly above every other arm." in text_of(
        tmp_path / "c", Plan(effects=apart)
    )


def test_where_the_baseline_is_best_none_helps_and_it_says_so(tmp_path: Path) -> None:
    worse = {name: Effect(90.0 - i, 50.0 - 6 * i, 0.1 + i / 20, 1.0 - i / 4) for i, name in enumerate(HELP)}
    text = text_of(tmp_path, Plan(effects=worse, n=1500, n_other=500))
    assert "Best under shift (c): standard (the baseline)" in text
    assert "No arm is clearly better than standard in anything." in text
    for arm in list(HELP)[1:]:
        assert re.search(rf"{arm} does harm: .*accuracy under shift −", text)


def test_help_elsewhere_does_not_hide_that_none_helps_under_shift(tmp_path: Path) -> None:
    effects = {name: Effect(90.0, 50.0, 0.1 if i == 0 else 0.02, 1.0) for i, name in enumerate(HELP)}
    text = text_of(tmp_path, Plan(effects=effects, n=1500))
    assert "No arm is clearly better than standard under shift." in text


def test_many_judgements_come_with_a_word_on_chance(tmp_path: Path) -> None:
    effects = {"standard": SAME, **{f"arm-{i}": Effect(90.0, 50.0 + i, 0.1, 1.0) for i in range(6)}}
    text = text_of(tmp_path, Plan(effects=effects, arms={name: {"method": "standard"} for name in effects}))
    assert "30 differences are judged, each by itself: up to 1 may look clear by chance." in text
    assert "by chance" not in text_of(tmp_path / "few", Plan())


@pytest.mark.parametrize("names", [("a", "b" * 60), tuple("a-long-name-of-an-arm-" * 3 + str(i) for i in range(11))])
def test_long_names_and_many_arms_stay_within_eighty_columns(tmp_path: Path, names: tuple[str, ...]) -> None:
    effects = {"standard": SAME, **{name: Effect(88.0, 52.0 + i, 0.05, 0.9) for i, name in enumerate(names)}}
    arms = {name: {"method": "standard"} for name in names}
    text = text_of(tmp_path, Plan(effects=effects, arms={"standard": {"method": "standard"}, **arms}))
    assert all(name in text.replace("- ", "-") for name in names)


# --- what cannot be said --------------------------------------------------------------------------------------


def test_one_seed_without_scores_claims_nothing(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Plan(scores=False))
    assert set(words(judge(summary), "masking-label").values()) == {"not clear"}
    text = " ".join(verdict(summary).split())
    assert "One seed, so there is no spread over seeds, and no scores per image" in text
    assert "nothing says how sure that is" in text and "does harm" not in text


@pytest.mark.parametrize(
    ("kept", "holds"),
    [
        (("vanilla", "masking-label"), ("2 arms, and none is the baseline of the others", "masking-label 89")),
        (("standard", "vanilla"), ("vanilla against standard: better in accuracy under shift",)),
        (("standard",), ("one arm, and nothing to compare it with", "standard 89.8 % clean, 47.8 % under shift")),
    ],
)
def test_what_can_be_said_without_a_baseline_or_another_arm(
    tmp_path: Path, kept: tuple[str, ...], holds: tuple[str, ...]
) -> None:
    text = text_of(tmp_path, Plan(effects={name: HELP[name] for name in kept}))
    assert all(each in text for each in holds) and "one seed" in text


def test_aspects_without_a_measure_are_not_measured(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, Plan(corruptions=(), anomalies=(), effects=two(SAME, Effect(95.0, 0.0, 0.05))))
    assert words(judge(summary), "masking-uniform") == {
        "clean": "better", "shifted": "not measured", "calibration": "better", "anomalies": "not measured"
    }  # fmt: skip
    text = " ".join(verdict(summary).split())
    assert "AUROC" not in text and "accuracy under shift" not in text


def test_on_a_terminal_the_words_have_colours_and_commands_stay_whole(tmp_path: Path) -> None:
    text = verdict(summary_of(tmp_path, Plan()))
    for coding, color in (("utf-8", True), ("ascii", False)):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=coding, write_through=True)
        print_verdict(
            text, Console(file=stream, width=60, force_terminal=color, color_system="standard" if color else None)
        )
        shown = raw.getvalue().decode(coding)
        assert ("\x1b[1;32mbetter" in shown) == color
        command = next(line for line in text.splitlines() if "    anchored compare" in line)
        assert command in re.sub(r"\x1b\[[0-9;]*m", "", shown)
