"""Corruptions of images: the 19 of -C and the 15 of C-bar, batched, for uint8 images of any size.

What may enter: corruptions, their tables of strengths, and corrupted copies of data sets on disk.
"""

from anchored.corruptions.api import NAMES, SUITES, corrupt, source, suite

__all__ = ["NAMES", "SUITES", "corrupt", "source", "suite"]
