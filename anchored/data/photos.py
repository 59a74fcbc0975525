"""photos: crops of the two photographs that come with scikit-learn, an anomaly set that is always at hand."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from anchored.data.base import Data, ImageSet, unlabelled
from anchored.data.digits import LEVELS, enlarge
from anchored.rng import generator

COUNT = 500


def load(like: Data, size: int) -> ImageSet:
    """500 crops (uint8 [500, size, size, 3], labels -1) at places of the two photographs that never change.

    For digits: 8x8 crops with as many levels of grey, enlarged just as the digits are, so that neither colour nor
    sharpness tells them apart.
    """
    from sklearn.datasets import load_sample_images

    side = 8 if like.name == "digits" else size
    photos = [_at_least(Image.fromarray(photo), side) for photo in load_sample_images().images]
    stream = generator(0, "photos")
    crops = []
    for number in range(COUNT):
        photo = photos[number % 2]
        left = int(torch.randint(photo.width - side + 1, (), generator=stream))
        top = int(torch.randint(photo.height - side + 1, (), generator=stream))
        crops.append(photo.crop((left, top, left + side, top + side)))
    if like.name != "digits":
        return unlabelled(torch.from_numpy(np.stack([np.array(crop) for crop in crops])))
    grey = np.stack([np.array(crop.convert("L")) for crop in crops])
    return unlabelled(torch.from_numpy(enlarge(np.rint(grey * (LEVELS / 255)).astype(np.uint8), size)))


def _at_least(photo: Image.Image, side: int) -> Image.Image:
    scale = side / min(photo.size)
    if scale <= 1:
        return photo
    return photo.resize((max(side, round(photo.width * scale)), max(side, round(photo.height * scale))))
