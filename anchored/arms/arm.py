"""Arms: what is compared. An arm is a method with any overrides of recipe, augmentation, weights, data and protocol."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from anchored.arms.prediction import PredictionSettings
from anchored.arms.recipe import FIELDS as RECIPE_FIELDS
from anchored.arms.recipe import Recipe
from anchored.arms.recipe_choice import changed, recipe
from anchored.arms.run_config import RunConfig, default_name
from anchored.arms.setting import METHODS, Setting, declared
from anchored.arms.training_data import TrainingData
from anchored.system.errors import InputError, unknown

NAME = re.compile(r"[^\W_](?:[\w.+-]{0,78}[\w+])?")
_NOT_AN_ARMS = ("method", "recipe", "seed", "arm")
# Settings by the name that an arm gives them: name -> (what they are a field of, the field's name).
_RUN = {f.name: ("config", f.name) for f, _ in declared(RunConfig) if f.name not in _NOT_AN_ARMS}
_DATA = {f.name: ("data", f.name) for f, _ in declared(TrainingData)}
_PREDICTION = {f.name: ("prediction", f.name) for f, _ in declared(PredictionSettings)}
_RECIPE = {name: ("recipe", name) for name in RECIPE_FIELDS if name not in ("name", "model", "image_size")}
_PREFIXED = {f"recipe.{name}": where for name, where in _RECIPE.items()}
_OWNERS = {**_PREFIXED, **_RECIPE, **_PREDICTION, **_DATA, **_RUN}  # `schedule` is that of masking, as its flag is
FIELDS = ("recipe", *sorted(name for name in _OWNERS if name not in _PREFIXED), "recipe.schedule")


@dataclass(frozen=True)
class Arm:
    """One way of training and predicting that is compared with others.

    name: of its runs and in every table; fit for a file. method: standard, vanilla or masking. fields: what it changes
    of the settings that all arms share, by name (see `FIELDS`): a `recipe` by name, fields of the recipe (`lr`,
    `augmentation`, `recipe.schedule` ...), settings of the method (`masked_target`, `references` ...), of its training
    images (`train_limit` ...), its model and weights, its `protocol` and `k`.

    Raises InputError for a name that no file can have, and for an unknown method or field.
    """

    name: str
    method: str
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"the name of an arm is a file's: letters, digits and . _ + - within, at most 80; got {self.name!r}."
            )
        if self.method not in METHODS:
            raise unknown(f"method of the arm {self.name}:", self.method, METHODS)
        object.__setattr__(self, "fields", {str(key).replace("-", "_"): v for key, v in self.fields.items()})
        for key in self.fields:
            if key != "recipe" and key not in _OWNERS:
                raise unknown(f"field of the arm {self.name}:", key, FIELDS)

    @classmethod
    def parse(cls, text: str) -> Arm:
        """The arm written as `NAME: METHOD FIELD=VALUE ...`; values as in YAML, with quotes where they have spaces."""
        name, colon, rest = text.partition(":")
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise InputError(f"the arm {text!r} cannot be read: {error}.") from error
        if not colon or not words or "=" in words[0]:
            raise InputError(f'an arm is written "NAME: METHOD FIELD=VALUE ..."; got {text!r}.')
        fields: dict[str, Any] = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise InputError(f"the arm {name.strip()} takes its fields as FIELD=VALUE; got {word!r}.")
            if key.replace("-", "_") in fields:
                raise InputError(f"the field {key} of the arm {name.strip()} is given twice.")
            fields[key.replace("-", "_")] = yaml.safe_load(value)
        return cls(name.strip(), words[0], fields)

    @classmethod
    def of(cls, name: str, fields: Any) -> Arm:
        """The arm of a mapping of its fields, `method` among them, or of the text METHOD FIELD=VALUE ... ."""
        if isinstance(fields, str):
            return cls.parse(f"{name}: {fields}")
        if not isinstance(fields, Mapping) or "method" not in fields:
            raise InputError(f"the arm {name} is a mapping of fields, method among them; got {fields!r}.")
        rest = {str(key): value for key, value in fields.items() if key != "method"}
        return cls(str(name), str(fields["method"]), rest)

    @classmethod
    def of_method(cls, method: str, masked_target: str) -> Arm:
        """The arm that a method is by itself."""
        fields = {"masked_target": masked_target} if method == "masking" else {}
        return cls(default_name(method, masked_target), method, fields)


@dataclass(frozen=True)
class ArmSettings:
    """Everything that decides what an arm comes to, apart from seed and images; `config.seed` is that of one run."""

    config: RunConfig
    data: TrainingData
    prediction: PredictionSettings

    @property
    def name(self) -> str:
        """The name of the arm."""
        return self.config.arm_name

    def flat(self) -> dict[str, Any]:
        """Field -> value by the names that arms give them, and `recipe`, the name of the recipe; without the seed."""
        config, fields = dataclasses.asdict(self.config), dataclasses.asdict(self.config.recipe)
        return {
            **{name: config[name] for name in _RUN},
            **dataclasses.asdict(self.data),
            **dataclasses.asdict(self.prediction),
            "recipe": fields["name"],
            "method": config["method"],
            "recipe.schedule": fields["schedule"],
            **{name: fields[name] for name in _RECIPE if name != "schedule"},
        }

    def effective(self) -> dict[str, Any]:
        """`flat` with what has no effect in this arm as None, so that two arms that do the same are equal."""
        return {
            name: value if without_effect(self, name) is None else None
            for name, value in self.flat().items()
            if name != "recipe"
        }

    def training(self) -> dict[str, Any]:
        """What decides the weights alone."""
        return {name: value for name, value in self.effective().items() if name not in _PREDICTION}

    def runs(self, seeds: Sequence[int]) -> list[RunConfig]:
        """A run for each seed."""
        return [replace(self.config, seed=seed) for seed in seeds]


def resolve(arm: Arm, shared: ArmSettings, overrides: Mapping[str, Any]) -> ArmSettings:
    """The settings of `arm`: its own, and for the rest those that all share.

    overrides: fields of the recipe that hold for every arm that does not give its own, whatever its recipe. Raises
    InputError, naming the arm, for a value against its rule and a field that has no effect in the arm.
    """
    try:
        found = _resolved(arm, shared, overrides)
        for name in arm.fields:
            if (needs := without_effect(found, name)) is not None:
                raise InputError(f"{name} has no effect: it needs {needs}. Leave it out.")
    except InputError as error:
        raise InputError(f"the arm {arm.name}: {error}") from error
    return found


def _resolved(arm: Arm, shared: ArmSettings, overrides: Mapping[str, Any]) -> ArmSettings:
    given: dict[str, dict[str, Any]] = {"config": {}, "data": {}, "prediction": {}, "recipe": {}}
    for name, value in arm.fields.items():
        if name == "recipe":
            continue
        owner, own = _OWNERS[name]
        if own in given[owner]:
            raise InputError(f"the field {own} of its recipe is given twice.")
        given[owner][own] = value
    base = shared.config.recipe
    if "recipe" in arm.fields:
        base = recipe(arm.fields["recipe"], fields=dict(overrides))
        if base.model and "model" not in given["config"]:
            given["config"]["model"] = base.model
    config = replace(
        shared.config,
        method=arm.method,
        arm="",
        recipe=changed(base, given["recipe"]),
        **given["config"],
    )
    if config.arm_name != arm.name:
        config = replace(config, arm=arm.name)
    return ArmSettings(config, replace(shared.data, **given["data"]), replace(shared.prediction, **given["prediction"]))


def without_effect(arm: ArmSettings, name: str) -> str | None:
    """What the field `name` needs to have an effect in `arm`, in words; None where it has one."""
    method = arm.config.method
    its = _SETTINGS.get(name)
    if its is not None and method not in its.methods:
        return "the method masking" if its.methods == ("masking",) else "an anchored method, vanilla or masking"
    if name == "k" and arm.prediction.protocol == "one_random":
        return "the protocol k_random or transduction"
    owner, own = _OWNERS.get(name, ("", name))
    return arm.config.recipe.without_effect(own) if owner == "recipe" else None


_SETTINGS: dict[str, Setting] = {
    **{prefix + f.name: its for f, its in declared(Recipe) for prefix in ("", "recipe.")},
    **{f.name: its for kind in (RunConfig, TrainingData, PredictionSettings) for f, its in declared(kind)},
}


def alike(arms: Sequence[ArmSettings]) -> Iterator[tuple[str, str]]:
    """Pairs of arms, by name, that do the same."""
    for number, one in enumerate(arms):
        for other in arms[number + 1 :]:
            if one.effective() == other.effective():
                yield one.name, other.name
