"""Augmentation in memory: crop, flip and normalise whole batches of uint8 images where they lie."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anchored.errors import unknown
from anchored.rng import generator

AUGMENTATIONS = ("none", "crop", "crop_flip")


class Pipeline:
    """Batches of normalised images [B, 3, H, W] (float32, channels_last) from uint8 images [N, H, W, 3].

    mean, std: per channel, in units of [0, 1]. augment: "none", "crop" (a crop at a random offset of the image
    padded by an eighth of its side with black) or "crop_flip" (and mirrored with probability 1/2). What happens to
    an image depends on (seed, epoch, its index) only, never on the batch it is in.
    """

    def __init__(
        self, images: Tensor, mean: Sequence[float], std: Sequence[float], augment: str = "none", seed: int = 0
    ) -> None:
        if augment not in AUGMENTATIONS:
            raise unknown("augmentation", augment, AUGMENTATIONS)
        self.images = images
        self.augment = augment
        self.seed = seed
        self.pad = images.shape[1] // 8
        mean_, std_ = (torch.tensor(values, device=images.device) for values in (mean, std))
        self.scale, self.offset = 1 / (255 * std_), mean_ / std_
        self._epoch: int | None = None
        self._rows = self._columns = torch.empty(0)
        self._flips = torch.empty(0)

    def plain(self, indices: Tensor) -> Tensor:
        """The images at `indices` (int64 [B]), normalised only."""
        return self._normalise(self.images[indices])

    def train(self, indices: Tensor, epoch: int) -> Tensor:
        """The images at `indices` (int64 [B]), augmented for `epoch` and normalised."""
        if self.augment == "none":
            return self.plain(indices)
        if epoch != self._epoch:
            self._draw(epoch)
        n, height, width = len(indices), self.images.shape[1], self.images.shape[2]
        pad = self.pad
        padded = self.images.new_zeros(n, height + 2 * pad, width + 2 * pad, 3)
        padded[:, pad : pad + height, pad : pad + width] = self.images[indices]
        rows = self._rows[indices, None] + torch.arange(height, device=indices.device)
        columns = self._columns[indices, None] + torch.arange(width, device=indices.device)
        if self.augment == "crop_flip":
            columns = torch.where(self._flips[indices, None], columns.flip(1), columns)
        # One gather of whole pixels: cropping and mirroring are both a choice of rows and columns.
        pixel = (rows * padded.shape[2])[:, :, None] + columns[:, None, :]
        pixel += (torch.arange(n, device=indices.device) * (padded.shape[1] * padded.shape[2]))[:, None, None]
        return self._normalise(padded.view(-1, 3)[pixel.view(-1)].view(n, height, width, 3))

    def _draw(self, epoch: int) -> None:
        stream = generator(self.seed, "augment", epoch)
        n, device = len(self.images), self.images.device
        self._rows = torch.randint(2 * self.pad + 1, (n,), generator=stream).to(device)
        self._columns = torch.randint(2 * self.pad + 1, (n,), generator=stream).to(device)
        self._flips = (torch.rand(n, generator=stream) < 0.5).to(device)
        self._epoch = epoch

    def _normalise(self, images: Tensor) -> Tensor:
        return (images * self.scale).sub_(self.offset).permute(0, 3, 1, 2)
