"""One arm on one measure, and the difference of two arms, with what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True)
class Stat:
    """One arm on one measure. `std` is over seeds (sample), None with one; `n` images a cell (smallest)."""

    values: Mapping[int, float]  # by seed
    n: int
    n_other: int

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    @property
    def std(self) -> float | None:
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else None

    @property
    def seeds(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Delta:
    """One arm minus another on one measure, over the seeds that both have.

    `over_images`: bootstrap interval over test images, paired; None where no scores were given.
    `over_seeds`: Student's t interval over the per-seed differences; None with fewer than two seeds. With so few that
    it reaches beyond the `possible` differences, it ends there.
    """

    values: Mapping[int, float]
    over_images: Interval | None = None
    possible: Interval = (-np.inf, np.inf)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    @property
    def over_seeds(self) -> Interval | None:
        count = len(self.values)
        if count < 2:
            return None
        error = float(np.std(list(self.values.values()), ddof=1)) / count**0.5
        reach = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
        return max(self.mean - reach, self.possible[0]), min(self.mean + reach, self.possible[1])

    @property
    def interval(self) -> Interval | None:
        """The interval that a claim rests on: from the lower to the upper end of those over seeds and over images.

        A claim is about other seeds and other images; two seeds that agree by chance have no spread at all.
        """
        found = [interval for interval in (self.over_seeds, self.over_images) if interval is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None
