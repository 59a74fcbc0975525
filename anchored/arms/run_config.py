"""What one run is: its settings."""

from __future__ import annotations

from dataclasses import dataclass

from anchored.arms.recipe import Recipe
from anchored.system.errors import InputError

METHODS = ("standard", "vanilla", "masking")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of one run, apart from the images themselves.

    method: standard | vanilla | masking. masked_target: uniform | label (masking only). masked_bn: "skip" keeps
    masked batches out of the running statistics of batch normalisation, which inference on unmasked tuples uses;
    "update" lets them in (as the paper's code does). recalibrate_bn: training images used to estimate those
    statistics again after training, on unmasked tuples; 0 keeps them. references: size of the reference set, None
    for the whole training set. select: the network of the "last" epoch, or of the one with the best
    "top1" or "nll" on the validation split of the training data.
    """

    method: str
    model: str
    recipe: Recipe
    seed: int
    weights: str = "none"
    masked_target: str = "uniform"
    schedule: str = "bernoulli"
    masked_bn: str = "skip"
    recalibrate_bn: int = 0
    reference_source: str = "set"
    references: int | None = None
    precision: str = "bfloat16"
    select: str = "last"

    def __post_init__(self) -> None:
        choices = {
            "method": METHODS,
            "masked_target": ("uniform", "label"),
            "schedule": ("bernoulli", "periodic"),
            "masked_bn": ("update", "skip"),
            "reference_source": ("set", "batch"),
            "precision": ("bfloat16", "float16", "float32"),
            "select": ("last", "top1", "nll"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name.replace('_', '-')} is one of {', '.join(allowed)}; got {getattr(self, name)!r}."
                )
        if self.recalibrate_bn < 0:
            raise InputError(f"recalibrate-bn counts training images, 0 for none; got {self.recalibrate_bn}.")

    @property
    def anchored(self) -> bool:
        """Whether the network takes references."""
        return self.method != "standard"

    @property
    def alpha(self) -> float:
        """The rate of masked batches: the recipe's for masking, else 0."""
        return self.recipe.alpha if self.method == "masking" else 0.0

    @property
    def variant(self) -> str:
        """`standard`, `vanilla`, `masking-uniform` or `masking-label`."""
        return f"masking-{self.masked_target}" if self.method == "masking" else self.method

    @property
    def run(self) -> str:
        """The name of the run in a comparison."""
        return f"{self.variant}-seed{self.seed}"
