"""What happens to one picture: torchvision's transforms under a draw of its own.

torchvision is imported where it is used: it brings a second of start and 150 MiB, which no other command needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from anchored.augment import spec
from anchored.augment.pixmix import mixing_images, pixmix
from anchored.data.images import fit, to_rgb
from anchored.system.rng import stream_seed

Picture = NDArray[np.uint8]  # [H, W, 3]
# By the names of torchvision's InterpolationMode; pictures are turned and sheared with bicubic at most.
_FILTERS = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "bicubic"}


@contextmanager
def drawing(*key: int | str) -> Iterator[torch.Generator]:
    """Inside, torch's global CPU generator, from which torchvision draws, is the stream `key`; restored after.

    Not torch.manual_seed: that seeds every device, a hundred times slower. One thread at a time.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(*key))
        yield torch.default_generator


class Pictures:
    """The picture part of a policy, for data sets whose images are decoded one by one (in workers, it pickles).

    size: side of what comes out. interpolation, crop: as in `anchored.system.preprocess.Preprocess`. Called on a
    picture of any size it gives uint8 [size, size, 3], cropped and changed as the policy says, a function of
    (seed, epoch, index, repeat) and the picture alone.
    """

    def __init__(
        self,
        policy: spec.Policy,
        size: int | tuple[int, int],
        *,
        seed: int = 0,
        interpolation: str = "bilinear",
        crop: float = 1.0,
    ) -> None:
        self.policy, self.seed, self.interpolation, self.crop = policy, seed, interpolation, crop
        self.height, self.width = (size, size) if isinstance(size, int) else size
        self._geometry = self._cropping()
        self._operations = [_operation(part, max(self.height, self.width), interpolation) for part in policy.pictures]

    @property
    def resized(self) -> bool:
        """Whether the policy crops at random scale, which needs the picture one by one."""
        return isinstance(self.policy.geometry, spec.ResizedCrop)

    def __call__(self, image: Image.Image | Picture, index: int, epoch: int, repeat: int = 0) -> Picture:
        """The picture number `index` of the data set as it is seen in `epoch` for the `repeat`-th time."""
        image = to_rgb(image) if isinstance(image, Image.Image) else Image.fromarray(image)
        if not self.resized:
            image = Image.fromarray(fit(image, self.height, self.interpolation, self.crop))
        with drawing(self.seed, "picture", epoch, index, repeat) as generator:
            return self._changed(np.asarray(self._geometry(image)), generator)

    def change(self, picture: Picture, index: int, epoch: int, repeat: int = 0) -> Picture:
        """The same for a picture of the right size, in memory, that is cropped elsewhere unless at random scale."""
        with drawing(self.seed, "picture", epoch, index, repeat) as generator:
            if self.resized:
                picture = np.asarray(self._geometry(Image.fromarray(picture)))
            return self._changed(picture, generator)

    def _changed(self, picture: Picture, generator: torch.Generator) -> Picture:
        for operation in self._operations:
            picture = operation(picture, generator)
        return picture

    def _cropping(self) -> Callable[[Image.Image], Image.Image]:
        from torchvision.transforms import v2

        geometry, size = self.policy.geometry, (self.height, self.width)
        steps: list[Any] = []
        if isinstance(geometry, spec.ResizedCrop):
            mode = v2.InterpolationMode(_FILTERS[self.interpolation])
            steps.append(v2.RandomResizedCrop(size, (geometry.scale, 1.0), interpolation=mode))
        elif isinstance(geometry, spec.Crop):
            steps.append(v2.RandomCrop(size, padding=self.height // 8))
        if self.policy.flips:
            steps.append(v2.RandomHorizontalFlip())
        return v2.Compose(steps) if steps else v2.Identity()


def _operation(part: spec.Part, side: int, interpolation: str) -> Callable[[Picture, torch.Generator], Picture]:
    if isinstance(part, spec.PixMix):
        mixing = mixing_images(part.mixing, side, interpolation)
        return functools.partial(pixmix, part, mixing)
    from torchvision.transforms import v2

    how: dict[str, Any] = {"interpolation": v2.InterpolationMode(_FILTERS[interpolation])}
    if isinstance(part, spec.AugMix):
        how["interpolation"] = (
            v2.InterpolationMode.BILINEAR
        )  # of tensors torchvision has no bicubic; theirs is bilinear
        how |= {"severity": part.severity, "mixture_width": part.mixture_width, "chain_depth": part.chain_depth}
        return functools.partial(_tensor, v2.AugMix(alpha=part.alpha, all_ops=part.all_ops, **how))
    transform: Any
    if isinstance(part, spec.RandAugment):
        transform = v2.RandAugment(part.num_ops, part.magnitude, part.num_magnitude_bins, **how)
    elif isinstance(part, spec.TrivialAugment):
        transform = v2.TrivialAugmentWide(part.num_magnitude_bins, **how)
    else:
        assert isinstance(part, spec.AutoAugment)
        transform = v2.AutoAugment(v2.AutoAugmentPolicy(part.policy), **how)
    return functools.partial(_pillow, transform)


def _pillow(transform: Callable[[Image.Image], Image.Image], picture: Picture, _: torch.Generator) -> Picture:
    return np.asarray(transform(Image.fromarray(picture)))


def _tensor(transform: Callable[[torch.Tensor], torch.Tensor], picture: Picture, _: torch.Generator) -> Picture:
    # AugMix makes a tensor of a PIL image anyway; the round trip is a fifth of its time at 32 px.
    planes = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()
    return transform(planes).permute(1, 2, 0).contiguous().numpy()
