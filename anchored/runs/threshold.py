"""From which energy on an image counts as an anomaly: a quantile over images the model should accept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from anchored.data import limit as stratified_limit
from anchored.data.base import Images
from anchored.method import protocols
from anchored.method.core import Anchored
from anchored.method.references import ReferenceSet
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

BATCH = 64


@dataclass(frozen=True)
class AnomalyThreshold:
    """An image whose energy is above `energy` is flagged.

    keep: the part of the `n` images that were used, `images` ("validation" or "training"), that is not flagged.
    protocol: the one the energies are of. Training images have lower energies than new ones, so a threshold from
    them flags more than 1 - keep of new images; the run says which it was.
    """

    energy: float
    keep: float
    n: int
    images: str
    protocol: str

    def __str__(self) -> str:
        return f"energy > {self.energy:.4g}, which {self.keep:.0%} of {self.n} {self.images} images are not"


def anomaly_threshold(
    net: nn.Module,
    references: ReferenceSet | None,
    preprocess: Preprocess,
    *,
    validation: Images | None,
    train: Images,
    keep: float = 0.95,
    limit: int = 2000,
) -> AnomalyThreshold:
    """The threshold that keeps a part `keep` of the validation images, or of the training images where there are none.

    net: an `Anchored` (its energies are those of one_random with the mean of `references`) or an ordinary classifier.
    validation, train: images of the network's size; at most `limit` of them are used, drawn class by class. Raises
    InputError for keep outside (0, 1).
    """
    if not 0 < keep < 1:
        raise InputError(f"keep is the part of accepted images that is not flagged, in (0, 1); got {keep}.")
    images = train if validation is None or not len(validation) else validation
    if len(images) > limit:
        images = images.subset(stratified_limit(images, limit, seed=0))
    anchored = isinstance(net, Anchored)
    predict = protocols.one_random(net, references) if isinstance(net, Anchored) else protocols.direct(net)
    device = next(net.parameters()).device
    energies = torch.cat(
        [
            predict(preprocess(images.take(part).to(device))).energy.cpu()
            for part in torch.arange(len(images)).split(BATCH)
        ]
    )
    threshold = torch.quantile(energies.double(), keep, interpolation="higher")
    return AnomalyThreshold(
        float(threshold),
        keep,
        len(images),
        "training" if images is train or validation is None or not len(validation) else "validation",
        "one_random" if anchored else "direct",
    )
