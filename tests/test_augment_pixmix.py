from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from fixtures import shared
from PIL import Image

from anchored.augment import fractals, mixing_images
from anchored.augment.pixmix import MARGIN, OPERATIONS, SIMILAR, add, change, multiply, pixmix, weights
from anchored.augment.spec import PixMix
from anchored.system.errors import InputError
from anchored.system.rng import generator

GREY = np.full((16, 16, 3), 128, np.uint8)


def draws(*key: int | str):  # type: ignore[no-untyped-def]
    stream = generator(*key)
    return lambda low, high: low + (high - low) * float(torch.rand((), generator=stream, dtype=torch.float64))


def gradient(side: int = 24) -> np.ndarray:
    line = np.linspace(10, 240, side)
    return np.stack(
        [np.tile(line, (side, 1)), np.tile(line[:, None], (1, side)), np.full((side, side), 90)], -1
    ).astype(np.uint8)


# --- the two mixings


def test_weights_are_the_papers_beta_distributions() -> None:
    draw = draws("weights")
    pairs = np.array([weights(3.0, draw) for _ in range(8000)])
    blend = pairs[pairs[:, 1] >= 0]
    apart = pairs[pairs[:, 1] < 0]
    assert abs(len(blend) - 4000) < 5 * (8000 / 4) ** 0.5
    mean, spread = 3 / 4, math.sqrt(3 / (16 * 5))  # of Beta(3, 1)
    for values, expected in (
        (blend[:, 0], mean),
        (blend[:, 1], 1 - mean),
        (apart[:, 0], 2 - mean),
        (apart[:, 1], mean - 1),
    ):
        assert values.mean() == pytest.approx(expected, abs=5 * spread / 4000**0.5)
        assert values.std() == pytest.approx(spread, rel=0.1)


def test_adding_works_around_grey_and_multiplying_around_one_half() -> None:
    x, y = (np.random.default_rng(seed).random((4, 4, 3), np.float32) for seed in (0, 1))
    np.testing.assert_allclose(add(x, y, 1, 0), x, atol=1e-6)
    np.testing.assert_allclose(add(x, y, 0.6, 0.4), 0.6 * x + 0.4 * y, atol=1e-6)
    half = np.full_like(x, 0.5)
    np.testing.assert_allclose(add(x, half, 1.3, -0.7) - 0.5, 1.3 * (x - 0.5), atol=1e-6)
    np.testing.assert_allclose(multiply(x, y, 1, 0), x, atol=1e-6)
    np.testing.assert_allclose(multiply(x, half, 1, 0.3), x, atol=1e-6)
    np.testing.assert_allclose(
        np.log2(2 * multiply(x, y, 1.2, -0.4)), 1.2 * np.log2(2 * x) - 0.4 * np.log2(2 * y), atol=1e-4
    )
    assert np.isfinite(multiply(x, np.zeros_like(x), 1.9, -0.9)).all(), "black under a negative power"


# --- a whole picture


def test_no_rounds_is_the_picture_or_one_operation() -> None:
    picture, mixing = gradient(), np.zeros((2, 27, 27, 3), np.uint8)
    results = [pixmix(PixMix(k=0), mixing, picture, generator("none", i)) for i in range(60)]
    unchanged = sum(np.array_equal(result, picture) for result in results)
    assert 15 < unchanged < 45, "as likely as it is, or changed"


def test_rounds_are_uniform_from_0_to_k_and_half_take_the_mixing_image(monkeypatch: pytest.MonkeyPatch) -> None:
    from anchored.augment import pixmix as module

    rounds, others = Counter[int](), 0
    taken: list[bool] = []
    black = np.zeros((1, 27, 27, 3), np.uint8)
    monkeypatch.setattr(module, "add", lambda x, y, a, b: taken.append(not y.any()) or x)
    monkeypatch.setattr(module, "multiply", lambda x, y, a, b: taken.append(not y.any()) or x)
    for number in range(1000):
        taken.clear()
        pixmix(PixMix(k=4), black, np.full((24, 24, 3), 200, np.uint8), generator("rounds", number))
        rounds[len(taken)] += 1
        others += sum(taken)
    assert set(rounds) == set(range(5))
    assert all(abs(count - 200) < 5 * (1000 * 0.2 * 0.8) ** 0.5 for count in rounds.values())
    total = sum(count * number for number, count in rounds.items())
    assert abs(others - total / 2) < 0.05 * total + 60, "equal parts of mixing images and changed copies"


