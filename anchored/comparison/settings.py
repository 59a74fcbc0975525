"""The settings of a comparison: what they may be, and the runs they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anchored import corruptions
from anchored.arms.recipe import Recipe
from anchored.arms.run_config import METHODS, RunConfig
from anchored.system.errors import InputError, unknown


@dataclass(frozen=True)
class Comparison:
    """The settings of one comparison, as resolved; see `anchored compare --help` for their meaning."""

    data: str
    model: str
    recipe: Recipe
    root: str | None = None
    image_size: int | None = None
    stream: bool = False
    weights: str = "none"
    methods: tuple[str, ...] = METHODS
    masked_target: tuple[str, ...] = ("uniform",)
    schedule: str = "bernoulli"
    masked_bn: str = "skip"
    recalibrate_bn: int = 0
    reference_source: str = "set"
    references: int | None = None
    seeds: tuple[int, ...] = (0,)
    val_fraction: float = 0.0
    select: str = "last"
    label_noise: float = 0.0
    labels: str | None = None
    train_limit: int | None = None
    on: tuple[str, ...] = ("clean", "c")
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    anomalies: tuple[str, ...] = ("photos",)
    limit: int | None = None
    protocol: str = "one_random"
    k: int = 10
    precision: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("methods", "masked_target", "seeds", "on", "severities"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{name.replace('_', '-')} takes one or more different values; got {list(values)}.")
        for method in self.methods:
            if method not in METHODS:
                raise unknown("method", method, METHODS)
        for severity in self.severities:
            if severity not in range(1, 6):
                raise InputError(f"severities are 1 to 5; got {severity}.")
        if not 0 <= self.val_fraction < 1:
            raise InputError(
                f"val-fraction is the part of the training data held out, in [0, 1); got {self.val_fraction}."
            )
        if self.select != "last" and not self.val_fraction:
            raise InputError(f"select {self.select} needs a validation split of the training data; val-fraction is 0.")
        for name in ("limit", "train_limit", "references", "k", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')} is at least 1; got {value}.")
        for benchmark in self.on:
            if benchmark != "clean":
                corruptions.suite(benchmark, table="cifar")

    def run_configs(self) -> list[RunConfig]:
        """Every run of the comparison, seed by seed."""
        pairs = [
            (method, target)
            for method in self.methods
            for target in (self.masked_target if method == "masking" else self.masked_target[:1])
        ]
        return [
            RunConfig(
                method=method,
                model=self.model,
                recipe=self.recipe,
                seed=seed,
                weights=self.weights,
                masked_target=target,
                schedule=self.schedule,
                masked_bn=self.masked_bn,
                recalibrate_bn=self.recalibrate_bn,
                reference_source=self.reference_source,
                references=self.references,
                precision=self.precision,
                select=self.select,
            )
            for seed in self.seeds
            for method, target in pairs
        ]


def without_effect(settings: Comparison) -> Iterator[str]:
    """Settings that change nothing, in words."""
    if "masking" not in settings.methods and settings.masked_target != ("uniform",):
        yield "--masked-target has no effect without the method masking"
    if "masking" in settings.methods and settings.recipe.alpha == 0:
        yield "alpha 0 never masks: masking is the same as vanilla"
    if settings.methods == ("standard",) and settings.protocol != "one_random":
        yield "--protocol has no effect on the method standard alone"
