"""The recipe that is meant: by name, from a run or a file, with fields changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from anchored.arms.recipe import FIELDS, Recipe
from anchored.arms.recipes import RECIPES
from anchored.arms.setting import typed
from anchored.system.errors import InputError, unknown


def recipe(name: str | dict[str, Any], *, fields: dict[str, Any] | None = None, **overrides: Any) -> Recipe:
    """The recipe `name`, or that of a file (see `recipe_from`), with the fields in `overrides` that are not None.

    name: or a mapping as in such a file. fields: more of them, in which None is a value (no clipping). Milestones
    move with the number of epochs. Raises InputError for an unknown recipe or field and a value out of range.
    """
    if isinstance(name, dict):
        base = _written(name, "--recipe")
    elif name in RECIPES:
        base = RECIPES[name]()
    elif name.endswith((".json", ".yaml", ".yml")) or Path(name).is_dir():
        base = recipe_from(name)
    else:
        raise unknown("recipe", name, RECIPES)
    return changed(base, {key: value for key, value in overrides.items() if value is not None} | (fields or {}))


def recipe_from(path: str | Path) -> Recipe:
    """The recipe a run was trained with, to train so again, or one written by hand.

    path: a run or its run.json, a comparison or its config.json, or a JSON or YAML file of fields, in which `name` (or
    `recipe`) is the recipe whose values hold for the fields that are left out. Raises InputError where there is none.
    """
    path = Path(path)
    if path.is_dir():
        file = next((path / part for part in ("run.json", "config.json") if (path / part).is_file()), None)
        if file is None:
            raise InputError(f"{path} holds no recipe: it has neither run.json (a run) nor config.json (a comparison).")
        path = file
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InputError(f"the recipe {path} cannot be read: {reason}.") from error
    for key in ("config", "settings", "recipe"):  # run.json, config.json, and what is in both
        if isinstance(values, dict) and isinstance(values.get(key), dict):
            values = values[key]
    return _written(values, str(path), path.stem)


def _written(values: Any, where: str, stem: str = "own") -> Recipe:
    """The recipe of a mapping of fields, in which None is a value."""
    if not isinstance(values, dict):
        raise InputError(
            f"{where} holds no recipe: a mapping of fields to values is needed. Fields: {', '.join(FIELDS)}."
        )
    values = {"name" if key == "recipe" else str(key).replace("-", "_"): value for key, value in values.items()}
    name = values.pop("name", None)
    if name in RECIPES:
        return changed(RECIPES[name](), values)
    if "epochs" not in values:
        raise InputError(f"{where} needs the number of epochs, or the name of a recipe. Names: {', '.join(RECIPES)}.")
    return changed(Recipe(str(name or stem), epochs=1), values)


def changed(base: Recipe, values: Mapping[str, Any]) -> Recipe:
    """`base` with other values in some fields; milestones move with the number of epochs. Raises InputError."""
    for key in values:
        if key not in FIELDS:
            raise unknown("field of a recipe", key, FIELDS)
    given = dict(values)
    if "epochs" in given and base.milestones and "milestones" not in given:
        epochs = typed("epochs", "int", given["epochs"])
        given["milestones"] = tuple(round(milestone * epochs / base.epochs) for milestone in base.milestones)
    return replace(base, **given)