def test_larger_beta_mixes_less() -> None:
    picture, mixing = gradient(), fractals(20, 27).numpy()

    def distance(beta: float) -> float:
        results = [pixmix(PixMix(beta=beta), mixing, picture, generator("beta", i)) for i in range(150)]
        return float(np.mean([np.abs(result.astype(int) - picture).mean() for result in results]))

    assert distance(30) < 0.75 * distance(1)


def test_the_picture_and_the_mixing_images_stay() -> None:
    picture, mixing = gradient(), fractals(4, 27).numpy()
    kept = picture.copy(), mixing.copy()
    results = [pixmix(PixMix(), mixing, picture, generator(i)) for i in range(20)]
    assert np.array_equal(picture, kept[0]) and np.array_equal(mixing, kept[1])
    assert all(result.shape == picture.shape and result.dtype == np.uint8 for result in results)


@pytest.mark.parametrize("operation", range(len(OPERATIONS + SIMILAR)))
def test_operations_keep_the_size_and_grow_with_the_level(operation: int) -> None:
    image = Image.fromarray(gradient())
    weak, strong = ((OPERATIONS + SIMILAR)[operation](image, level, 1) for level in (0.05, 1.0))
    assert weak.size == strong.size == image.size
    if 2 <= operation < len(OPERATIONS):  # the first two have no level, the last four are weakest in the middle
        away = [np.abs(np.asarray(made, int) - np.asarray(image, int)).mean() for made in (weak, strong)]
        assert away[0] < away[1]


def test_the_operations_of_c_are_left_out_unless_asked_for() -> None:
    # The middle of a grey picture: moving pixels leaves it, and only brightness and contrast shade it finely.
    plain, every = (
        {int(change(GREY, 3, all_ops, draws("ops", i))[8, 8, 0]) for i in range(400)} for all_ops in (False, True)
    )
    assert len(plain) < 6 and len(every) > 15


# --- mixing images


def test_fractals_depend_on_seed_and_position_alone() -> None:
    many, few = fractals(6, 20, seed=3), fractals(4, 20, seed=3)
    assert many.shape == (6, 20, 20, 3) and many.dtype == torch.uint8
    assert torch.equal(many[:4], few)
    assert int((fractals(4, 20, seed=4) != few).flatten(1).any(1).sum()) == 4


def test_fractals_have_structure_at_every_scale() -> None:
    pictures = fractals(60, 64).double()
    assert len({picture.numpy().tobytes() for picture in pictures}) == 60
    spread = pictures.std(dim=(1, 2)).mean(1)
    assert float(spread.median()) > 25 and float(spread.min()) > 3
    # Energy between neighbours at distances 1, 4 and 16: none vanishes next to the others, as it would in a smooth
    # picture at 1 and in noise never grows.
    energy = [float((pictures[:, :, d:] - pictures[:, :, :-d]).square().mean()) for d in (1, 4, 16)]
    assert energy[0] < energy[1] < energy[2] < 20 * energy[0]


@pytest.mark.parametrize(("count", "size"), [(0, 8), (1, 0)])
def test_fractals_refuse_nothing(count: int, size: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        fractals(count, size)


def test_mixing_images_from_a_folder(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for name in ("a.png", "deep/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(gradient(50)).save(tmp_path / name)
    images = mixing_images(f"folder:{tmp_path}", 16)
    assert images.shape == (2, 18, 18, 3) and images.shape[1] == round(16 * MARGIN)
    with pytest.raises(InputError, match="no such folder"):
        mixing_images(f"folder:{tmp_path}/nowhere", 16)
    with pytest.raises(InputError, match="fractals, folder:PATH or parquet:PATH; got 'web:x'"):
        mixing_images("web:x", 16)


def test_mixing_images_from_real_feature_visualisations() -> None:
    images = mixing_images(f"parquet:{shared('ANCHORED_DATA', 'data') / 'featvis_64'}", 32)
    assert images.shape == (900, 36, 36, 3)
