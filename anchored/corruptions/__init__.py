"""Corruptions of images: the 19 of -C, batched, for uint8 images of any size."""

from anchored.corruptions.api import NAMES, corrupt, source, suite

__all__ = ["NAMES", "corrupt", "source", "suite"]
