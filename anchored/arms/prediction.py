"""How an arm predicts."""

from __future__ import annotations

from dataclasses import dataclass

from anchored.arms.setting import ANCHORED, at_least_1, check, setting
from anchored.method.protocols import PROTOCOLS


@dataclass(frozen=True)
class PredictionSettings:
    """The inference protocol of an arm; arms that are not anchored have none and are called directly.

    k: references of k_random, candidates of transduction. Raises InputError for a value against its rule.
    """

    protocol: str = setting(
        "one_random",
        help=", ".join(PROTOCOLS),
        of="prediction",
        choices=tuple(PROTOCOLS),
        methods=ANCHORED,
        hashed=True,
    )
    k: int = setting(
        10,
        help="references of k_random, candidates of transduction (10)",
        of="prediction",
        holds=at_least_1,
        rule="is at least 1",
        methods=ANCHORED,
        hashed=True,
    )

    def __post_init__(self) -> None:
        check(self)
