"""Validation while a run trains."""

from __future__ import annotations

import numpy as np
import torch

from anchored.data.base import Images
from anchored.evaluation.scores import PART, score
from anchored.method.protocols import Predict
from anchored.system.preprocess import Preprocess
from anchored.training.distributed import Team


def validate(
    predict: Predict, images: Images, preprocess: Preprocess, device: torch.device, team: Team | None = None
) -> dict[str, float]:
    """top1 (percent) and nll; the processes of a team take every size-th image, so each image counts once."""
    rank, size = (team.rank, team.size) if team else (0, 1)
    index = torch.arange(rank, len(images), size)
    sums = [0.0, 0.0, float(len(index))]
    for part in index.split(PART):
        scores = score(predict, images.take(part), images.labels[part], part, preprocess, device=device)
        sums[0] += float(scores["correct"].sum())
        sums[1] += float(scores["nll"].sum(dtype=np.float64))
    right, nll, n = team.total(*sums) if team else sums
    return {"top1": 100 * right / n, "nll": nll / n}
