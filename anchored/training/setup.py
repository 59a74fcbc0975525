"""What a run trains with: its network, optimiser, batches and files, made from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from anchored.arms.run_config import RunConfig
from anchored.data.base import Data, Images, ImageSet
from anchored.data.stream import Streamed
from anchored.method.references import Anchoring, ReferenceSet
from anchored.runs.build import build, reference_set
from anchored.system.devices import grad_scaler, placed
from anchored.system.preprocess import Preprocess
from anchored.training import optimisers
from anchored.training.checkpoints import Checkpoints
from anchored.training.distributed import Team
from anchored.training.feed import Feed
from anchored.training.log import Log
from anchored.training.order import Order, order_of
from anchored.training.step import Step


@dataclass(frozen=True)
class Setup:
    """The parts of one run, in this process of `team`; `net` is on its device."""

    config: RunConfig
    preprocess: Preprocess
    folder: Path
    team: Team
    images: ImageSet | Streamed
    validation: Images | None
    order: Order
    references: ReferenceSet | None
    anchoring: Anchoring | None
    feed: Feed
    net: nn.Module
    average: AveragedModel | None
    optimiser: torch.optim.Optimizer
    take: Step
    log: Log
    checkpoints: Checkpoints

    @property
    def judged(self) -> nn.Module:
        """The network that is validated and returned: the trained one or the average of its weights."""
        return self.net if self.average is None else self.average.module

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.config.recipe.epochs * self.order.steps

    def lr(self, step: int) -> float:
        """The learning rate of a step: the schedule's at its middle, so that none has a rate of 0."""
        return self.config.recipe.lr_at((step + 0.5) / self.order.steps)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "net": self.net.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.take.scaler.state_dict(),
            "failures": list(self.feed.failures),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.net.load_state_dict(saved["net"])
        self.optimiser.load_state_dict(saved["optimiser"])
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        if saved.get("scaler"):
            self.take.scaler.load_state_dict(saved["scaler"])
        self.feed.failures.update(dict.fromkeys(saved.get("failures", ())))


def set_up(
    config: RunConfig,
    data: Data,
    preprocess: Preprocess,
    folder: Path,
    team: Team,
    validation: Images | None,
    *,
    compile: bool,
    keep: int,
    workers: int,
) -> Setup:
    """The parts of a run before its first step; arguments as those of `anchored.training.loop.train`."""
    device, images = team.device, data.train
    if isinstance(images, ImageSet):
        images = ImageSet(images.images.to(device), images.labels.to(device))
    assert isinstance(images, (ImageSet, Streamed))
    order = order_of(config, len(images))
    team.check(order.batch, config.recipe.accumulate)
    references = reference_set(config, images, preprocess)
    anchoring = None
    if config.anchored:
        anchoring = Anchoring(config.alpha, config.seed, references, config.reference_source, config.schedule)
    feed = Feed(images, config, preprocess, len(data.classes), order, team, anchoring, workers)
    net = placed(team.synchronised(build(config, len(data.classes), preprocess.size)), device)
    optimiser = optimisers.optimiser(net, config.recipe)
    average = optimisers.averaged(net, config.recipe)
    optimisers.train_mode(net)
    forward = team.forward(compiled(net) if compile else net)
    scaler = grad_scaler(device, config.precision)
    return Setup(
        config=config,
        preprocess=preprocess,
        folder=folder,
        team=team,
        images=images,
        validation=validation,
        order=order,
        references=references,
        anchoring=anchoring,
        feed=feed,
        net=net,
        average=average,
        optimiser=optimiser,
        take=Step(net, forward, optimiser, config, feed, anchoring, team, scaler),
        log=Log(folder / "log.jsonl", quiet=not team.main),
        checkpoints=Checkpoints(folder / "checkpoints", keep),
    )


def compiled(net: nn.Module) -> nn.Module:
    """torch.compile of a network, typed as what it is."""
    result: Any = torch.compile(net)
    return result
