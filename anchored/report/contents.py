"""Everything that one report says, read and computed once: for the page, the files beside it and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchored.evaluation import summaries
from anchored.evaluation.rows import Row
from anchored.report.budget import Budget, budgets
from anchored.report.intervals import with_intervals
from anchored.report.judgement import Judgement, judge
from anchored.report.naming import pair
from anchored.report.places import Places, gather
from anchored.report.scores import Scores, read_scores
from anchored.report.summary import Summary, headline, paired
from anchored.system.errors import InputError

SUMMARY_METRICS = ("top1_mean", "mce", "smooth_ece_mean", "smooth_ece_std", "auroc_mean")


@dataclass(frozen=True)
class Contents:
    """pairs: further comparisons of two arms, each by itself. rows: with summaries over cells among them."""

    places: Places
    rows: tuple[Row, ...]
    summary: Summary
    judgement: Judgement
    scores: Scores
    pairs: tuple[Summary, ...]
    budgets: tuple[Budget, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        return self.places.config


def contents(
    sources: Sequence[str | Path],
    *,
    baseline: str | None = None,
    pairs: Sequence[str] = (),
    rows: Iterable[Row] | None = None,
) -> Contents:
    """What the report of `sources` says (see `places.gather`).

    baseline: an arm, the run of an arm, or alexnet (for mean corruption errors alone); pairs: A:B, A being compared
    with B; by default what config.json says. rows: those of the one source, where they are at hand. Raises InputError
    for a baseline or an arm that is not there, naming those that are, and for files that are damaged.
    """
    places = gather(sources)
    if rows is not None:
        places = replace(places, rows=tuple(rows))
    chosen = None if baseline == summaries.ALEXNET else baseline
    summary = headline(places.rows, chosen, configs=places.configs)
    full_rows = _summarised(places, summary, baseline)
    if len(full_rows) > len(places.rows) or baseline is not None:
        summary = headline(full_rows, chosen, configs=places.configs)
    said = [text for config in places.configs for text in config.get("report_pairs") or ()]
    views = tuple(paired(summary, *pair(text, summary.arms)) for text in pairs or _still_there(said, summary))
    scores = read_scores(summary, places.runs)
    full = with_intervals(summary, scores)
    return Contents(
        places=places,
        rows=full_rows,
        summary=full,
        judgement=judge(full),
        scores=scores,
        pairs=tuple(replace(with_intervals(view, scores), notes=()) for view in views),
        budgets=budgets(full, places.runs),
    )


def _still_there(pairs: Iterable[str], summary: Summary) -> list[str]:
    """Of the pairs of a config, those whose arms are in this report: it may be of a part of the runs."""
    found = []
    for text in dict.fromkeys(pairs):
        try:
            pair(text, summary.arms)
        except InputError:
            continue
        found.append(text)
    return found


def _summarised(places: Places, summary: Summary, baseline: str | None) -> tuple[Row, ...]:
    """The rows with summaries over cells: those there are, or new ones where there are none or the baseline is another.

    Errors are relative to the run that was named, or for an arm to its run of the same seed.
    """
    plain = [row for row in places.rows if row.metric not in SUMMARY_METRICS]
    if baseline is None and len(plain) < len(places.rows):
        return places.rows
    name = baseline or places.config.get("baseline")
    runs = {row.run for row in plain}
    if name is None or name in runs or name == summaries.ALEXNET:
        return (*plain, *summaries.rows(plain, name))
    found = []
    for seed in summary.seeds:
        own = [row for row in plain if row.seed == seed]
        against = next((summary.runs[base, seed] for base in summary.bases if (base, seed) in summary.runs), None)
        found += summaries.rows(own, against)
    return (*plain, *found)
