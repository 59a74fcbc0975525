"""What is claimed of each arm: better, worse, mixed or not clear, in four aspects, with the numbers behind the word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anchored.report.differences import Delta
from anchored.report.measures import Measure, shift_key
from anchored.report.next_steps import Step, more_seeds, next_steps
from anchored.report.numbers import verdict_on
from anchored.report.summary import Summary

ASPECTS = ("clean", "shifted", "calibration", "anomalies")
BETTER, WORSE, MIXED, UNCLEAR, UNMEASURED = "better", "worse", "mixed", "not clear", "not measured"
_OVERALL = ("top1:shift", "auroc:anomalies")  # means over several benchmarks or sets


@dataclass(frozen=True)
class Part:
    """One measure of an aspect: the baseline's mean, the arm's (both over the seeds that both have), the difference.

    outcome: "better", "worse", "unclear", or "unknown" where nothing says how sure the difference is.
    """

    measure: Measure
    before: float
    after: float
    delta: Delta
    outcome: str

    @property
    def place(self) -> str:
        return self.measure.place

    @property
    def overall(self) -> bool:
        """Whether it is a mean over several benchmarks or sets."""
        return self.measure.key in _OVERALL


@dataclass(frozen=True)
class Aspect:
    """One of `ASPECTS` with its word and the measures that it rests on.

    A word is better or worse where a measure is and none is the other way; mixed where they go different ways. `where`:
    the places that a word holds for, where it does not hold for all of them.
    """

    name: str
    word: str
    parts: tuple[Part, ...]

    @property
    def where(self) -> tuple[str, ...]:
        if self.word not in (BETTER, WORSE):
            return ()
        holds = [part for part in self.parts if part.outcome == self.word]
        whole = len(holds) == len(self.parts) or any(part.overall for part in holds)
        return () if whole else tuple(part.place for part in holds)

    @property
    def losses(self) -> tuple[Part, ...]:
        """The measures on which the arm is worse."""
        return tuple(part for part in self.parts if part.outcome == "worse")


@dataclass(frozen=True)
class ArmJudgement:
    """One arm against its baseline, and what to try where it is worse."""

    arm: str
    baseline: str
    aspects: tuple[Aspect, ...]
    steps: tuple[Step, ...]

    def aspects_with(self, *words: str) -> tuple[Aspect, ...]:
        return tuple(aspect for aspect in self.aspects if aspect.word in words)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for aspect in self.aspects for part in aspect.parts)


@dataclass(frozen=True)
class Standing:
    """The arm with the highest mean of the measure that arms are ranked by.

    rivals: the arms that it is not clearly above, each with the difference and its outcome.
    """

    arm: str
    measure: Measure
    value: float
    rivals: tuple[tuple[str, Delta, str], ...]
    arms: int  # that have the measure


@dataclass(frozen=True)
class Judgement:
    """The verdict on a comparison, as numbers and words."""

    model: str
    data: str
    seeds: int
    arms: tuple[ArmJudgement, ...]
    bases: tuple[str, ...]
    alone: tuple[tuple[str, tuple[tuple[Measure, float], ...]], ...]  # arms in no comparison: clean, under shift
    standing: Standing | None
    over_images: bool
    over_seeds: bool
    seed_step: Step | None  # where there is one seed

    @property
    def judged(self) -> int:
        """How many differences were judged."""
        return sum(len(arm.parts) for arm in self.arms)


def judge(summary: Summary) -> Judgement:
    """The verdict on `summary`. A difference counts as one only where its interval excludes zero: over seeds, where
    there are several, and over test images."""
    arms = tuple(_arm(summary, arm) for arm in summary.compared)
    known = {arm.arm for arm in arms} | {arm.baseline for arm in arms}
    deltas = summary.deltas.values()
    return Judgement(
        model=summary.model,
        data=summary.data,
        seeds=len(summary.seeds),
        arms=arms,
        bases=summary.bases,
        alone=tuple((arm, tuple(_means(summary, arm))) for arm in summary.arms if arm not in known),
        standing=_standing(summary),
        over_images=any(delta.over_images for delta in deltas),
        over_seeds=any(delta.over_seeds for delta in deltas),
        seed_step=more_seeds(summary) if arms and len(summary.seeds) == 1 else None,
    )


def judged_arm(summary: Summary) -> str | None:
    """Of the arms with a baseline the best under shift, or on clean images without a shift."""
    for key in (shift_key(summary.measures), "top1:clean"):
        scored = [arm for arm in summary.compared if key and (arm, key) in summary.deltas]
        if scored:
            return max(scored, key=lambda arm: summary.deltas[arm, str(key)].mean)
    return next(iter(summary.compared), None)


def _arm(summary: Summary, arm: str) -> ArmJudgement:
    aspects = tuple(_aspect(summary, arm, name) for name in ASPECTS)
    worse = [aspect.name for aspect in aspects if aspect.losses]
    return ArmJudgement(arm, summary.baselines[arm], aspects, next_steps(summary, arm, worse))


def _aspect(summary: Summary, arm: str, name: str) -> Aspect:
    parts = []
    for measure in aspect_measures(summary, name):
        delta, base = summary.deltas.get((arm, measure.key)), summary.baselines[arm]
        if delta is not None:
            before, after = (
                float(np.mean([summary.stats[each, measure.key].values[seed] for seed in delta.values]))
                for each in (base, arm)
            )
            parts.append(Part(measure, before, after, delta, verdict_on(delta, measure)))
    return Aspect(name, _word(parts), tuple(parts))


def aspect_measures(summary: Summary, name: str) -> tuple[Measure, ...]:
    """The measures that an aspect is judged by, a mean over several benchmarks or sets before its parts."""
    if name in ("clean", "calibration"):
        metric = "top1" if name == "clean" else "smooth_ece"
        found = [m for m in summary.measures if m.metric == metric]
        return tuple(m for m in found if metric == "smooth_ece" or m.key == "top1:clean")
    if name == "shifted":
        found = [
            m for m in summary.measures if m.metric == "top1" and m.cells[0].kind == "shift" and m.key[-2:] != "@5"
        ]
    else:
        found = [m for m in summary.measures if m.metric == "auroc"]
    return tuple(sorted(found, key=lambda measure: measure.key not in _OVERALL))


def _word(parts: list[Part]) -> str:
    outcomes = {part.outcome for part in parts}
    if not parts:
        return UNMEASURED
    if {"better", "worse"} <= outcomes:
        return MIXED
    return BETTER if "better" in outcomes else WORSE if "worse" in outcomes else UNCLEAR


def _standing(summary: Summary) -> Standing | None:
    leader = summary.leader
    measure = summary.measure(leader.key) if leader else None
    if leader is None or measure is None:
        return None
    outcomes = [(arm, delta, verdict_on(delta, measure)) for arm, delta in leader.deltas.items()]
    ranked = sum(key == measure.key for _, key in summary.stats)
    value = summary.stats[leader.arm, measure.key].mean
    return Standing(leader.arm, measure, value, tuple(each for each in outcomes if each[2] != "better"), ranked)


def _means(summary: Summary, arm: str) -> Iterator[tuple[Measure, float]]:
    for key in ("top1:clean", shift_key(summary.measures)):
        measure, stat = summary.measure(key), summary.stats.get((arm, key or ""))
        if measure and stat:
            yield measure, stat.mean
