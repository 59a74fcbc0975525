"""Augmentation: batches of uint8 images cropped and mirrored in memory, and policies by name, one draw an image.

A policy is written as its parts in order, joined by +, each with its parameters or without:
`crop_flip+randaugment(magnitude=12)+random_erasing(p=0.25)+mixup(alpha=0.8)+cutmix`.

What may enter: policies that change the input of training, and what they are written with.
"""

from anchored.augment.fractals import fractals
from anchored.augment.pictures import Pictures
from anchored.augment.pipeline import Pipeline, repeated
from anchored.augment.pixmix import mixing_images
from anchored.augment.spec import AUGMENTATIONS, Policy, parse, without_flips

__all__ = [
    "AUGMENTATIONS",
    "Pictures",
    "Pipeline",
    "Policy",
    "fractals",
    "mixing_images",
    "parse",
    "repeated",
    "without_flips",
]
