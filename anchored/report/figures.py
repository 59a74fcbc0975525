"""How figures look, how they become deterministic SVG, and which ones a comparison gets."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchored.report.summary import Summary
from anchored.system.files import write_text

LABEL = 13  # characters of a line beside the end of a curve
DIRECT = 6  # curves with names at their ends; more have a legend
LEGEND = {1: 48, 2: 21, 3: 11}  # characters of a name that fit, by columns

WIDTH = 5.0  # inches = 360 SVG units: one to one on a phone, so the type below keeps its size there

# Colours by role; the page replaces each by a CSS variable, so that dark mode reaches into the figures.
PAPER, INK, MUTED, RULE = "#ffffff", "#1b2026", "#66707b", "#dfe3e8"
KNOWN, ANOMALY = "#7a8896", "#d1495c"
# Okabe and Ito's palette and darker relatives: the first ones are told apart with any colour vision; markers and dashes
# tell all of them apart in print.
COLOURS = {
    "--standard": "#4a535d", "--vanilla": "#0072b2", "--uniform": "#d55e00", "--label": "#00866a",
    "--extra-1": "#a3518a", "--extra-2": "#8a6d00", "--extra-3": "#6a51a3", "--extra-4": "#b2182b",
    "--extra-5": "#1b9ac4", "--extra-6": "#5c8a1e", "--extra-7": "#8b5a2b", "--extra-8": "#d6579b",
}  # fmt: skip
VARIABLES = {
    PAPER: "--paper", INK: "--ink", MUTED: "--muted", RULE: "--rule", KNOWN: "--known", ANOMALY: "--anomaly",
    **{colour: variable for variable, colour in COLOURS.items()},
}  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
_DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.6)), (0, (8, 1.2, 1.5, 1.2)), (0, (2, 1)), (0, (6, 1, 1, 1, 1, 1)), (0, (10, 2)), (0, (3.5, 2.5)),
    (0, (4, 1, 4, 1, 1, 1)), (0, (3, 1, 1, 1)), (0, (12, 2, 4, 2)), (0, (6, 4)), (0, (2, 1, 2, 1, 6, 1)),
)  # fmt: skip
_OWN = ("standard", "vanilla", "masking-uniform", "masking-label")  # arms that look the same in every report

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "anchored",
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's own type
    "text.parse_math": False,  # a name may hold a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.fontsize": 10.5,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Picture:
    """One figure of the report. `alt` says in words what it shows, `caption` what to look for."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Look:
    """Colour, marker and dash of one arm."""

    colour: str
    marker: str
    dash: Any


def looks(summary: Summary) -> dict[str, Look]:
    """A look for each arm, the same in every figure of the report; of twelve no two have anything in common."""
    own = {arm: arm.partition(", ")[0] for arm in summary.arms}
    if "standard" not in own.values():
        own |= {arm: "standard" for arm in summary.bases[:1]}
    places: dict[str, int] = {}
    for arm in summary.arms:
        if own[arm] in _OWN and _OWN.index(own[arm]) not in places.values():
            places[arm] = _OWN.index(own[arm])
    order = [place for place in range(len(COLOURS)) if place not in places.values()]
    rest = [arm for arm in summary.arms if arm not in places]
    places |= {arm: order[i % len(order)] for i, arm in enumerate(rest)}
    colours = tuple(COLOURS.values())
    return {arm: Look(colours[place], _MARKERS[place], _DASHES[place]) for arm, place in places.items()}


