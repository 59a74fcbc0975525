"""What rows say of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchored.arms.run_config import RunConfig
from anchored.augment import parse


def run_columns(config: RunConfig, info: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of rows of the run with these settings; `info` is what its run.json says besides them."""
    recipe = config.recipe
    return {
        "arm": config.arm_name,
        "train_size": info.get("train_size", 0),
        "recipe": recipe.name,
        "augmentation": str(parse(recipe.policy)),
        "label_noise": info.get("label_noise", 0.0),
        **config.columns(),
        "references": info.get("references", 0) if config.anchored else 0,
        "model": config.model,
        "weights": info.get("weights", "raw"),
        "seed": config.seed,
        "epoch": info.get("epoch", recipe.epochs),
        "arithmetic": info.get("arithmetic"),
        "parameters": info.get("parameters"),
        "forward_passes": info.get("forward_passes"),
    }
