"""The report as Markdown: the verdict, the table and the differences, the budget, further pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anchored.report.budget import HEADINGS, Budget, cautions, known
from anchored.report.judgement import ASPECTS, ArmJudgement, Aspect, Judgement, judge
from anchored.report.next_steps import Step
from anchored.report.numbers import NONE, counts_text, delta_lines, legend_text, stat_text, verdict_on
from anchored.report.settings_table import settings_table
from anchored.report.summary import Summary
from anchored.report.verdict import footnotes, opening, part_name, part_text, sentence, step_text


def markdown(
    summary: Summary, judgement: Judgement, budgets: Sequence[Budget] = (), pairs: Sequence[Summary] = ()
) -> str:
    """The report as one Markdown document."""
    blocks = [f"# {_escape(summary.model)} on {_escape(summary.data)}", *map(_escape, opening(judgement))]
    if judgement.arms:
        blocks += ["\n".join(_grid(judgement)), *_steps(judgement), *map(_escape, footnotes(judgement))]
    blocks += ["\n".join(_numbers(summary))]
    blocks += map(_escape, [counts_text(summary), legend_text(summary), *summary.notes])
    settings = settings_table(summary)
    if settings.fields and len(summary.arms) > 1:
        lines = [[arm, *values] for arm, values in settings.lines]
        blocks += ["## What the arms differ in", _table(["arm", *settings.fields], lines, right=False)]
    if known(budgets):
        blocks += ["## Budget", _table(["arm", *HEADINGS], [[each.arm, *each.cells] for each in budgets])]
        blocks += map(_escape, cautions(budgets))
    for view in pairs:
        blocks += _pair(view)
    return "\n\n".join(blocks) + "\n"


def _grid(judgement: Judgement) -> Iterator[str]:
    """A line an arm; in each aspect the word, then the numbers."""
    yield _row(["arm", *ASPECTS])
    yield _row(["---"] * (1 + len(ASPECTS)))
    for arm in judgement.arms:
        yield "| " + " | ".join([_escape(arm.arm), *map(_aspect, arm.aspects)]) + " |"


def _aspect(aspect: Aspect) -> str:
    told = [" ".join(text for text in (part_name(aspect, p), part_text(p)) if text) for p in aspect.parts]
    return "<br>".join([f"**{aspect.word}**", *map(_escape, told)])


def _steps(judgement: Judgement) -> Iterator[str]:
    """What to try, arm by arm, the commands as blocks of code."""
    steps: list[tuple[ArmJudgement | None, Step]] = [(arm, step) for arm in judgement.arms for step in arm.steps]
    if judgement.seed_step:
        steps.append((None, judgement.seed_step))
    for arm, step in steps:
        yield _escape(f"{arm.arm}. {step_text(step)}" if arm else step_text(step))
        if step.command:
            yield f"```sh\n{step.command}\n```"


def _numbers(summary: Summary) -> Iterator[str]:
    """Every arm on every measure, then the differences with their intervals."""
    yield _row(["arm", *(measure.heading for measure in summary.measures)])
    yield _row(["---", *("---:" for _ in summary.measures)])
    for arm in summary.arms:
        yield _row([arm, *(stat_text(summary.stats.get((arm, m.key)), m) for m in summary.measures)])
    for arm in summary.compared:
        cells = []
        for measure in summary.measures:
            delta = summary.deltas.get((arm, measure.key))
            mean, *intervals = [NONE] if delta is None else delta_lines(delta, measure)
            cells.append(f"{mean} ({', '.join(intervals)})" if intervals else mean)
        yield "| " + " | ".join([f"**Δ {_escape(arm)}**", *map(_escape, cells)]) + " |"


def _pair(view: Summary) -> Iterator[str]:
    """Two arms compared: a sentence and their differences."""
    if not view.compared:
        yield f"## {_escape(' against '.join(reversed(view.arms)))}"
        yield "They share no measure and seed."
        return
    (arm,) = judge(view).arms
    yield f"## {_escape(arm.arm)} against {_escape(arm.baseline)}"
    yield _escape(sentence(arm))
    lines = []
    for measure in view.measures:
        delta = view.deltas.get((arm.arm, measure.key))
        if delta is not None:
            mean, *intervals = delta_lines(delta, measure)
            word = {"unclear": "not clear", "unknown": "not clear"}
            outcome = verdict_on(delta, measure)
            lines.append([measure.heading, mean, ", ".join(intervals) or NONE, word.get(outcome, outcome)])
    yield _table(["measure", "Δ", "95 %", ""], lines)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], *, right: bool = True) -> str:
    rule = ["---", *("---:" if right else "---" for _ in head[1:])]
    return "\n".join(map(_row, [head, rule, *lines]))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(text: str) -> str:
    """Text as itself in Markdown: pipes would end a cell, underscores and stars change the type."""
    for mark in ("\\", "|", "<", "`", "*", "_", "["):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.splitlines())
