"""How a setting is declared: once, as a field, with its rule, its help and what it belongs to.

Flags, YAML files, fields of arms, names and columns of rows, hashes and checks are made from the declarations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from anchored.system.errors import InputError, unknown

METHODS = ("standard", "vanilla", "masking")
ANCHORED = ("vanilla", "masking")
MASKING = ("masking",)


@dataclass(frozen=True)
class Setting:
    """What is declared of one field.

    help: of its flag. of: what it belongs to, "method", "training", "data" or "prediction". choices: the values it may
    have, else holds: whether a value may be (None always may where it is the default), in words in `rule`. methods:
    those in which it has an effect. without: what a row says where it has none; given: whether a row says its value
    even there. hashed: whether it is in the hash of a comparison even where it has its default; settings that came
    later are not, so that older hashes stay. flag: whether it has a flag of its own.
    """

    help: str
    of: str
    choices: tuple[str, ...] = ()
    holds: Callable[[Any], bool] | None = None
    rule: str = ""
    methods: tuple[str, ...] = METHODS
    without: Any = None
    given: bool = False
    hashed: bool = False
    flag: bool = True


def setting(default: Any = dataclasses.MISSING, *, help: str, of: str, **declared: Any) -> Any:
    """A dataclass field that is a setting; `declared` as in `Setting`."""
    return dataclasses.field(default=default, metadata={"setting": Setting(help, of, **declared)})


def declared(settings: Any) -> Iterator[tuple[dataclasses.Field[Any], Setting]]:
    """The fields of a dataclass, or of an instance of one, that are settings."""
    for field in dataclasses.fields(settings):
        if "setting" in field.metadata:
            yield field, field.metadata["setting"]


def check(settings: Any) -> None:
    """Give the settings of a frozen dataclass their types. Raises InputError for a value against its rule."""
    for field, its in declared(settings):
        value = typed(field.name, str(field.type), getattr(settings, field.name))
        object.__setattr__(settings, field.name, value)
        if its.choices and value not in its.choices:
            if field.name == "method":
                raise unknown("method", value, its.choices)
            raise InputError(f"{dashed(field.name)} is one of {', '.join(its.choices)}; got {value!r}.")
        if its.holds is not None and not (value is None and field.default is None) and not its.holds(value):
            raise InputError(f"{dashed(field.name)} {its.rule}; got {value}.")


def at_least_1(value: Any) -> bool:
    """A rule: counts of what there has to be one of."""
    return bool(value >= 1)


def dashed(name: str) -> str:
    """A field's name as its flag has it."""
    return name.replace("_", "-")


def words(name: str) -> str:
    """A field's name as words."""
    return name.replace("_", " ")


def typed(name: str, kind: str, value: Any) -> Any:
    """`value` as the type of its field; numbers may come as text (YAML reads 1e-3 as such)."""
    if "None" in kind and (value is None or str(value).lower() == "none"):
        return None
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    base = kind.split(" |")[0]
    try:
        if base.startswith("tuple"):
            return tuple(typed(name, "int", item) for item in value)
        if base not in kinds:
            return value
        if isinstance(value, bool) == (base == "bool"):
            if base == "int" and (isinstance(value, str) or int(value) == value):
                return int(value)
            if base == "float":
                return float(value)
            if isinstance(value, {"bool": bool, "str": str}.get(base, ())):
                return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{words(name)} is {kinds.get(base, 'a list of whole numbers')}; got {value!r}.")
