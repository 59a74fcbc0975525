"""From a picture of any kind to uint8 RGB of the size the network takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from anchored.data.base import INTERPOLATIONS

ORIENTATION = 0x0112  # the EXIF tag
MAX_RATIO = 16  # of the sides of a picture that is resized as a whole
_FILTERS = {name: Image.Resampling[name.upper()] for name in INTERPOLATIONS}


def to_rgb(image: Image.Image) -> Image.Image:
    """The picture as RGB: EXIF rotation applied, transparency on white, 16-bit grey divided by 256.

    Of an animation the first frame. Raises ValueError for floating-point pixels, which have no fixed range.
    """
    image = _upright(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image).convert("RGB")
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        # As Pillow does with 16-bit colour; its own conversion of 16-bit grey clips everything above 255.
        high = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255)
        return Image.fromarray(high.astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels")
    return image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    try:
        turned = image.getexif().get(ORIENTATION, 1) != 1
        return ImageOps.exif_transpose(image) if turned else image
    except Exception:  # broken metadata of a sound picture, which Pillow reports in many ways
        image.load()
        return image


def fit(image: Image.Image, size: int | None, interpolation: str = "bilinear", crop: float = 1.0) -> NDArray[np.uint8]:
    """uint8 [size, size, 3]: shorter side resized to round(size / crop), size x size cut from the centre.

    A picture that has the size already is left as it is, pixel for pixel; size None keeps any picture so. The rule
    looks at one picture alone, so that a picture is seen in the same way in training and in prediction.
    """
    image = to_rgb(image)
    if size is None or image.size == (size, size):
        return np.array(image)
    side = max(size, round(size / crop))
    image = _centre(image, MAX_RATIO * min(image.size))  # what the final cut would drop may be too large to resize
    width, height = image.size
    scale = side / min(width, height)
    target = (max(side, round(width * scale)), max(side, round(height * scale)))
    image = image.resize(target, _FILTERS[interpolation])
    return np.array(_centre(image, size))


def _centre(image: Image.Image, side: int) -> Image.Image:
    """The centre of the picture, no side longer than `side`."""
    width, height = (min(side, whole) for whole in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height)) if (width, height) != image.size else image
