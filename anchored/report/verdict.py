"""The verdict as text: a word for each arm and aspect, then the numbers, then what to try; short lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from anchored.report.judgement import (
    ASPECTS,
    BETTER,
    MIXED,
    UNCLEAR,
    WORSE,
    ArmJudgement,
    Aspect,
    Judgement,
    Part,
    Standing,
    judge,
)
from anchored.report.measures import Measure
from anchored.report.next_steps import Step
from anchored.report.numbers import PERCENT, delta_text, listed, number
from anchored.report.summary import Summary

WIDTH = 80
SPOKEN = {
    "clean": "clean accuracy",
    "shifted": "accuracy under shift",
    "calibration": "calibration",
    "anomalies": "anomaly rejection",
}
METRICS = {
    "clean": "top-1 %",
    "shifted": "top-1 %",
    "calibration": "smooth ECE, lower is better",
    "anomalies": "AUROC %",
}
MANY = 20  # differences, of which one may look clear by chance
NAMED = 3  # arms in a sentence before the rest is counted


def verdict(summary: Summary, *, width: int = WIDTH) -> str:
    """What is claimed, in words and then numbers, in lines of at most `width`, commands apart.

    First which arm is best, whether none helps and which does harm; then for each arm a word in each of clean, shifted,
    calibration and anomalies, its numbers with intervals, and where it is worse what to try.
    """
    found = judge(summary)
    blocks = ["\n".join(_wrapped(line, width) for line in opening(found))]
    if len(found.arms) > 1:
        blocks.append("\n".join(_grid(found, width)))
    blocks += ["\n".join(_block(arm, width)) for arm in found.arms]
    if found.seed_step:
        blocks.append("\n".join(_step_lines(found.seed_step, width)))
    if found.arms:
        blocks.append("\n".join(_wrapped(line, width) for line in footnotes(found)))
    return "\n\n".join(blocks)


def opening(found: Judgement) -> list[str]:
    """The sentences at the top: what is compared, which arm is best, whether any helps, and which do harm."""
    subject = f"{found.model} on {found.data}, {_seeds(found)}"
    if not found.arms:
        return [*_uncompared(found, subject)]
    if len(found.arms) == 1:
        return [f"{subject}. {sentence(found.arms[0])}", *_alone(found)]
    base = f" compared with {listed(found.bases, 'or')}" if len(found.bases) == 1 else ", each with its baseline"
    lines = [f"{subject}: {len(found.arms)} arms{base}."]
    if found.standing is not None:
        lines.append(best(found.standing, found.bases))
    lines += _help(found)
    lines += [harm(arm) for arm in found.arms if any(aspect.losses for aspect in arm.aspects)]
    return [*lines, *_alone(found)]


def sentence(arm: ArmJudgement) -> str:
    """One arm in a sentence: in which aspects it is better, worse, mixed and not clearly different."""
    told = [
        f"{start} in {listed([SPOKEN[aspect.name] + _where(aspect) for aspect in aspects])}"
        for word, start in ((BETTER, "better"), (WORSE, "worse"), (MIXED, "mixed"), (UNCLEAR, "no clear difference"))
        if (aspects := arm.aspects_with(word))
    ]
    return f"{arm.arm} against {arm.baseline}: {'; '.join(told)}."


def best(standing: Standing, bases: Sequence[str]) -> str:
    """Which arm is best by the measure that arms are ranked by, or that none clearly is."""
    measure = standing.measure
    under = "on clean images" if measure.key == "top1:clean" else "under shift"
    value = f"{number(standing.value, measure)} % {under}"
    name = f"{standing.arm}{' (the baseline)' if standing.arm in bases else ''}"
    if not standing.rivals:
        every = "the other" if standing.arms == 2 else "every other arm"
        return f"Best {under} ({measure.place}): {name}, {number(standing.value, measure)} %, clearly above {every}."
    if all(outcome == "unknown" for *_, outcome in standing.rivals):
        return f"Highest: {name}, {value} ({measure.place}); nothing says how sure that is."
    near = sorted(standing.rivals, key=lambda rival: rival[1].mean)
    rivals = [f"{arm} ({delta_text(delta, measure)})" for arm, delta, _ in near]
    return (
        f"None is clearly the best {under} ({measure.place}): {name} has the highest mean, "
        f"{number(standing.value, measure)} %, not clearly above {listed(rivals, most=NAMED)}."
    )


def harm(arm: ArmJudgement) -> str:
    """In what an arm is worse than its baseline, with the differences."""
    told = []
    for aspect in arm.aspects:
        # A mean over several benchmarks stands for those that it is over.
        for part in [part for part in aspect.losses if part.overall] or aspect.losses:
            place = "" if len(aspect.parts) == 1 or part.overall else f" ({part.place})"
            told.append(f"{SPOKEN[aspect.name]}{place} {delta_text(part.delta, part.measure)}")
    return f"{arm.arm} does harm: {', '.join(told)}."


def pair_text(arm: ArmJudgement, *, width: int = WIDTH) -> str:
    """Two arms compared: the sentence, then their numbers."""
    _, *numbers = _block(replace(arm, steps=()), width)
    return "\n".join([_wrapped(sentence(arm), width), *numbers])


def footnotes(found: Judgement) -> Iterator[str]:
    """What the numbers and brackets are, and what to bear in mind."""
    measured = [aspect for aspect in ASPECTS if any(arm.aspects[ASPECTS.index(aspect)].parts for arm in found.arms)]
    told = {metric: [each for each in measured if METRICS[each] == metric] for metric in METRICS.values()}
    yield f"{'; '.join(f'{listed(names)}: {metric}' for metric, names in told.items() if names)}."
    over = f"{PERCENT} intervals over {_seeds(found)} and over test images"
    if found.over_seeds and found.over_images:
        yield f"[ ]: from the lower to the upper end of the {over}; clear is what excludes zero in both."
    elif found.over_seeds:
        yield f"[ ]: {PERCENT} interval over {_seeds(found)}; there are no scores per image."
    elif found.over_images:
        yield f"One seed, so there is no spread over seeds; [ ]: {PERCENT} interval over test images."
    else:
        yield (
            "One seed, so there is no spread over seeds, and no scores per image to give an interval: no difference is "
            "called one."
        )
    if found.judged >= MANY and (found.over_seeds or found.over_images):
        yield (
            f"{found.judged} differences are judged, each by itself: up to {found.judged // MANY} may look clear by "
            "chance."
        )


def part_text(part: Part) -> str:
    """`89.8 → 88.1 %, −1.7 [−2.4 to −1.0]`."""
    before, after = number(part.before, part.measure), number(part.after, part.measure)
    unit = "" if part.measure.fraction else " %"
    return f"{before} → {after}{unit}, {delta_text(part.delta, part.measure)}"


def part_name(aspect: Aspect, part: Part) -> str:
    """What tells the measures of an aspect apart."""
    return "" if aspect.name == "clean" else part.place


def step_text(step: Step) -> str:
    """`To try for clean accuracy: alpha 0.1 instead of 0.25 (...)`."""
    aim = f" for {listed([SPOKEN[aspect] for aspect in step.aspects])}" if step.aspects else ""
    return f"To try{aim}: {step.change} ({step.why})" + (":" if step.command else ".")


def _help(found: Judgement) -> Iterator[str]:
    """Whether no arm is better than its baseline, at all or under shift."""
    base = listed(found.bases, "or") if len(found.bases) == 1 else "its baseline"
    gains = {aspect.name for arm in found.arms for aspect in arm.aspects if aspect.word in (BETTER, MIXED)}
    if any(part.outcome != "unknown" for arm in found.arms for part in arm.parts):
        if not gains:
            yield f"No arm is clearly better than {base} in anything."
        elif "shifted" not in gains and any(arm.aspects[1].parts for arm in found.arms):
            yield f"No arm is clearly better than {base} under shift."


def _grid(found: Judgement, width: int) -> Iterator[str]:
    """A line an arm, a word an aspect."""
    columns = [max(len(aspect), *(len(arm.aspects[i].word) for arm in found.arms)) for i, aspect in enumerate(ASPECTS)]
    first = min(max(len(arm.arm) for arm in found.arms), width - sum(columns) - 2 * len(columns))
    rows = [("", ASPECTS), *((arm.arm, [aspect.word for aspect in arm.aspects]) for arm in found.arms)]
    for name, words in rows:
        *above, last = textwrap.wrap(name, first) or [""]
        yield from above
        cells = [f"{word:<{size}}" for word, size in zip(words, columns, strict=True)]
        yield "  ".join([f"{last:<{first}}", *cells]).rstrip()


def _block(arm: ArmJudgement, width: int) -> Iterator[str]:
    """An arm's name, a line or more an aspect, and what to try."""
    yield _wrapped(f"{arm.arm} against {arm.baseline}", width)
    first, second = (max(map(len, texts)) + 2 for texts in (ASPECTS, [aspect.word for aspect in arm.aspects]))
    for aspect in arm.aspects:
        lead = f"  {aspect.name:<{first}}{aspect.word:<{second}}"
        if not aspect.parts:
            yield lead.rstrip()
        for number_, part in enumerate(aspect.parts):
            name = part_name(aspect, part)
            told = " ".join(text for text in (name, part_text(part)) if text) + _note(aspect, part)
            yield _wrapped(told, width, lead if number_ == 0 else " " * len(lead), " " * (len(lead) + 2))
    for step in arm.steps:
        yield from _step_lines(step, width)


