"""What a run predicts on: pictures, paths and arrays, one or many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from images import picture
from PIL import Image

from anchored.runs.run import _as_uint8
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

PREPROCESS = Preprocess(16, (0.5,) * 3, (0.5,) * 3)
ARRAYS = np.stack([picture(seed, 16) for seed in range(3)])


def test_every_form_of_the_same_images_is_seen_alike(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, array in zip(paths, ARRAYS, strict=True):
        Image.fromarray(array).save(path)
    forms = [ARRAYS, torch.from_numpy(ARRAYS), list(ARRAYS), paths, [str(path) for path in paths]]
    forms.append([Image.fromarray(ARRAYS[0]), str(paths[1]), torch.from_numpy(ARRAYS[2])])
    for form in forms:
        np.testing.assert_array_equal(_as_uint8(form, PREPROCESS).numpy(), ARRAYS)
    for one in (ARRAYS[0], paths[0], Image.fromarray(ARRAYS[0]), torch.from_numpy(ARRAYS[0])):
        np.testing.assert_array_equal(_as_uint8(one, PREPROCESS).numpy(), ARRAYS[:1])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (ARRAYS.transpose(0, 3, 1, 2), "Channels come last"),
        (ARRAYS.astype(np.float32) / 255, r"got float32 \[16, 16, 3\]. Of pixels in \[0, 1\]"),
        (ARRAYS[..., :1], "Of grey images"),
        ("/nowhere/x.png", "/nowhere/x.png is not a readable image"),
        ([], "at least one image"),
        ([3], "got int"),
    ],
)
def test_other_inputs_are_refused_with_a_hint(images: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _as_uint8(images, PREPROCESS)  # type: ignore[arg-type]
