"""Bootstrap intervals over test images for the differences between arms, from per-sample scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from anchored.evaluation.metrics import bootstrap_means
from anchored.evaluation.rows import Row
from anchored.report.differences import LEVEL, Delta, Interval
from anchored.report.places import read_config
from anchored.report.scores import Influence, Scores, read_scores
from anchored.report.summary import Summary, headline

DRAWS = 1000


def summarise(
    rows: Iterable[Row], out: str | Path | None = None, *, seed: int = 0, baseline: str | None = None
) -> Summary:
    """Per arm and headline measure: mean, spread and count over seeds, and the difference from the baseline.

    Means over corruptions count only the cells that every run compared has; notes name the others. With two
    seeds or more each difference gets Student's t interval over the per-seed differences. With `out`, the
    comparison folder, its config.json says the order of the arms and the baseline, and from
    OUT/runs/RUN/scores/*.parquet each difference gets a paired bootstrap interval over test images, drawn with `seed`.
    baseline: the arm, or the run of an arm, that all others are compared with, instead. Raises InputError when there
    are no rows, when they come from several data sets, for a baseline that is not there, or when a file is damaged.
    """
    if out is None:
        return headline(rows, baseline)
    summary = headline(rows, baseline, configs=[read_config(Path(out))])
    return with_intervals(summary, read_scores(summary, Path(out)), seed=seed)


def with_intervals(summary: Summary, scores: Scores, *, seed: int = 0) -> Summary:
    """`summary` with the interval over images of every difference whose scores are there."""

    def full(arm: str, other: str, key: str, delta: Delta) -> Delta:
        return replace(delta, over_images=_over_images(scores, arm, other, key, delta, seed))

    against = summary.baselines
    deltas = {(arm, key): full(arm, against[arm], key, delta) for (arm, key), delta in summary.deltas.items()}
    leader = summary.leader
    if leader is not None:
        ahead = {other: full(leader.arm, other, leader.key, delta) for other, delta in leader.deltas.items()}
        leader = replace(leader, deltas=ahead)
    notes = list(summary.notes)
    if scores.missing:
        listed = ", ".join(scores.missing[:3]) + (" and more" if len(scores.missing) > 3 else "")
        notes.append(f"{len(scores.missing)} score files are missing, so some intervals are too: {listed}.")
    return replace(summary, deltas=deltas, leader=leader, notes=tuple(notes))


def _over_images(scores: Scores, arm: str, other: str, key: str, delta: Delta, seed: int) -> Interval | None:
    """Percentiles of the mean difference over seeds when the test images, the same for all, are resampled."""
    difference = Influence()
    for each in delta.values:
        mine, theirs = scores.influences.get((arm, each, key)), scores.influences.get((other, each, key))
        if mine is None or theirs is None:
            return None
        difference.include(mine, 1.0 / len(delta.values))
        difference.include(theirs, -1.0 / len(delta.values))
    # Populations are independent of each other, hence a stream each.
    draws = sum(
        bootstrap_means(terms, seed=seed * 1000 + stream, draws=DRAWS)
        for stream, terms in enumerate(difference.per_image().values())
    )
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return delta.mean + float(low), delta.mean + float(high)
