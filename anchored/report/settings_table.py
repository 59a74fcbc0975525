"""What the arms differ in: a table of arms and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchored.arms.run_config import RunConfig
from anchored.arms.setting import ANCHORED, MASKING, METHODS, declared
from anchored.report.numbers import NONE
from anchored.report.summary import Summary

# Columns of rows that are no settings, or say what a measurement came to.
_NOT_SET = {"arm", "seed", "arithmetic", "parameters", "forward_passes"}
_EFFECT = {field.name: its.methods for field, its in declared(RunConfig)}  # in which methods a setting has one
_EFFECT |= {"alpha": MASKING, "protocol": ANCHORED, "k": ANCHORED}


@dataclass(frozen=True)
class Settings:
    """fields: the settings in which arms differ, as words; lines: each arm with its values of them."""

    fields: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]


def settings_table(summary: Summary) -> Settings:
    """What the arms differ in, by the settings that config.json has of each, else by what the rows say."""
    said = _from_configs(summary) or {arm: _from_rows(summary, arm) for arm in summary.arms}
    names = dict.fromkeys(name for values in said.values() for name in values)
    differing = [name for name in names if _differs([values.get(name) for values in said.values()])]
    lines = ((arm, tuple(_text(values.get(name)) for name in differing)) for arm, values in said.items())
    return Settings(tuple(name.replace("_", " ") for name in differing), tuple(lines))


def _differs(values: Sequence[Any]) -> bool:
    """Whether arms in which a setting has an effect differ in it: that others have none follows from their method."""
    return len({str(value) for value in values if value is not None}) > 1


def _from_configs(summary: Summary) -> dict[str, dict[str, Any]]:
    """Each arm's settings in the config of its comparison; {} where one has none, or two have different ones."""
    found: dict[str, dict[str, Any]] = {}
    for arm in summary.arms:
        own = summary.fact(arm, "arm")
        said = [config["arms"][own]["settings"] for config in summary.configs if own in config.get("arms", {})]
        if not said or any(each != said[0] for each in said):
            return {}
        found[arm] = _effective(said[0])
    return found


def _effective(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with None for those that have no effect in the arm's method."""
    method = settings.get("method")
    found = {name: value if method in _EFFECT.get(name, METHODS) else None for name, value in settings.items()}
    if found.get("protocol") == "one_random":
        found["k"] = None
    return {"method": method, **found}


def _from_rows(summary: Summary, arm: str) -> dict[str, Any]:
    """What rows say of the arm, values of several seeds together."""
    found: dict[str, Any] = {}
    for name in summary.facts[arm, summary.seeds_of(arm)[0]]:
        if name not in _NOT_SET:
            values = list(dict.fromkeys(str(summary.facts[arm, seed].get(name)) for seed in summary.seeds_of(arm)))
            found[name] = None if values == ["None"] else ", ".join(values)
    return found


def _text(value: Any) -> str:
    if value is None or value == "":
        return NONE
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
