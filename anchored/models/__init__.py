"""Names to classifiers, with their weights and the input that they want.

What may enter: where a network comes from. What is done with it (anchoring, training) stays outside.
"""

from anchored.models.by_name import create
from anchored.models.libraries import Model
from anchored.models.ours import OURS, resnet9, resnet18, wrn40_2

__all__ = ["OURS", "Model", "create", "resnet9", "resnet18", "wrn40_2"]
