"""The in-memory augmentation: equal to torchvision's operations image by image, and no draw depends on the batch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from anchored.augment import AUGMENTATIONS, Pipeline
from anchored.errors import InputError
from anchored.preprocess import Preprocess

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
ROOT = Path(__file__).resolve().parents[1]


def noise(count: int, height: int = 32, width: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, height, width or height, 3), dtype=torch.uint8, generator=generator)


def pixels(x: Tensor) -> Tensor:
    """The uint8 images [B, H, W, 3] behind a normalised batch."""
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    values = (x.permute(0, 2, 3, 1) * std + mean) * 255
    assert (values - values.round()).abs().max() < 1e-3  # whole numbers: no interpolation, no clipping
    return values.round().to(torch.uint8)


def coordinates(count: int, side: int) -> Tensor:
    """Equal images whose pixel (i, j) is (i + 1, j + 1, 255): where a pixel came from can be read off a crop."""
    steps = torch.arange(1, side + 1, dtype=torch.uint8)
    image = torch.full((side, side, 3), 255, dtype=torch.uint8)
    image[:, :, 0], image[:, :, 1] = steps[:, None], steps[None, :]
    return image.expand(count, -1, -1, -1)


def draws(pipeline: Pipeline, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row offset, column offset (of the padded image) and flip of every `coordinates` image, read off the result."""
    side = pipeline.images.shape[1]
    pad, middle = side // 8, side // 2
    found = pixels(pipeline.train(torch.arange(len(pipeline.images)), epoch)).long()
    row = found[:, middle, middle, 0] - 1 - middle + pad
    flip = found[:, middle, middle, 1] > found[:, middle, middle + 1, 1]
    # The column shown at position p is p + offset - pad, counted from the right where the image is mirrored.
    position = torch.where(flip, side - 1 - middle, middle)
    return row, found[:, middle, middle, 1] - 1 - position + pad, flip


@pytest.mark.parametrize(("side", "augment"), [(32, "crop_flip"), (32, "crop"), (28, "crop_flip"), (17, "crop_flip")])
def test_every_image_is_one_of_torchvisions_crops(side: int, augment: str) -> None:
    images = noise(60, side)
    x = Pipeline(images, MEAN, STD, augment, seed=1).train(torch.arange(60), epoch=2)
    pad = side // 8
    mirrored = 0
    for image, got in zip(images.permute(0, 3, 1, 2), x, strict=True):
        padded = tv.pad(image, [pad] * 4)
        found = []
        for row in range(2 * pad + 1):
            for column in range(2 * pad + 1):
                crop = tv.crop(padded, row, column, side, side)
                for flip in (False, True) if augment == "crop_flip" else (False,):
                    candidate = tv.horizontal_flip(crop) if flip else crop
                    if torch.equal(pixels(got[None])[0].permute(2, 0, 1), candidate):
                        found.append((candidate, flip))
        assert len(found) == 1
        candidate, flip = found[0]
        mirrored += flip
        expected = tv.normalize(tv.to_dtype(candidate, torch.float32, scale=True), list(MEAN), list(STD))
        assert torch.allclose(got, expected, rtol=0, atol=5e-7)  # rounding: (u / 255 - m) / s against u s' - m'
    assert mirrored == 0 if augment == "crop" else 10 < mirrored < 50


def test_flipping_mirrors_the_crop_that_there_is_without_it() -> None:
    images, index = noise(80), torch.arange(80)
    cropped = Pipeline(images, MEAN, STD, "crop", seed=2).train(index, epoch=1)
    flipped = Pipeline(images, MEAN, STD, "crop_flip", seed=2).train(index, epoch=1)
    for a, b in zip(cropped, flipped, strict=True):
        assert torch.equal(a, b) != torch.equal(a.flip(2), b)


def test_images_that_are_not_square() -> None:
    images = noise(40, 16, 24)
    x = pixels(Pipeline(images, MEAN, STD, "crop_flip", seed=0).train(torch.arange(40), epoch=0))
    for image, got in zip(images.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), strict=True):
        padded = tv.pad(image, [2] * 4)
        crops = [tv.crop(padded, row, column, 16, 24) for row in range(5) for column in range(5)]
        assert sum(torch.equal(got, c) or torch.equal(got, tv.horizontal_flip(c)) for c in crops) == 1


