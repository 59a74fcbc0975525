"""The pipeline from stored images to training batches: cropped and normalised whole, policies image by image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from anchored.augment import spec
from anchored.augment.pictures import Pictures, drawing
from anchored.system.errors import InputError
from anchored.system.rng import generator


class Pipeline:
    """Batches of normalised images [B, 3, H, W] (float32, channels_last) from uint8 images [N, H, W, 3].

    mean, std: per channel, in units of [0, 1]. augment: a policy of `anchored.augment.parse`, e.g. "none", "crop" (a
    crop at a random offset of the image padded by an eighth of its side with black), "crop_flip" (and mirrored with
    probability 1/2) or "crop_flip+trivialaugment+mixup(alpha=0.2)". What happens to an image depends on (seed, epoch,
    its index, repeat) only, never on the batch it is in; mixing a batch depends on (seed, step) and the batch.
    repeats: how often an image may be seen in an epoch, each time changed differently. classes: how many there are,
    for mixup and cutmix. interpolation: of what turns, shears and resizes. Raises InputError for a bad policy.
    """

    def __init__(
        self,
        images: Tensor,
        mean: Sequence[float],
        std: Sequence[float],
        augment: str = "none",
        seed: int = 0,
        *,
        repeats: int = 1,
        classes: int | None = None,
        interpolation: str = "bilinear",
    ) -> None:
        self.policy = spec.parse(augment)
        if self.policy.mixing and (classes is None or classes < 2):
            raise InputError(f"mixup and cutmix need the number of classes, at least 2; got {classes}.")
        self.images = images
        self.augment = augment
        self.seed = seed
        self.repeats = repeats
        height, width = images.shape[1:3]
        self.pad = height // 8
        mean_, std_ = (torch.tensor(values, device=images.device) for values in (mean, std))
        # Repeated over a row of pixels: arithmetic along three channels alone is six times slower on a CPU.
        self.scale, self.offset = (1 / (255 * std_)).repeat(width), (mean_ / std_).repeat(width)
        self.pictures = Pictures(self.policy, (height, width), seed=seed, interpolation=interpolation)
        self._mixers = [_mixer(part, classes) for part in self.policy.mixing]
        self._erasing = self.policy.erasing and _eraser(self.policy.erasing)
        self._epoch: int | None = None
        self._rows = self._columns = torch.empty(0)
        self._flips = torch.empty(0)

    def plain(self, indices: Tensor) -> Tensor:
        """The images at `indices` (int64 [B]), normalised only."""
        # Not images[indices]: that visits bytes one by one, this copies whole images (ten times faster on a CPU).
        return self._normalise(self.images.index_select(0, indices))

    def train(self, indices: Tensor, epoch: int, repeat: Tensor | None = None) -> Tensor:
        """The images at `indices` (int64 [B]), augmented for `epoch` and normalised.

        repeat: int64 [B] in [0, repeats), which of its appearances in the epoch this is; None: the first.
        """
        pictures = self._cropped(indices, epoch, repeat)
        if self.policy.pictures or self.pictures.resized:
            pictures = self._changed(pictures, indices, epoch, repeat)
        return self.finish(pictures, indices, epoch, repeat)

    def finish(self, pictures: Tensor, indices: Tensor, epoch: int, repeat: Tensor | None = None) -> Tensor:
        """uint8 [B, H, W, 3], cropped and changed, as the network takes them: normalised, then erased in places.

        What is left to do with pictures that come from workers (`Pictures`). Erased is set to 0, the mean colour.
        """
        x = self._normalise(pictures)
        if self._erasing:
            for image, index, again in zip(x, indices.tolist(), _counts(indices, repeat), strict=True):
                with drawing(self.seed, "erase", epoch, index, again):
                    self._erasing(image)
        return x

    def mix(self, x: Tensor, y: Tensor, step: int, block: int | None = None) -> tuple[Tensor, Tensor]:
        """x [B, 3, H, W] and labels y (int64 [B]) mixed by mixup or cutmix: probabilities [B, classes] for y.

        Where the policy has both, one of them at random, as likely each; one draw a batch, from (seed, step), the same
        on every rank. Each image is mixed with the one before it, within blocks of `block` images (None: the batch), so
        that one process can do what several do with a batch of that size each. Without mixing: x and y as they are.
        """
        if not self._mixers:
            return x, y
        blocks = [
            self._mixed(*part, step) for part in zip(x.split(block or len(x)), y.split(block or len(y)), strict=True)
        ]
        images, labels = zip(*blocks, strict=True)
        return torch.cat(images).contiguous(memory_format=torch.channels_last), torch.cat(labels)

    def _mixed(self, x: Tensor, y: Tensor, step: int) -> tuple[Tensor, Tensor]:
        with drawing(self.seed, "mix", step) as stream:
            chosen = int(torch.randint(len(self._mixers), (), generator=stream)) if len(self._mixers) > 1 else 0
            return self._mixers[chosen](x, y)

    def _cropped(self, indices: Tensor, epoch: int, repeat: Tensor | None) -> Tensor:
        """uint8 [B, H, W, 3] after the crops and mirrors that are done in memory."""
        if not isinstance(self.policy.geometry, spec.Crop):
            return self.images.index_select(0, indices)
        if epoch != self._epoch:
            self._draw(epoch)
        draws = indices if repeat is None else indices + repeat * len(self.images)
        if not self.policy.flips:
            return self._crops(indices, draws)
        # Mirrored images behind the others, so that one flip does them all; then back to the order asked for.
        flips = self._flips[draws]
        order = flips.to(torch.uint8).argsort(stable=True)
        straight = len(indices) - int(flips.sum())
        crops = self._crops(indices[order], draws[order])
        crops = torch.cat([crops[:straight], crops[straight:].flip(2)])
        return crops.index_select(0, order.argsort())

    def _changed(self, pictures: Tensor, indices: Tensor, epoch: int, repeat: Tensor | None) -> Tensor:
        """uint8 [B, H, W, 3] after the policy's picture part, one by one on the CPU."""
        changed = np.empty(pictures.shape, np.uint8)
        keys = zip(pictures.cpu().numpy(), indices.tolist(), _counts(indices, repeat), strict=True)
        for position, (picture, index, again) in enumerate(keys):
            changed[position] = self.pictures.change(picture, index, epoch, again)
        return torch.from_numpy(changed).to(pictures.device)

    def _crops(self, indices: Tensor, draws: Tensor) -> Tensor:
        """uint8 [B, H, W, 3]: a crop of each padded image at its place of the epoch."""
        n, pad = len(indices), self.pad
        height, width = self.images.shape[1:3]
        tall, wide = height + 2 * pad, width + 2 * pad
        padded = self.images.new_zeros(n, tall, wide, 3)
        padded[:, pad : pad + height, pad : pad + width] = self.images.index_select(0, indices)
        # A crop is `height` runs of `width` pixels. Seen as all the runs there are, overlapping, the padded images
        # give theirs by plain copies of memory.
        runs = padded.as_strided((n * tall * wide - width + 1, 3 * width), (3, 1))
        first = torch.arange(n, device=indices.device) * tall + self._rows[draws]
        rows = first[:, None] + torch.arange(height, device=indices.device)
        places = rows * wide + self._columns[draws, None]
        return runs.index_select(0, places.view(-1)).view(n, height, width, 3)

    def _draw(self, epoch: int) -> None:
        """Crops and mirrors of the epoch: those of image i seen for the r-th time at position i + r N."""
        n, device = len(self.images), self.images.device
        rows, columns, flips = [], [], []
        for repeat in range(self.repeats):
            stream = generator(self.seed, "augment", epoch, *((repeat,) if repeat else ()))
            rows.append(torch.randint(2 * self.pad + 1, (n,), generator=stream))
            columns.append(torch.randint(2 * self.pad + 1, (n,), generator=stream))
            flips.append(torch.rand(n, generator=stream) < 0.5)
        self._rows, self._columns, self._flips = (torch.cat(part).to(device) for part in (rows, columns, flips))
        self._epoch = epoch

    def _normalise(self, images: Tensor) -> Tensor:
        flat = images.flatten(2).float()
        return flat.mul_(self.scale).sub_(self.offset).view(images.shape).permute(0, 3, 1, 2)


