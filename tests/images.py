"""Generated pictures, class folders and parquet files for the tests of the data sources."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image


def picture(seed: int, height: int = 8, width: int | None = None) -> NDArray[np.uint8]:
    """Noise, uint8 [height, width, 3], another for every seed."""
    return np.random.default_rng(seed).integers(0, 256, (height, width or height, 3), dtype=np.uint8)


def encoded(image: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    """The bytes of a picture file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, lossless=True) if kind == "WEBP" else Image.fromarray(image).save(
        buffer, kind
    )
    return buffer.getvalue()


def class_folders(root: Path, counts: dict[str, int], *, side: int = 8, seed: int = 0) -> Path:
    """Folders of PNG pictures below `root`: name -> how many. Picture i of class c is picture(seed + 1000 c + i)."""
    for number, (name, count) in enumerate(counts.items()):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for position in range(count):
            Image.fromarray(picture(seed + 1000 * number + position, side)).save(folder / f"{position:03}.png")
    return root


def write_parquet(
    path: Path,
    pictures: Sequence[bytes | None],
    labels: Sequence[object],
    *,
    names: Sequence[str] | None = None,
    columns: tuple[str, str] = ("image", "label"),
    label_type: pa.DataType | None = None,
) -> Path:
    """A file as Hugging Face `datasets` writes it."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": picture, "path": f"{number}.png"} for number, picture in enumerate(pictures)]
    table = pa.table(
        {columns[0]: pa.array(rows, kind), columns[1]: pa.array(labels, label_type or pa.int64())},
    )
    if names is not None:
        features = {
            columns[0]: {"_type": "Image"},
            columns[1]: {"names": list(names), "_type": "ClassLabel"},
        }
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=7)
    return path
