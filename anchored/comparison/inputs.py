"""Data, preprocessing and model of a comparison or a run: loaded and checked before any work."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from anchored import data as sources
from anchored.augment import without_flips
from anchored.comparison import preflight as cautions
from anchored.comparison.settings import Comparison
from anchored.data.base import Data, Images, ImageSet, Options
from anchored.data.noise import relabelled
from anchored.data.stream import Streamed
from anchored.models.by_name import create
from anchored.runs import run as runs
from anchored.runs.build import build
from anchored.system.errors import InputError
from anchored.system.files import read_json, write_json, write_text
from anchored.system.preprocess import Preprocess
from anchored.system.progress import Decoding

STATISTICS = 10_000  # streamed images that mean and deviation are taken from, for models without their own


@dataclass(frozen=True)
class Prepared:
    """Data, preprocessing and what identifies the comparison; `settings` as the data leaves them."""

    settings: Comparison
    data: Data
    validation: Images | None
    preprocess: Preprocess
    anomalies: tuple[tuple[str, ImageSet], ...]
    label_noise: float
    notes: tuple[str, ...]
    hash: str

    def folder(self, command: str) -> Path:
        """Where the results of a command go unless it is told."""
        return Path("runs") / f"{command}-{self.data.name.replace(':', '-').replace('/', '_')}-{self.hash[:8]}"


def say_notes(prepared: Prepared) -> None:
    """Print on stderr what a user should know of data and model."""
    console = Console(stderr=True)
    for note in prepared.notes:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)


def prepare(
    settings: Comparison, *, strict: bool = False, memory_limit: int | None = None, tested: bool = True
) -> Prepared:
    """Load and check everything: data, model (built once on the way), anomaly sets, reference set sizes.

    tested: whether the test images are of use; if not, streamed ones are not looked at.
    """
    native = create(settings.model, 10, weights="none", image_size=settings.image_size, seed=0)
    how: dict[str, Any] = {"root": settings.root, "interpolation": native.interpolation, "crop": native.crop}
    how |= {"strict": strict, "memory_limit": memory_limit}
    size = settings.image_size or native.image_size
    if settings.stream:
        data = _streamed(settings, size, native.interpolation, native.crop, strict, tested)
    else:
        with Decoding(f"reading {settings.data}") as progress:
            data = sources.load(settings.data, size=size, progress=progress, **how)
    notes = list(data.notes)
    augmentation = settings.recipe.augmentation if data.flip else without_flips(settings.recipe.augmentation)
    if augmentation != settings.recipe.augmentation:
        recipe = dataclasses.replace(settings.recipe, augmentation=augmentation)
        settings = dataclasses.replace(settings, recipe=recipe)
        notes.append(f"no flips: a mirrored image of {data.name} can be another class")
    validation = None
    train_set, label_noise = data.train, 0.0
    if settings.labels is not None and settings.label_noise:
        raise InputError("labels are made noisy or given, not both: leave out --labels or --label-noise.")
    classes, noisy = len(data.classes), None
    if settings.labels is not None:  # a file counts all the images there are
        noisy = relabelled(train_set, classes, labels=settings.labels)
        train_set = noisy.images if noisy else train_set
    if settings.train_limit is not None and settings.train_limit < len(train_set):
        train_set = train_set.subset(sources.limit(train_set, settings.train_limit, seed=0))
    if settings.label_noise:
        noisy = relabelled(train_set, classes, rate=settings.label_noise, seed=settings.seeds[0])
        train_set = noisy.images if noisy else train_set
    if noisy is not None:
        label_noise = noisy.label_noise
        notes.append(noisy.note)
    if settings.val_fraction:
        train_set, validation = sources.split(train_set, settings.val_fraction, seed=0)[:2]
        if isinstance(validation, Streamed):
            validation = _readable(validation, "validation", settings.data, notes)
    data = dataclasses.replace(data, train=train_set)
    notes += cautions.few_steps(settings, len(train_set))
    notes += cautions.few_images(settings, len(data.test))
    notes += cautions.mirrored(settings.recipe.augmentation, data.classes)
    if len(data.classes) < 2:
        raise InputError(f"a classifier needs at least 2 classes; {data.name} has {len(data.classes)}.")
    _check_sizes(settings, len(data.train))
    size = data.train.side
    mean, std = (native.mean, native.std)
    if mean is None or std is None:
        shown = data.train
        if settings.stream:  # a whole pass of decoding would not tell more
            shown = shown.subset(sources.limit(shown, STATISTICS, seed=0))
        mean, std = sources.channel_statistics(shown)
    preprocess = Preprocess(size, tuple(mean), tuple(std), native.interpolation, native.crop)
    # Builds (and, for anchored methods, anchors) the network once, so that a model that cannot be is refused now.
    model = create(settings.model, len(data.classes), weights=settings.weights, image_size=size, seed=0)
    notes += model.notes
    for config in [config for config in settings.run_configs() if config.anchored][:1]:
        build(config, len(data.classes), size)
    anomalies = []
    for spec in settings.anomalies:
        with Decoding(f"reading {spec}") as progress:
            if spec == settings.data:
                raise InputError(f"--anomalies holds images of no known class; {spec} is the data itself.")
            anomalies.append(sources.load_anomalies(spec, like=data, size=size, progress=progress, **how))
        notes += cautions.known_anomalies(spec, anomalies[-1][1], data)
    return Prepared(
        settings,
        data,
        validation,
        preprocess,
        tuple(anomalies),
        label_noise,
        tuple(notes),
        _hash(settings, data, model.net),
    )


def _streamed(
    settings: Comparison, size: int | None, interpolation: str, crop: float, strict: bool, tested: bool
) -> Data:
    """The data set with its images left in their files; the test images are looked at if they will be tested on."""
    options = Options(size=size, interpolation=interpolation, crop=crop, strict=strict)
    train, test = (sources.listing(settings.data, part=part, root=settings.root) for part in sources.PARTS)
    images, shown = Streamed.of(train, options, lenient=not strict), Streamed.of(test, options)
    notes = list(train.notes)
    if tested:
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


def _check_sizes(settings: Comparison, train_size: int) -> None:
    """Refuse counts of training images that are more than there are."""
    for name in ("references", "recalibrate_bn"):
        if (getattr(settings, name) or 0) > train_size:
            raise InputError(
                f"{name.replace('_', '-')} is at most the {train_size} training images; got {getattr(settings, name)}."
            )
    available = min(settings.references or train_size, runs.STORED_REFERENCES)
    if settings.protocol != "one_random" and settings.k > available:
        raise InputError(
            f"k = {settings.k} references are drawn without replacement from the reference set, of which a run keeps "
            f"{available}."
        )


def _hash(settings: Comparison, data: Data, net: nn.Module) -> str:
    """What identifies a comparison: its settings, the images and labels themselves, wherever they lie, the network."""
    digest = hashlib.blake2b(digest_size=16)
    values = dataclasses.asdict(settings)
    for name in ("data", "root"):
        values.pop(name)
    digest.update(json.dumps(values, sort_keys=True, default=str).encode())
    for part in (data.train, data.test):
        for piece in part.fingerprint():
            digest.update(piece)
    digest.update(str(net).encode())
    for name, value in net.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the recipe's fields among them, to compare them one by one."""
    fields = settings.get("recipe") or {}
    return {key: value for key, value in settings.items() if key != "recipe"} | {
        "recipe" if key == "name" else key: value for key, value in fields.items()
    }


