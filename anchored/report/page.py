"""One self-contained HTML page from a comparison folder, with Markdown, CSV and SVG beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anchored.report import budget
from anchored.report.charts import charts
from anchored.report.contents import Contents, contents
from anchored.report.extras import extras
from anchored.report.figures import VARIABLES, Picture, draw, inline, looks
from anchored.report.markdown import markdown
from anchored.report.numbers import counts_text, legend_text, listed
from anchored.report.page_tables import (
    OUTCOMES,
    corruption_tables,
    differences,
    number_table,
    pair_tables,
    purposes,
    verdict_grid,
)
from anchored.report.paper import beside
from anchored.report.pictures import disputes, thumbnails
from anchored.report.settings_table import settings_table
from anchored.report.summary import Summary
from anchored.report.tables import csv_text
from anchored.report.training_chart import read_curves
from anchored.report.verdict import footnotes, opening, step_text
from anchored.system.files import write_text


def write_report(
    out: str | Path, sources: Sequence[str | Path] = (), *, baseline: str | None = None, pairs: Sequence[str] = ()
) -> Path:
    """Write OUT/report.html, table.md, table.csv and figures/*.svg; the page's path.

    sources: what the report is of (see `places.gather`); by default the comparison or evaluation folder OUT itself.
    baseline: the arm, or the run of an arm, that all others are compared with; pairs: further comparisons of two arms,
    A:B, A with B; by default what config.json says. Reads rows.jsonl, and where they exist config.json,
    runs/RUN/run.json, runs/RUN/scores/*.parquet, runs/RUN/metrics.jsonl, thumbnails.npz and disagreements.npz. The same
    sources give the same bytes. Raises InputError when there are no rows, a file is damaged, or there is no such arm.
    """
    return write(contents([*sources] or [out], baseline=baseline, pairs=pairs), Path(out))


def write(found: Contents, out: Path) -> Path:
    """Write what was found to OUT; the page's path."""
    curves = read_curves(found.summary, found.places.runs)
    pictures = draw(charts(found.summary, found.scores, curves), out)
    html = _environment().get_template("report.html.j2").render(**_page(found, pictures))
    write_text(out / "table.md", markdown(found.summary, found.judgement, found.budgets, found.pairs))
    write_text(out / "table.csv", csv_text(found.summary))
    write_text(out / "report.html", html)
    return out / "report.html"


def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page(found: Contents, pictures: Sequence[Picture]) -> dict[str, Any]:
    """What the template is filled with."""
    summary, config, places = found.summary, found.config, found.places
    numbers, warnings = beside(summary, found.rows, _classes(config))
    lines = opening(found.judgement)
    return {
        "title": f"{summary.model} on {_data_name(summary, config)}",
        "style": Markup((Path(__file__).parent / "report.css").read_text(encoding="utf-8")),
        "summary": summary,
        "evaluation": "models" in config,
        "description": " ".join(lines),
        "opening": lines[0],
        "rest": lines[1:],
        "grid": verdict_grid(found.judgement),
        "seed_step": found.judgement.seed_step,
        "step_text": step_text,
        "footnotes": list(footnotes(found.judgement)) if found.judgement.arms else [],
        "base": listed(summary.bases, "or"),
        "counts": counts_text(summary),
        "legend": legend_text(summary),
        "groups": purposes(summary),
        "table": number_table(summary),
        "differences": differences(summary),
        "pairs": pair_tables(found.pairs),
        "over": {
            "seeds": any(delta.over_seeds for delta in summary.deltas.values()),
            "images": any(delta.over_images for delta in summary.deltas.values()),
        },
        "budget": [(each.arm, each.cells) for each in found.budgets] if budget.known(found.budgets) else [],
        "budget_headings": budget.HEADINGS,
        "cautions": budget.cautions(found.budgets),
        "settings": settings_table(summary),
        "figures": [(picture, Markup(inline(picture))) for picture in pictures],
        "corruptions": corruption_tables(summary),
        "thumbnails": thumbnails(places.folders[0]),
        "disputes": disputes(summary, places.folders[0], places.runs),
        "paper": numbers,
        "paper_warnings": warnings,
        "extras": extras(summary, places.runs),
        "commands": [_command(each) for each in places.configs if _command(each)],
        "swatch": {arm: f"var({VARIABLES[look.colour]})" for arm, look in looks(summary).items()},
        "outcomes": OUTCOMES,
        "details": _details(config, summary),
        "shifts": sorted({cell.benchmark for cell in summary.cells("top1") if cell.corruption}),
        "metrics": {measure.metric for measure in summary.measures},
    }


def _classes(config: Mapping[str, Any]) -> int:
    data = config.get("data")
    return len(data.get("classes", ())) if isinstance(data, dict) else 0


def _data_name(summary: Summary, config: Mapping[str, Any]) -> str:
    data = config.get("data")
    return str(data.get("name", summary.data)) if isinstance(data, dict) else summary.data


def _command(config: Mapping[str, Any]) -> str:
    command = config.get("command", "")
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _details(config: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """What was run: command, data, versions, settings that all arms share, runs."""
    special = ("command", "versions", "data", "config_hash", "arms", "baseline", "report_pairs")
    data, versions = config.get("data"), config.get("versions")
    data = data if isinstance(data, dict) else {"name": data or summary.data}
    settings = {key: value for key, value in config.items() if key not in special}
    if isinstance(own := settings.get("settings"), dict):
        settings["settings"] = {key: value for key, value in own.items() if key != "arms"}
    return {
        "config_hash": str(config.get("config_hash", "")),
        "data": _pairs({key: value for key, value in data.items() if key != "notes"}),
        "notes": [str(note) for note in data.get("notes") or ()],
        "versions": _pairs(versions if isinstance(versions, dict) else {}),
        "settings": _pairs(settings),
        "runs": sorted((arm, seed, run) for (arm, seed), run in summary.runs.items()),
    }


def _pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as flat (name, text) pairs."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found += _pairs(value, f"{name}.")
        elif isinstance(value, list | tuple):
            text = ", ".join(map(str, value[:40])) + (f" and {len(value) - 40} more" if len(value) > 40 else "")
            found.append((name, text or "none"))
        else:
            found.append((name, "none" if value is None else str(value)))
    return found
