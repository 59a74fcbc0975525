"""What the arms of a report are called, in which order they stand, and which is the baseline of which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anchored.evaluation.rows import Row
from anchored.system.errors import InputError, unknown

METHODS = ("standard", "vanilla", "masking")  # in the order of tables, where nothing else says one

# What does not tell two runs of one arm apart. Anything else does, and is shown in the arm's name where it differs.
_SAME = {"arm", "method", "masked_target", "seed", "epoch", "arithmetic", "parameters", "forward_passes"}
_FIRST = ("model", "recipe", "augmentation", "label_noise", "train_size", "alpha")
_PREDICTION = ("protocol", "k", "tempering", "preprocess")

Identity = tuple[object, ...]


class Namer:
    """The name of each row's arm: that in the row, and what it takes to tell it from others of that name."""

    def __init__(self, rows: Sequence[Row]) -> None:
        columns = dict.fromkeys(name for row in rows for name in row.about)
        self.columns = (*_FIRST, *(name for name in columns if name not in {*_SAME, *_FIRST}), *_PREDICTION)
        self.identities = {self._identity(row): row.arm for row in rows}
        self.names = {identity: self._name(identity) for identity in self.identities}

    def __call__(self, row: Row) -> str:
        return self.names[self._identity(row)]

    def _identity(self, row: Row) -> Identity:
        own = {name: getattr(row, name) for name in _PREDICTION}
        return (row.arm, *(own.get(name, row.about.get(name)) for name in self.columns))

    def _name(self, identity: Identity) -> str:
        arm = self.identities[identity]
        same = [other for other, its in self.identities.items() if its == arm]
        chosen: list[int] = []
        for i in range(1, len(identity)):  # an attribute that goes along with those before it says nothing new
            before = {tuple(other[j] for j in chosen) for other in same}
            if len({tuple(other[j] for j in (*chosen, i)) for other in same}) > len(before):
                chosen.append(i)
        return ", ".join([arm, *(_words(self.columns[i - 1], identity[i]) for i in chosen)])


def _words(attribute: str, value: object) -> str:
    if attribute == "model":
        return str(value)
    return f"{attribute} {value}".replace("_", " ")


def ordered(
    own: Mapping[str, str], methods: Mapping[str, str], given: Sequence[str], baseline: str | None
) -> tuple[str, ...]:
    """The arms in the order `given`, the baseline first; without one by method and name.

    own: the name that each arm has in its rows. methods: the method of each.
    """
    if not given:
        places = {method: place for place, method in enumerate(METHODS)}
        return tuple(sorted(own, key=lambda arm: (places.get(methods[arm], len(places)), arm)))
    places = {name: place for place, name in enumerate(given)}

    def place(arm: str) -> tuple[bool, int, str]:
        return baseline not in (arm, own[arm]), places.get(own[arm], len(places)), arm

    return tuple(sorted(own, key=place))


def resolved(name: str, own: Mapping[str, str], runs: Mapping[tuple[str, int], str]) -> str | None:
    """The arm or the name of arms that `name` means: an arm's, its name in rows, or that of a run; None for none."""
    if name in own or name in own.values():
        return name
    return next((arm for (arm, _), run in runs.items() if run == name), None)


def no_baseline(name: str, own: Iterable[str], runs: Iterable[str]) -> InputError:
    """The error for a baseline that is no arm and no run."""
    return unknown("arm or run as baseline:", name, [*own, *runs])


def baselines(own: Mapping[str, str], methods: Mapping[str, str], chosen: str | None) -> dict[str, str]:
    """What each arm is compared with.

    chosen: an arm, or the name of several that differ in something else: then each is compared with the one that
    agrees with it in that. By default it is the standard arm, for arms of other methods; of several under different
    names it is the one called standard, or the first, for all arms.
    """
    if chosen in own:
        return {arm: str(chosen) for arm in own if arm != chosen}
    standards = [arm for arm in own if methods[arm] == "standard"]
    names = list(dict.fromkeys(own[arm].partition(", ")[0] for arm in standards))  # ", x" may tell comparisons apart
    if chosen is None and len(names) > 1:
        chosen = "standard" if "standard" in names else names[0]
    if chosen in own:
        return {arm: str(chosen) for arm in own if arm != chosen}
    candidates = standards if chosen is None else [arm for arm in own if own[arm].partition(", ")[0] == chosen]
    found = {}
    for arm in own:
        if arm in candidates:
            continue
        additions = arm.partition(", ")[2]
        same = [each for each in candidates if each.partition(", ")[2] == additions]
        if len(same) == 1 or len(candidates) == 1:
            found[arm] = (same or candidates)[0]
    return found


def pair(text: str, arms: Sequence[str]) -> tuple[str, str]:
    """The two arms of `A:B`, A being compared with B. Raises InputError where they are not two of `arms`."""
    parts = text.split(":")
    for place in range(1, len(parts)):  # a name may hold a colon, as that of a library's model does
        first, second = ":".join(parts[:place]), ":".join(parts[place:])
        if first in arms and second in arms and first != second:
            return first, second
    missing = [part for part in parts if part not in arms]
    if len(parts) == 2 and missing:
        raise unknown("arm in a pair:", missing[0], arms)
    raise InputError(f"a pair is two arms, A:B, A being compared with B; got {text!r}. Arms: {', '.join(arms)}.")
