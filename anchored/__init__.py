"""Train image classifiers on (reference, residual) tuples, and find out whether it helped."""

from anchored.core import Anchored, anchor, anchored_loss, fold
from anchored.metrics import energy, smooth_ece
from anchored.protocols import Predict, Prediction, direct, k_random, one_random, transduction
from anchored.references import Anchoring, ReferenceSet

__all__ = [
    "Anchored",
    "Anchoring",
    "Predict",
    "Prediction",
    "ReferenceSet",
    "anchor",
    "anchored_loss",
    "direct",
    "energy",
    "fold",
    "k_random",
    "one_random",
    "smooth_ece",
    "transduction",
]

__version__ = "0.1.0"
