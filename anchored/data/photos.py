"""photos: crops of the two photographs that come with scikit-learn, an anomaly set that is always at hand."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from anchored.data.base import Data, ImageSet
from anchored.data.digits import enlarge
from anchored.rng import generator

COUNT = 500


def load(like: Data, size: int) -> ImageSet:
    """500 crops (uint8 [500, size, size, 3], labels -1) at seeded places of the two photographs.

    For digits: 8x8 crops in grey, enlarged just as the digits are, so that neither colour nor sharpness tells.
    """
    photos = load_sample_images().images
    side = 8 if like.name == "digits" else size
    stream = generator(0, "photos")
    crops = []
    for number in range(COUNT):
        photo = Image.fromarray(photos[number % 2])
        if min(photo.size) < side:
            scale = side / min(photo.size)
            photo = photo.resize((round(photo.width * scale) + 1, round(photo.height * scale) + 1))
        left = int(torch.randint(photo.width - side + 1, (), generator=stream))
        top = int(torch.randint(photo.height - side + 1, (), generator=stream))
        crops.append(photo.crop((left, top, left + side, top + side)))
    if like.name == "digits":
        images = enlarge(np.stack([np.array(crop.convert("L")) for crop in crops]), size)
    else:
        images = np.stack([np.array(crop) for crop in crops])
    return ImageSet(torch.from_numpy(images), torch.full((COUNT,), -1, dtype=torch.int64))
