"""The page: self-contained, deterministic, escaped, accessible, and whole for any comparison."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_report_folder import HELP, Effect, Plan, build

from anchored.report import write_report
from anchored.system.errors import InputError

HOSTILE = "<script>alert(\"x\")</script> & 'quoted' $x^2$ <b>"
VOID = {"meta", "link", "br", "img", "path", "circle", "use", "input", "hr", "wbr"}


class Page(HTMLParser):
    """Every element with its attributes and text; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = build(tmp_path_factory.mktemp("report"), Plan(seeds=(0, 1), anomalies=("noise", "photos")))
    write_report(out)
    return out


def read(out: Path) -> str:
    return (out / "report.html").read_text(encoding="utf-8")


def test_the_page_needs_no_network(folder: Path) -> None:
    html = read(folder)
    assert not re.findall(r"https?:|//[\w-]+\.\w", html)
    page = Page(html)
    assert not page.all("script") and not page.all("iframe")
    for _, attributes in page.elements:
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), target
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    assert len(html) < 1_000_000


def test_every_figure_has_a_name_in_words_and_every_link_inside_the_page_a_target(folder: Path) -> None:
    page = Page(read(folder))
    named = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    assert len(named) == 6  # severity, corruptions, reliability, two anomaly sets, training
    assert all(len(str(attributes.get("aria-label"))) > 40 for attributes in named)
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert len(page.all("img")) == 6  # clean, the worst of three corruptions, two anomaly sets
    ids = [str(attributes["id"]) for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', read(folder)))
    assert used and used <= set(ids)


def test_figures_take_their_colours_from_the_page_so_that_dark_mode_reaches_them(folder: Path) -> None:
    html = read(folder)
    figures = "".join(re.findall(r'<svg role="img".*?</svg>', html, flags=re.DOTALL))
    assert "var(--ink)" in figures and "var(--label)" in figures
    assert not re.findall(r"#[0-9a-f]{6}\b(?!-)", re.sub(r'(href|id)="[^"]*"|url\([^)]*\)', "", figures))
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= defined


def test_numbers_verdict_and_run_are_on_the_page(folder: Path) -> None:
    words = Page(read(folder)).words
    assert "resnet9 on digits" in words
    assert "resnet9 on digits, 2 seeds: 3 arms compared with standard." in words
    assert "Best under shift (c): masking-label" in words and "○ not clear" in words and "▲ better" in words
    for text in (
        "anchored compare --data digits --model resnet9",
        "abc123",
        "2 files skipped",
        "recipe.lr 0.1",
        "torch 2.8.0",
        "standard, seed 1",
        "n = clean 600; c 600 × 9 cells",
        "gaussian noise",
    ):
        assert text in words  # fmt: skip
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    standard = next(line for line in lines if line.startswith("| standard"))
    for cell in standard.split("|")[2:-1]:
        assert cell.strip() in words
    assert (folder / "table.csv").read_text(encoding="utf-8").startswith("method,measure,metric,")


def test_the_same_folder_gives_the_same_bytes_whatever_the_process(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    for made in ("report.html", "table.md", "table.csv"):
        (copy / made).unlink()
    shutil.rmtree(copy / "figures")
    code = f"from anchored.report import write_report; write_report({str(copy)!r})"
    environment = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=root)
    made = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len([path for path in made if path.suffix == ".svg"]) == 6
    for path in made:
        assert (folder / path).read_bytes() == (copy / path).read_bytes(), path


def test_names_from_the_user_are_text_and_never_markup(tmp_path: Path) -> None:
    plan = Plan(data=HOSTILE, model=HOSTILE, anomalies=("a<b>&c",), shift="sh\"ift<i>'")
    page = Page(read(write_report(build(tmp_path, plan)).parent))
    assert not page.all("script")
    assert all(attributes.get("class") == "swatch" for attributes in page.all("i"))
    assert page.words.count("alert(") >= 3
    assert "sh\"ift<i>'" in page.words and "a<b>&c" in page.words
    assert len([a for a in page.all("svg") if a.get("role") == "img"]) == 5
    assert all(re.fullmatch(r"[a-z0-9-]+\.svg", path.name) for path in (tmp_path / "figures").iterdir())


@pytest.mark.parametrize(
    "plan",
    [
        Plan(effects={"standard": Effect()}, corruptions=(), anomalies=(), n=2, curves=False, thumbnails=False),
        Plan(effects={"masking-label": Effect()}, anomalies=()),
        Plan(effects={"vanilla": Effect(), "standard": Effect()}, severities=(5,), seeds=(3,)),
        Plan(n=1, n_other=1, corruptions=("fog",), severities=(2, 4)),
        Plan(scores=False, curves=False, thumbnails=False),
        Plan(effects={name: Effect(100.0, 100.0, 0.5, 9.0) for name in HELP}),
    ],
    ids=["bare", "masking only", "one severity", "one image", "rows only", "everything right"],
)
def test_any_comparison_has_a_page(tmp_path: Path, plan: Plan) -> None:
    page = Page(read(write_report(build(tmp_path, plan)).parent))
    assert "resnet9 on digits" in page.words and "What the numbers mean" in page.words
    assert "nan" not in page.words.lower().replace("anonymous", "")


def test_rows_alone_make_a_page(tmp_path: Path) -> None:
    build(tmp_path / "full", Plan(scores=False, curves=False, thumbnails=False))
    (tmp_path / "rows").mkdir()
    shutil.copy(tmp_path / "full" / "rows.jsonl", tmp_path / "rows" / "rows.jsonl")
    assert "resnet9 on digits" in Page(read(write_report(tmp_path / "rows").parent)).words


def test_a_training_log_cut_off_by_a_crash_is_drawn_as_far_as_it_goes(tmp_path: Path) -> None:
    out = build(tmp_path, Plan())
    log = out / "runs" / "standard-seed0" / "metrics.jsonl"
    log.write_text(log.read_text()[:-30])
    assert "How training went" in Page(read(write_report(out).parent)).words


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl"):
        write_report(tmp_path)
    out = build(tmp_path / "a", Plan(scores=False))
    (out / "thumbnails.npz").write_bytes(b"not an archive")
    with pytest.raises(InputError, match=r"thumbnails\.npz"):
        write_report(out)
    assert not (out / "report.html").exists()
    (out / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json is not JSON"):
        write_report(out)


def test_three_methods_over_95_corruption_sets_take_seconds_and_stay_small(tmp_path: Path) -> None:
    effects = {name: HELP[name] for name in ("standard", "vanilla", "masking-label")}
    corruptions = tuple(f"corruption_{number:02d}" for number in range(19))
    plan = replace(Plan(), effects=effects, corruptions=corruptions, severities=(1, 2, 3, 4, 5), n=1000)
    out = build(tmp_path, plan)
    start = time.process_time()
    page = write_report(out)
    assert time.process_time() - start < 10
    assert page.stat().st_size < 5_000_000


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium to open the page")
def test_a_browser_draws_the_page_without_a_complaint(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    run = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={tmp_path / 'profile'}",
         f"--screenshot={picture}", "--window-size=390,900", (folder / "report.html").as_uri()],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert picture.stat().st_size > 20_000
    assert "CONSOLE" not in run.stderr, run.stderr