@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_the_batch_an_image_is_in_does_not_matter(augment: str) -> None:
    pipeline = Pipeline(noise(101), MEAN, STD, augment, seed=5)
    whole = pipeline.train(torch.arange(101), epoch=3)
    order = torch.randperm(101, generator=torch.Generator().manual_seed(0))
    for size in (1, 2, 7, 101):
        batches = [pipeline.train(index, epoch=3) for index in order.split(size)]
        assert torch.equal(torch.cat(batches), whole[order])
    assert torch.equal(pipeline.train(torch.tensor([9, 4, 9, 9]), epoch=3), whole[[9, 4, 9, 9]])
    assert pipeline.train(torch.empty(0, dtype=torch.int64), epoch=3).shape == (0, 3, 32, 32)


def test_the_same_seed_and_epoch_give_the_same_bits_in_any_order_of_epochs() -> None:
    images, index = noise(64), torch.arange(64)
    first, second = (Pipeline(images, MEAN, STD, "crop_flip", seed=7) for _ in range(2))
    epochs = [first.train(index, epoch) for epoch in range(3)]
    torch.manual_seed(123)  # the draws do not come from the global generator...
    before = torch.random.get_rng_state()
    assert torch.equal(second.train(index, 2), epochs[2])
    assert torch.equal(second.train(index, 0), epochs[0])
    assert torch.equal(first.train(index, 1), epochs[1])
    assert torch.equal(torch.random.get_rng_state(), before)  # ...and leave it alone
    other = Pipeline(images, MEAN, STD, "crop_flip", seed=8).train(index, 0)
    for a, b in ((epochs[0], epochs[1]), (epochs[1], epochs[2]), (epochs[0], other)):
        same = (a == b).flatten(1).all(1).sum()
        assert same < 8  # 1 in 162 by chance


def test_offsets_and_flips_are_uniform_and_independent() -> None:
    count = 16200
    row, column, flip = draws(Pipeline(coordinates(count, 16), MEAN, STD, "crop_flip", seed=0), epoch=0)
    counts = torch.bincount((row * 5 + column) * 2 + flip, minlength=50).double()
    assert len(counts) == 50
    expected = count / 50
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 20 < chi_square < 95  # 49 degrees of freedom: 1e-4 on either side
    again = draws(Pipeline(coordinates(count, 16), MEAN, STD, "crop_flip", seed=0), epoch=1)
    for a, b in zip((row, column, flip), again, strict=True):
        correlation = torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1]
        assert abs(float(correlation)) < 4 / count**0.5


def test_plain_images_are_those_of_the_evaluation_to_the_bit() -> None:
    images = noise(50)
    pipeline = Pipeline(images, MEAN, STD, "crop_flip", seed=0)
    index = torch.tensor([3, 1, 49, 3])
    assert torch.equal(pipeline.plain(index), Preprocess(32, MEAN, STD)(images[index]))
    assert torch.equal(Pipeline(images, MEAN, STD, "none").train(index, epoch=4), pipeline.plain(index))


@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_batches_are_float32_channels_last_and_the_images_stay_as_they_are(augment: str) -> None:
    images = noise(20)
    kept = images.clone()
    x = Pipeline(images, MEAN, STD, augment).train(torch.arange(20), epoch=0)
    assert x.dtype == torch.float32
    assert x.shape == (20, 3, 32, 32)
    assert x.is_contiguous(memory_format=torch.channels_last)
    x.zero_()
    assert torch.equal(images, kept)


def test_images_too_small_to_pad_are_only_mirrored() -> None:
    images = noise(64, 4)
    x = pixels(Pipeline(images, MEAN, STD, "crop_flip").train(torch.arange(64), epoch=0))
    flipped = [torch.equal(got, image.flip(1)) for got, image in zip(x, images, strict=True)]
    kept = [torch.equal(got, image) for got, image in zip(x, images, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert 10 < sum(flipped) < 54


def test_an_unknown_name_and_an_index_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown augmentation 'crop_flp'\. Did you mean 'crop_flip'"):
        Pipeline(noise(4), MEAN, STD, "crop_flp")
    with pytest.raises(IndexError):
        Pipeline(noise(4), MEAN, STD, "none").plain(torch.tensor([4]))


def test_the_benchmark_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    specification = importlib.util.spec_from_file_location("pipeline_benchmark", ROOT / "benchmarks" / "pipeline.py")
    assert specification is not None and specification.loader is not None
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    threads = torch.get_num_threads()
    try:
        ratio = benchmark.main(["--images", "1024", "--repeats", "3", "--workers", "0"])
    finally:
        torch.set_num_threads(threads)
    # One process of a DataLoader is measured on any machine; that ours is faster needs no quiet one (about 30 times).
    assert ratio > 5
    table = capsys.readouterr().out
    assert "1,024 images of 32 px" in table
    assert "torchvision DataLoader, 0 worker(s)" in table
