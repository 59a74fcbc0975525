"""What each arm cost: forward passes, epochs, parameters, training time, and what it was computed in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchored.report.numbers import NONE, listed
from anchored.report.summary import Summary
from anchored.system.errors import InputError
from anchored.system.files import read_json

HEADINGS = ("passes an image", "epochs", "parameters", "training seconds", "arithmetic")
NAMED = 4  # arms in a note before the rest is counted
ALIKE = 0.01  # relative: budgets that differ by no more than that count as the same


@dataclass(frozen=True)
class Budget:
    """The budget of one arm, means over its seeds; None and () where unknown.

    passes: forward passes of the network for each training image over the whole run. seconds: of training, where it was
    trained. arithmetic: bfloat16, float16 or float32, of all seeds.
    """

    arm: str
    passes: float | None
    epochs: float | None
    parameters: float | None
    seconds: float | None
    arithmetic: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """What a table says under `HEADINGS`."""
        return (
            NONE if self.passes is None else f"{self.passes:,.4g}",
            NONE if self.epochs is None else f"{self.epochs:,.4g}",
            NONE if self.parameters is None else f"{self.parameters:,.0f}",
            NONE if self.seconds is None else f"{self.seconds:,.{0 if self.seconds >= 100 else 1}f}",
            ", ".join(self.arithmetic) or NONE,
        )


def budgets(summary: Summary, runs: Mapping[str, Path]) -> tuple[Budget, ...]:
    """The budget of each arm, from its rows and, for what they lack, from the run.json in the folders of its `runs`.

    Raises InputError for a run.json that is damaged.
    """
    found = []
    for arm in summary.arms:
        said = []
        for seed in summary.seeds_of(arm):
            known = {name: value for name, value in summary.facts[arm, seed].items() if value is not None}
            said.append({**_run_json(runs, summary.runs[arm, seed]), **known})
        kinds = tuple(sorted({str(each["arithmetic"]) for each in said if each.get("arithmetic")}))
        passes, epochs, parameters, seconds = (
            _mean(said, name) for name in ("forward_passes", "epoch", "parameters", "seconds")
        )
        found.append(Budget(arm, passes, epochs, parameters, seconds, kinds))
    return tuple(found)


def cautions(found: Sequence[Budget]) -> tuple[str, ...]:
    """In which ways budgets differ so that a difference of arms may be one of budgets."""
    notes = []
    passes = sorted((budget.passes, place) for place, budget in enumerate(found) if budget.passes)
    if passes and passes[-1][0] > passes[0][0] * (1 + ALIKE):
        groups: dict[float, list[str]] = {}
        for value, place in passes:
            near = next((each for each in groups if value <= each * (1 + ALIKE)), value)
            groups.setdefault(near, []).append(found[place].arm)
        told = [f"{value:,.4g} ({listed(arms, most=NAMED)})" for value, arms in groups.items()]
        notes.append(f"Compare with care: forward passes an image are {listed(told)}.")
    kinds: dict[tuple[str, ...], list[str]] = {}
    for budget in found:
        if budget.arithmetic:
            kinds.setdefault(budget.arithmetic, []).append(budget.arm)
    if len(kinds) > 1:
        told = [f"{' and '.join(kind)} ({listed(arms, most=NAMED)})" for kind, arms in kinds.items()]
        notes.append(f"Compare with care: the arithmetic of training is {listed(told)}.")
    return tuple(notes)


def known(found: Sequence[Budget]) -> bool:
    """Whether anything is known of any budget."""
    return any(cell != NONE for budget in found for cell in budget.cells)


def _run_json(runs: Mapping[str, Path], run: str) -> dict[str, Any]:
    path = runs[run] / "run.json" if run in runs else None
    if path is None or not path.exists():
        return {}
    try:
        found = read_json(path)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold one JSON object; got a {type(found).__name__}.")
    return {name: value for name, value in found.items() if value is not None}


def _mean(said: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [each[name] for each in said if isinstance(each.get(name), int | float)]
    return float(np.mean(values)) if values else None
