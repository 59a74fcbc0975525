"""The settings of a comparison: data, arms, seeds, and what they are evaluated on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchored import corruptions
from anchored.arms.arm import Arm, ArmSettings, alike, resolve
from anchored.arms.prediction import PredictionSettings
from anchored.arms.recipe import Recipe
from anchored.arms.run_config import RunConfig
from anchored.arms.setting import METHODS, dashed, declared
from anchored.arms.training_data import TrainingData
from anchored.system.errors import InputError, unknown


@dataclass(frozen=True)
class Comparison:
    """One comparison, as resolved: `comparison` makes it. See `anchored compare --help` for the meaning of its fields.

    shared: what arms have unless they change it (its method means nothing). baseline: the arm that others are compared
    with. by_method: the methods and targets that the arms were given by, None for arms of their own.
    """

    data: str
    shared: ArmSettings
    arms: tuple[ArmSettings, ...]
    baseline: str
    by_method: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    root: str | None = None
    image_size: int | None = None
    stream: bool = False
    seeds: tuple[int, ...] = (0,)
    on: tuple[str, ...] = ("clean", "c")
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    anomalies: tuple[str, ...] = ("photos",)
    limit: int | None = None
    report_pairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("seeds", "on", "severities"):
            _different(name, getattr(self, name))
        for severity in self.severities:
            if severity not in range(1, 6):
                raise InputError(f"severities are 1 to 5; got {severity}.")
        for name in ("limit", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{dashed(name)} is at least 1; got {value}.")
        for benchmark in self.on:
            if benchmark != "clean":
                corruptions.suite(benchmark, table="cifar")
        for arm in self.arms:
            if arm.config.select != "last" and not arm.data.val_fraction:
                raise InputError(
                    f"select {arm.config.select} needs a validation split of the training data; val-fraction is 0."
                )
        self._check_names()

    def _check_names(self) -> None:
        """Refuse names of arms that are given twice or do not exist, and arms that do the same."""
        names = [arm.name for arm in self.arms]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"every arm has a name of its own; two are called {name}.")
        if self.by_method is None and (pair := next(alike(self.arms), None)):
            raise InputError(
                f"the arms {pair[0]} and {pair[1]} are alike: they differ in no setting that has an effect."
            )
        if self.baseline not in names:
            raise unknown("arm for --baseline:", self.baseline, names)
        for text in self.report_pairs:
            parts = text.split(":")
            if len(parts) != 2 or parts[0] == parts[1]:
                raise InputError(f"--report-pairs takes pairs of two arms, A:B; got {text!r}.")
            for part in parts:
                if part not in names:
                    raise unknown("arm for --report-pairs:", part, names)

    @property
    def recipe(self) -> Recipe:
        """The recipe that arms have unless they change it."""
        return self.shared.config.recipe

    @property
    def model(self) -> str:
        """The model that arms have unless they change it."""
        return self.shared.config.model

    def arm(self, name: str) -> ArmSettings:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)

    def run_configs(self) -> list[RunConfig]:
        """Every run of the comparison, seed by seed."""
        return [dataclasses.replace(arm.config, seed=seed) for seed in self.seeds for arm in self.arms]

    def flat(self) -> dict[str, Any]:
        """All settings by name, as they are recorded."""
        config = self.shared.config
        values: dict[str, Any] = {"data": self.data, "model": config.model, "recipe": dataclasses.asdict(config.recipe)}
        values |= {name: getattr(self, name) for name in ("root", "image_size", "stream")}
        values |= {"weights": config.weights} | _values(config, "masked_target")
        if self.by_method is None:
            values |= {"arms": {arm.name: arm.flat() for arm in self.arms}}
        else:
            values |= dict(zip(("methods", "masked_target"), self.by_method, strict=True))
        values |= {**_values(self.shared.data), **_values(self.shared.prediction)}
        return values | {name: getattr(self, name) for name in ("seeds", "on", "severities", "anomalies", "limit")}

    def identity(self) -> dict[str, Any]:
        """What of `flat` decides results, for the hash; settings that came later are in it only where they are set."""
        values = self.flat()
        for name in ("data", "root"):
            values.pop(name)
        for name in ("model", "image_size"):
            values["recipe"].pop(name)
        for each in (values, values["recipe"], *values.get("arms", {}).values()):
            for name, default in _LATE.items():
                if name in each and each[name] == default:
                    each.pop(name)
        return values


def comparison(
    data: str,
    model: str,
    recipe: Recipe,
    *,
    arms: Sequence[Arm] = (),
    methods: Sequence[str] = METHODS,
    masked_target: Sequence[str] = ("uniform",),
    baseline: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Comparison:
    """The comparison of `arms`, or of the arms that `methods` are by themselves (masking with each masked_target).

    recipe: of arms without one of their own. overrides: fields of the recipe that hold for arms with one as well.
    baseline: the name of an arm, by default the first. settings: fields of `Comparison`, and those of RunConfig,
    TrainingData and PredictionSettings that all arms share. Raises InputError, naming arm and rule, for anything that
    cannot be.
    """
    kinds: dict[str, dict[str, Any]] = {"config": {}, "data": {}, "prediction": {}, "rest": {}}
    owners = {"config": RunConfig, "data": TrainingData, "prediction": PredictionSettings}
    for name, value in settings.items():
        owner = next((key for key, kind in owners.items() if name in _names(kind)), "rest")
        kinds[owner][name] = value
    for name, values in (("methods", methods), ("masked_target", masked_target)):
        _different(name, values)
    shared = ArmSettings(
        RunConfig("standard", model, recipe, 0, masked_target=masked_target[0], **kinds["config"]),
        TrainingData(**kinds["data"]),
        PredictionSettings(**kinds["prediction"]),
    )
    given = list(arms)
    if not arms:
        for method in methods:
            if method not in METHODS:
                raise unknown("method", method, METHODS)
        pairs = [(m, t) for m in methods for t in (masked_target if m == "masking" else masked_target[:1])]
        given = [Arm.of_method(method, target) for method, target in pairs]
    found = tuple(resolve(arm, shared, overrides or {}) for arm in given)
    return Comparison(
        data,
        shared,
        found,
        baseline=baseline or found[0].name,
        by_method=None if arms else (tuple(methods), tuple(masked_target)),
        **kinds["rest"],
    )


def without_effect(settings: Comparison) -> Iterator[str]:
    """Settings that all arms share and that change nothing, in words."""
    methods = {arm.config.method for arm in settings.arms}
    if settings.by_method and "masking" not in methods and settings.by_method[1] != ("uniform",):
        yield "--masked-target has no effect without the method masking"
    for arm in settings.arms:
        if arm.config.method == "masking" and arm.config.alpha == 0:
            yield "alpha 0 never masks: masking is the same as vanilla"
            break
    if methods == {"standard"} and settings.shared.prediction.protocol != "one_random":
        yield "--protocol has no effect on the method standard alone"


# Settings that came after the first hashes, and their defaults.
_LATE = {
    field.name: field.default
    for kind in (RunConfig, Recipe, TrainingData, PredictionSettings)
    for field, its in declared(kind)
    if not its.hashed and field.name not in ("method", "model", "recipe", "seed", "weights")
}


def _different(name: str, values: Sequence[Any]) -> None:
    if not values or len(set(values)) != len(values):
        raise InputError(f"{dashed(name)} takes one or more different values; got {list(values)}.")


def _names(kind: type) -> set[str]:
    return {field.name for field, _ in declared(kind)}


def _values(settings: Any, *but: str) -> dict[str, Any]:
    """The settings of an instance by name; of a RunConfig those that all arms can share."""
    left_out = ("method", "model", "recipe", "seed", "weights", *but)
    return {field.name: getattr(settings, field.name) for field, _ in declared(settings) if field.name not in left_out}
