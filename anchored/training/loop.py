"""The training loop of one run: visible, resumable, and the same bits for the same seed.

Everything random is named by (seed, step) or (seed, epoch), so the state to resume from is the step, the weights,
their average and the optimiser.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anchored.arms.run_config import RunConfig
from anchored.data.base import Data, Images, ImageSet
from anchored.data.stream import Streamed
from anchored.method.batchnorm import recalibrate
from anchored.method.references import Anchoring, ReferenceSet
from anchored.runs.build import build, predictor, reference_set
from anchored.system.devices import autocast, grad_scaler, placed
from anchored.system.errors import InputError, Stopped, TrainingError
from anchored.system.files import write_atomic, write_text
from anchored.system.preprocess import Preprocess
from anchored.system.rng import generator
from anchored.system.signals import Termination
from anchored.training import optimisers
from anchored.training.checkpoints import Checkpoints
from anchored.training.distributed import Team
from anchored.training.feed import Feed
from anchored.training.log import Log, Meter
from anchored.training.order import Order
from anchored.training.step import NotFinite, Step
from anchored.training.validation import validate

MEAN = "reference_mean.safetensors"


def train(
    config: RunConfig,
    data: Data,
    preprocess: Preprocess,
    folder: Path,
    *,
    device: torch.device,
    validation: Images | None = None,
    compile: bool = False,
    checkpoint_every: float = 300.0,
    keep: int = 2,
    workers: int = 2,
    team: Team | None = None,
    tick: Callable[[float, str], None] = lambda amount, note: None,
    say: Callable[[str], None] = lambda note: None,
    record: Callable[[dict[str, Any]], None] = lambda line: None,
) -> nn.Module:
    """Train one run, or go on with it from its newest checkpoint; the trained network, on `device`, in eval mode.

    With an average of the weights (recipe.ema_decay) that average is returned, with config.select = "top1" or "nll" the
    network of the epoch that was best by it on `validation`. `folder/checkpoints` gets a checkpoint after every epoch,
    every `checkpoint_every` seconds and on SIGTERM; the last `keep` stay. Writes `folder/metrics.jsonl` (a line an
    epoch) and `folder/log.jsonl` (starts, steps, checkpoints). team: the processes that train together. `tick(images,
    note)` hears of progress, `say` of what a user should know, `record` of every epoch's metrics. Raises TrainingError,
    with the step and the images of the batch, when the loss is not finite, and Stopped on SIGTERM.
    """
    team = team or Team(device)
    device, recipe = team.device, config.recipe
    images = data.train
    if isinstance(images, ImageSet):
        images = ImageSet(images.images.to(device), images.labels.to(device))
    assert isinstance(images, (ImageSet, Streamed))
    batch, parts = min(recipe.batch_size, len(images)), recipe.accumulate
    team.check(batch, parts)
    order = Order(len(images), batch, config.seed, recipe.repeats)
    steps = order.steps
    references = reference_set(config, images, preprocess)
    anchoring = None
    if config.anchored:
        anchoring = Anchoring(config.alpha, config.seed, references, config.reference_source, config.schedule)
    feed = Feed(images, config, preprocess, len(data.classes), order, team, anchoring, workers)
    net = placed(team.synchronised(build(config, len(data.classes), preprocess.size)), device)
    optimiser = optimisers.optimiser(net, recipe)
    average = optimisers.averaged(net, recipe)
    judged = net if average is None else average.module
    # Without a validation split nobody predicts, and the mean of the references costs a pass over the data.
    predict = None if validation is None else predictor(judged, references)
    log, checkpoints = Log(folder / "log.jsonl", quiet=not team.main), Checkpoints(folder / "checkpoints", keep)

    start, history, meter, best = 0, [], Meter(), -math.inf
    team.wait()
    if isinstance(images, Streamed) and references is not None and validation is not None:
        settle_mean(references, folder, team)
    state, damaged = checkpoints.newest(device)
    for note in damaged:
        say(note)
    if state is not None:
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        if average is not None:
            average.load_state_dict(state["average"])
        start, history, best = state["step"], state["history"], state["best"]
        meter = Meter(**state["meter"])
        feed.failures.update(dict.fromkeys(state.get("failures", ())))
    log.write("start" if state is None else "resume", step=start)
    forward: Any = team.forward(compiled(net) if compile else net)
    optimisers.train_mode(net)
    take = Step(net, forward, optimiser, config, feed, anchoring, team, grad_scaler(device, config.precision))
    if state is not None and state.get("scaler"):
        take.scaler.load_state_dict(state["scaler"])
    saved = epoch_started = time.monotonic()
    epoch_start = start

    def failed(what: str, step: int, taken: Tensor) -> TrainingError:
        shown = taken.tolist()
        log.write("failed", step=step, images=shown)
        last = f"The last good checkpoint is {checkpoints.last}." if checkpoints.last else "There is no checkpoint yet."
        return TrainingError(
            f"{config.run}: {what} at step {step} (epoch {step // steps}, learning rate "
            f"{recipe.lr_at((step + 0.5) / steps):.3g}); training images {shown[:8]}... of that batch, all of them in "
            f"{log.path}. {last} A smaller --lr usually helps."
        )

    # Closed at once when something stops the loop, so that workers end before the message.
    with Termination() as termination, closing(feed.batches(start, recipe.epochs * steps)) as batches:
        for step in range(start, recipe.epochs * steps):
            epoch, position = divmod(step, steps)
            rate = recipe.lr_at((step + 0.5) / steps)  # at the middle of the step, so that none has a rate of 0
            optimisers.set_lr(optimiser, rate)
            try:
                done = take(step, batches, termination.asked)
            except NotFinite as error:
                raise failed(str(error), step, error.images) from error
            optimisers.average(average, net, recipe, step, step / steps)

            meter.add(done.loss, done.masked, done.right, batch)
            log.step(step, steps)
            speed = batch * (step + 1 - epoch_start) / (time.monotonic() - epoch_started)
            if team.main:
                note = f"{config.run} epoch {epoch + 1}/{recipe.epochs} {meter} {speed:,.0f} images/s"
                tick(batch, note)
            last = position == steps - 1
            improved = False
            if last:
                history.append({"epoch": epoch + 1, "step": step + 1, "lr": rate})
                history[-1] |= meter.summary() | {"images_per_second": round(speed, 1)}
                if validation is not None and predict is not None:
                    try:
                        measured = validate(predict, validation, preprocess, device, team)
                    except InputError as error:
                        raise failed(f"validation fails ({error})", step, done.images) from error
                    history[-1] |= {f"validation_{name}": value for name, value in measured.items()}
                    if config.select != "last":
                        good = goodness(config.select, history[-1])
                        improved, best = good > best, max(best, good)
                if team.main:
                    record(history[-1])
                meter, epoch_started, epoch_start = Meter(), time.monotonic(), step + 1
            if team.main and (last or done.stopping or time.monotonic() - saved > checkpoint_every):
                state = {
                    "step": step + 1,
                    "net": net.state_dict(),
                    "average": None if average is None else average.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "scaler": take.scaler.state_dict(),
                    "history": history,
                    "meter": asdict(meter),
                    "best": best,
                    "failures": list(feed.failures),
                }
                if not all(bool(value.isfinite().all()) for value in net.parameters()):
                    raise failed("weights are NaN or infinite after the update", step, done.images)
                if improved:
                    checkpoints.save_best({"step": step + 1, "judged": judged.state_dict()})
                checkpoints.save(state)
                log.write("checkpoint", step=step + 1)
                saved = time.monotonic()
                write_text(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in history))
            if done.stopping:
                team.wait()
                raise Stopped(f"{config.run}: stopped by SIGTERM after step {step + 1}, which is saved.")

    if (unreadable := team.gathered(list(feed.failures))) and team.main:
        named = ", ".join(unreadable[:3])
        say(f"unreadable training images, the next one taken instead: {len(unreadable):,}: {named}")
    if isinstance(images, Streamed) and references is not None:
        settle_mean(references, folder, team)
    team.wait()
    if config.select != "last":
        judged.load_state_dict(checkpoints.best(device)["judged"])
    if config.recalibrate_bn:
        chosen = torch.randperm(len(images), generator=generator(config.seed, "recalibrate"))[: config.recalibrate_bn]
        with autocast(device, config.precision):
            recalibrate(judged, unmasked(judged, feed, chosen.split(batch), anchoring))
    return judged.eval()


def settle_mean(references: ReferenceSet, folder: Path, team: Team) -> None:
    """Give `references`, whose images are decoded for it, their mean: once for all processes and resumed runs."""
    file = folder / MEAN
    if not file.exists():
        total = references.share(team.rank, team.size) if len(references) >= team.size else references.share(0, 1)
        mean = (team.summed(total) if len(references) >= team.size else total) / len(references)
        if team.main:
            write_atomic(file, lambda path: save_file({"mean": mean.float().cpu().contiguous()}, path))
        team.wait()
    references.keep_mean(load_file(file)["mean"])


def goodness(metric: str, line: dict[str, Any]) -> float:
    """How good an epoch is by a validation metric: larger is better."""
    return float(line[f"validation_{metric}"]) * (-1 if metric == "nll" else 1)


def compiled(net: nn.Module) -> nn.Module:
    """torch.compile of a network, typed as what it is."""
    result: Any = torch.compile(net)
    return result


def unmasked(
    net: nn.Module, feed: Feed, batches: Iterable[Tensor], anchoring: Anchoring | None
) -> Iterator[Callable[[], Any]]:
    """Forward passes of un-augmented training images, as they come at inference, for `recalibrate`."""
    for number, index in enumerate(batches):
        if len(index) >= 2:  # batch normalisation has no statistics of one image
            x = feed.plain(index)
            inputs = (x,) if anchoring is None else (x, anchoring.draw(x, -1 - number))
            yield functools.partial(net, *inputs)
