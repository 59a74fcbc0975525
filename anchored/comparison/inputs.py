"""Data, preprocessing and models of a comparison or a run: loaded and checked before any work."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from anchored import data as sources
from anchored.arms.arm import ArmSettings
from anchored.arms.training_data import TrainingData
from anchored.augment import without_flips
from anchored.comparison import preflight
from anchored.comparison.settings import Comparison
from anchored.data.base import Data, Images, ImageSet, Options
from anchored.data.noise import relabelled
from anchored.data.recorded import source_of
from anchored.data.stream import Streamed
from anchored.models.by_name import create
from anchored.models.libraries import Model
from anchored.runs.build import build
from anchored.runs.run import STORED_REFERENCES
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess
from anchored.system.progress import Decoding

STATISTICS = 10_000  # streamed images that mean and deviation are taken from, for models without their own


@dataclass(frozen=True)
class Inputs:
    """What one arm is trained on and how its images are prepared.

    source: where the data lies (`data.recorded.source_of`). hash: of settings, images and network.
    """

    data: Data
    validation: Images | None
    preprocess: Preprocess
    label_noise: float
    notes: tuple[str, ...]
    source: Mapping[str, str | None]
    hash: str


@dataclass(frozen=True)
class Prepared:
    """The inputs of every arm, the anomaly sets, and what identifies the comparison.

    settings: as the data leaves them. notes: what a user should know. hash: of settings, images and network. sets: name
    of a test set -> what tells it from another of that name.
    """

    settings: Comparison
    inputs: Mapping[str, Inputs]
    anomalies: tuple[tuple[str, ImageSet], ...]
    notes: tuple[str, ...]
    hash: str
    sets: Mapping[str, str]

    @property
    def first(self) -> Inputs:
        """The inputs of the first arm; test images and classes are those of all."""
        return next(iter(self.inputs.values()))

    def folder(self, command: str) -> Path:
        """Where the results of a command go unless it is told."""
        return Path("runs") / f"{command}-{self.first.data.name.replace(':', '-').replace('/', '_')}-{self.hash[:8]}"


def say_notes(prepared: Prepared) -> None:
    """Print on stderr what a user should know of data and model."""
    console = Console(stderr=True)
    for note in prepared.notes:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)


def prepare(
    settings: Comparison, *, strict: bool = False, memory_limit: int | None = None, tested: bool = True
) -> Prepared:
    """Load and check everything: data, models (each built once on the way), anomaly sets, sizes of reference sets.

    tested: whether the test images are of use; if not, streamed ones are not looked at.
    """
    natives = _natives(settings)
    native = natives[settings.arms[0].name]
    size = settings.image_size or _recipe_size(settings) or native.image_size
    how: dict[str, Any] = {"interpolation": native.interpolation, "crop": native.crop, "strict": strict}
    data = _load(settings, size, how, memory_limit, tested)
    settings, notes = _without_mirroring(settings, data)
    notes = [*data.notes, *notes]
    if len(data.classes) < 2:
        raise InputError(f"a classifier needs at least 2 classes; {data.name} has {len(data.classes)}.")
    used: dict[TrainingData, _Part] = {}
    inputs: dict[str, Inputs] = {}
    nets: dict[str, Model] = {}
    for arm in settings.arms:
        if arm.data not in used:
            used[arm.data] = _part(data, arm.data, settings)
            notes += used[arm.data].notes
        part = used[arm.data]
        own = dataclasses.replace(data, train=part.train)
        _check_sizes(arm, len(own.train))
        preprocess = _preprocess(settings, natives[arm.name], own)
        # Builds (and, for anchored methods, anchors) the network once, so that a model that cannot be is refused now.
        model = _network(arm, own, preprocess, nets)
        notes += model.notes
        digest = _hash(_identity(arm), own, model.net)
        source = source_of(settings.data, settings.root, arm.data.labels)
        notes += [*preflight.other_model(arm), *preflight.few_steps(arm, settings.seeds, len(own.train))]
        inputs[arm.name] = Inputs(own, part.validation, preprocess, part.label_noise, (), source, digest)
    notes += preflight.few_images(settings, len(data.test))
    notes += [
        note for arm in settings.arms for note in preflight.mirrored(arm.config.recipe.augmentation, data.classes)
    ]
    anomalies = _anomalies(settings, data, next(iter(inputs.values())).preprocess.size, how, memory_limit, notes)
    notes = list(dict.fromkeys(notes))
    inputs = {name: dataclasses.replace(each, notes=tuple(notes)) for name, each in inputs.items()}
    first = next(iter(inputs.values()))
    whole = _hash(settings.identity(), first.data, nets[_net_key(settings.arms[0])].net)
    sets = {"clean": _fingerprint(first.data.test)} | {name: _fingerprint(images) for name, images in anomalies}
    return Prepared(settings, inputs, anomalies, tuple(notes), whole, sets)


def _natives(settings: Comparison) -> dict[str, Model]:
    """The input that the model of each arm wants. Raises InputError where two want their images otherwise."""
    made: dict[str, Model] = {}
    found = {}
    for arm in settings.arms:
        name = arm.config.model
        if name not in made:
            made[name] = create(name, 10, weights="none", image_size=settings.image_size, seed=0)
        found[arm.name] = made[name]
    first = settings.arms[0]
    for arm in settings.arms[1:]:
        for what in ("image_size", "interpolation", "crop"):
            values = [getattr(found[each.name], what) for each in (first, arm)]
            if values[0] != values[1] and not (what == "image_size" and None in values):
                raise InputError(
                    f"the arms {first.name} and {arm.name} have models that want images of another {what} "
                    f"({values[0]} and {values[1]}), so they cannot be compared on the same ones. Pass --image-size, "
                    "or compare them with anchored evaluate."
                )
    return found


def _recipe_size(settings: Comparison) -> int | None:
    """The size in pixels that the recipes are for, where their own model is trained. Raises InputError for two."""
    sizes = {arm.config.recipe.image_size for arm in settings.arms if arm.config.model == arm.config.recipe.model} - {
        None
    }
    if len(sizes) > 1:
        raise InputError(f"the recipes of the arms are for images of {sorted(sizes)} px; pass --image-size.")  # type: ignore[type-var]
    return next(iter(sizes), None)


def _load(settings: Comparison, size: int | None, how: dict[str, Any], memory_limit: int | None, tested: bool) -> Data:
    """The data set, with its images in memory or, where they are streamed, in their files."""
    if not settings.stream:
        with Decoding(f"reading {settings.data}") as progress:
            return sources.load(
                settings.data, size=size, progress=progress, root=settings.root, memory_limit=memory_limit, **how
            )
    options = Options(size=size, **how)
    train, test = (sources.listing(settings.data, part=part, root=settings.root) for part in sources.PARTS)
    images, shown = Streamed.of(train, options, lenient=not options.strict), Streamed.of(test, options)
    notes = list(train.notes)
    if tested:  # the test images are looked at if they will be tested on
        shown = _readable(shown, "test", settings.data, notes)
    return Data(train.name, images, shown, train.classes, split=train.split, notes=tuple(notes))


def _readable(images: Streamed, part: str, name: str, notes: list[str]) -> Streamed:
    """The images that can be read, the others added to the notes: what is measured has its own label."""
    with Decoding(f"looking at the {part} images of {name}") as progress:
        kept, wrong = images.checked(progress)
    if wrong:
        notes.append(f"unreadable {part} images, left out: {len(wrong):,} of {len(images):,}: {', '.join(wrong[:3])}")
    if not len(kept):
        raise InputError(f"none of the {len(images):,} {part} images of {name} can be read.")
    return kept


def _without_mirroring(settings: Comparison, data: Data) -> tuple[Comparison, list[str]]:
    """The settings without flips where a mirrored image can be another class, and what to say of it."""
    if data.flip:
        return settings, []

    def plain(arm: ArmSettings) -> ArmSettings:
        recipe = arm.config.recipe
        recipe = dataclasses.replace(recipe, augmentation=without_flips(recipe.augmentation))
        return dataclasses.replace(arm, config=dataclasses.replace(arm.config, recipe=recipe))

    arms, shared = tuple(map(plain, settings.arms)), plain(settings.shared)
    note = f"no flips: a mirrored image of {data.name} can be another class"
    notes = [] if (arms, shared) == (settings.arms, settings.shared) else [note]
    return dataclasses.replace(settings, arms=arms, shared=shared), notes


@dataclass(frozen=True)
class _Part:
    """The training images that are used, what is held out of them, and what was done to their labels."""

    train: Any
    validation: Any
    label_noise: float
    notes: tuple[str, ...]


def _part(data: Data, chosen: TrainingData, settings: Comparison) -> _Part:
    """The training images of `data` that `chosen` names."""
    train: Any = data.train
    notes: list[str] = []
    classes, noisy, validation = len(data.classes), None, None
    if chosen.labels is not None:  # a file counts all the images there are
        noisy = relabelled(train, classes, labels=chosen.labels)
        train = noisy.images if noisy else train
    if chosen.train_limit is not None and chosen.train_limit < len(train):
        train = train.subset(sources.limit(train, chosen.train_limit, seed=0))
    if chosen.label_noise:
        noisy = relabelled(train, classes, rate=chosen.label_noise, seed=settings.seeds[0])
        train = noisy.images if noisy else train
    if noisy is not None:
        notes.append(noisy.note)
    if chosen.val_fraction:
        train, validation = sources.split(train, chosen.val_fraction, seed=0)[:2]
        if isinstance(validation, Streamed):
            validation = _readable(validation, "validation", settings.data, notes)
    return _Part(train, validation, noisy.label_noise if noisy is not None else 0.0, tuple(notes))


def _check_sizes(arm: ArmSettings, train_size: int) -> None:
    """Refuse counts of training images that are more than there are."""
    config, prediction = arm.config, arm.prediction
    for name in ("references", "recalibrate_bn"):
        if (getattr(config, name) or 0) > train_size:
            raise InputError(
                f"{name.replace('_', '-')} is at most the {train_size} training images; got {getattr(config, name)}."
            )
    available = min(config.references or train_size, STORED_REFERENCES)
    if prediction.protocol != "one_random" and prediction.k > available:
        raise InputError(
            f"k = {prediction.k} references are drawn without replacement from the reference set, of which a run keeps "
            f"{available}."
        )


def _preprocess(settings: Comparison, native: Model, data: Data) -> Preprocess:
    """How images become inputs: as the model wants it, else with the statistics of the training images."""
    mean, std = native.mean, native.std
    if mean is None or std is None:
        shown: Any = data.train
        if settings.stream:  # a whole pass of decoding would not tell more
            shown = shown.subset(sources.limit(shown, STATISTICS, seed=0))
        mean, std = sources.channel_statistics(shown)
    return Preprocess(data.train.side, tuple(mean), tuple(std), native.interpolation, native.crop)


def _net_key(arm: ArmSettings) -> str:
    return f"{arm.config.model} {arm.config.weights}"


def _network(arm: ArmSettings, data: Data, preprocess: Preprocess, made: dict[str, Model]) -> Model:
    """The model of an arm, made once for all arms that have it, and anchored once where it will be."""
    key, config, classes = _net_key(arm), arm.config, len(data.classes)
    if key not in made:
        made[key] = create(config.model, classes, weights=config.weights, image_size=preprocess.size, seed=0)
    if config.anchored and f"{key} anchored" not in made:
        build(dataclasses.replace(config, seed=0), classes, preprocess.size)
        made[f"{key} anchored"] = made[key]
    return made[key]


def _anomalies(
    settings: Comparison, data: Data, size: int, how: dict[str, Any], memory_limit: int | None, notes: list[str]
) -> tuple[tuple[str, ImageSet], ...]:
    """The anomaly sets by name; what is to be said of them is added to the notes."""
    found = []
    for spec in settings.anomalies:
        if spec == settings.data:
            raise InputError(f"--anomalies holds images of no known class; {spec} is the data itself.")
        with Decoding(f"reading {spec}") as progress:
            more = {"root": settings.root, "memory_limit": memory_limit, **how}
            found.append(sources.load_anomalies(spec, like=data, size=size, progress=progress, **more))
        notes += preflight.known_anomalies(spec, found[-1][1], data)
    return tuple(found)


def _identity(arm: ArmSettings) -> dict[str, Any]:
    """What decides the weights of an arm, the weights' path apart: they are in the hash themselves."""
    return {name: value for name, value in arm.training().items() if name != "weights"}


def _hash(settings: Mapping[str, Any], data: Data, net: nn.Module) -> str:
    """What identifies results: the settings, the images and labels themselves, wherever they lie, the network."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(dict(settings), sort_keys=True, default=str).encode())
    for part in (data.train, data.test):
        for piece in part.fingerprint():
            digest.update(piece)
    digest.update(str(net).encode())
    for name, value in net.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _fingerprint(images: Images) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in images.fingerprint():
        digest.update(piece)
    return digest.hexdigest()
