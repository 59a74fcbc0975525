"""Names of arms that tell the models of one evaluation apart, wherever their runs come from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anchored.evaluation.evaluated_models import EvaluatedModel
from anchored.evaluation.run_folders import FOLD

# Columns that differ within an arm, or that its name stands for: they tell no two arms apart.
WITHIN_AN_ARM = {"arm", "method", "masked_target", "seed", "epoch", "arithmetic", "parameters", "forward_passes"}


def told_apart(models: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """The models, with the name of the comparison added to the arms of runs that no column of a row tells apart.

    Runs of several folders are seeds of one arm as long as they were trained alike on different seeds. Otherwise
    `standard` of the comparisons x and y become `standard, x` and `standard, y`, and so do their other arms, each of
    which keeps its own baseline. What is still the same then has the name of the model added.
    """
    pools = _pools([model for model in models if model.folder is not None])
    alike = [pool for pool in pools if any(_share_arms(pool, other) for other in pools if other is not pool)]
    origins = _short_names([_origin(pool[0]) for pool in alike])
    additions = {model.name: origin for pool, origin in zip(alike, origins, strict=True) for model in pool}
    named = [_with_arm(model, additions.get(model.name)) for model in models]
    seen = [(_arm(model), model.about["seed"]) for model in named]
    return [
        _with_arm(model, model.name if seen.count(key) > 1 else None) for model, key in zip(named, seen, strict=True)
    ]


def _pools(models: Sequence[EvaluatedModel]) -> list[list[EvaluatedModel]]:
    """The runs in groups within which those of one arm are its seeds; runs of one comparison stay together."""
    origins: dict[Path, list[EvaluatedModel]] = {}
    for model in models:
        origins.setdefault(_origin(model), []).append(model)
    pools: list[list[EvaluatedModel]] = []
    for own in origins.values():
        fitting = next((pool for pool in pools if _are_seeds(pool, own)), None)
        if fitting is None:
            pools.append(own)
        else:
            fitting += own
    return pools


def _are_seeds(some: Sequence[EvaluatedModel], others: Sequence[EvaluatedModel]) -> bool:
    """Whether both have arms in common, which were trained alike in both, and with different seeds."""
    pairs = [(one, other) for one in some for other in others if _arm(one) == _arm(other)]
    return bool(pairs) and all(
        one.training == other.training and one.about["seed"] != other.about["seed"] for one, other in pairs
    )


def _share_arms(some: Sequence[EvaluatedModel], others: Sequence[EvaluatedModel]) -> bool:
    return not {_arm(model) for model in some}.isdisjoint({_arm(model) for model in others})


def _arm(model: EvaluatedModel) -> Hashable:
    """What the rows of an arm have in common."""
    about: Mapping[str, object] = model.about
    columns = tuple((name, value) for name, value in about.items() if name not in WITHIN_AN_ARM)
    predict = model.predict
    return about["arm"], columns, predict.protocol, predict.k, predict.tempering, str(model.preprocess)


def _origin(model: EvaluatedModel) -> Path:
    """The folder of the comparison that a run is of, or its own; of one from the Hub user/name."""
    assert model.folder is not None
    given = Path(model.spec.removeprefix(FOLD))
    if not given.exists():  # in the Hub's cache a folder has a number for a name
        return given
    folder = model.folder.resolve()
    comparison = folder.parent.parent
    return comparison if folder.parent.name == "runs" and (comparison / "config.json").is_file() else folder


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of different paths, as many as it takes to tell them apart."""
    for count in range(1, max((len(path.parts) for path in paths), default=1)):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return [str(path) for path in paths]


def _with_arm(model: EvaluatedModel, addition: str | None) -> EvaluatedModel:
    if addition is None:
        return model
    return replace(model, about={**model.about, "arm": f"{model.about['arm']}, {addition}"})
