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
        # Repeated over a row of pixels: arithmetic along three channels alone is six times slower on a CPU.
        width = images.shape[2]
        self.scale, self.offset = (1 / (255 * std_)).repeat(width), (mean_ / std_).repeat(width)
        self._epoch: int | None = None
        self._rows = self._columns = torch.empty(0)
        self._flips = torch.empty(0)

    def plain(self, indices: Tensor) -> Tensor:
        """The images at `indices` (int64 [B]), normalised only."""
        # Not images[indices]: that visits bytes one by one, this copies whole images (ten times faster on a CPU).
        return self._normalise(self.images.index_select(0, indices))

    def train(self, indices: Tensor, epoch: int) -> Tensor:
        """The images at `indices` (int64 [B]), augmented for `epoch` and normalised."""
        if self.augment == "none":
            return self.plain(indices)
        if epoch != self._epoch:
            self._draw(epoch)
        if self.augment == "crop":
            return self._normalise(self._crops(indices))
        # Mirrored images behind the others, so that one flip does them all; then back to the order asked for.
        flips = self._flips[indices]
        order = flips.to(torch.uint8).argsort(stable=True)
        straight = len(indices) - int(flips.sum())
        crops = self._crops(indices[order])
        crops = torch.cat([crops[:straight], crops[straight:].flip(2)])
        return self._normalise(crops.index_select(0, order.argsort()))

    def _crops(self, indices: Tensor) -> Tensor:
        """uint8 [B, H, W, 3]: a crop of each padded image at its place of the epoch."""
        n, pad = len(indices), self.pad
        height, width = self.images.shape[1:3]
        tall, wide = height + 2 * pad, width + 2 * pad
        padded = self.images.new_zeros(n, tall, wide, 3)
        padded[:, pad : pad + height, pad : pad + width] = self.images.index_select(0, indices)
        # A crop is `height` runs of `width` pixels. Seen as all the runs there are, overlapping, the padded images
        # give theirs by plain copies of memory.
        runs = padded.as_strided((n * tall * wide - width + 1, 3 * width), (3, 1))
        first = torch.arange(n, device=indices.device) * tall + self._rows[indices]
        rows = first[:, None] + torch.arange(height, device=indices.device)
        places = rows * wide + self._columns[indices, None]
        return runs.index_select(0, places.view(-1)).view(n, height, width, 3)

    def _draw(self, epoch: int) -> None:
        stream = generator(self.seed, "augment", epoch)
        n, device = len(self.images), self.images.device
        self._rows = torch.randint(2 * self.pad + 1, (n,), generator=stream).to(device)
        self._columns = torch.randint(2 * self.pad + 1, (n,), generator=stream).to(device)
        self._flips = (torch.rand(n, generator=stream) < 0.5).to(device)
        self._epoch = epoch

    def _normalise(self, images: Tensor) -> Tensor:
        flat = images.flatten(2).float()
        return flat.mul_(self.scale).sub_(self.offset).view(images.shape).permute(0, 3, 1, 2)
