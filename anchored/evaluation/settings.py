"""The settings of an evaluation: what they may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from anchored import corruptions
from anchored.data import published
from anchored.system.errors import InputError, unknown

PARTS = ("test", "all")
STORED_SUITES = ("c", "c-bar")  # of which there are corrupted images on disk
SOURCES = ("folder", "parquet", "npz", "hf", "csv")  # of shifted test sets


@dataclass(frozen=True)
class ModelInput:
    """What the input of a model without its own preprocessing is: flags of the command, None where not given."""

    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and (len(values) != 3 or (name == "std" and min(values) <= 0)):
                raise InputError(
                    f"--{name} takes three numbers, one a channel, in units of [0, 1]; got {list(values)}."
                )


@dataclass(frozen=True)
class EvaluationSettings:
    """The settings of one evaluation; see `anchored evaluate --help` for their meaning.

    Raises InputError for a value against its rule.
    """

    models: tuple[str, ...]
    data: str | None = None
    weights: tuple[str, ...] = ("default",)
    on: tuple[str, ...] = ("clean",)
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    anomalies: tuple[str, ...] = ()
    part: str = "test"
    limit: int | None = None
    protocol: str = "one_random"
    k: int = 10
    seed: int = 0
    root: str | None = None
    classes: str | None = None
    exclude_classes: tuple[str, ...] = ()
    baseline: str | None = None
    input: ModelInput = field(default_factory=ModelInput)
    strict: bool = False

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("evaluate takes at least one run or model; got none.")
        for name in ("on", "severities", "anomalies"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or (name != "anomalies" and not values):
                raise InputError(f"{name} takes different values; got {list(values)}.")
        for severity in self.severities:
            if severity not in range(1, 6):
                raise InputError(f"severities are 1 to 5; got {severity}.")
        for name in ("limit", "k"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} is at least 1; got {value}.")
        if self.part not in PARTS:
            raise unknown("part of the data", self.part, PARTS)
        by_name = ("clean", *corruptions.SUITES, *corruptions.NAMES, *published.SHIFTS)
        by_path = (*STORED_SUITES, *SOURCES)
        for benchmark in self.on:
            kind, _, path = benchmark.partition(":")
            if benchmark not in by_name and not (kind in by_path and path):
                raise unknown("benchmark", benchmark, [*by_name, *(f"{kind}:PATH" for kind in by_path)])
