from __future__ import annotations

from collections import Counter

import pytest
import torch
import torchvision.transforms.functional as TF
from torch import Tensor

from anchored.augment import AUGMENTATIONS, Pipeline
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess
from anchored.system.rng import generator

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def pictures(n: int, height: int, width: int, *, grey: bool = False) -> Tensor:
    shape = (n, height, width, 1 if grey else 3)
    images = torch.randint(0, 256, shape, generator=generator("pictures", n), dtype=torch.uint8)
    return images.expand(n, height, width, 3).contiguous()


def pixels(x: Tensor) -> Tensor:
    """uint8 [N, 3, H, W] of what a pipeline of mean 0 and standard deviation 1 gives."""
    return (x * 255).round().to(torch.uint8)


def augmented(images: Tensor, augment: str, *, seed: int = 0, epoch: int = 0) -> Tensor:
    pipeline = Pipeline(images, (0, 0, 0), (1, 1, 1), augment, seed)
    return pixels(pipeline.train(torch.arange(len(images)), epoch))


def candidates(image: Tensor, pad: int) -> dict[tuple[int, int, bool], Tensor]:
    """Every (row, column, mirrored) crop [3, H, W] of a picture [H, W, 3] padded with black, by torchvision."""
    picture = image.permute(2, 0, 1)
    height, width = picture.shape[1:]
    padded = TF.pad(picture, [pad])
    found = {}
    for row in range(2 * pad + 1):
        for column in range(2 * pad + 1):
            crop = TF.crop(padded, row, column, height, width)
            found[row, column, False], found[row, column, True] = crop, TF.hflip(crop)
    return found


SHAPES = [(32, 32, False), (16, 40, False), (40, 24, False), (8, 8, True)]


@pytest.mark.parametrize(("height", "width", "grey"), SHAPES)
@pytest.mark.parametrize("augment", ["crop", "crop_flip"])
def test_each_image_is_one_crop_by_torchvision(augment: str, height: int, width: int, grey: bool) -> None:
    images = pictures(24, height, width, grey=grey)
    places = []
    for image, result in zip(images, augmented(images, augment), strict=True):
        same = [place for place, crop in candidates(image, height // 8).items() if torch.equal(crop, result)]
        assert len(same) == 1
        places += same
    # The places are those of the streams documented in the class: rows, columns and mirrors, in this order.
    stream = generator(0, "augment", 0)
    rows, columns = (torch.randint(2 * (height // 8) + 1, (24,), generator=stream).tolist() for _ in range(2))
    flips = (torch.rand(24, generator=stream) < 0.5).tolist()
    flips = flips if augment == "crop_flip" else [False] * 24
    assert places == list(zip(rows, columns, flips, strict=True))


def test_places_are_uniform() -> None:
    # A picture whose pixels say where they were: red is the row, green the column, both from 1.
    n, side, pad = 4000, 16, 2
    grid = torch.arange(1, side + 1, dtype=torch.uint8)
    image = torch.stack([grid[:, None].expand(side, side), grid.expand(side, side), torch.zeros(side, side)], -1)
    result = augmented(image.to(torch.uint8).expand(n, side, side, 3).contiguous(), "crop_flip", seed=3)
    middle = result[:, :, side // 2]
    rows = middle[:, 0, side // 2].int() - side // 2 + 1
    mirrored = middle[:, 1, side // 2 - 1] > middle[:, 1, side // 2]
    columns = torch.where(mirrored, middle[:, 1, side // 2 - 1], middle[:, 1, side // 2]).int() - side // 2 + 1
    for offsets in (rows, columns):
        counts = Counter(offsets.tolist())
        assert set(counts) == set(range(2 * pad + 1))
        assert all(abs(count - n / 5) < 5 * (n * 0.2 * 0.8) ** 0.5 for count in counts.values())
    assert abs(float(mirrored.float().mean()) - 0.5) < 5 * 0.5 / n**0.5


@pytest.mark.parametrize("augment", [*AUGMENTATIONS, "resized_crop_flip+augmix+pixmix+random_erasing"])
def test_an_image_does_not_depend_on_its_batch(augment: str) -> None:
    pipeline = Pipeline(pictures(50, 32, 32), MEAN, STD, augment, seed=1, classes=10, repeats=2)
    whole = pipeline.train(torch.arange(50), epoch=2)
    order = torch.randperm(50, generator=generator("order"))
    torch.manual_seed(3)
    for batch in (order, order[:7], order[7:8], torch.tensor([3, 3, 9])):
        assert torch.equal(pipeline.train(batch, epoch=2), whole[batch])
        assert torch.equal(pipeline.train(batch, 2, torch.zeros_like(batch)), whole[batch])


def test_seed_and_epoch_alone_decide() -> None:
    images, index = pictures(30, 32, 32), torch.arange(30)
    pipeline = Pipeline(images, MEAN, STD, "crop_flip", seed=1)
    first, second = pipeline.train(index, 0), pipeline.train(index, 1)
    torch.manual_seed(9)
    again = Pipeline(images.clone(), MEAN, STD, "crop_flip", seed=1)
    assert torch.equal(again.train(index, 1), second) and torch.equal(again.train(index, 0), first)
    assert torch.equal(pipeline.train(index, 0), first), "going back to an earlier epoch"
    other = Pipeline(images, MEAN, STD, "crop_flip", seed=2).train(index, 0)
    for different in (second, other):
        assert int((different != first).flatten(1).any(1).sum()) > 25


@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_the_global_generator_is_left_alone(augment: str) -> None:
    pipeline = Pipeline(pictures(4, 16, 16), MEAN, STD, augment, classes=3)
    before = torch.get_rng_state()
    pipeline.mix(pipeline.train(torch.arange(4), 0), torch.tensor([0, 1, 2, 0]), 5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("height", "width", "grey"), SHAPES)
def test_normalisation(height: int, width: int, grey: bool) -> None:
    images = pictures(5, height, width, grey=grey)
    result = Pipeline(images, MEAN, STD).plain(torch.tensor([4, 0]))
    exact = TF.normalize(images[[4, 0]].permute(0, 3, 1, 2).double() / 255, MEAN, STD)
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-6)
    assert result.dtype == torch.float32 and result.is_contiguous(memory_format=torch.channels_last)


def test_training_and_evaluation_normalise_to_the_same_bits() -> None:
    images = pictures(20, 32, 32)
    plain = Pipeline(images, MEAN, STD).plain(torch.arange(20))
    assert torch.equal(plain, Preprocess(32, MEAN, STD)(images))
    assert torch.equal(plain, Pipeline(images, MEAN, STD, "none").train(torch.arange(20), 5))


def test_augmented_batches_are_channels_last_and_the_images_stay() -> None:
    images = pictures(6, 32, 32)
    kept = images.clone()
    result = Pipeline(images, MEAN, STD, "crop_flip").train(torch.arange(6), 0)
    assert result.is_contiguous(memory_format=torch.channels_last)
    result.zero_()
    assert torch.equal(images, kept)


def test_images_under_eight_pixels_are_only_mirrored() -> None:
    images = pictures(40, 7, 7)
    result = augmented(images, "crop_flip")
    picture = images.permute(0, 3, 1, 2)
    same, mirrored = (result == picture).flatten(1).all(1), (result == picture.flip(3)).flatten(1).all(1)
    assert bool((same | mirrored).all()) and 5 < int(mirrored.sum()) < 35


def test_unknown_augmentation() -> None:
    with pytest.raises(InputError, match="unknown augmentation 'crop_flop'"):
        Pipeline(pictures(1, 8, 8), MEAN, STD, "crop_flop")