def claim(folder: Path, prepared: Prepared, command: str, flags: str = "") -> None:
    """Make `folder` the one of these settings and data, or check that it is; config.json and flags.yaml say so.

    flags: the command's flags as YAML, to run it again elsewhere (--config). Raises InputError for a folder of
    something else.
    """
    path = folder / "config.json"
    settings = json.loads(json.dumps(dataclasses.asdict(prepared.settings)))
    if path.exists():
        before = read_json(path)
        if before.get("config_hash") == prepared.hash:
            return
        old, new = _flat(before.get("settings", {})), _flat(settings)
        changed = [f"{key}: {old.get(key)} there, {now} here" for key, now in new.items() if old.get(key) != now]
        what = "; ".join(changed) or "the images, the model or its weights differ"
        raise InputError(f"{folder} holds other results ({what}). Use another --out.")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"--out {folder} is not empty and holds no results. Use an empty or a new folder.")
    if flags:
        write_text(folder / "flags.yaml", flags)
    data = prepared.data
    write_json(
        path,
        {
            "command": command,
            "config_hash": prepared.hash,
            "settings": settings,
            "data": {
                "name": data.name,
                "split": data.split,
                "notes": list(prepared.notes),
                "train_size": len(data.train),
                "validation_size": len(prepared.validation) if prepared.validation else 0,
                "test_size": len(data.test),
                "classes": list(data.classes),
            },
            "preprocess": str(prepared.preprocess),
            "threads": torch.get_num_threads(),
            "versions": runs.versions(),
        },
    )
