"""From a picture to what the network expects; it travels with the run so that nobody normalises twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preprocess:
    """Resize the shorter side to size / crop, crop size x size from the centre, normalise.

    mean, std: per channel, in units of [0, 1]. Called on uint8 [N, size, size, 3] (already resized and cropped)
    it gives float32 [N, 3, size, size], normalised, channels_last in memory.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bilinear"
    crop: float = 1.0
    batched: ClassVar[bool] = True

    def __call__(self, images: Tensor) -> Tensor:
        # Constants repeated along a row make long vectors of the innermost loop: the same bits, several times faster.
        n, height, width, _ = images.shape
        std = torch.tensor(self.std, device=images.device)
        scale = (1 / (255 * std)).repeat(width)
        offset = (torch.tensor(self.mean, device=images.device) / std).repeat(width)
        rows = images.reshape(n, height, width * 3)
        return (rows * scale).sub_(offset).view(n, height, width, 3).permute(0, 3, 1, 2)

    def inverse(self, x: Tensor) -> Tensor:
        """uint8 [N, H, W, 3] of normalised images [N, 3, H, W] (rounded, clipped)."""
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        return ((x.permute(0, 2, 3, 1) * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)

    def __str__(self) -> str:
        crop = "" if self.crop == 1 else f" of {round(self.size / self.crop)} (centre)"
        mean, std = (" ".join(f"{value:.4f}" for value in values) for values in (self.mean, self.std))
        return f"{self.size} px{crop}, {self.interpolation}, mean {mean}, std {std}"
