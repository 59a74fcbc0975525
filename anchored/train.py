"""The training loop of one run: visible, resumable, and the same bits for the same seed.

Everything random is named by (seed, step) or (seed, epoch), so the state to resume from is the step, the
weights and the optimiser.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored.augment import Pipeline
from anchored.batchnorm import frozen_statistics, recalibrate
from anchored.core import Anchored, anchor, anchored_loss
from anchored.data.base import Data, ImageSet
from anchored.devices import autocast, placed
from anchored.errors import InputError, TrainingError
from anchored.evaluate import accuracy
from anchored.files import write_atomic, write_text
from anchored.models import create
from anchored.preprocess import Preprocess
from anchored.protocols import Predict, direct, one_random
from anchored.recipes import Recipe
from anchored.references import Anchoring, ReferenceSet
from anchored.rng import generator, stream_seed
from anchored.stem import logits_of
from anchored.trainlog import Log, Meter, read_checkpoint

METHODS = ("standard", "vanilla", "masking")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of one run, apart from the images themselves.

    method: standard | vanilla | masking. masked_target: uniform | label (masking only). masked_bn: "skip" keeps
    masked batches out of the running statistics of batch normalisation, which inference on unmasked tuples uses;
    "update" lets them in (as the paper's code does). recalibrate_bn: training images used to estimate those
    statistics again after training, on unmasked tuples; 0 keeps them. references: size of the reference set, None
    for the whole training set.
    """

    method: str
    model: str
    recipe: Recipe
    seed: int
    weights: str = "none"
    masked_target: str = "uniform"
    schedule: str = "bernoulli"
    masked_bn: str = "skip"
    recalibrate_bn: int = 0
    reference_source: str = "set"
    references: int | None = None
    precision: str = "bfloat16"

    def __post_init__(self) -> None:
        choices = {
            "method": METHODS,
            "masked_target": ("uniform", "label"),
            "schedule": ("bernoulli", "periodic"),
            "masked_bn": ("update", "skip"),
            "reference_source": ("set", "batch"),
            "precision": ("bfloat16", "float32"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name.replace('_', '-')} is one of {', '.join(allowed)}; got {getattr(self, name)!r}."
                )
        if self.recalibrate_bn < 0:
            raise InputError(f"recalibrate-bn counts training images, 0 for none; got {self.recalibrate_bn}.")

    @property
    def anchored(self) -> bool:
        """Whether the network takes references."""
        return self.method != "standard"

    @property
    def alpha(self) -> float:
        """The rate of masked batches: the recipe's for masking, else 0."""
        return self.recipe.alpha if self.method == "masking" else 0.0

    @property
    def variant(self) -> str:
        """`standard`, `vanilla`, `masking-uniform` or `masking-label`."""
        return f"masking-{self.masked_target}" if self.method == "masking" else self.method

    @property
    def run(self) -> str:
        """The name of the run in a comparison."""
        return f"{self.variant}-seed{self.seed}"


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


def reference_set(config: RunConfig, train: ImageSet, preprocess: Preprocess) -> ReferenceSet | None:
    """The reference set of a run: training images under the evaluation transform."""
    if not config.anchored:
        return None
    return ReferenceSet.from_dataset(train, config.references, seed=config.seed, transform=preprocess)


def predictor(net: nn.Module, references: ReferenceSet | None) -> Predict:
    """How a run predicts unless a protocol is asked for: with the mean reference, or as the classifier it is."""
    return one_random(net, references) if isinstance(net, Anchored) else direct(net)


