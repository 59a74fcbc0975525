"""Number formats: half precision keeps three digits, too few to rank or to threshold by."""

from __future__ import annotations

from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """`values` in float32 if they are in half precision or any other format of fewer bytes, else as they are."""
    return values.float() if values.dtype.itemsize < 4 else values
