"""The training loop of one run: visible, resumable, and the same bits for the same seed.

Everything random is named by (seed, step) or (seed, epoch), so the state to resume from is the step, the weights,
their average and the optimiser.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from anchored.arms.run_config import RunConfig
from anchored.data.base import Data, Images
from anchored.data.stream import Streamed
from anchored.method.batchnorm import recalibrate
from anchored.method.references import Anchoring, ReferenceSet
from anchored.runs.build import predictor
from anchored.system.devices import arithmetic, autocast
from anchored.system.errors import InputError, Stopped, TrainingError
from anchored.system.files import write_atomic, write_text
from anchored.system.preprocess import Preprocess
from anchored.system.rng import generator
from anchored.system.signals import Termination
from anchored.training import optimisers
from anchored.training.distributed import Team
from anchored.training.feed import Batch, Feed
from anchored.training.setup import Setup, set_up
from anchored.training.state import State
from anchored.training.step import Done, NotFinite
from anchored.training.validation import validate

MEAN = "reference_mean.safetensors"
Say = Callable[[str], None]


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
    state: State | None = None,
    tick: Callable[[float, str], None] = lambda amount, note: None,
    say: Say = lambda note: None,
    record: Callable[[dict[str, Any]], None] = lambda line: None,
) -> nn.Module:
    """Train one run, or go on with it from its newest checkpoint; the trained network, on `device`, in eval mode.

    With an average of the weights (recipe.ema_decay) that average is returned, with config.select = "top1" or "nll" the
    network of the epoch that was best by it on `validation`. `folder/checkpoints` gets a checkpoint after every epoch,
    every `checkpoint_every` seconds and on SIGTERM; the last `keep` stay. Writes `folder/metrics.jsonl` (a line an
    epoch) and `folder/log.jsonl` (starts, steps, checkpoints). team: the processes that train together. state: a new
    one, to look at afterwards. `tick(images, note)` hears of progress, `say` of what a user should know, `record` of
    every epoch's metrics. Raises TrainingError, with the step and the images of the batch, when the loss is not finite,
    and Stopped on SIGTERM.
    """
    state, team = state or State(), team or Team(device)
    run = set_up(config, data, preprocess, folder, team, validation, compile=compile, keep=keep, workers=workers)
    resume(run, state, say)
    # Closed at once when something stops the loop, so that workers end before the message.
    with Termination() as termination, closing(run.feed.batches(state.step, run.steps)) as batches:
        while state.step < run.steps:
            done = take_step(run, state, batches, termination.asked)
            if team.main:
                tick(run.order.batch, described(run, state))
            last, improved = state.step % run.order.steps == 0, False
            if last:
                improved = end_epoch(run, state, done)
                if team.main:
                    record(state.history[-1])
            if team.main and (last or done.stopping or time.monotonic() - state.saved > checkpoint_every):
                checkpoint(run, state, done, improved)
            if done.stopping:
                team.wait()
                raise Stopped(f"{config.run}: stopped by SIGTERM after step {state.step}, which is saved.")
    net = finish(run, say)
    state.add_time()
    return net


def resume(run: Setup, state: State, say: Say) -> None:
    """Go on from the newest checkpoint that can be read, or begin; says what a user should know of it."""
    run.team.wait()
    if run.validation is not None:  # else nobody predicts, and the mean of the references costs a pass over the data
        settle_streamed_mean(run)
    saved, damaged = run.checkpoints.newest(run.team.device)
    for note in damaged:
        say(note)
    if saved is not None:
        run.load_state_dict(saved)
        state.load_state_dict(saved)
    run.log.write("start" if saved is None else "resume", step=state.step)
    if state.step < run.steps:
        state.computes_in(arithmetic(run.team.device, run.config.precision))
    if len(state.stretches) > 1:
        stretches = ", ".join(f"{name} from step {step}" for step, name in state.stretches)
        note = f"{run.config.run} is computed in more than one arithmetic: {stretches} (every device has float32)"
        run.log.write("arithmetic", step=state.step, note=note)
        if run.team.main:
            say(note)
    state.begin()


def take_step(run: Setup, state: State, batches: Iterator[Batch], asked: bool) -> Done:
    """The next optimisation step, at its learning rate, counted in `state`. Raises TrainingError."""
    step, steps = state.step, run.order.steps
    optimisers.set_lr(run.optimiser, run.lr(step))
    try:
        done = run.take(step, batches, asked)
    except NotFinite as error:
        raise failed(run, step, str(error), error.images) from error
    optimisers.average(run.average, run.net, run.config.recipe, step, step / steps)
    state.count(done, run.order.batch)
    run.log.step(step, steps)
    return done


def described(run: Setup, state: State) -> str:
    """The step just taken, for a progress bar."""
    epoch = (state.step - 1) // run.order.steps + 1
    images = run.order.batch * state.speed()
    return f"{run.config.run} epoch {epoch}/{run.config.recipe.epochs} {state.meter} {images:,.0f} images/s"


def end_epoch(run: Setup, state: State, done: Done) -> bool:
    """Validate, and add the epoch's metrics to the history; whether it is the best so far. Raises TrainingError."""
    step, select = state.step - 1, run.config.select
    line: dict[str, Any] = {"epoch": state.step // run.order.steps, "step": state.step, "lr": run.lr(step)}
    line |= state.meter.summary() | {"images_per_second": round(run.order.batch * state.speed(), 1)}
    if run.validation is not None:
        predict = predictor(run.judged, run.references)
        try:
            measured = validate(predict, run.validation, run.preprocess, run.team.device, run.team)
        except InputError as error:
            raise failed(run, step, f"validation fails ({error})", done.images) from error
        line |= {f"validation_{name}": value for name, value in measured.items()}
    state.history.append(line)
    state.next_epoch()
    if run.validation is None or select == "last":
        return False
    improved = (good := goodness(select, line)) > state.best
    state.best = max(state.best, good)
    return improved


def checkpoint(run: Setup, state: State, done: Done, improved: bool) -> None:
    """Write a checkpoint, and the metrics so far. Raises TrainingError where weights are not finite."""
    if not all(bool(value.isfinite().all()) for value in run.net.parameters()):
        raise failed(run, state.step - 1, "weights are NaN or infinite after the update", done.images)
    if improved:
        run.checkpoints.save_best({"step": state.step, "judged": run.judged.state_dict()})
    state.add_time()
    run.checkpoints.save(run.state_dict() | state.state_dict())
    run.log.write("checkpoint", step=state.step)
    state.saved = time.monotonic()
    write_text(run.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in state.history))


