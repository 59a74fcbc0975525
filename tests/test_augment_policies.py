from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from anchored.augment import AUGMENTATIONS, Pictures, Pipeline, parse, repeated, without_flips
from anchored.augment.spec import PARTS
from anchored.method.core import anchor, anchored_loss
from anchored.system.errors import InputError
from anchored.system.rng import generator, stream_seed

ONE_BY_ONE = ["resized_crop", "resized_crop_flip", "randaugment", "trivialaugment", "autoaugment", "augmix", "pixmix"]


def pictures(n: int, side: int = 24) -> Tensor:
    """Smooth coloured pictures, uint8 [n, side, side, 3], on which every operation shows."""
    coarse = torch.rand(n, 3, 4, 4, generator=generator("coarse", n))
    fine = F.interpolate(coarse, (side, side), mode="bilinear")
    return (fine * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def pixels(x: Tensor) -> Tensor:
    """uint8 [N, H, W, 3] of what a pipeline of mean 0 and standard deviation 1 gives."""
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1)


def unit_pipeline(images: Tensor, augment: str, **more: Any) -> Pipeline:
    return Pipeline(images, (0, 0, 0), (1, 1, 1), augment, **more)


# --- policies as text


def test_parts_parameters_and_order() -> None:
    policy = parse("crop_flip+randaugment(num_ops=3, magnitude=12)+random_erasing(p=0.25)+mixup(alpha=0.8)+cutmix")
    assert policy.geometry == PARTS["crop_flip"]() and policy.pictures == (PARTS["randaugment"](3, 12),)  # type: ignore[call-arg]
    assert policy.erasing == PARTS["random_erasing"](0.25)  # type: ignore[call-arg]
    assert [(part.name, part.alpha) for part in policy.mixing] == [("mixup", 0.8), ("cutmix", 1.0)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        *AUGMENTATIONS,
        "augmix(severity=5,all_ops=False)",
        "resized_crop(scale=0.35)+autoaugment(policy=cifar10)+random_erasing(p=0.1)+cutmix(alpha=0.5)",
    ],
)
def test_what_results_say_means_the_same(text: str) -> None:
    assert str(parse(text)) == text and parse(str(parse(text))) == parse(text)


def test_results_say_neither_defaults_nor_folders() -> None:
    assert str(parse("none+randaugment(num_ops=2,magnitude=9)")) == "randaugment"
    assert str(parse("pixmix(k=2, mixing=folder:/home/me/my (own)/fractals)")) == "pixmix(k=2,mixing=folder:fractals)"


