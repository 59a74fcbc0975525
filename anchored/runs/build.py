"""What the settings of a run make: its untrained network, its reference set, its Predict."""

from __future__ import annotations

import torch
from torch import nn

from anchored.arms.run_config import RunConfig
from anchored.data.base import Images
from anchored.method.core import Anchored, anchor
from anchored.method.protocols import Predict, direct, one_random
from anchored.method.references import ReferenceSet
from anchored.models.by_name import create
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess
from anchored.system.rng import generator, stream_seed


def build(config: RunConfig, classes: int, size: int) -> nn.Module:
    """The untrained network of a run: the same weights for every method of one seed, the stem apart.

    A pretrained classifier is anchored with its function preserved, a new one with a fresh stem.
    """
    model = create(config.model, classes, weights=config.weights, image_size=size, seed=config.seed)
    if not config.anchored:
        return model.net
    example = torch.rand(2, 3, size, size, generator=generator("example"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.seed, "stem"))
        try:
            return anchor(model.net, example=example, init="preserve" if model.pretrained else "fresh")
        except ValueError as error:
            raise InputError(f"{config.model} cannot be anchored: {error}") from error


def reference_set(config: RunConfig, train: Images, preprocess: Preprocess) -> ReferenceSet | None:
    """The reference set of a run: training images under the evaluation transform."""
    if not config.anchored:
        return None
    return ReferenceSet.from_dataset(train, config.references, seed=config.seed, transform=preprocess)


def predictor(net: nn.Module, references: ReferenceSet | None) -> Predict:
    """How a run predicts unless a protocol is asked for: with the mean reference, or as the classifier it is."""
    return one_random(net, references) if isinstance(net, Anchored) else direct(net)
