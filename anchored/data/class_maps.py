"""Which outputs of a model stand for the classes of a test set: by name, by WordNet id, or by a file."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from anchored.data.checks import some
from anchored.method.protocols import Predict, Prediction
from anchored.system.errors import InputError, unknown

TIERS = WHOLE_NAME, WORDNET_ID, SYNONYMS = range(3)  # what a class is found by, in the order tried
AMBIGUOUS = -1
WNID = re.compile(r"(?<![a-z0-9])n\d{8}(?!\d)")
ClassOutputs = tuple[tuple[int, ...], ...]  # per class of a test set, the model's outputs that stand for it


def matching_outputs(
    names: Sequence[str],
    classes: Sequence[str],
    *,
    given: Mapping[str, Sequence[str]] | None = None,
    numbered: bool = False,
) -> ClassOutputs:
    """For each of `names`, the positions among `classes` (the model's) that stand for it; none where nothing does.

    A class is found by its whole name, else by its WordNet id, else by one of its synonyms (parts between commas),
    case, underscores and hyphens apart; a name that fits two classes fits none. given: what a mapping file says, which
    goes first. numbered: the names are positions among `classes` (as the folders of ImageNet-V2 are); so they are
    anyway where they are numbers, as many as the model's classes, and fit no name. Raises InputError for a class of
    `given` that the model lacks.
    """
    if tuple(names) == tuple(classes):
        return tuple((position,) for position in range(len(names)))
    tables = [_positions_by_key(classes, tier) for tier in TIERS]

    def by_name(name: str) -> tuple[int, ...]:
        for tier, table in zip(TIERS, tables, strict=True):
            found = {table[key] for key in _keys(name, tier) if key in table}
            if len(found) == 1 and AMBIGUOUS not in found:
                return tuple(found)
        return ()

    def by_mapping(name: str) -> tuple[int, ...]:
        found: list[int] = []
        for item in (given or {})[name]:
            outputs = (int(item),) if item.isdecimal() and int(item) < len(classes) else by_name(item)
            if not outputs:
                raise unknown(f"class (of {name!r} in the mapping file)", item, classes[:20])
            found += outputs
        return tuple(dict.fromkeys(found))

    all_numbers = all(name.isdecimal() for name in names)
    if numbered and all_numbers:
        return tuple((int(name),) if int(name) < len(classes) else () for name in names)
    outputs = tuple(by_mapping(name) if given and name in given else by_name(name) for name in names)
    if not any(outputs) and all_numbers and len(names) == len(classes):
        return tuple((int(name),) if int(name) < len(classes) else () for name in names)
    return outputs


def read_class_mapping(path: Path) -> dict[str, list[str]]:
    """A mapping file: class of the test set -> classes of the model (names, WordNet ids or positions).

    .json: an object of strings, numbers, lists of them, or null for a class to leave out. .csv: two columns, a class
    of the test set and one of the model; several lines add up, an empty second column leaves the class out.
    Raises InputError for anything else.
    """
    found: dict[str, list[str]] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            for name, value in json.loads(text).items():
                items = value if isinstance(value, list) else [] if value is None else [value]
                found[str(name)] = [str(item) for item in items]
        else:
            for line in csv.reader(text.splitlines()):
                if not line:
                    continue
                name, item = line
                found.setdefault(name.strip(), []).extend([item.strip()] if item.strip() else [])
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"--classes {path} is a .json object or a .csv of two columns, from classes of the test set to classes of "
            f"the model: {error}."
        ) from error
    return found


@dataclass(frozen=True)
class ScoredClasses:
    """The classes in which a test set is scored: those that every model has outputs for.

    names: of these classes. kept: their positions among the classes of the set. outputs: per model, its outputs that
    stand for each. note: which classes of the set are left out, in words; None where all are scored.
    """

    names: tuple[str, ...]
    kept: tuple[int, ...]
    outputs: Mapping[str, ClassOutputs]
    note: str | None

    def relabelled(self, labels: Tensor, count: int) -> Tensor:
        """Labels among the `count` classes of the set (int64 [N]) as labels among `names`; -1 where left out."""
        table = torch.full((count + 1,), -1, dtype=torch.int64)
        table[list(self.kept)] = torch.arange(len(self.kept))
        return table[labels]


def scored_classes(
    what: str,
    names: Sequence[str],
    models: Mapping[str, Sequence[str]],
    *,
    given: Mapping[str, Sequence[str]] | None = None,
    numbered: bool = False,
) -> ScoredClasses:
    """The classes of the test set `what` (named `names`) that all `models` (name -> classes) have outputs for.

    Raises InputError where fewer than two are left: the arg-max over one class is always right.
    """
    outputs = {
        model: matching_outputs(names, classes, given=given, numbered=numbered) for model, classes in models.items()
    }
    kept = tuple(number for number in range(len(names)) if all(each[number] for each in outputs.values()))
    lost = [names[number] for number in range(len(names)) if number not in set(kept)]
    if len(kept) < 2:
        theirs = next(iter(models.values()))
        raise InputError(
            f"{what}: at least 2 of its classes have to be classes of the models; {len(kept)} of {len(names)} are. It "
            f"has {some(list(names))}; {next(iter(models))} has {some(list(theirs))}. A file can say which are which: "
            "--classes FILE."
        )
    note = f"{what}: classes that not all models have, left out: {len(lost)} of {len(names)}: {_listed(lost)}"
    return ScoredClasses(
        tuple(names[number] for number in kept),
        kept,
        {model: tuple(each[number] for number in kept) for model, each in outputs.items()},
        note if lost else None,
    )


def _listed(names: Sequence[str]) -> str:
    """The names in words, runs of three and more numbers as 4..6."""
    runs: list[list[str]] = []
    for name in names:
        follows = runs and name.isdecimal() and runs[-1][-1].isdecimal() and int(name) == int(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def restricted(predict: Predict, outputs: ClassOutputs, count: int) -> Predict:
    """`predict`, which has `count` outputs, with its logits restricted to `outputs` (ImageNet-R: 200 of 1000 classes).

    A class for which several outputs stand gets the log of their summed exponentials. The energy and the disagreement
    of references stay those of all outputs. The same object where nothing is restricted.
    """
    if outputs == tuple((number,) for number in range(count)):
        return predict
    single = torch.tensor([each[0] for each in outputs]) if all(len(each) == 1 for each in outputs) else None

    def run(x: Tensor) -> Prediction:
        whole = predict.predict(x)
        if single is not None:
            index = single.to(whole.logits.device)
            return dataclasses.replace(
                whole, logits=whole.logits[:, index], std=None if whole.std is None else whole.std[:, index]
            )
        logits = torch.stack([whole.logits[:, list(each)].logsumexp(1) for each in outputs], 1)
        std = None
        if whole.std is not None:
            std = torch.stack([whole.std[:, list(each)].mean(1) for each in outputs], 1)
        return dataclasses.replace(whole, logits=logits, std=std)

    return dataclasses.replace(predict, predict=run)


def imagenet_classes() -> tuple[str, ...]:
    """The 1000 classes of ImageNet-1k in their order: WordNet id and names, as `n01440764 tench, Tinca tinca`."""
    info = _imagenet()
    return tuple(f"{wnid} {info[wnid]}" for wnid in info)


@functools.lru_cache(maxsize=1)
def _imagenet() -> dict[str, str]:
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    return {wnid: info.label_name_to_description(wnid) for wnid in info.label_names()}


def _positions_by_key(classes: Sequence[str], tier: int) -> dict[str, int]:
    """What a class is known by -> its position, or AMBIGUOUS where that fits several classes."""
    table: dict[str, int] = {}
    for position, name in enumerate(classes):
        for key in _keys(name, tier):
            table[key] = AMBIGUOUS if table.get(key, position) != position else position
    return table


def _keys(name: str, tier: int) -> set[str]:
    """What a class is known by: its whole name, its WordNet id, or its synonyms, WordNet's among them."""
    if tier == WHOLE_NAME:
        return {_plain(name)}
    wnids = set(WNID.findall(name))
    if tier == WORDNET_ID:
        return wnids
    words = WNID.sub(" ", name) + "".join(f", {_imagenet().get(wnid, '')}" for wnid in wnids)
    return {plain for word in words.split(",") if (plain := _plain(word))}


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_\-/\s]+", " ", name).lower().split())
