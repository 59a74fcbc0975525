"""Numbers over many cells: means over corruptions, mean corruption error, and the summaries of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from anchored import corruptions
from anchored.evaluation.rows import Row
from anchored.system.errors import InputError

ALEXNET = "alexnet"
# Error of AlexNet on ImageNet-C, mean over severities (Hendrycks & Dietterich 2019, their published list).
ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
    "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816, "frost": 0.826572,
    "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204, "elastic_transform": 0.646056,
    "pixelate": 0.717840, "jpeg_compression": 0.606500,
}  # fmt: skip
VISION_OOD = ("isun", "textures", "places365")  # the anomaly sets of the paper's mean
SHIFTS, OOD = "shifts", "vision-ood"  # the benchmarks that summaries over several are rows of


def rows(given: Sequence[Row], baseline: str | None = None) -> list[Row]:
    """Summaries of the rows of an evaluation, as rows without corruption:

    `top1_mean` per benchmark of corruptions and severity; `mce` (percent of the baseline's error, mean over the 15
    corruptions of c, all of them needed); `smooth_ece_mean` and `smooth_ece_std` (sample) over all shifted cells,
    benchmark `shifts`; `auroc_mean` over iSUN, Textures and Places365, benchmark `vision-ood`. n is that of the
    smallest cell. Raises InputError for a baseline that lacks what its models have.
    """
    found: list[Row] = []
    by_run: dict[str, list[Row]] = {}
    for row in given:
        by_run.setdefault(row.run, []).append(row)
    against = _baseline_errors(by_run, baseline)
    for own in by_run.values():
        found += _by_severity(own)
        if against is not None:
            found += _mce(own, against)
        found += _calibration(own)
        found += _ood(own)
    return found


def baselines(models: Iterable[str]) -> list[str]:
    """What --baseline may be."""
    return [*models, ALEXNET]


def errors(own: Iterable[Row]) -> dict[str, float]:
    """Error in percent per corruption of c, mean over the severities there are; {} where cells are missing."""
    cells: dict[str, dict[int, float]] = {}
    for row in own:
        if row.metric == "top1" and row.benchmark == "c" and row.corruption is not None and row.severity is not None:
            cells.setdefault(row.corruption, {})[row.severity] = 100.0 - row.value
    wanted = corruptions.suite("c-mce")
    severities = {tuple(sorted(cells.get(name, {}))) for name in wanted}
    if len(severities) != 1 or not next(iter(severities)):
        return {}
    return {name: float(np.mean(list(cells[name].values()))) for name in wanted}


def mce(own: Mapping[str, float], baseline: Mapping[str, float]) -> float:
    """Mean corruption error in percent: errors relative to the baseline's, mean over corruptions (both in percent).

    Raises InputError where they are not of the same corruptions, or the baseline makes no error. Source: Hendrycks &
    Dietterich 2019, section 3.
    """
    if own.keys() != baseline.keys() or not own:
        raise InputError(f"mce takes errors on the same corruptions; got {sorted(own)} and {sorted(baseline)}.")
    if not all(baseline.values()):
        raise InputError("mce divides by the errors of the baseline; one of them is 0.")
    return 100.0 * float(np.mean([own[name] / baseline[name] for name in own]))


def _baseline_errors(by_run: Mapping[str, Sequence[Row]], baseline: str | None) -> dict[str, float] | None:
    if baseline is None:
        return None
    if baseline == ALEXNET:
        return {name: 100.0 * error for name, error in ALEXNET_ERRORS.items()}
    return errors(by_run.get(baseline, ())) or None


def _by_severity(own: Sequence[Row]) -> Iterator[Row]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in own:
        if row.metric == "top1" and row.corruption is not None and row.severity is not None:
            groups.setdefault((row.benchmark, row.severity), []).append(row)
    for (_, severity), cells in sorted(groups.items()):
        yield _row(cells, "top1_mean", float(np.mean([row.value for row in cells])), severity=severity)


def _mce(own: Sequence[Row], against: Mapping[str, float]) -> Iterator[Row]:
    mine = errors(own)
    if mine and all(against.values()):
        cells = [row for row in own if row.metric == "top1" and row.benchmark == "c" and row.corruption in mine]
        yield _row(cells, "mce", mce(mine, against))


def _calibration(own: Sequence[Row]) -> Iterator[Row]:
    cells = [row for row in own if row.metric == "smooth_ece" and row.benchmark != "clean" and not row.n_other]
    values = [row.value for row in cells]
    if len(values) > 1:
        yield _row(cells, "smooth_ece_mean", float(np.mean(values)), benchmark=SHIFTS)
        yield _row(cells, "smooth_ece_std", float(np.std(values, ddof=1)), benchmark=SHIFTS)


def _ood(own: Sequence[Row]) -> Iterator[Row]:
    cells = {row.benchmark: row for row in own if row.metric == "auroc" and row.benchmark in VISION_OOD}
    if len(cells) == len(VISION_OOD):
        values = [row.value for row in cells.values()]
        yield _row(list(cells.values()), "auroc_mean", float(np.mean(values)), benchmark=OOD)


def _row(
    cells: Sequence[Row], metric: str, value: float, *, benchmark: str | None = None, severity: int | None = None
) -> Row:
    """A number over `cells`, with what they have in common."""
    sources = {row.corruption_source for row in cells}
    return replace(
        cells[0],
        benchmark=benchmark or cells[0].benchmark,
        corruption=None,
        severity=severity,
        corruption_source=sources.pop() if len(sources) == 1 else None,
        metric=metric,
        value=value,
        n=min(row.n for row in cells),
        n_other=min(row.n_other for row in cells),
    )