def train(
    config: RunConfig,
    data: Data,
    preprocess: Preprocess,
    folder: Path,
    *,
    device: torch.device,
    validation: ImageSet | None = None,
    compile: bool = False,
    checkpoint_every: float = 300.0,
    tick: Callable[[float, str], None] = lambda amount, note: None,
) -> nn.Module:
    """Train one run, or go on with it from `folder/checkpoint.pt`; the trained network, on `device`, in eval mode.

    A checkpoint is written after every epoch and every `checkpoint_every` seconds. `tick(images, note)` hears of
    progress. Writes `folder/metrics.jsonl` (a line an epoch) and `folder/log.jsonl` (starts, steps, checkpoints).
    Raises TrainingError, with the step and the images of the batch, when the loss is not finite.
    """
    recipe = config.recipe
    images = ImageSet(data.train.images.to(device), data.train.labels.to(device))
    size = preprocess.size
    pipeline = Pipeline(images.images, preprocess.mean, preprocess.std, recipe.augmentation, config.seed)
    references = reference_set(config, images, preprocess)
    anchoring = None
    if config.anchored:
        anchoring = Anchoring(config.alpha, config.seed, references, config.reference_source, config.schedule)
    net = placed(build(config, len(data.classes), size), device)
    predict = predictor(net, references)
    optimiser = _optimiser(net, recipe)
    batch = min(recipe.batch_size, len(images))
    steps = len(images) // batch
    log = Log(folder / "log.jsonl")

    start, history, meter = 0, [], Meter()
    checkpoint = read_checkpoint(folder / "checkpoint.pt", device)
    if checkpoint is not None:
        net.load_state_dict(checkpoint["net"])
        optimiser.load_state_dict(checkpoint["optimiser"])
        start, history = checkpoint["step"], checkpoint["history"]
        meter = Meter(**checkpoint["meter"])
    log.write("start" if checkpoint is None else "resume", step=start)
    forward: Any = torch.compile(net) if compile else net
    net.train()
    order, saved, epoch_started = torch.empty(0, dtype=torch.int64), time.monotonic(), time.monotonic()

    for step in range(start, recipe.epochs * steps):
        epoch, position = divmod(step, steps)
        if position == 0 or step == start:
            order = torch.randperm(len(images), generator=generator(config.seed, "order", epoch))
        index = order[position * batch : (position + 1) * batch].to(device)
        x, y = pipeline.train(index, epoch), images.labels[index]
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr_at(step / steps)
        torch.manual_seed(stream_seed(config.seed, "step", step))  # dropout, the same when resumed
        masked = anchoring is not None and anchoring.masked(step)
        seen: list[Tensor] = []

        def criterion(logits: Tensor, target: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(logits.detach())
            return F.cross_entropy(logits.float(), _float(target), label_smoothing=recipe.label_smoothing)

        with autocast(device, config.precision):
            if anchoring is None:
                loss = criterion(logits_of(forward(x)), y)
            else:
                with frozen_statistics(net, masked and config.masked_bn == "skip"):
                    target: Any = config.masked_target
                    loss = anchored_loss(
                        forward, x, y, anchoring.draw(x, step), masked=masked, masked_target=target, criterion=criterion
                    )
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"{config.run}: the loss is {value} at step {step} (epoch {epoch}, learning rate "
                f"{recipe.lr_at(step / steps):.3g}); training images {index.tolist()[:8]}... of that batch. The last "
                f"good checkpoint is in {folder}. A smaller --lr usually helps."
            )
        loss.backward()
        if recipe.clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

        meter.add(value, masked, 0 if masked else int((seen[0].argmax(1) == y).sum()), batch)
        log.step(step, steps)
        last = position == steps - 1
        speed = batch * (position + 1) / (time.monotonic() - epoch_started) if step >= start + position else 0.0
        tick(batch, f"{config.run} epoch {epoch + 1}/{recipe.epochs} loss {meter.mean():.3f} {speed:,.0f} images/s")
        if last:
            history.append({"epoch": epoch + 1, "step": step + 1, "lr": recipe.lr_at(step / steps), **meter.summary()})
            if validation is not None:
                history[-1]["validation_top1"] = accuracy(predict, validation, preprocess, device)
            history[-1]["images_per_second"] = round(speed, 1)
            meter, epoch_started = Meter(), time.monotonic()
            write_text(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in history))
        if last or time.monotonic() - saved > checkpoint_every:
            state = {
                "step": step + 1,
                "net": net.state_dict(),
                "optimiser": optimiser.state_dict(),
                "history": history,
                "meter": asdict(meter),
            }
            write_atomic(folder / "checkpoint.pt", functools.partial(torch.save, state))
            log.write("checkpoint", step=step + 1)
            saved = time.monotonic()

    if config.recalibrate_bn:
        order = torch.randperm(len(images), generator=generator(config.seed, "recalibrate"))[: config.recalibrate_bn]
        with autocast(device, config.precision):
            recalibrate(net, unmasked(net, pipeline, order.split(batch), anchoring))
    return net.eval()


def unmasked(
    net: nn.Module, pipeline: Pipeline, batches: Iterable[Tensor], anchoring: Anchoring | None
) -> Iterator[Callable[[], Any]]:
    """Forward passes of un-augmented training images, as they come at inference, for `recalibrate`."""
    for number, index in enumerate(batches):
        if len(index) >= 2:  # batch normalisation has no statistics of one image
            x = pipeline.plain(index.to(pipeline.images.device))
            inputs = (x,) if anchoring is None else (x, anchoring.draw(x, -1 - number))
            yield functools.partial(net, *inputs)


def _optimiser(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            parameters, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov
        )
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    others = [parameter for parameter in parameters if parameter.ndim <= 1]  # norms and biases
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, recipe.lr, weight_decay=recipe.weight_decay)


def _float(target: Tensor) -> Tensor:
    return target.float() if target.is_floating_point() else target
