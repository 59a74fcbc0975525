"""digits: scikit-learn's 1,797 handwritten digits of 8x8 grey pixels, embedded there, enlarged to 32x32 RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from anchored.data.base import Data, ImageSet
from anchored.data.splits import stratified

SIDE = 32


def enlarge(grey: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """uint8 [N, size, size, 3] of grey 8x8 images [N, 8, 8] (bilinear)."""
    images = [Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR) for image in grey]
    return np.repeat(np.stack([np.array(image) for image in images])[..., None], 3, axis=3)


def load(path: str, *, size: int | None = None, **_: Any) -> Data:
    """The digits, 70 % for training; the split is the same for every seed, so that results compare."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    everything = ImageSet(
        torch.from_numpy(enlarge(grey, size or SIDE)), torch.from_numpy(digits.target.astype(np.int64))
    )
    test, train = stratified(everything.labels, 0.3, seed=0)
    return Data(
        "digits",
        everything.subset(train),
        everything.subset(test),
        tuple(str(name) for name in digits.target_names),
        flip=False,
        split="stratified 70 / 30 of scikit-learn's digits, seed 0",
    )
