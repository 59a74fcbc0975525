"""Which images an arm trains on, of those that the data set has for training, and with which labels."""

from __future__ import annotations

from dataclasses import dataclass

from anchored.arms.setting import at_least_1, check, setting
from anchored.system.errors import InputError


@dataclass(frozen=True)
class TrainingData:
    """The part of the training images that is used, and what is done to their labels.

    A file of `labels` counts all images; then come train_limit, label_noise and the validation split, in this order.
    Raises InputError for a value against its rule.
    """

    train_limit: int | None = setting(
        None,
        help="at most this many training images (seeded, stratified)",
        of="data",
        holds=at_least_1,
        rule="is at least 1",
        hashed=True,
    )
    val_fraction: float = setting(
        0.0,
        help="part of the training data held out for validation",
        of="data",
        holds=lambda value: 0 <= value < 1,
        rule="is the part of the training data held out, in [0, 1)",
        hashed=True,
    )
    label_noise: float = setting(
        0.0,
        help="part of the training labels changed to another class",
        of="data",
        holds=lambda value: 0 <= value <= 1,
        rule="is the part of the training labels that is changed, in [0, 1]",
        hashed=True,
    )
    labels: str | None = setting(
        None, help="a file of training labels instead of the data's: FILE or FILE:key", of="data", hashed=True
    )

    def __post_init__(self) -> None:
        check(self)
        if self.labels is not None and self.label_noise:
            raise InputError("labels are made noisy or given, not both: leave out --labels or --label-noise.")
