"""How figures look, how they become deterministic SVG, and which ones a comparison gets."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from anchored.report.summary import Summary
from anchored.system.files import write_text

WIDTH = 5.0  # inches = 360 SVG units: one to one on a phone, so the type below keeps its size there

# Colours by role; the page replaces each by a CSS variable, so that dark mode reaches into the figures.
PAPER, INK, MUTED, RULE = "#ffffff", "#1b2026", "#66707b", "#dfe3e8"
KNOWN, ANOMALY = "#7a8896", "#d1495c"
# Okabe and Ito's palette: told apart with any colour vision; markers and dashes tell them apart in print.
STANDARD, VANILLA, UNIFORM, LABEL = "#4a535d", "#0072b2", "#d55e00", "#00866a"
EXTRA = ("#a3518a", "#8a6d00", "#2f6f8f", "#7b5ea7")
_KNOWN_COLOURS = {
    "standard": STANDARD, "vanilla": VANILLA, "masking-uniform": UNIFORM, "masking-label": LABEL
}  # fmt: skip
VARIABLES = {
    PAPER: "--paper", INK: "--ink", MUTED: "--muted", RULE: "--rule", KNOWN: "--known", ANOMALY: "--anomaly",
    STANDARD: "--standard", VANILLA: "--vanilla", UNIFORM: "--uniform", LABEL: "--label",
    **{colour: f"--extra-{number}" for number, colour in enumerate(EXTRA, start=1)},
}  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", (0, (5, 1.6)), "-", (0, (2, 1)), (0, (6, 1, 1, 1)))

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
    """Colour, marker and dash of one method."""

    colour: str
    marker: str
    dash: Any


def looks(summary: Summary) -> dict[str, Look]:
    """A look for each method, the same in every figure of the report."""
    found: dict[str, Look] = {}
    taken: set[str] = set()
    extra = iter(EXTRA * len(summary.methods))
    for number, method in enumerate(summary.methods):
        colour = _KNOWN_COLOURS.get(method.partition(", ")[0], "")
        colour = colour if colour and colour not in taken else next(extra)
        taken.add(colour)
        place = list(_KNOWN_COLOURS).index(method) if method in _KNOWN_COLOURS else number
        found[method] = Look(colour, _MARKERS[place % len(_MARKERS)], _DASHES[place % len(_DASHES)])
    return found


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


def short(method: str) -> str:
    """A method's name on two or three lines, for a direct label; what is too long for its place is cut."""
    lines = method.replace("masking-", "masking\n").replace(", ", "\n").split("\n")
    lines = [line.rpartition(":")[2] for line in lines]  # of a library's model, its own name
    return "\n".join(line if len(line) <= 13 else f"{line[:12]}…" for line in lines[:4])


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float]], styles: Mapping[str, Look]) -> None:
    """Each method's name to the right of the end (x, y) of its line, moved apart where lines meet."""
    low, high = axis.get_ylim()
    points = axis.get_position().height * axis.get_figure().get_size_inches()[1] * 72  # type: ignore[union-attr]
    unit = (high - low) / points
    heights = [unit * (13.0 * (short(method).count("\n") + 1) + 2.0) for method in ends]
    places = spread([y for _, y in ends.values()], heights, low - 2 * unit, high + 6 * unit)
    for (method, (x, _)), y in zip(ends.items(), places, strict=True):
        axis.annotate(
            short(method), (x, y), xytext=(8, 0), textcoords="offset points", va="center", ha="left",
            color=styles[method].colour, fontweight="bold", fontsize=10.5, linespacing=1.0,
            annotation_clip=False,
        )  # fmt: skip


def draw(charts: Sequence[Callable[[], Picture | None]], out: Path) -> list[Picture]:
    """Run the charts in the report's style, write each to OUT/figures/NAME.svg, and return those drawn."""
    with style():
        pictures = [picture for chart in charts if (picture := chart()) is not None]
    for picture in pictures:
        write_text(out / "figures" / f"{picture.name}.svg", picture.svg)
    return pictures
