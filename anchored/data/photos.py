"""photos: crops of the two photographs that come with scikit-learn, an anomaly set that is always at hand."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from anchored.data.base import Data, ImageSet, unlabelled
from anchored.data.digits import LEVELS, enlarge
from anchored.system.rng import generator

COUNT = 500
CONTRAST = 64  # levels of 255 from the darkest to the brightest: most small crops are plain sky or shadow


def load(like: Data, size: int) -> ImageSet:
    """500 crops (uint8 [500, size, size, 3], labels -1) at places of the two photographs that never change.

    Places without contrast are passed over.

    For digits: 8x8 crops with as many levels of grey, enlarged just as the digits are, so that neither colour nor
    sharpness tells them apart.
    """
    from sklearn.datasets import load_sample_images

    side = 8 if like.name == "digits" else size
    photos = [_at_least(Image.fromarray(photo), side) for photo in load_sample_images().images]
    stream = generator(0, "photos")
    crops: list[NDArray[np.uint8]] = []
    while len(crops) < COUNT:
        photo = photos[len(crops) % 2]
        left = int(torch.randint(photo.width - side + 1, (), generator=stream))
        top = int(torch.randint(photo.height - side + 1, (), generator=stream))
        crop = photo.crop((left, top, left + side, top + side)).convert("L" if like.name == "digits" else "RGB")
        levels = np.array(crop)
        if int(levels.max()) - int(levels.min()) >= CONTRAST:
            crops.append(levels)
    if like.name != "digits":
        return unlabelled(torch.from_numpy(np.stack(crops)))
    grey = np.rint(np.stack(crops) * (LEVELS / 255)).astype(np.uint8)
    return unlabelled(torch.from_numpy(enlarge(grey, size)))


def _at_least(photo: Image.Image, side: int) -> Image.Image:
    scale = side / min(photo.size)
    if scale <= 1:
        return photo
    return photo.resize((max(side, round(photo.width * scale)), max(side, round(photo.height * scale))))
