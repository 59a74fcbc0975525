"""The published CIFAR-10-C files, bit for bit: minutes of work, so marked slow."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anchored.corruptions import corrupt

DATA = Path(os.environ.get("ANCHORED_DATA", Path(__file__).parents[2] / "shared" / "data")) / "cifar10" / "test.parquet"

# MD5 of `<name>.npy` as published with CIFAR-10-C. (JPEG too is deterministic, but that of the codec of 2019.)
PUBLISHED = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}


@pytest.fixture(scope="module")
def test_images() -> np.ndarray:
    if not DATA.is_file():
        pytest.skip(f"no CIFAR-10 in {DATA} (set ANCHORED_DATA)")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(DATA, columns=["image"]).column("image").to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_file_equals_the_published_one(name: str, test_images: np.ndarray) -> None:
    """All 50,000 rows, severity-major, with the header of the file format: the MD5 of the published file."""
    header = io.BytesIO()
    shape = (5 * len(test_images), *test_images.shape[1:])
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    digest = hashlib.md5(header.getvalue(), usedforsecurity=False)
    for severity in range(1, 6):
        digest.update(corrupt(test_images, name, severity, seed=0).tobytes())
    assert digest.hexdigest() == PUBLISHED[name]