def failed(run: Setup, step: int, what: str, taken: Tensor) -> TrainingError:
    """What ends the run at `step`, with the images (int64 [B]) of its batch; they are logged."""
    shown = taken.tolist()
    run.log.write("failed", step=step, images=shown)
    last = run.checkpoints.last
    kept = f"The last good checkpoint is {last}." if last else "There is no checkpoint yet."
    return TrainingError(
        f"{run.config.run}: {what} at step {step} (epoch {step // run.order.steps}, learning rate {run.lr(step):.3g}); "
        f"training images {shown[:8]}... of that batch, all of them in {run.log.path}. {kept} A smaller --lr usually "
        "helps."
    )


def finish(run: Setup, say: Say) -> nn.Module:
    """The network to be returned, once all steps are taken: the one of the epoch asked for, its batch norm settled."""
    config, team = run.config, run.team
    if (unreadable := team.gathered(list(run.feed.failures))) and team.main:
        named = ", ".join(unreadable[:3])
        say(f"unreadable training images, the next one taken instead: {len(unreadable):,}: {named}")
    settle_streamed_mean(run)
    team.wait()
    if config.select != "last":
        run.judged.load_state_dict(run.checkpoints.best(team.device)["judged"])
    if config.recalibrate_bn:
        chosen = torch.randperm(len(run.images), generator=generator(config.seed, "recalibrate"))
        batches = chosen[: config.recalibrate_bn].split(run.order.batch)
        with autocast(team.device, config.precision):
            recalibrate(run.judged, unmasked(run.judged, run.feed, batches, run.anchoring))
    return run.judged.eval()


def settle_streamed_mean(run: Setup) -> None:
    """`settle_mean` of the references where they are streamed; those in memory have theirs at once."""
    if isinstance(run.images, Streamed) and run.references is not None:
        settle_mean(run.references, run.folder, run.team)


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


def unmasked(
    net: nn.Module, feed: Feed, batches: Iterable[Tensor], anchoring: Anchoring | None
) -> Iterator[Callable[[], Any]]:
    """Forward passes of un-augmented training images, as they come at inference, for `recalibrate`."""
    for number, index in enumerate(batches):
        if len(index) >= 2:  # batch normalisation has no statistics of one image
            x = feed.plain(index)
            inputs = (x,) if anchoring is None else (x, anchoring.draw(x, -1 - number))
            yield functools.partial(net, *inputs)
