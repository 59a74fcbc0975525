"""Train image classifiers on (reference, residual) tuples, and find out whether it helped."""

from anchored.arms.arm import Arm
from anchored.corruptions import corrupt
from anchored.evaluation.metrics import energy, smooth_ece
from anchored.evaluation.robustness import effective_robustness
from anchored.method.core import Anchored, anchor, anchored_loss, fold
from anchored.method.protocols import Predict, Prediction, direct, k_random, one_random, transduction
from anchored.method.references import Anchoring, ReferenceSet
from anchored.runs.export import export
from anchored.runs.run import Run, load, save
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

__all__ = [
    "Anchored",
    "Anchoring",
    "Arm",
    "InputError",
    "Predict",
    "Prediction",
    "Preprocess",
    "ReferenceSet",
    "Run",
    "anchor",
    "anchored_loss",
    "corrupt",
    "direct",
    "effective_robustness",
    "energy",
    "export",
    "fold",
    "k_random",
    "load",
    "one_random",
    "save",
    "smooth_ece",
    "transduction",
]

__version__ = "0.1.0"
