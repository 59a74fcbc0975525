"""Parity with outputs of the reference codes (`shared/corruptions/fixtures`), byte for byte where they are fixed."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from anchored.corruptions import NAMES, corrupt

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
# Values that may be off by one level (ties of the final truncation) where the reference used other arithmetic.
ONE_LEVEL: dict[str, float] = {}


@lru_cache(maxsize=4)
def fixtures(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return {key: file[key] for key in file.files if not key.startswith("stat/") or key.endswith("scalars")}


def run(images: np.ndarray, key: str, severity: int, **options: object) -> np.ndarray:
    return corrupt(images, key.split("__")[0], severity, seed=0, **options)  # type: ignore[arg-type]


def peer_seeds(severity: int, count: int) -> list[int]:
    return [1000 * severity + i for i in range(count)]


def assert_close(got: np.ndarray, expected: np.ndarray, share: float) -> None:
    difference = np.abs(got.astype(int) - expected)
    assert difference.max() <= (1 if share else 0)
    assert (difference > 0).mean() <= share


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", DETERMINISTIC)
def test_deterministic_corruptions_equal_the_references_at_32_px(key: str, severity: int) -> None:
    data = fixtures("cifar_c")
    assert_close(run(data["inputs"], key, severity), data[f"det/{key}"][severity - 1], ONE_LEVEL.get(key, 0))


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", DETERMINISTIC)
def test_deterministic_corruptions_equal_the_references_at_224_px(key: str, severity: int) -> None:
    data = fixtures("imagenet_c")
    got = run(data["inputs"], key, severity)
    assert [hashlib.sha256(image.tobytes()).hexdigest() for image in got] == list(
        data[f"det/{key}/sha256"][severity - 1]
    )


SEEDED = tuple(name for name in ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise") if name in NAMES)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", SEEDED)
def test_random_corruptions_equal_the_references_on_their_random_numbers_at_32_px(key: str, severity: int) -> None:
    data = fixtures("cifar_c")
    got = run(data["inputs"], key, severity, peer_seeds=peer_seeds(severity, 8))
    assert_close(got, data[f"seeded/{key}"][severity - 1], ONE_LEVEL.get(key, 0))


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("key", SEEDED)
def test_random_corruptions_equal_the_references_on_their_random_numbers_at_224_px(key: str, severity: int) -> None:
    data = fixtures("imagenet_c")
    got = run(data["inputs"], key, severity, peer_seeds=peer_seeds(severity, 2))
    corners = np.stack([got[:, :48, :48], got[:, -48:, -48:]], 1)
    assert_close(corners, data[f"seeded/{key}/corners"][severity - 1], ONE_LEVEL.get(key, 0))
