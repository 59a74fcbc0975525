"""What one run is: every setting that decides its result, declared with its rule and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anchored.arms.recipe import Recipe
from anchored.arms.setting import ANCHORED, MASKING, METHODS, check, declared, setting


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of one run, apart from the images themselves.

    masked_bn: "skip" keeps masked batches out of the running statistics of batch normalisation, which inference on
    unmasked tuples uses; "update" lets them in (as the paper's code does). recalibrate_bn: training images used to
    estimate those statistics again after training, on unmasked tuples; 0 keeps them. references: size of the reference
    set, None for the whole training set. select: the network of the "last" epoch, or of the one with the best "top1" or
    "nll" on the validation split of the training data. arm: what the run is called with its seed, by default its
    method. Raises InputError for a value against its rule.
    """

    method: str = setting(help=", ".join(METHODS), of="method", choices=METHODS, given=True, flag=False)
    model: str = setting(
        help="resnet9, resnet18, wrn40_2, timm:NAME, torchvision:NAME, hf:NAME or package.module:callable",
        of="training",
        flag=False,
    )
    recipe: Recipe = setting(help="a recipe by name, a run, or a YAML file of fields", of="training", flag=False)
    seed: int = setting(help="of everything random", of="training", flag=False)
    weights: str = setting(
        "none", help="none, default (the library's pretrained ones) or a PATH", of="training", flag=False
    )
    masked_target: str = setting(
        "uniform",
        help="target of masked batches: uniform or label",
        of="method",
        choices=("uniform", "label"),
        methods=MASKING,
        hashed=True,
        flag=False,
    )
    schedule: str = setting(
        "bernoulli",
        help="which batches are masked: bernoulli or periodic",
        of="method",
        choices=("bernoulli", "periodic"),
        methods=MASKING,
        without="none",
        given=True,
        hashed=True,
    )
    masked_bn: str = setting(
        "skip",
        help="masked batches update or skip the running statistics of batch norm",
        of="method",
        choices=("update", "skip"),
        methods=MASKING,
        hashed=True,
    )
    recalibrate_bn: int = setting(
        0,
        help="training images to estimate batch norm on again after training",
        of="method",
        holds=lambda value: value >= 0,
        rule="counts training images, 0 for none",
        without=0,
        hashed=True,
    )
    reference_source: str = setting(
        "set",
        help="references in training: set or batch",
        of="method",
        choices=("set", "batch"),
        methods=ANCHORED,
        hashed=True,
    )
    references: int | None = setting(
        None,
        help="size of the reference set (all training images)",
        of="method",
        holds=lambda value: value >= 1,
        rule="is at least 1",
        methods=ANCHORED,
        without=0,
        hashed=True,
    )
    mask_until: float = setting(
        1.0,
        help="part of training, from its start, in which batches are masked",
        of="method",
        holds=lambda value: 0 < value <= 1,
        rule="is the part of training in which batches are masked, in (0, 1]",
        methods=MASKING,
    )
    precision: str = setting(
        "bfloat16",
        help="bfloat16 (autocast, where the device computes in it), float16 (with a scaled loss) or float32",
        of="training",
        choices=("bfloat16", "float16", "float32"),
        hashed=True,
    )
    select: str = setting(
        "last",
        help="the network of the last epoch, or of the best by top1 or nll on that part",
        of="training",
        choices=("last", "top1", "nll"),
        hashed=True,
    )
    arm: str = ""

    def __post_init__(self) -> None:
        check(self)

    @property
    def anchored(self) -> bool:
        """Whether the network takes references."""
        return self.method != "standard"

    @property
    def alpha(self) -> float:
        """The rate of masked batches: the recipe's for masking, else 0."""
        return self.recipe.alpha if self.method == "masking" else 0.0

    @property
    def arm_name(self) -> str:
        """The name of its arm: `arm`, or the one that its method has by default."""
        return self.arm or default_name(self.method, self.masked_target)

    @property
    def run(self) -> str:
        """The name of the run in a comparison."""
        return f"{self.arm_name}-seed{self.seed}"

    def columns(self) -> dict[str, Any]:
        """What a row says of the method: a column for each of its settings."""
        found = {
            field.name: getattr(self, field.name) if its.given or self.method in its.methods else its.without
            for field, its in declared(self)
            if its.of == "method"
        }
        return {**found, "alpha": self.alpha}


def default_name(method: str, masked_target: str | None) -> str:
    """What an arm is called that has no name of its own: `standard`, `vanilla`, `masking-uniform` ..."""
    return f"{method}-{masked_target}" if method == "masking" and masked_target else method


def unknown_columns() -> dict[str, Any]:
    """`RunConfig.columns` of a model that was not trained here, as far as anyone knows."""
    found = {field.name: its.without for field, its in declared(RunConfig) if its.of == "method"}
    return {**found, "method": "standard", "alpha": 0.0}