@contextmanager
def style() -> Iterator[None]:
    """The report's style over matplotlib's own defaults, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # A name in a script that DejaVu lacks is still drawn right: the reader's own font sets the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def canvas(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the report's width and its axes, row by row."""
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasSVG(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [axis for line in axes for axis in line]


def to_svg(figure: Figure) -> str:
    """`figure` as SVG: the same bytes for the same content."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"\n\s*<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)


def inline(picture: Picture) -> str:
    """The SVG for an HTML page: no header, ids of its own, colours as CSS variables, an accessible name."""
    from markupsafe import escape

    svg = picture.svg[picture.svg.index("<svg") :]
    svg = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{picture.name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r'<svg\s[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', svg, count=1)
    named = f'<svg role="img" aria-label="{escape(picture.alt)}"'
    return svg.replace("<svg", named, 1).strip()


def spread(positions: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Centres for labels of these `heights`: as near to `positions` as they go without overlap, in [low, high].

    In order of position, centre minus the heights below it must not fall: isotonic regression, by pooling.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    offsets, total = [], 0.0
    for i in order:
        offsets.append(total + heights[i] / 2)
        total += heights[i]
    pools: list[list[float]] = []  # mean, size
    for i, offset in zip(order, offsets, strict=True):
        pools.append([positions[i] - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, size = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * size) / (pools[-1][1] + size), pools[-1][1] + size]
    starts = [mean for mean, size in pools for _ in range(int(size))]
    placed = [0.0] * len(positions)
    for i, offset, start in zip(order, offsets, starts, strict=True):
        placed[i] = max(low, min(start, high - total)) + offset
    return placed


def fitted(names: Sequence[str], most: int) -> dict[str, str]:
    """The names, those longer than `most` characters cut in the middle; where that makes two alike, numbered."""
    found: dict[str, str] = {}
    for name in names:
        tail = most // 2 - 1
        text = name if len(name) <= most else f"{name[: most - tail - 1]}…{name[-tail:]}"
        if text in found.values():
            text = f"{text[: most - 4]}… {sum(each.startswith(text[: most - 4]) for each in found.values()) + 1}"
        found[name] = text
    return found


def short(arm: str) -> str:
    """An arm's name on up to three lines, for a direct label; what is too long for its place is cut."""
    lines = [line.rpartition(":")[2] for line in arm.replace("masking-", "masking\n").replace(", ", "\n").split("\n")]
    broken = [each for line in lines for each in textwrap.wrap(line.replace("-", "- "), LABEL) or [""]]
    broken = [line.replace("- ", "-") for line in broken]
    return "\n".join([*broken[:2], "…"] if len(broken) > 3 else broken)


def label_heights(arms: Iterable[str]) -> list[float]:
    """The heights, in points, of direct labels."""
    return [13.0 * (short(arm).count("\n") + 1) + 2.0 for arm in arms]


def labels_fit(arms: Sequence[str], height: float) -> bool:
    """Whether the direct labels of lines fit beside an axis of that height in inches, and tell the arms apart."""
    names = [short(arm) for arm in arms]
    return len(arms) <= DIRECT and sum(label_heights(arms)) <= 0.95 * 72 * height and len(set(names)) == len(names)


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float]], styles: Mapping[str, Look]) -> None:
    """Each arm's name to the right of the end (x, y) of its line, moved apart where lines meet."""
    low, high = axis.get_ylim()
    points = axis.get_position().height * axis.get_figure().get_size_inches()[1] * 72  # type: ignore[union-attr]
    unit = (high - low) / points
    heights = [unit * height for height in label_heights(ends)]
    places = spread([y for _, y in ends.values()], heights, low - 2 * unit, high + 6 * unit)
    for (arm, (x, _)), y in zip(ends.items(), places, strict=True):
        axis.annotate(
            short(arm), (x, y), xytext=(8, 0), textcoords="offset points", va="center", ha="left",
            color=styles[arm].colour, fontweight="bold", fontsize=10.5, linespacing=1.0,
            annotation_clip=False,
        )  # fmt: skip


@dataclass(frozen=True)
class Legend:
    """The names of the arms above a figure, in as many columns as they fit in. height: in inches."""

    labels: Mapping[str, str]
    columns: int

    @classmethod
    def of(cls, arms: Sequence[str]) -> Legend:
        widths = {columns: most for columns, most in LEGEND.items() if max(map(len, arms)) <= most}
        columns = min(max(widths, default=1 if len(arms) <= DIRECT else 2), len(arms))
        return cls(fitted(arms, LEGEND[columns]), columns)

    @property
    def height(self) -> float:
        return 0.2 * math.ceil(len(self.labels) / self.columns)

    def draw(self, figure: Figure, styles: Mapping[str, Look]) -> None:
        handles = [
            Line2D([], [], color=styles[arm].colour, marker=styles[arm].marker, linestyle=styles[arm].dash,
                   markeredgecolor=PAPER, linewidth=1.6, label=label)
            for arm, label in self.labels.items()
        ]  # fmt: skip
        figure.legend(
            handles=handles, loc="upper left", ncols=self.columns, labelcolor="linecolor", borderaxespad=0.1,
            handlelength=2.6, columnspacing=1.2, labelspacing=0.25, bbox_to_anchor=(0.02, 1.0),
        )  # fmt: skip


def draw(charts: Sequence[Callable[[], Picture | None]], out: Path) -> list[Picture]:
    """Run the charts in the report's style, write each to OUT/figures/NAME.svg, and return those drawn."""
    with style():
        pictures = [picture for chart in charts if (picture := chart()) is not None]
    for picture in pictures:
        write_text(out / "figures" / f"{picture.name}.svg", picture.svg)
    return pictures


def slug(name: str) -> str:
    """A benchmark's name as part of a file's."""
    return "".join(mark if mark.isalnum() and mark.isascii() else "-" for mark in name.lower())
