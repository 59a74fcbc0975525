"""digits: scikit-learn's 1,797 handwritten digits of 8x8 grey pixels, embedded there, enlarged to 32x32 RGB."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from anchored.data.base import Data, ImageSet, Options
from anchored.data.splits import stratified

SPEC = "digits"
SIDE = 32
LEVELS = 16  # the grey of a digit is an integer from 0 to 16


def enlarge(grey: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """uint8 [N, size, size, 3] of 8x8 images [N, 8, 8] with grey from 0 to 16 (bilinear)."""
    scaled = np.rint(grey * (255 / LEVELS)).astype(np.uint8)
    images = [np.array(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)) for image in scaled]
    return np.repeat(np.stack(images)[..., None], 3, axis=3)


def load(path: str, options: Options) -> Data:
    """The digits, 75 % for training; the split is the same for every seed, so that results compare."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(enlarge(digits.images.astype(np.uint8), options.size or SIDE))
    everything = ImageSet(images, torch.from_numpy(digits.target.astype(np.int64)))
    test, train = stratified(everything.labels, 0.25, seed=0)
    return Data(
        "digits",
        everything.subset(train),
        everything.subset(test),
        tuple(str(name) for name in digits.target_names),
        flip=False,
        split="stratified 75 / 25 of scikit-learn's digits, seed 0",
    )
