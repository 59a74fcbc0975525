"""One self-contained HTML page from a comparison folder, with Markdown, CSV and SVG beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anchored.evaluation import summaries
from anchored.report.charts import charts, per_corruption
from anchored.report.extras import extras
from anchored.report.figures import VARIABLES, draw, inline, looks
from anchored.report.intervals import with_intervals
from anchored.report.paper import beside
from anchored.report.pictures import disputes, thumbnails
from anchored.report.places import gather
from anchored.report.scores import read_scores
from anchored.report.summary import METRIC_NAMES, Delta, Measure, Summary, anomaly_key, headline, shift_key
from anchored.report.tables import (
    counts_text,
    csv_text,
    delta_methods,
    interval_text,
    legend_text,
    markdown,
    number,
    stat_text,
    verdict_on,
)
from anchored.report.verdict import judged_method, verdict
from anchored.system.files import write_text

SUMMARY_METRICS = ("top1_mean", "mce", "smooth_ece_mean", "auroc_mean")
PURPOSES = {"accuracy": "Accuracy", "calibration": "Calibration", "anomalies": "Anomalies"}
OUTCOMES = {"better": "better", "worse": "worse", "unclear": "no clear change", "unknown": "no interval"}


@dataclass(frozen=True)
class Tile:
    """One aspect of the verdict as a big number: before, after, difference."""

    title: str
    before: str
    after: str
    difference: str
    interval: str
    outcome: str


def write_report(out: str | Path, sources: Sequence[str | Path] = ()) -> Path:
    """Write OUT/report.html, table.md, table.csv and figures/*.svg; the page's path.

    sources: what the report is of (see `places.gather`); by default the comparison or evaluation folder OUT itself.
    Reads rows.jsonl, and where they exist config.json, runs/RUN/scores/*.parquet, runs/RUN/metrics.jsonl,
    thumbnails.npz and disagreements.npz. The same sources give the same bytes. Raises InputError when there are no
    rows or a file is damaged.
    """
    out = Path(out)
    places = gather([*sources] or [out])
    config = places.config
    rows = list(places.rows)
    if not any(row.metric in SUMMARY_METRICS for row in rows):
        rows += summaries.rows(rows, config.get("baseline"))
    summary = headline(rows, config.get("baseline"))
    scores = read_scores(summary, places.runs)
    summary = with_intervals(summary, scores)
    pictures = draw(charts(summary, scores, _curves(summary, places.runs)), out)
    sentence = verdict(summary)
    classes = len(config.get("data", {}).get("classes", ())) if isinstance(config.get("data"), dict) else 0
    numbers, warnings = beside(summary, rows, classes)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html.j2").render(
        title=_title(summary, config),
        data=_data_name(summary, config),
        style=Markup((Path(__file__).parent / "report.css").read_text(encoding="utf-8")),
        summary=summary,
        verdict=sentence,
        evaluation="models" in config,
        base=" or ".join(sorted(set(summary.baselines.values()))),
        opening=sentence.partition(": ")[0],
        rest=sentence.partition(": ")[2],
        tiles=_tiles(summary),
        judged=judged_method(summary),
        counts=counts_text(summary),
        legend=legend_text(summary),
        groups=_groups(summary),
        table=_table(summary),
        differences=_differences(summary),
        over={
            "seeds": any(delta.over_seeds for delta in summary.deltas.values()),
            "images": any(delta.over_images for delta in summary.deltas.values()),
        },
        figures=[(picture, Markup(inline(picture))) for picture in pictures],
        corruptions=_corruptions(summary),
        thumbnails=thumbnails(places.folders[0]),
        disputes=disputes(summary, places.folders[0], places.runs),
        paper=numbers,
        paper_warnings=warnings,
        extras=extras(summary, places.runs),
        commands=[_command(each) for each in places.configs if _command(each)],
        swatch={method: f"var({VARIABLES[look.colour]})" for method, look in looks(summary).items()},
        outcomes=OUTCOMES,
        details=_details(config, summary),
        shifts=sorted({cell.benchmark for cell in summary.cells("top1") if cell.corruption}),
        metrics={measure.metric for measure in summary.measures},
    )
    write_text(out / "table.md", markdown(summary, sentence))
    write_text(out / "table.csv", csv_text(summary))
    write_text(out / "report.html", html)
    return out / "report.html"


def _curves(summary: Summary, runs: Mapping[str, Path]) -> dict[tuple[str, int], list[dict[str, float]]]:
    """The training log of each run; a line cut off by a crash is left out."""
    found = {}
    for key, run in sorted(summary.runs.items()):
        path = runs[run] / "metrics.jsonl"
        records = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and isinstance(record.get("epoch"), int | float):
                records.append(record)
        found[key] = records
    return found


def _data_name(summary: Summary, config: Mapping[str, Any]) -> str:
    data = config.get("data")
    return str(data.get("name", summary.data)) if isinstance(data, dict) else summary.data


def _title(summary: Summary, config: Mapping[str, Any]) -> str:
    return f"{summary.model} on {_data_name(summary, config)}"


def _tiles(summary: Summary) -> list[Tile]:
    method = judged_method(summary)
    if method is None:
        return []
    wanted = [
        ("Clean accuracy", "top1:clean"),
        ("Accuracy under shift", shift_key(summary)),
        ("Smooth ECE, shifted", "smooth_ece:shift"),
        ("Smooth ECE, clean", "smooth_ece:clean"),
        ("Anomaly AUROC", anomaly_key(summary)),
    ]
    tiles = []
    for title, key in wanted:
        measure, delta = summary.measure(key or ""), summary.deltas.get((method, key or ""))
        if measure is None or delta is None:
            continue
        unit = "" if measure.fraction else " %"
        before, after = (summary.stats[name, measure.key].mean for name in (summary.baselines[method], method))
        tiles.append(
            Tile(
                title=title,
                before=number(before, measure) + unit,
                after=number(after, measure) + unit,
                difference=number(delta.mean, measure, signed=True),
                interval="" if delta.interval is None else interval_text(delta.interval, measure),
                outcome=verdict_on(delta, measure),
            )
        )
    return tiles


def _groups(summary: Summary) -> list[tuple[str, int]]:
    """The table's upper heading: purpose and how many measures it spans."""
    groups: list[tuple[str, int]] = []
    for measure in summary.measures:
        name = PURPOSES[measure.purpose]
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + 1)
        else:
            groups.append((name, 1))
    return groups


def _table(summary: Summary) -> dict[str, Any]:
    measures = summary.measures
    return {
        "columns": [(METRIC_NAMES[m.metric], m.place, "higher" if m.higher_is_better else "lower") for m in measures],
        "rows": [
            (method, [stat_text(summary.stats.get((method, m.key)), m) for m in measures])
            for method in summary.methods
        ],
        "deltas": [
            (method, [_delta_entry(summary.deltas.get((method, m.key)), m) for m in measures])
            for method in delta_methods(summary)
        ],
    }  # fmt: skip


def _delta_entry(delta: Delta | None, measure: Measure) -> tuple[str, str]:
    if delta is None:
        return "–", "unknown"
    return number(delta.mean, measure, signed=True), verdict_on(delta, measure)


def _differences(summary: Summary) -> list[dict[str, Any]]:
    """Per measure, each method's difference with both intervals and a small drawing of what a claim rests on."""
    found = []
    for measure in summary.measures:
        pairs = [(m, d) for m in delta_methods(summary) if (d := summary.deltas.get((m, measure.key)))]
        reach = max((abs(end) for _, delta in pairs for end in (delta.mean, *(delta.interval or ()))), default=0.0)
        lines = []
        for method, delta in pairs:
            outcome = verdict_on(delta, measure)
            lines.append(
                {
                    "method": method,
                    "difference": number(delta.mean, measure, signed=True),
                    "outcome": outcome,
                    "word": OUTCOMES[outcome],
                    "glyph": _glyph(delta, reach or 1.0),
                    "images": "" if delta.over_images is None else interval_text(delta.over_images, measure),
                    "seeds": "" if delta.over_seeds is None else interval_text(delta.over_seeds, measure),
                }
            )
        if lines:
            found.append({"heading": measure.heading, "higher": measure.higher_is_better, "lines": lines})
    return found


def _glyph(delta: Delta, reach: float) -> dict[str, float]:
    """Positions, in a box 240 wide with zero at 120, of the difference and its interval."""
    low, high = delta.interval or (delta.mean, delta.mean)
    return {
        name: round(120.0 + 112.0 * value / reach, 1)
        for name, value in (("low", low), ("high", high), ("mean", delta.mean))
    }


def _corruptions(summary: Summary) -> list[dict[str, Any]]:
    """Per shift made of corruptions: accuracy and calibration per corruption and method."""
    judged = judged_method(summary)
    baseline = summary.baselines.get(judged or "")
    found = []
    for benchmark in sorted({c.benchmark for c in summary.cells("top1") if c.corruption is not None}):
        for metric in ("top1", "smooth_ece"):
            measure = Measure("", metric, benchmark, ())
            table = per_corruption(summary, benchmark, metric)
            names = sorted({name for _, name in table})
            lines = []
            for name in names:
                values = [table.get((method, name)) for method in summary.methods]
                mine, theirs = table.get((judged or "", name)), table.get((baseline or "", name))
                change = None if mine is None or theirs is None else mine - theirs
                lines.append(
                    (
                        name.replace("_", " "),
                        ["–" if value is None else number(value, measure) for value in values],
                        "" if change is None else number(change, measure, signed=True),
                    )
                )
            if lines:
                found.append({"benchmark": benchmark, "metric": METRIC_NAMES[metric], "judged": judged,
                              "baseline": baseline, "lines": lines, "first": metric == "top1"})  # fmt: skip
    return found


def _command(config: Mapping[str, Any]) -> str:
    command = config.get("command", "")
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _details(config: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """What was run: command, data, versions, settings, runs."""
    special = ("command", "versions", "data", "config_hash")
    data, versions = config.get("data"), config.get("versions")
    data = data if isinstance(data, dict) else {"name": data or summary.data}
    return {
        "config_hash": str(config.get("config_hash", "")),
        "data": _pairs({key: value for key, value in data.items() if key != "notes"}),
        "notes": [str(note) for note in data.get("notes") or ()],
        "versions": _pairs(versions if isinstance(versions, dict) else {}),
        "settings": _pairs({key: value for key, value in config.items() if key not in special}),
        "runs": sorted((method, seed, run) for (method, seed), run in summary.runs.items()),
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
