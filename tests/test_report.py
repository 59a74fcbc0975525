"""Tables of the report: every number equals its direct computation from the rows and the scores."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console
from scipy import stats
from test_report_folder import HELP, Effect, Plan, build

from anchored.evaluation.metrics import auroc, smooth_ece
from anchored.evaluation.rows import Cell, Row, read_rows
from anchored.report import judge, print_table, summarise
from anchored.report.differences import Delta
from anchored.report.markdown import markdown
from anchored.report.measures import Measure
from anchored.report.numbers import interval_text, number, verdict_on
from anchored.report.tables import csv_text
from anchored.system.errors import InputError


def rows_of(out: Path) -> list[Row]:
    return read_rows(out / "rows.jsonl")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("one"), Plan())


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("three"), Plan(seeds=(0, 1, 2), anomalies=("noise", "photos")))


def scores(out: Path, run: str, cell: str) -> dict[str, np.ndarray]:
    table = parquet.read_table(out / "runs" / run / "scores" / f"{cell}.parquet")
    return {name: table.column(name).to_numpy() for name in table.column_names}


CELLS = [f"c-{corruption}-{severity}" for corruption in ("gaussian_noise", "fog", "pixelate") for severity in (1, 3, 5)]


# --- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", HELP)
def test_headline_numbers_equal_direct_computation_from_the_scores(one: Path, arm: str) -> None:
    summary = summarise(rows_of(one))
    run = f"{arm}-seed0"

    def accuracy(cell: str) -> float:
        return 100 * float(scores(one, run, cell)["correct"].mean())

    def error(cell: str) -> float:
        table = scores(one, run, cell)
        return smooth_ece(table["confidence"], table["correct"])

    clean, photos = scores(one, run, "clean"), scores(one, run, "photos")
    expected = {
        "top1:clean": accuracy("clean"),
        "top1:c": np.mean([accuracy(cell) for cell in CELLS]),
        "top1:c@5": np.mean([accuracy(cell) for cell in CELLS if cell.endswith("5")]),
        "smooth_ece:clean": error("clean"),
        "smooth_ece:shift": np.mean([error(cell) for cell in CELLS]),
        "auroc:photos": auroc(clean["energy"], photos["energy"]),
    }
    for key, value in expected.items():
        assert summary.stats[arm, key].mean == pytest.approx(value, abs=1e-9)
    assert set(expected) | {"fpr95:photos"} == {measure.key for measure in summary.measures}
    assert summary.stats[arm, "top1:c"].n == 600
    assert summary.stats[arm, "auroc:photos"].n_other == 200


def test_seeds_give_mean_sample_std_and_student_interval_of_paired_differences(three: Path) -> None:
    summary = summarise(rows_of(three))

    def per_seed(arm: str) -> list[float]:
        return [
            float(np.mean([100 * scores(three, f"{arm}-seed{seed}", cell)["correct"].mean() for cell in CELLS]))
            for seed in (0, 1, 2)
        ]

    masking, standard = per_seed("masking-label"), per_seed("standard")
    stat, delta = summary.stats["masking-label", "top1:c"], summary.deltas["masking-label", "top1:c"]
    assert stat.seeds == 3 and stat.mean == pytest.approx(np.mean(masking))
    assert stat.std == pytest.approx(np.std(masking, ddof=1))
    differences = np.subtract(masking, standard)
    assert delta.mean == pytest.approx(differences.mean())
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert delta.over_seeds == pytest.approx((expected.low, expected.high))
    assert summary.deltas["vanilla", "top1:c"].mean == pytest.approx(
        np.mean(np.subtract(per_seed("vanilla"), standard))
    )


def test_an_interval_over_few_seeds_ends_where_differences_do() -> None:
    wide = Delta({0: -30.0, 1: 20.0}, possible=(-90.0, 10.0))
    assert wide.over_seeds == (-90.0, 10.0), "the baseline is at 90 %: no difference is above 10 points"


def test_mean_over_anomaly_sets_and_shifts(three: Path) -> None:
    summary = summarise(rows_of(three))
    both = [summary.stats["standard", f"auroc:{name}"].mean for name in ("noise", "photos")]
    assert summary.stats["standard", "auroc:anomalies"].mean == pytest.approx(np.mean(both))


# --- intervals over images ----------------------------------------------------------------------------------


def test_interval_over_images_of_accuracy_equals_a_bootstrap_of_per_image_means(one: Path) -> None:
    """Resampling images with all their corrupted copies, both arms at once, done the long way."""
    summary = summarise(rows_of(one), one)

    def per_image(arm: str) -> np.ndarray:
        return np.mean([100.0 * scores(one, f"{arm}-seed0", cell)["correct"] for cell in CELLS], axis=0)

    difference = per_image("masking-label") - per_image("standard")
    expected = stats.bootstrap(
        (difference,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    interval = summary.deltas["masking-label", "top1:c"].over_images
    width = expected.high - expected.low
    assert interval == pytest.approx((expected.low, expected.high), abs=0.12 * width)


def test_interval_over_images_of_auroc_equals_resampling_both_sides(one: Path) -> None:
    summary = summarise(rows_of(one), one)
    tables = {
        (arm, cell): scores(one, f"{arm}-seed0", cell)["energy"]
        for arm in ("masking-uniform", "standard")
        for cell in ("clean", "photos")
    }
    rng, draws = np.random.default_rng(0), []
    for _ in range(1500):
        known, odd = rng.integers(600, size=600), rng.integers(200, size=200)
        mine, theirs = (
            auroc(tables[arm, "clean"][known], tables[arm, "photos"][odd]) for arm in ("masking-uniform", "standard")
        )
        draws.append(mine - theirs)
    expected = np.quantile(draws, [0.025, 0.975])
    interval = summary.deltas["masking-uniform", "auroc:photos"].over_images
    assert interval == pytest.approx(tuple(expected), abs=0.12 * (expected[1] - expected[0]))


def test_interval_over_images_of_calibration_error_matches_a_full_bootstrap(one: Path) -> None:
    summary = summarise(rows_of(one), one)
    tables = {arm: scores(one, f"{arm}-seed0", "clean") for arm in ("masking-uniform", "standard")}
    rng, draws = np.random.default_rng(0), []
    for _ in range(500):
        pick = rng.integers(600, size=600)
        mine, theirs = (
            smooth_ece(tables[arm]["confidence"][pick], tables[arm]["correct"][pick])
            for arm in ("masking-uniform", "standard")
        )
        draws.append(mine - theirs)
    expected = np.quantile(draws, [0.025, 0.975])
    interval = summary.deltas["masking-uniform", "smooth_ece:clean"].over_images
    assert interval is not None
    assert interval[1] - interval[0] == pytest.approx(expected[1] - expected[0], rel=0.25)
    assert interval == pytest.approx(tuple(expected), abs=0.3 * (expected[1] - expected[0]))


def test_interval_over_images_narrows_with_images_and_holds_the_difference(tmp_path: Path) -> None:
    widths = []
    for n in (300, 4800):
        out = build(tmp_path / str(n), Plan(n=n, corruptions=("fog",), severities=(1, 5), thumbnails=False))
        delta = summarise(rows_of(out), out).deltas["masking-label", "top1:clean"]
        assert delta.over_images is not None and delta.over_images[0] <= delta.mean <= delta.over_images[1]
        widths.append(delta.over_images[1] - delta.over_images[0])
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.3)


def test_with_several_seeds_a_claim_holds_over_seeds_and_over_images(three: Path) -> None:
    delta = summarise(rows_of(three), three).deltas["masking-label", "top1:c"]
    assert delta.over_images is not None and delta.over_seeds is not None
    ends = (delta.over_seeds, delta.over_images)
    assert delta.interval == (min(low for low, _ in ends), max(high for _, high in ends))


def test_two_seeds_that_agree_by_chance_are_no_proof() -> None:
    accuracy = Measure("top1:clean", "top1", "clean", (Cell("clean"),))
    agreeing = Delta({0: -2.0, 1: -2.0}, over_images=(-7.0, 3.0))
    assert agreeing.over_seeds == (-2.0, -2.0) and verdict_on(agreeing, accuracy) == "unclear"
    assert verdict_on(Delta({0: -2.0, 1: -2.0}, over_images=(-3.0, -1.0)), accuracy) == "worse"


def test_missing_score_files_cost_their_intervals_and_are_named(tmp_path: Path) -> None:
    out = build(tmp_path, Plan())
    (out / "runs" / "standard-seed0" / "scores" / "c-fog-3.parquet").unlink()
    summary = summarise(rows_of(out), out)
    assert summary.deltas["masking-label", "top1:c"].over_images is None
    assert summary.deltas["masking-label", "top1:clean"].over_images is not None
    assert any("runs/standard-seed0/scores/c-fog-3.parquet" in note for note in summary.notes)


def test_a_damaged_score_file_is_named(tmp_path: Path) -> None:
    out = build(tmp_path, Plan())
    path = out / "runs" / "standard-seed0" / "scores" / "clean.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"clean\.parquet is not a table of scores"):
        summarise(rows_of(out), out)


# --- what is compared ----------------------------------------------------------------------------------------


def test_a_corruption_that_one_run_lacks_counts_in_no_mean_and_is_named(one: Path) -> None:
    rows = [row for row in rows_of(one) if not (row.arm == "vanilla" and row.corruption == "fog")]
    summary = summarise(rows)
    kept = [
        row.value
        for row in rows
        if (row.arm, row.metric, row.benchmark) == ("standard", "top1", "c") and row.corruption != "fog"
    ]
    assert summary.stats["standard", "top1:c"].mean == pytest.approx(np.mean(kept))
    assert any("3 of 9 cells of c" in note and "c-fog-1" in note for note in summary.notes)


def test_an_arm_without_a_benchmark_has_no_number_there(one: Path) -> None:
    rows = [row for row in rows_of(one) if not (row.arm == "vanilla" and row.benchmark == "photos")]
    summary = summarise(rows)
    assert ("vanilla", "auroc:photos") not in summary.stats
    assert summary.stats["standard", "auroc:photos"].seeds == 1


def test_runs_of_one_arm_that_differ_are_told_apart(one: Path) -> None:
    rows = rows_of(one)
    again = [row.replaced(alpha=0.5, value=row.value + 1) for row in rows if row.arm == "masking-label"]
    summary = summarise([*rows, *again])
    assert "masking-label, alpha 0.25" in summary.arms and "masking-label, alpha 0.5" in summary.arms
    assert summary.deltas["masking-label, alpha 0.5", "top1:clean"].mean == pytest.approx(
        summary.deltas["masking-label, alpha 0.25", "top1:clean"].mean + 1
    )


def test_rows_of_several_data_sets_and_no_rows_are_refused(one: Path) -> None:
    rows = rows_of(one)
    with pytest.raises(InputError, match="one data set; the rows have digits, other"):
        summarise([*rows, replace(rows[0], data="other")])
    with pytest.raises(InputError, match="at least one row"):
        summarise([])


# --- tables -----------------------------------------------------------------------------------------------------


def test_terminal_table_fits_and_shows_every_arm_measure_and_difference(three: Path) -> None:
    summary = summarise(rows_of(three), three)
    for width, color in ((100, True), (80, False)):
        buffer = io.StringIO()
        console = Console(file=buffer, width=width, force_terminal=color, color_system="truecolor" if color else None)
        print_table(summary, console)
        text = buffer.getvalue()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert max(map(len, plain.splitlines())) <= width
        assert "…" not in plain
        for arm in HELP:
            assert arm in plain
        assert "Δ masking-label" in plain and "±" in plain and "3 seeds" in " ".join(plain.split())
        for measure in summary.measures:
            delta = summary.deltas["masking-label", measure.key]
            assert number(delta.mean, measure, signed=True) in plain


def test_terminal_table_is_ascii_where_the_console_is(one: Path) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=100)
    print_table(summarise(rows_of(one), one), console)
    text = raw.getvalue().decode("ascii")
    assert "masking-label" in text and "-0.5" in text


def test_csv_holds_full_precision_and_both_intervals(three: Path) -> None:
    summary = summarise(rows_of(three), three)
    lines = list(csv.DictReader(io.StringIO(csv_text(summary))))
    assert len(lines) == len(summary.arms) * len(summary.measures)
    line = next(line for line in lines if (line["method"], line["measure"]) == ("masking-label", "top1:c"))
    stat, delta = summary.stats["masking-label", "top1:c"], summary.deltas["masking-label", "top1:c"]
    assert float(line["mean"]) == stat.mean and float(line["std_over_seeds"]) == stat.std
    assert (float(line["images_low"]), float(line["images_high"])) == delta.over_images
    assert (float(line["seeds_low"]), float(line["seeds_high"])) == delta.over_seeds
    assert line["cells"] == "9" and line["n"] == "600" and line["baseline"] == "standard"
    standard = next(line for line in lines if line["method"] == "standard")
    assert standard["delta"] == "" and standard["images_low"] == ""


def test_markdown_escapes_names_that_would_break_the_table(tmp_path: Path) -> None:
    out = build(tmp_path, Plan(data="a|b_*c*", model="<m>", corruptions=(), anomalies=()))
    summary = summarise(rows_of(out))
    text = markdown(summary, judge(summary))
    assert "a\\|b\\_\\*c\\*" in text and "\\<m>" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("value", "fraction", "text"),
    [
        (0.04, False, "0.0"),
        (-0.04, False, "0.0"),
        (0.06, False, "+0.1"),
        (-12.34, False, "−12.3"),
        (-0.0006, True, "−0.001"),
    ],
)
def test_numbers_are_signed_and_never_minus_zero(one: Path, value: float, fraction: bool, text: str) -> None:
    summary = summarise(rows_of(one))
    measure = summary.measure("smooth_ece:clean" if fraction else "top1:clean")
    assert measure is not None and number(value, measure, signed=True) == text


def test_an_interval_that_just_excludes_zero_shows_that_it_does(one: Path) -> None:
    clean = summarise(rows_of(one)).measure("top1:clean")
    assert clean is not None
    assert interval_text((-0.9, -0.04), clean) == "−0.9 to −0.04"
    assert interval_text((-0.9, 0.04), clean) == "−0.9 to 0.0"


def test_better_and_worse_follow_the_direction_of_the_measure(one: Path) -> None:
    summary = summarise(rows_of(one), one)
    for key in ("top1:c", "smooth_ece:shift", "auroc:photos"):
        measure = summary.measure(key)
        assert measure is not None
        assert verdict_on(summary.deltas["masking-uniform", key], measure) == "better"
    clean = summary.measure("top1:clean")
    assert clean is not None and verdict_on(summary.deltas["masking-uniform", "top1:clean"], clean) == "worse"


# --- small shapes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        Plan(effects={"standard": Effect()}, corruptions=(), anomalies=(), n=3),
        Plan(effects={"masking-uniform": Effect()}, anomalies=()),
        Plan(effects={"vanilla": Effect(), "standard": Effect()}, severities=(5,)),
        Plan(n=1, n_other=1, corruptions=("fog",), severities=(2,)),
        Plan(scores=False, curves=False, thumbnails=False),
    ],
    ids=["standard only", "masking only", "one severity", "one image", "rows only"],
)
def test_small_comparisons_have_a_table(tmp_path: Path, plan: Plan) -> None:
    out = build(tmp_path, plan)
    summary = summarise(rows_of(out), out)
    buffer = io.StringIO()
    print_table(summary, Console(file=buffer, width=100))
    for arm in plan.effects:
        assert arm in buffer.getvalue()
    assert len({measure.key for measure in summary.measures}) == len(summary.measures)
