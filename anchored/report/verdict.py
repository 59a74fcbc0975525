"""One sentence: did anchoring with masking help here?"""

from __future__ import annotations

from dataclasses import dataclass

from anchored.report.summary import LEVEL, Delta, Measure, Summary, anomaly_key, shift_key
from anchored.report.tables import interval_text, number, verdict_on


@dataclass(frozen=True)
class _Finding:
    """One aspect of the comparison: what happened to it and the clause that says so."""

    aspect: str
    outcome: str  # better | worse | unclear | unknown
    clause: str


def verdict(summary: Summary) -> str:
    """One sentence on accuracy under shift, calibration, anomaly rejection and accuracy on clean images.

    A difference counts as one only where its 95 % interval excludes zero: over seeds where there are several,
    over test images with one seed (which the sentence says). With several masking variants, the best under shift
    is judged and the others mentioned.
    """
    masking = [method for method in summary.of_kind("masking") if method in summary.baselines]
    subject = judged_method(summary)
    if subject is None:
        return _without_comparison(summary)
    findings = _findings(summary, subject)
    judged = [finding for finding in findings if finding.outcome in ("better", "worse")]
    better = [finding for finding in findings if finding.outcome == "better"]
    worse = [finding for finding in findings if finding.outcome == "worse"]
    place = f"{summary.model} on {summary.data}"
    name = _spoken(subject)
    unknown = not judged and all(finding.outcome == "unknown" for finding in findings)
    if unknown:
        opening = f"Whether {name} helped {place} cannot be told, as nothing says how sure these numbers are"
    elif better and not worse:
        opening = f"{_capital(name)} helped {place}"
    elif worse and not better:
        opening = f"{_capital(name)} did harm to {place}"
    elif better and worse:
        gained, lost = (" and ".join(f.aspect for f in part) for part in (better, worse))
        opening = f"{_capital(name)} had mixed effects on {place}, better in {gained} and worse in {lost}"
    else:
        opening = f"{_capital(name)} made no clear difference to {place}"
    clauses = [finding.clause for finding in findings]
    sentence = f"{opening}: {', '.join(clauses)} ({_basis(summary, subject)})"
    others = _others(summary, masking, subject)
    return f"{sentence}{others}."


def judged_method(summary: Summary) -> str | None:
    """The masking method the verdict is about: the best under shift, or on clean images without a shift."""
    masking = [method for method in summary.of_kind("masking") if method in summary.baselines]
    for key in (shift_key(summary), "top1:clean"):
        scored = [method for method in masking if key and (method, key) in summary.deltas]
        if scored:
            return max(scored, key=lambda method: summary.deltas[method, str(key)].mean)
    return next((method for method in masking if any(name == method for name, _ in summary.deltas)), None)


def _findings(summary: Summary, method: str) -> list[_Finding]:
    shift, anomalies = shift_key(summary), anomaly_key(summary)
    ece = "smooth_ece:shift" if (method, "smooth_ece:shift") in summary.deltas else "smooth_ece:clean"
    under = "calibration error under shift" if ece.endswith("shift") else "calibration error"
    wanted = [
        (shift, "accuracy under shift"),
        (ece, under),
        (anomalies, "anomaly AUROC"),
        ("top1:clean", "clean accuracy"),
    ]
    found = [_finding(summary, method, key, aspect) for key, aspect in wanted if key is not None]
    return [finding for finding in found if finding is not None]


def _finding(summary: Summary, method: str, key: str, aspect: str) -> _Finding | None:
    measure, delta = summary.measure(key), summary.deltas.get((method, key))
    if measure is None or delta is None:
        return None
    outcome = verdict_on(delta, measure)
    named = f"{aspect} ({measure.place})" if measure.place not in ("clean", "shifted", "all shifts") else aspect
    return _Finding(aspect.removesuffix(" under shift"), outcome, _clause(named, outcome, delta, measure))


def _clause(aspect: str, outcome: str, delta: Delta, measure: Measure) -> str:
    size = number(abs(delta.mean), measure) + ("" if measure.fraction else " points")
    signed = number(delta.mean, measure, signed=True) + ("" if measure.fraction else " points")
    between = "" if delta.interval is None else f" [{interval_text(delta.interval, measure)}]"
    if outcome == "unclear":
        return f"{aspect} did not clearly change, {signed}{between}"
    if outcome == "unknown":
        return f"{aspect} {signed}"
    return f"{aspect} {'rose' if delta.mean > 0 else 'fell'} by {size}{between}"


def _basis(summary: Summary, method: str) -> str:
    """What the intervals in the sentence are over."""
    deltas = [delta for (name, _), delta in summary.deltas.items() if name == method]
    seeds = max(len(delta.values) for delta in deltas)
    level = f"{round(100 * LEVEL)} % intervals over"
    images = any(delta.over_images for delta in deltas)
    if seeds > 1:
        return f"{level} {seeds} seeds{' and over test images' if images else ''}"
    if images:
        return f"one seed, so there is no spread over seeds; {level} test images"
    return "one seed, so there is no spread over seeds, and no scores per image to give an interval"


def _others(summary: Summary, masking: list[str], subject: str) -> str:
    """The other masking methods, by their difference on the measure that chose the best one."""
    key = shift_key(summary) or "top1:clean"
    measure = summary.measure(key)
    parts = []
    for method in masking:
        delta = summary.deltas.get((method, key))
        if method != subject and measure is not None and delta is not None:
            between = "" if delta.interval is None else f" [{interval_text(delta.interval, measure)}]"
            where = "under shift" if key != "top1:clean" else "on clean images"
            parts.append(f"{_spoken(method)} {number(delta.mean, measure, signed=True)} points {where}{between}")
    return f"; {', '.join(parts)}" if parts else ""


def _without_comparison(summary: Summary) -> str:
    """What can be said when there is no standard method or no masking to compare."""
    standard, masking = summary.of_kind("standard"), summary.of_kind("masking")
    if masking and not standard:
        lead = "The standard method was not run, so whether masking helped cannot be told"
    elif not masking and standard:
        lead = "Masking was not run, so whether it helps cannot be told"
    elif not masking:
        lead = "Neither masking nor the standard method was run, so they cannot be compared"
    else:
        lead = "Masking and the standard method share no measure or seed, so they cannot be compared"
    parts = []
    for method in summary.methods:
        numbers = []
        for key, where in (("top1:clean", "clean"), (shift_key(summary), "under shift")):
            measure, stat = summary.measure(key or ""), summary.stats.get((method, key or ""))
            if measure and stat:
                numbers.append(f"{number(stat.mean, measure)} % {where}")
        delta, measure = summary.deltas.get((method, shift_key(summary) or "top1:clean")), None
        if delta is not None and (measure := summary.measure(shift_key(summary) or "top1:clean")):
            numbers.append(f"{number(delta.mean, measure, signed=True)} points against {summary.baselines[method]}")
        if numbers:
            parts.append(f"{_spoken(method)} {', '.join(numbers)}")
    seeds = "one seed" if len(summary.seeds) == 1 else f"{len(summary.seeds)} seeds"
    told = f": {'; '.join(parts)}" if parts else ""
    return f"{lead}{told} ({summary.model} on {summary.data}, {seeds})."


def _spoken(method: str) -> str:
    """`masking-uniform` as words: masking with the uniform target."""
    variant, comma, rest = method.partition(", ")
    kind, dash, target = variant.partition("-")
    words = f"{kind} with the {target} target" if dash else kind
    return words + (f" ({rest})" if comma else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
