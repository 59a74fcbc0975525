"""One run from settings to its folder: `anchored train`, and the training part of a comparison."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from anchored.arms.run_config import RunConfig
from anchored.comparison.folder import claim
from anchored.comparison.inputs import Inputs, prepare, say_notes
from anchored.comparison.settings import Comparison, without_effect
from anchored.runs import run as runs
from anchored.runs.build import reference_set
from anchored.runs.threshold import anomaly_threshold
from anchored.system.files import in_use
from anchored.system.progress import Work
from anchored.training.checkpoints import Checkpoints
from anchored.training.distributed import Team
from anchored.training.loop import MEAN, goodness, settle_mean, train
from anchored.training.order import passes
from anchored.training.recorders import recording
from anchored.training.state import State

TRAINING_COST = 3.0  # a training pass of an image costs about three forward passes


def cost(config: RunConfig, inputs: Inputs) -> float:
    """The work of training one run, in forward passes of an image."""
    return len(inputs.data.train) * config.recipe.epochs * TRAINING_COST


def train_run(
    config: RunConfig,
    inputs: Inputs,
    folder: Path,
    work: Work,
    *,
    device: torch.device,
    compile: bool = False,
    checkpoint_every: float = 300.0,
    keep: int = 2,
    workers: int = 2,
    recorders: tuple[str, ...] = (),
    team: Team | None = None,
) -> None:
    """Train a run and save it in `folder`, or go on with it; a finished one is left as it is."""
    if (folder / "run.json").exists():
        work.skip(cost(config, inputs))
        return
    work.skip(cost(config, inputs) * _epochs_done(folder) / config.recipe.epochs)
    state, notes = State(), list[str]()

    def say(note: str) -> None:
        notes.append(note)
        warnings.warn(note, stacklevel=2)

    with recording(recorders if team is None or team.main else (), folder, config) as record:
        net = train(
            config,
            inputs.data,
            inputs.preprocess,
            folder,
            device=device,
            validation=inputs.validation,
            compile=compile,
            checkpoint_every=checkpoint_every,
            keep=keep,
            workers=workers,
            team=team,
            state=state,
            tick=lambda amount, note: work.advance(TRAINING_COST * amount, note),
            say=say,
            record=record,
        )
    if team is None or team.main:
        _save(config, inputs, folder, net, state, notes, team or Team(device))


def _save(
    config: RunConfig,
    inputs: Inputs,
    folder: Path,
    net: nn.Module,
    state: State,
    notes: list[str],
    team: Team,
) -> None:
    """Write the trained run, with what it was trained on and what that took, and remove its checkpoints."""
    chosen = state.history[-1]
    if config.select != "last":
        chosen = max(state.history, key=lambda line: (goodness(config.select, line), -line["epoch"]))
    train_set = inputs.data.train
    references = reference_set(config, train_set, inputs.preprocess)
    if references is not None and (folder / MEAN).exists():
        settle_mean(references, folder, team)
    threshold = anomaly_threshold(net, references, inputs.preprocess, validation=inputs.validation, train=train_set)
    runs.save(
        folder,
        config,
        net.to("cpu"),
        inputs.preprocess,
        inputs.data.classes,
        references,
        train_set,
        anomaly=threshold,
        data=inputs.data.name,
        source=inputs.source,
        train_size=len(train_set),
        split=inputs.data.split,
        label_noise=inputs.label_noise,
        epoch=chosen["epoch"],
        weights="raw" if config.recipe.ema_decay is None else "ema",
        validation={name: value for name, value in chosen.items() if name.startswith("validation_")},
        arithmetic=state.arithmetic,
        seconds=None if state.seconds is None else round(state.seconds, 3),
        forward_passes=passes(config, len(train_set)),
        notes=[*inputs.notes, *notes],
    )
    (folder / MEAN).unlink(missing_ok=True)
    Checkpoints(folder / "checkpoints").clear()


def train_one(
    settings: Comparison,
    *,
    out: Path | None = None,
    device: torch.device,
    command: str = "",
    flags: str = "",
    strict: bool = False,
    memory_limit: int | None = None,
    **how: Any,
) -> Path:
    """Train the one run of `settings` (its only method, target and seed); its folder. Raises InputError.

    Under torchrun every process calls it. `how`: compile, checkpoint_every, keep, workers, recorders.
    """
    team = Team(device)
    if team.main:
        for note in without_effect(settings):
            warnings.warn(note, stacklevel=2)
    prepared = prepare(settings, strict=strict, memory_limit=memory_limit, tested=False)
    (config,) = prepared.settings.run_configs()
    folder = out or prepared.folder("train")
    console = Console(stderr=True, quiet=not team.main)
    if team.main:
        say_notes(prepared)
        claim(folder, prepared, command, flags, alone=True)
    team.wait()
    inputs = prepared.first
    with in_use(folder) if team.main else nullcontext(), Work(cost(config, inputs), console) as work:
        train_run(config, inputs, folder, work, device=team.device, team=team, **how)
    if team.main:
        Console().print(f"Run: {folder}", highlight=False, markup=False, soft_wrap=True)
    return folder


def _epochs_done(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0
