"""The folder of a comparison: what it is of stands in config.json, and another one is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from anchored.comparison.inputs import Prepared
from anchored.comparison.settings import Comparison
from anchored.runs.run import versions
from anchored.system.errors import InputError
from anchored.system.files import read_json, write_json, write_text

SHARED = ("image_size", "limit", "stream")  # settings that scores in one folder have in common


def claim(folder: Path, prepared: Prepared, command: str, flags: str = "", *, alone: bool = False) -> None:
    """Make `folder` the one of these settings and data, or check that it is; config.json and flags.yaml say so.

    Arms, seeds and benchmarks may be added to a folder; what is there of an arm stays as it is, so one that changed is
    refused, by name and with what changed. alone: the folder is that of one run, whose seed stays too. flags: the
    command's flags as YAML, to run it again elsewhere (--config). Raises InputError for a folder of something else.
    """
    path = folder / "config.json"
    now = _description(prepared, command)
    if path.exists():
        before = read_json(path)
        if before.get("config_hash") != now["config_hash"] or "arms" in before:
            _check(folder, before, now, prepared.settings, alone)
        now["arms"] = {**now["arms"], **{k: v for k, v in before.get("arms", {}).items() if k not in now["arms"]}}
        now["sets"] = {**before.get("sets", {}), **now["sets"]}
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"--out {folder} is not empty and holds no results. Use an empty or a new folder.")
    if flags:
        write_text(folder / "flags.yaml", flags)
    write_json(path, now)


def _description(prepared: Prepared, command: str) -> dict[str, Any]:
    """What config.json says."""
    settings, first = prepared.settings, prepared.first
    data = first.data
    return {
        "command": command,
        "config_hash": prepared.hash,
        "settings": json.loads(json.dumps(settings.flat())),
        "baseline": settings.baseline,
        "report_pairs": list(settings.report_pairs),
        "arms": {
            arm.name: {"hash": prepared.inputs[arm.name].hash, "settings": json.loads(json.dumps(arm.flat()))}
            for arm in settings.arms
        },
        "sets": dict(prepared.sets),
        "data": {
            "name": data.name,
            "split": data.split,
            "notes": list(prepared.notes),
            "train_size": len(data.train),
            "validation_size": len(first.validation) if first.validation else 0,
            "test_size": len(data.test),
            "classes": list(data.classes),
        },
        "preprocess": str(first.preprocess),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def _check(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], settings: Comparison, alone: bool) -> None:
    """Refuse a folder whose results are of other settings, images or networks than what they are called now."""
    old, new = _named(before.get("settings", {})), _named(now["settings"])
    names = [*SHARED, *(["seeds"] if alone else [])]
    changed = [f"{name}: {old.get(name)} there, {new.get(name)} here" for name in names if old.get(name) != new[name]]
    if "arms" not in before:  # of a version without them: all or nothing
        changed = [f"{key}: {old.get(key)} there, {value} here" for key, value in new.items() if old.get(key) != value]
        raise _other(folder, changed)
    for name, arm in now["arms"].items():
        there = before["arms"].get(name)
        if there is None or (there["hash"] == arm["hash"] and not _changes(there, arm)):
            continue
        differ = _changes(there, arm) or ["the images, the model or its weights differ"]
        changed += [f"arm {name}: {each}" for each in differ] if settings.by_method is None else differ
    for name, fingerprint in now["sets"].items():
        if before.get("sets", {}).get(name, fingerprint) != fingerprint:
            changed.append(f"the images of {name} differ")
    if alone and set(before["arms"]) != set(now["arms"]):
        changed.append(f"arm: {', '.join(before['arms'])} there, {', '.join(now['arms'])} here")
    if changed:
        raise _other(folder, list(dict.fromkeys(changed)))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings of an arm that are not what they were; those that the older version did not know are passed over."""
    old, new = before["settings"], now["settings"]
    return [f"{key}: {old[key]} there, {value} here" for key, value in new.items() if key in old and old[key] != value]


def _other(folder: Path, changed: list[str]) -> InputError:
    what = "; ".join(changed) or "the images, the model or its weights differ"
    return InputError(f"{folder} holds other results ({what}). Use another --out.")


def _named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the recipe's fields among them, to compare them one by one."""
    fields = settings.get("recipe") or {}
    return {key: value for key, value in settings.items() if key not in ("recipe", "arms")} | {
        "recipe" if key == "name" else key: value for key, value in fields.items()
    }