def test_flips_can_be_left_out() -> None:
    assert without_flips("crop_flip+randaugment(num_ops=1)") == "crop+randaugment(num_ops=1)"
    assert without_flips("resized_crop_flip(scale=0.3)+cutmix") == "resized_crop(scale=0.3)+cutmix"
    assert parse("crop_flip").flips and parse("resized_crop_flip").flips and not parse("crop+randaugment").flips


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crop_flop", "unknown augmentation 'crop_flop'. Did you mean 'crop_flip'"),
        ("", "parts joined by \\+.* got ''"),
        ("crop+", "got ''"),
        ("crop++randaugment", "got ''"),
        ("crop randaugment", "got 'crop randaugment'"),
        ("randaugment+crop", "crop comes after randaugment"),
        ("mixup+random_erasing", "random_erasing comes after mixup"),
        ("crop+crop_flip", "one way of cropping"),
        ("crop+cutmix+cutmix", "cutmix more than once"),
        ("crop(pad=4)", "crop has no parameters; got 'pad=4'"),
        ("randaugment(magnitud=9)", "unknown parameter of randaugment 'magnitud'. Did you mean 'magnitude'"),
        ("randaugment(9)", "unknown parameter of randaugment '9'"),
        ("randaugment(magnitude=high)", "randaugment: magnitude is a whole number; got 'high'"),
        ("randaugment(magnitude=31)", r"magnitude is a whole number in 0..30; got 31"),
        ("randaugment(num_ops=0)", "num_ops is a whole number of at least 1; got 0"),
        ("trivialaugment(num_magnitude_bins=1)", "num_magnitude_bins is a whole number of at least 2; got 1"),
        ("autoaugment(policy=cifar)", "unknown policy of autoaugment 'cifar'. Did you mean 'cifar10'"),
        ("augmix(severity=11)", "severity is a whole number in 1..10; got 11"),
        ("augmix(chain_depth=0)", "chain_depth is at least 1, or -1; got 0"),
        ("augmix(alpha=0)", "alpha is a positive number; got 0.0"),
        ("augmix(all_ops=maybe)", "all_ops is true or false; got 'maybe'"),
        ("pixmix(k=-1)", "k is a whole number of at least 0; got -1"),
        ("pixmix(beta=0)", "beta is a positive number; got 0.0"),
        ("pixmix(mixing=zip:here)", "mixing is fractals, folder:PATH or parquet:PATH; got 'zip:here'"),
        ("resized_crop(scale=0)", r"scale is the smallest part of the area kept, in \(0, 1\]; got 0.0"),
        ("random_erasing(p=1.5)", r"p is a probability in \[0, 1\]; got 1.5"),
        ("random_erasing(smallest=0.5)", r"smallest lies in \(0, largest = 0.33\]; got 0.5"),
        ("mixup(alpha=-1)", "mixup: alpha is a positive number; got -1.0"),
        ("cutmix(alpha=nan)", "cutmix: alpha is a positive number; got nan"),
    ],
)
def test_bad_policies_say_the_rule_the_value_and_the_choices(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(text)


# --- picture by picture


@pytest.mark.parametrize(
    ("text", "transform"),
    [
        ("randaugment(num_ops=3,magnitude=15)", v2.RandAugment(3, 15, interpolation=v2.InterpolationMode.BILINEAR)),
        ("trivialaugment", v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR)),
        ("autoaugment(policy=svhn)", v2.AutoAugment(v2.AutoAugmentPolicy.SVHN, v2.InterpolationMode.BILINEAR)),
        ("augmix(severity=6,mixture_width=2)", v2.AugMix(6, 2, interpolation=v2.InterpolationMode.BILINEAR)),
    ],
)
def test_each_picture_is_torchvisions_under_its_own_stream(text: str, transform: Any) -> None:
    images = pictures(12)
    result = pixels(unit_pipeline(images, text, seed=4).train(torch.arange(12), 3))
    for index, image in enumerate(images):
        torch.manual_seed(stream_seed(4, "picture", 3, index, 0))
        assert np.array_equal(np.asarray(transform(Image.fromarray(image.numpy()))), result[index].numpy())


@pytest.mark.parametrize("augment", ONE_BY_ONE)
def test_pictures_are_changed_each_in_its_own_way(augment: str) -> None:
    same = pictures(1).expand(40, -1, -1, -1).contiguous()
    pipeline = unit_pipeline(same, augment, seed=1, repeats=2)
    index = torch.arange(40)
    first, second = pixels(pipeline.train(index, 0)), pixels(pipeline.train(index, 1))
    again = pixels(pipeline.train(index, 0, torch.ones_like(index)))
    assert len({picture.numpy().tobytes() for picture in first}) > 12, "one draw an image, not a batch"
    for other in (second, again):
        assert int((first != other).flatten(1).any(1).sum()) > 25, "the next epoch, and the next time in it, differ"
    assert torch.equal(first, pixels(unit_pipeline(same.clone(), augment, seed=1).train(index, 0)))


@pytest.mark.parametrize("augment", ONE_BY_ONE)
def test_oblong_pictures_keep_their_shape(augment: str) -> None:
    images = pictures(3, 32)[:, :12].contiguous()
    assert unit_pipeline(images, augment).train(torch.arange(3), 0).shape == (3, 3, 12, 32)


def test_crops_come_before_operations() -> None:
    images = pictures(20)
    cropped = pixels(unit_pipeline(images, "crop_flip", seed=2).train(torch.arange(20), 1))
    both = pixels(unit_pipeline(images, "crop_flip+randaugment", seed=2).train(torch.arange(20), 1))
    later = unit_pipeline(cropped, "randaugment", seed=2).train(torch.arange(20), 1)
    assert torch.equal(both, pixels(later))