def _note(aspect: Aspect, part: Part) -> str:
    """The outcome of a measure where it is not that of its aspect."""
    word = {"unclear": UNCLEAR, "unknown": UNCLEAR}.get(part.outcome, part.outcome)
    return "" if word == aspect.word or len(aspect.parts) == 1 else f", {word}"


def _step_lines(step: Step, width: int) -> Iterator[str]:
    yield _wrapped(step_text(step), width, "  ", "  ")
    if step.command:
        yield f"    {step.command}"


def _where(aspect: Aspect) -> str:
    return f" ({listed(aspect.where, most=NAMED)})" if aspect.where else ""


def _uncompared(found: Judgement, subject: str) -> Iterator[str]:
    """What can be said of arms that nothing is compared with."""
    arms = len(found.alone) + len(found.bases)
    if arms == 1:
        yield f"{subject}: one arm, and nothing to compare it with."
    elif found.bases:
        yield f"{subject}: no arm shares a measure and a seed with its baseline, {listed(found.bases, 'or')}."
    else:
        yield f"{subject}: {arms} arms, and none is the baseline of the others (`anchored report --baseline NAME`)."
    if found.standing is not None:
        yield best(found.standing, ())
    yield from _alone(found, lead="")


def _alone(found: Judgement, lead: str = "Compared with nothing: ") -> Iterator[str]:
    told = [f"{arm} {', '.join(_mean_text(measure, mean) for measure, mean in means)}" for arm, means in found.alone]
    if told:
        yield f"{lead}{'; '.join(told)}."


def _mean_text(measure: Measure, mean: float) -> str:
    return f"{number(mean, measure)} % {'clean' if measure.key == 'top1:clean' else 'under shift'}"


def _seeds(found: Judgement) -> str:
    return "one seed" if found.seeds == 1 else f"{found.seeds} seeds"


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip
