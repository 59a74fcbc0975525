"""Parity with outputs of the reference codes (`shared/corruptions/fixtures`), byte for byte where they are fixed."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from anchored.corruptions import corrupt, source, suite

FOLDER = Path(os.environ.get("ANCHORED_CORRUPTIONS", Path(__file__).parents[2] / "shared" / "corruptions")) / "fixtures"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no corruption fixtures in {FOLDER} (set ANCHORED_CORRUPTIONS)"
)

DETERMINISTIC = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression__libjpeg_turbo",
    "gaussian_blur",
    "saturate",
)
CIFAR_BAR = suite("c-bar", table="cifar")
IMAGENET_BAR = suite("c-bar", table="imagenet")


@lru_cache(maxsize=4)
def fixtures(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return {key: file[key] for key in file.files if not key.endswith(("mean_img_x256", "std_img_x2"))}


def run(images: np.ndarray, key: str, severity: int, **options: object) -> np.ndarray:
    return corrupt(images, key.split("__")[0], severity, seed=0, **options)  # type: ignore[arg-type]


def peer_seeds(severity: int, count: int) -> list[int]:
    return [1000 * severity + i for i in range(count)]


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", DETERMINISTIC)
def test_deterministic_corruptions_equal_the_references_at_32_px(key: str, severity: int) -> None:
    data = fixtures("cifar_c")
    np.testing.assert_array_equal(run(data["inputs"], key, severity), data[f"det/{key}"][severity - 1])


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", DETERMINISTIC)
def test_deterministic_corruptions_equal_the_references_at_224_px(key: str, severity: int) -> None:
    data = fixtures("imagenet_c")
    got = run(data["inputs"], key, severity)
    assert [hashlib.sha256(image.tobytes()).hexdigest() for image in got] == list(
        data[f"det/{key}/sha256"][severity - 1]
    )


SEEDED = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "elastic_transform",
    "speckle_noise",
    "spatter",
)


def need_textures(key: str) -> None:
    if key == "frost" and source("frost") != "generated, official frost":
        pytest.skip("the official frost textures are not here: the package imagecorruptions is not installed")


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", SEEDED)
def test_random_corruptions_equal_the_references_on_their_random_numbers_at_32_px(key: str, severity: int) -> None:
    need_textures(key)
    data = fixtures("cifar_c")
    got = run(data["inputs"], key, severity, peer_seeds=peer_seeds(severity, 8))
    np.testing.assert_array_equal(got, data[f"seeded/{key}"][severity - 1])


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", SEEDED)
def test_random_corruptions_equal_the_references_on_their_random_numbers_at_224_px(key: str, severity: int) -> None:
    need_textures(key)
    data = fixtures("imagenet_c")
    got = run(data["inputs"], key, severity, peer_seeds=peer_seeds(severity, 2))
    digests = [hashlib.sha256(image.tobytes()).hexdigest() for image in got]
    assert digests == list(data[f"seeded/{key}/sha256"][severity - 1])


def scalars(out: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Per corrupted copy: mean absolute change, image mean, pixel standard deviation; [seeds, 3]."""
    flat = out.reshape(len(out), -1).astype(np.float64)
    change = np.abs(flat - image.reshape(-1)).mean(1)
    return np.stack([change, flat.mean(1), flat.std(1)], 1)


def assert_same_statistics(data: dict[str, np.ndarray], key: str, severity: int, which: int, count: int) -> None:
    """Means over `count` of our seeds and the reference's 64 agree within 5 standard errors."""
    image = data["inputs"][which]
    # Positions apart for every image, so that no two images share their random numbers.
    copies = np.repeat(image[None], count, axis=0)
    ours = scalars(run(copies, key, severity, index=which * 1000), image)
    reference = data[f"stat/{key}/scalars"][severity - 1, which]
    seeds = data[f"stat/{key}/n_seeds"][severity - 1]
    for k in range(3):
        mean, deviation = reference[2 * k], reference[2 * k + 1]
        error = (deviation**2 / seeds + ours[:, k].var() / count) ** 0.5
        assert abs(ours[:, k].mean() - mean) < 5 * error + 0.01, (which, k)
        # The spread over seeds too: five times its standard error for a distribution with heavier tails than normal.
        # (Waves of almost frequency 0 are too rare and too far out for such a test.)
        if key != "single_frequency_greyscale":
            assert abs(ours[:, k].std() - deviation) < 5 * deviation * (1.5 / seeds) ** 0.5 + 0.01, (which, k)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", CIFAR_BAR)
def test_c_bar_equals_the_reference_on_its_random_numbers_at_32_px(name: str, severity: int) -> None:
    data = fixtures("cifar_cbar")
    got = run(data["inputs"], name, severity, peer_seeds=peer_seeds(severity, 8))
    kind = "det" if name == "circular_motion_blur" else "seeded"
    np.testing.assert_array_equal(got, data[f"{kind}/{name}"][severity - 1])


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", IMAGENET_BAR)
def test_c_bar_equals_the_reference_on_its_random_numbers_at_224_px(name: str, severity: int) -> None:
    data = fixtures("imagenet_cbar")
    got = run(data["inputs"], name, severity, peer_seeds=peer_seeds(severity, 2))
    digests = [hashlib.sha256(image.tobytes()).hexdigest() for image in got]
    assert digests == list(data[f"seeded/{name}/sha256"][severity - 1])


# (file, corruption) with recorded statistics over 64 seeds.
RECORDED = [
    *(("cifar_c", name) for name in SEEDED),
    *(("cifar_cbar", name) for name in CIFAR_BAR if name != "circular_motion_blur"),
    *(("imagenet_c", name) for name in SEEDED),
    *(("imagenet_cbar", name) for name in IMAGENET_BAR),
]


@pytest.mark.parametrize(("file", "name"), RECORDED)
def test_own_streams_have_the_statistics_of_the_references(file: str, name: str) -> None:
    need_textures(name)
    data = fixtures(file)
    if file.startswith("cifar"):
        for severity in range(1, 6):
            for which in range(0, 8, 3):
                assert_same_statistics(data, name, severity, which, 96)
    else:
        assert_same_statistics(data, name, 3, 1, 48)


@pytest.mark.slow
@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize(("file", "name"), RECORDED)
def test_own_streams_have_the_statistics_of_the_references_everywhere(file: str, name: str, severity: int) -> None:
    need_textures(name)
    data = fixtures(file)
    for which in range(len(data["inputs"])):
        assert_same_statistics(data, name, severity, which, 128)