@pytest.mark.parametrize("augment", ["crop_flip+trivialaugment", "resized_crop_flip+augmix", "none"])
def test_pictures_of_any_size_from_workers(augment: str) -> None:
    make = Pictures(parse(augment), 16, seed=5)
    picture = Image.fromarray(pictures(1, 40)[0].numpy()).resize((60, 37))
    first = make(picture, 3, 1)
    assert first.shape == (16, 16, 3) and first.dtype == np.uint8
    torch.manual_seed(8)
    there = pickle.loads(pickle.dumps(make))
    assert np.array_equal(there(picture, 3, 1), first), "the same in another process"
    if augment != "none":
        assert any(not np.array_equal(make(picture, *key), first) for key in ((4, 1), (3, 2), (3, 1, 1)))
    elif augment == "none":
        assert np.array_equal(make(pictures(1, 16)[0].numpy(), 0, 0), pictures(1, 16)[0].numpy())


# --- erasing


def test_erased_rectangles_have_the_mean_colour() -> None:
    images = pictures(400)
    mean, std = (0.2, 0.4, 0.6), (0.1, 0.2, 0.3)
    plain = Pipeline(images, mean, std).plain(torch.arange(400))
    x = Pipeline(images, mean, std, "random_erasing(p=0.25,smallest=0.1,largest=0.2)").train(torch.arange(400), 0)
    changed = (x != plain).any(1)
    count = int(changed.flatten(1).any(1).sum())
    assert abs(count - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5
    for picture, where in zip(x, changed, strict=True):
        if where.any():
            rows, columns = where.any(1).nonzero()[:, 0], where.any(0).nonzero()[:, 0]
            box = picture[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert not box.any(), "0 after normalisation"
            assert 0.07 < box[0].numel() / 24**2 < 0.23


# --- mixing and soft labels


def test_no_mixing_gives_back_what_it_was_given() -> None:
    x, y = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 1])
    mixed, labels = unit_pipeline(pictures(4), "crop_flip").mix(x, y, 0)
    assert mixed is x and labels is y


def test_mixup_is_one_blend_of_images_and_labels() -> None:
    pipeline = unit_pipeline(pictures(8), "mixup(alpha=0.8)", classes=5)
    x, y = pipeline.plain(torch.arange(8)), torch.arange(8) % 5
    weights = []
    for step in range(60):
        mixed, soft = pipeline.mix(x, y, step)
        weight = float(soft[0, 0])  # of image 0, class 0, mixed with image 7, class 2
        expected = weight * F.one_hot(y, 5) + (1 - weight) * F.one_hot(y.roll(1), 5)
        torch.testing.assert_close(soft, expected.float())
        torch.testing.assert_close(mixed, weight * x + (1 - weight) * x.roll(1, 0))
        assert mixed.is_contiguous(memory_format=torch.channels_last)
        weights.append(weight)
    assert len(set(weights)) == 60 and min(weights) < 0.2 and max(weights) > 0.8
    assert torch.equal(pipeline.mix(x, y, 3)[1], pipeline.mix(x, y, 3)[1])


def test_cutmix_weights_labels_by_area() -> None:
    pipeline = unit_pipeline(pictures(6), "cutmix", classes=6)
    x, y = pipeline.plain(torch.arange(6)), torch.arange(6)
    for step in range(20):
        mixed, soft = pipeline.mix(x, y, step)
        own = (mixed == x).all(1)
        assert (own | (mixed == x.roll(1, 0)).all(1)).all(), "each pixel is of one of the two"
        share = float(soft[1, 1])
        assert float(own[1].float().mean()) == pytest.approx(share, abs=0.02)
        torch.testing.assert_close(soft.sum(1), torch.ones(6))


