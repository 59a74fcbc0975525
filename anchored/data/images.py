"""From a picture of any kind to uint8 RGB of the size the network takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def to_rgb(image: Image.Image) -> Image.Image:
    """The picture as RGB: EXIF rotation applied, transparency on white, 16-bit grey scaled to 8."""
    if image.getexif().get(0x0112, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16") or image.mode == "I":
        return Image.fromarray((np.asarray(image, dtype=np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def fit(image: Image.Image, size: int | None, interpolation: str = "bilinear", crop: float = 1.0) -> NDArray[np.uint8]:
    """uint8 [size, size, 3]: shorter side resized to size / crop, size x size cut from the centre.

    A picture that has the size already is left as it is, pixel for pixel; size None keeps any picture so.
    """
    image = to_rgb(image)
    if size is None or image.size == (size, size):
        return np.array(image)
    side = max(size, round(size / crop))
    width, height = image.size
    scale = side / min(width, height)
    target = (max(side, round(width * scale)), max(side, round(height * scale)))
    image = image.resize(target, _FILTERS[interpolation])
    left, top = (target[0] - size) // 2, (target[1] - size) // 2
    return np.array(image.crop((left, top, left + size, top + size)))
