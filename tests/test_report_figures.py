"""Figures: nothing is cut off or overlaps, and arms are told apart, for two arms and for a dozen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from test_report_folder import HELP, Effect, Plan, build, row

from anchored import report
from anchored.evaluation.rows import Cell, Row
from anchored.report import summarise, write_report
from anchored.report.figures import COLOURS, fitted, looks, spread

CSS = Path(report.__file__).parent / "report.css"


def row_of(arm: str) -> Row:
    """A number of clean accuracy, for an arm of that name."""
    return row(Plan(arms={arm: {"method": "standard"}}), Cell("clean"), arm, 0, f"{arm}-seed0", "top1", 90.0)


def test_labels_are_moved_apart_as_little_as_needed() -> None:
    assert spread([10.0, 30.0, 50.0], [4.0] * 3, 0.0, 100.0) == [10.0, 30.0, 50.0]
    placed = spread([50.0, 51.0, 20.0], [4.0, 4.0, 4.0], 0.0, 100.0)
    assert placed == pytest.approx([48.5, 52.5, 20.0])
    crowded = spread([1.0, 1.0, 1.0], [4.0, 8.0, 4.0], 0.0, 100.0)
    assert sorted(crowded) == pytest.approx([2.0, 8.0, 14.0])


WORDS = ("augmix", "pixmix", "crop", "erasing", "none")
LONG = tuple(f"masking-label-with-{word}-augmentation-and-more" for word in WORDS)
NEAR = {"standard": Effect(98.9, 92.0), "masking-uniform": Effect(98.3, 90.0)}  # ticks such as 97.5 are the widest
MANY = {name: Effect(90.0 - i, 50.0 + i) for i, name in enumerate((*HELP, *LONG))}


@pytest.mark.parametrize(
    "effects", [NEAR, HELP, MANY, dict.fromkeys(LONG[:2], Effect())], ids=["near", "four", "nine", "long"]
)
def test_no_text_of_a_figure_is_cut_off_or_lies_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effects: dict[str, Effect]
) -> None:
    wrong: list[str] = []
    save = Figure.savefig

    def watched(figure: Figure, *args: object, **options: object) -> None:
        figure.draw_without_rendering()  # so that places are known
        whole = figure.bbox
        drawn = [axis for axis in figure.axes if axis.get_visible()]
        ticks = {label for axis in drawn for label in (*axis.get_xticklabels(), *axis.get_yticklabels())}
        ticks |= {label for axis in figure.axes for label in (*axis.get_xticklabels(), *axis.get_yticklabels())}
        found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in ticks]
        boxes = [(text.get_text(), text.get_window_extent()) for text in found]  # some ticks are not drawn
        for text, box in boxes:
            if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1:
                wrong.append(f"{text!r} is cut off: {box.extents} of {whole.extents}")
        for place, (text, box) in enumerate(boxes):
            for other, its in boxes[place + 1 :]:
                across = min(box.x1, its.x1) - max(box.x0, its.x0)
                if across > 1 and min(box.y1, its.y1) - max(box.y0, its.y0) > 2:
                    wrong.append(f"{text!r} lies on {other!r}")
        save(figure, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", watched)
    page = write_report(build(tmp_path, Plan(effects=effects, seeds=(0, 1))))
    assert not wrong
    assert len(list((page.parent / "figures").iterdir())) == 5


@pytest.mark.parametrize("count", [2, 8, 12])
def test_up_to_twelve_arms_have_nothing_of_their_looks_in_common(count: int) -> None:
    names = [f"arm-{number}" for number in range(count - 1)]
    rows = [row_of(name) for name in ("standard", *names)]
    given = list(looks(summarise(rows)).values())
    assert len({look.colour for look in given}) == len({look.marker for look in given}) == count
    assert len({str(look.dash) for look in given}) == count
    assert set(COLOURS) == set(re.findall(r"(--(?:standard|vanilla|uniform|label|extra-\d)): #", CSS.read_text()))


def test_names_that_are_cut_stay_apart() -> None:
    names = [f"{'a' * 30}{number}{'b' * 30}" for number in range(12)]
    for most in (11, 21, 48):
        cut = fitted(names, most)
        assert len(set(cut.values())) == 12 and max(map(len, cut.values())) <= most
    assert fitted(["short"], 11) == {"short": "short"}