@pytest.mark.parametrize("augment", ["mixup", "cutmix", "mixup+cutmix"])
def test_blocks_are_what_several_processes_do(augment: str) -> None:
    pipeline = unit_pipeline(pictures(8), augment, classes=8)
    x, y = pipeline.plain(torch.arange(8)), torch.arange(8)
    for step in range(6):
        whole, labels = pipeline.mix(x, y, step, block=4)
        ranks = [pipeline.mix(x[part], y[part], step) for part in (slice(0, 4), slice(4, 8))]
        assert torch.equal(whole, torch.cat([mixed for mixed, _ in ranks]))
        assert torch.equal(labels, torch.cat([soft for _, soft in ranks]))


def test_mixup_and_cutmix_take_turns() -> None:
    both = unit_pipeline(pictures(6), "mixup+cutmix", classes=6)
    x, y = both.plain(torch.arange(6)), torch.arange(6)
    pasted = 0
    for step in range(100):
        mixed = both.mix(x, y, step)[0]
        pasted += bool(((mixed == x) | (mixed == x.roll(1, 0))).all())
    assert abs(pasted - 50) < 25


@pytest.mark.parametrize("classes", [None, 1])
def test_mixing_needs_the_number_of_classes(classes: int | None) -> None:
    with pytest.raises(InputError, match="mixup and cutmix need the number of classes"):
        unit_pipeline(pictures(2), "mixup", classes=classes)


@pytest.mark.parametrize("masked_target", ["uniform", "label"])
def test_soft_labels_and_masking_together(masked_target: Any) -> None:
    pipeline = unit_pipeline(pictures(6), "mixup+cutmix", classes=4)
    x, soft = pipeline.mix(pipeline.plain(torch.arange(6)), torch.tensor([0, 1, 2, 3, 0, 1]), 7)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 22 * 22, 4))
    net = anchor(model, example=x)
    reference = x.roll(1, 0)

    def loss(y: Tensor, masked: bool) -> Tensor:
        def criterion(logits: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(logits, target, label_smoothing=0.1)

        return anchored_loss(net, x, y, reference, masked=masked, masked_target=masked_target, criterion=criterion)

    def by_hand(logits: Tensor, target: Tensor) -> Tensor:
        return -((0.9 * target + 0.1 / 4) * logits.log_softmax(1)).sum(1).mean()

    torch.testing.assert_close(loss(soft, False), by_hand(net(x, reference), soft))
    target = torch.full_like(soft, 1 / 4) if masked_target == "uniform" else soft
    torch.testing.assert_close(loss(soft, True), by_hand(net(x, reference, masked=True), target))


# --- repeated augmentation


@pytest.mark.parametrize(("batch", "repeats"), [(8, 2), (8, 3), (12, 4), (8, 1), (3, 3)])
def test_every_image_of_a_batch_is_there_as_often(batch: int, repeats: int) -> None:
    order = torch.randperm(50, generator=generator("order"))
    index, repeat = repeated(order, batch, repeats)
    assert len(index) == len(repeat) == 50
    seen: list[int] = []
    for indices, counts in zip(index.split(batch), repeat.split(batch), strict=True):
        pairs = list(zip(indices.tolist(), counts.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs) and max(counts) < repeats
        if len(pairs) == batch:
            distinct = list(dict.fromkeys(indices.tolist()))
            assert len(distinct) == -(-batch // repeats)
            seen += distinct
            if len(distinct) > 1:
                assert (indices != indices.roll(1)).all(), "mixing pairs two images"
    assert seen == order[: len(seen)].tolist(), "no image in two batches of an epoch"


def test_appearances_of_an_image_differ() -> None:
    pipeline = unit_pipeline(pictures(1).expand(30, -1, -1, -1).contiguous(), "crop_flip", repeats=3)
    index = torch.zeros(3, dtype=torch.int64)
    shown = [pixels(pipeline.train(index, epoch, torch.arange(3))) for epoch in range(8)]
    assert sum(len({picture.numpy().tobytes() for picture in three}) for three in shown) > 19


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_every_policy_works_with_the_interpolation_of_any_model(name: str, interpolation: str) -> None:
    images = pictures(6).numpy()
    policy = Pictures(parse(name), 24, seed=3, interpolation=interpolation)
    for index, image in enumerate(images):
        for epoch in range(3):
            assert policy(image, index, epoch).shape == (24, 24, 3)