def repeated(order: Tensor, batch: int, repeats: int) -> tuple[Tensor, Tensor]:
    """(indices, repeat), int64 [N] each: an epoch in which every image of a batch is there `repeats` times.

    order: int64 [N], a shuffled data set, of which the epoch sees a 1 / repeats-th (Hoffer et al. 2020: as many steps
    as without). Appearances of one image lie a whole round apart in the batch, so that mixing never pairs them.
    """
    if repeats == 1:
        return order, torch.zeros_like(order)
    distinct = -(-batch // repeats)
    place = torch.arange(len(order), device=order.device)
    within = place % batch
    return order[place // batch * distinct + within % distinct], within // distinct


def _counts(indices: Tensor, repeat: Tensor | None) -> list[int]:
    return [0] * len(indices) if repeat is None else repeat.tolist()


def _eraser(part: spec.RandomErasing) -> Callable[..., Tensor]:
    from torchvision.transforms import v2

    return v2.RandomErasing(part.p, (part.smallest, part.largest), inplace=True)


def _mixer(part: spec.Part, classes: int | None) -> Callable[..., tuple[Tensor, Tensor]]:
    from torchvision.transforms import v2

    if isinstance(part, spec.MixUp):
        return v2.MixUp(alpha=part.alpha, num_classes=classes)
    assert isinstance(part, spec.CutMix)
    return v2.CutMix(alpha=part.alpha, num_classes=classes)
