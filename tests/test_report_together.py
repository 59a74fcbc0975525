"""Several folders in one report, images that methods disagree on, exact tests, summaries, and the paper's numbers."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_report_folder import HELP, Plan, build
from test_report_page import CHROMIUM, Page

from anchored.cli import main
from anchored.data.base import ImageSet
from anchored.evaluation import summaries
from anchored.evaluation.cell_images import plain
from anchored.evaluation.metrics import clopper_pearson
from anchored.evaluation.rows import Cell, Row, read_rows, write_rows
from anchored.evaluation.scores import read_scores
from anchored.evaluation.thumbnails import Shown, disputed, store
from anchored.report import summarise, write_report
from anchored.report.paper import beside
from anchored.report.places import gather
from anchored.system.errors import InputError


def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_folders_are_reported_together_as_if_they_were_one(tmp_path: Path) -> None:
    names = list(HELP)
    whole = build(tmp_path / "whole", Plan())
    one = build(tmp_path / "one", replace(Plan(), effects={name: HELP[name] for name in names[:2]}))
    other = build(tmp_path / "other", replace(Plan(), effects={name: HELP[name] for name in names[2:]}))
    write_report(tmp_path / "together", [one, other / "rows.jsonl"])
    write_report(whole)
    assert (tmp_path / "together" / "table.csv").read_text() == (whole / "table.csv").read_text()
    assert page_of(tmp_path / "together" / "report.html").words.count("anchored compare --data") == 2
    run = next((one / "runs").iterdir())
    assert {row.run for row in gather([run]).rows} == {run.name}
    with pytest.raises(InputError, match=r"rows\.jsonl"):
        gather([tmp_path])


def test_runs_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    one, other = (build(tmp_path / name, Plan(seeds=seeds)) for name, seeds in (("a", (0,)), ("b", (0, 1))))
    found = gather([one, other])
    assert {row.run for row in found.rows} >= {"standard-seed0", "b/standard-seed0", "standard-seed1"}
    assert found.runs["b/standard-seed0"] == other / "runs" / "standard-seed0"
    summary = summarise(found.rows)
    assert any("standard-seed0 and b/standard-seed0 are both standard, seed 0" in note for note in summary.notes)


def test_the_command_wants_a_place_for_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = build(tmp_path / "a", Plan(corruptions=("fog",), curves=False))
    with pytest.raises(SystemExit):
        main(["report", str(out), str(out / "rows.jsonl")])
    assert "needs --out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", str(out), str(tmp_path / "nowhere")])
    assert "nowhere: there is no such folder or file" in capsys.readouterr().err
    main(["report", str(out / "rows.jsonl"), "--out", str(tmp_path / "b")])
    assert (tmp_path / "b" / "report.html").is_file()


def test_disputed_images_are_right_for_one_and_wrong_for_another() -> None:
    rng = np.random.default_rng(0)
    scores = [{"correct": rng.random(200) < 0.7} for _ in range(3)]
    chosen = disputed(scores, 8)
    hits = np.stack([each["correct"][chosen] for each in scores])
    assert len(set(chosen.tolist())) == 8 and (hits.any(0) & ~hits.all(0)).all()
    assert chosen[0] < 40 and chosen[-1] > 160  # all over the set
    assert len(disputed([scores[0], scores[0]])) == 0


def test_disagreements_are_stored_and_shown_with_every_answer(tmp_path: Path) -> None:
    import torch

    plan = Plan(effects={name: HELP[name] for name in ("standard", "masking-uniform")}, corruptions=("fog",))
    out = build(tmp_path, plan)
    images = ImageSet(
        torch.arange(plan.n, dtype=torch.int64).remainder(251).to(torch.uint8)[:, None, None, None].expand(-1, 4, 4, 3),
        torch.arange(plan.n) % 10,
    )
    classes = [f"digit {number}" for number in range(10)]
    cells = [Cell("clean")] + [Cell("c", "fog", severity, "shift") for severity in (1, 3, 5)]
    shown = [Shown(cell, lambda cell=cell: plain(cell, images), classes) for cell in cells]  # type: ignore[misc]
    (out / "thumbnails.npz").unlink()
    store(out, shown, ["standard-seed0", "masking-uniform-seed0"])
    with np.load(out / "thumbnails.npz") as archive:
        assert set(archive.files) == {"clean", "c-fog-3"}
    with np.load(out / "disagreements.npz") as archive:
        assert {"clean", "c-fog-5", "c-fog-5.index", "clean.classes"} <= set(archive.files)
        rows = archive["c-fog-5.index"]
        assert archive["c-fog-5"][:, 0, 0, 0].tolist() == (rows % 251).tolist()
    tables = [read_scores(out / "runs" / f"{name}-seed0" / "scores" / "c-fog-5.parquet") for name in plan.effects]
    assert all(tables[0]["correct"][row] != tables[1]["correct"][row] for row in rows)
    page = page_of(write_report(out))
    pictures = [a for a in page.all("img") if str(a.get("alt", "")).startswith("A test image of class digit")]
    assert len(pictures) >= len(rows) and page.words.count("✗") == page.words.count("✓") == len(pictures)


def test_exact_tests_on_the_page(tmp_path: Path) -> None:
    out = build(tmp_path, Plan(corruptions=("fog",)))
    words = page_of(write_report(out)).words
    base = read_scores(out / "runs" / "standard-seed0" / "scores" / "clean.parquet")["correct"]
    for name in ("vanilla", "masking-uniform"):
        mine = read_scores(out / "runs" / f"{name}-seed0" / "scores" / "clean.parquet")["correct"]
        b, c = int((mine & ~base).sum()), int((base & ~mine).sum())
        p = stats.binomtest(b, b + c).pvalue if b + c else 1.0
        interval = stats.binomtest(int(mine.sum()), len(mine)).proportion_ci(method="exact")
        assert f"{100 * interval.low:.2f} to {100 * interval.high:.2f} {p:.2g} against standard" in words


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (5, 5), (1, 1), (37, 100), (9_873, 10_000)])
def test_clopper_pearson_equals_scipy(hits: int, n: int) -> None:
    for level in (0.9, 0.95):
        expected = stats.binomtest(hits, n).proportion_ci(confidence_level=level, method="exact")
        assert clopper_pearson(hits, n, level=level) == pytest.approx((expected.low, expected.high), abs=1e-12)
    with pytest.raises(InputError, match="hits lie in"):
        clopper_pearson(n + 1, n)


# --- summaries ------------------------------------------------------------------------------------------------------


def suite_rows(out: Path, model: str = "resnet9", data: str = "digits") -> list[Row]:
    from anchored.corruptions import suite

    plan = Plan(corruptions=suite("c-mce"), severities=(1, 5), n=100, anomalies=("isun", "textures", "places365"),
                effects={name: HELP[name] for name in ("standard", "masking-uniform")},
                model=model, data=data)  # fmt: skip
    return read_rows(build(out, plan) / "rows.jsonl")


def test_summaries_are_the_means_they_say(tmp_path: Path) -> None:
    rows = suite_rows(tmp_path)
    found = {(r.run, r.benchmark, r.severity, r.metric): r for r in summaries.rows(rows, "standard-seed0")}
    for run in ("standard-seed0", "masking-uniform-seed0"):
        own = [row for row in rows if row.run == run]
        cells = {(r.corruption, r.severity): r.value for r in own if r.metric == "top1" and r.benchmark == "c"}
        base = {(r.corruption, r.severity): r.value for r in rows
                if r.run == "standard-seed0" and r.metric == "top1" and r.benchmark == "c"}  # fmt: skip
        for severity in (1, 5):
            mean = np.mean([value for (_, s), value in cells.items() if s == severity])
            assert found[run, "c", severity, "top1_mean"].value == pytest.approx(mean)
        names = {name for name, _ in cells}
        mce = np.mean([sum(100 - cells[n, s] for s in (1, 5)) / sum(100 - base[n, s] for s in (1, 5)) for n in names])
        assert found[run, "c", None, "mce"].value == pytest.approx(100 * mce)
        ece = [r.value for r in own if r.metric == "smooth_ece" and r.benchmark == "c"]
        assert found[run, "shifts", None, "smooth_ece_mean"].value == pytest.approx(np.mean(ece))
        assert found[run, "shifts", None, "smooth_ece_std"].value == pytest.approx(np.std(ece, ddof=1))
        auroc = [r.value for r in own if r.metric == "auroc"]
        assert found[run, "vision-ood", None, "auroc_mean"].value == pytest.approx(np.mean(auroc))
    assert found["standard-seed0", "c", None, "mce"].value == pytest.approx(100)


def test_a_missing_corruption_leaves_mce_out(tmp_path: Path) -> None:
    rows = [row for row in suite_rows(tmp_path) if row.corruption != "fog"]
    metrics = {row.metric for row in summaries.rows(rows, "alexnet")}
    assert "mce" not in metrics and "top1_mean" in metrics


def test_mce_of_alexnet_itself_is_100() -> None:
    errors = {name: 100 * error for name, error in summaries.ALEXNET_ERRORS.items()}
    assert summaries.mce(errors, errors) == pytest.approx(100)
    with pytest.raises(InputError, match="divides by the errors"):
        summaries.mce(errors, {**errors, "fog": 0.0})


# --- the paper ------------------------------------------------------------------------------------------------------


def test_the_papers_numbers_stand_beside_ours_with_what_differs(tmp_path: Path) -> None:
    rows = suite_rows(tmp_path, "resnet18", "parquet:cifar10")
    rows += summaries.rows(rows)
    numbers, warnings = beside(summarise(rows), rows, 10)
    clean = next(line for line in numbers if (line.arm, line.benchmark) == ("standard", "clean"))
    assert clean.paper == 95.15 and clean.table == "1"
    assert {line.benchmark for line in numbers} == {"clean", "c severity 1", "c severity 5"}
    differing = (
        "8 epochs, the paper's 200",
        "recipe cifar, the paper's is cifar_resnet18",
        "15 corruptions of c, the paper's 19",
        "1,000 training images, the paper's 50,000",
        "c is generated here",
    )
    for text in differing:
        assert any(f"standard: {text}" in warning for warning in warnings), text


def test_no_number_of_another_model_or_data(tmp_path: Path) -> None:
    rows = suite_rows(tmp_path / "a", "resnet9", "cifar100")
    numbers, warnings = beside(summarise(rows), rows, 100)
    assert not numbers and any("no numbers for resnet9 on cifar100, only for resnet18, wrn40_2" in w for w in warnings)
    rows = suite_rows(tmp_path / "b", "resnet18", "flowers")
    assert beside(summarise(rows), rows, 10) == ([], [])
    rows = suite_rows(tmp_path / "c", "torchvision:swin_v2_t", "folder:val")
    numbers, _ = beside(summarise(rows), [*rows, *summaries.rows(rows)], 1000)
    assert next(n.paper for n in numbers if n.benchmark == "vision-ood, AUROC" and n.arm == "standard") == 76.54
    write_rows(tmp_path / "c" / "rows.jsonl", rows)


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium to open the page")
def test_a_browser_asks_for_nothing_beyond_the_page(tmp_path: Path) -> None:
    import subprocess

    out = build(tmp_path / "out", Plan(data="cifar10", model="resnet18"))
    page = write_report(out)
    log = tmp_path / "net.json"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}",
             f"--screenshot={tmp_path / 'page.png'}", "--enable-logging=stderr", "--v=0", page.as_uri()]  # fmt: skip
    run = subprocess.run([str(CHROMIUM), *flags], capture_output=True, text=True, timeout=180)
    assert "CONSOLE" not in run.stderr and (tmp_path / "page.png").stat().st_size > 10_000
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", html)
    figures = Page(html)
    assert all(a.get("alt") for a in figures.all("img"))
    assert all(a.get("aria-label") for a in figures.all("svg") if a.get("role") == "img")
    asked = set(re.findall(r'"url":"(https?://[^"]+)"', log.read_text(errors="replace"))) if log.exists() else set()
    assert not {url for url in asked if "google" not in url and "gvt1" not in url}  # the browser's own housekeeping
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)
