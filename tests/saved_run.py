"""A run on disk in a second: an anchored tiny network whose halves differ, as if trained."""

from __future__ import annotations

from pathlib import Path

import torch

from anchored import Anchored, ReferenceSet, Run, load
from anchored.arms.recipe_choice import recipe
from anchored.data.base import ImageSet
from anchored.runs import run as runs
from anchored.runs.run import RunConfig, build
from anchored.system.preprocess import Preprocess

CLASSES = ("cat", "dog", "löwe", "emu")


def saved_run(folder: Path, method: str = "masking", model: str = "tiny_model:tiny", **more: object) -> Run:
    """A loaded run of `method` with 12 training images of 16 px, all of them references."""
    stream = torch.Generator().manual_seed(0)
    config = RunConfig(method=method, model=model, recipe=recipe("cpu_quick"), seed=3)
    preprocess = Preprocess(16, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), crop=0.8)
    images = torch.randint(0, 256, (12, 16, 16, 3), generator=stream, dtype=torch.uint8)
    train = ImageSet(images, torch.arange(12) % 4)
    net = build(config, len(CLASSES), 16).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream)
    references = None
    if isinstance(net, Anchored):
        references = ReferenceSet.from_dataset(train, seed=3, transform=preprocess)
    runs.save(folder, config, net, preprocess, CLASSES, references, train, **more)
    return load(folder)
