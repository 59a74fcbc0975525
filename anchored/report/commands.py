"""Commands that go on from a comparison, made from the command and the settings in its config.json.

Each is "" where they do not say enough to know that the command would do what is meant.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from anchored.report.summary import Summary

_DEFAULT_ARMS = {"standard": "standard", "vanilla": "vanilla", "masking-uniform": "masking", "masking-label": "masking"}
_FLAGS = {"alpha": "--alpha", "masked_target": "--masked-target", "recalibrate_bn": "--recalibrate-bn"}
_METHODS = ("--methods", "--method")
_SEVERITIES = [1, 2, 3, 4, 5]


def training(summary: Summary, arm: str, fields: Mapping[str, Any], slug: str) -> str:
    """Train and compare `arm` with other `fields`: one arm more in the same folder, where its comparison has arms."""
    config = _only(summary)
    words = _words(config, "compare")
    if not words:
        return ""
    if "arms" not in config:
        return _with_flags(summary, config, words, arm, fields, slug)
    name = _free(f"{arm}-{slug}", config["arms"])
    added = _spec(config, arm, name, fields)
    if added is None:
        return ""
    specs = [added]
    if "methods" in config.get("settings", {}):  # arms of one's own take the place of those of the methods
        written = [_spec(config, each, each, {}) for each in config["arms"]]
        if None in written:
            return ""
        targets = _values(words, "--masked-target")
        words = _without(words, *_METHODS, "--masked-target")
        words += ["--masked-target", targets[0]] if targets else []
        specs = [*(str(each) for each in written), added]
    for spec in specs:
        words += ["--arm", spec]
    return shlex.join(_set(words, "--out", _out(config, words)))


def with_epochs(summary: Summary, epochs: int) -> str:
    """The same comparison with other epochs for every arm, in another folder."""
    config = _only(summary)
    words = _words(config, "compare")
    if not words or any(" epochs=" in word for word in words):  # an arm's own go before the flag
        return ""
    out = f"{_out(config, words)}-{epochs}-epochs"
    return shlex.join(_set(_set(words, "--epochs", str(epochs)), "--out", out))


def with_seeds(summary: Summary, seeds: Sequence[int]) -> str:
    """The same comparison with more seeds: in the same folder, where that may grow."""
    config = _only(summary)
    words = _words(config, "compare")
    if not words:
        return ""
    out = _out(config, words) + ("" if "arms" in config else f"-{len(seeds)}-seeds")
    return shlex.join(_set(_set(_without(words, "--seed"), "--seeds", *map(str, seeds)), "--out", out))


def predicting(summary: Summary, arm: str, fields: Mapping[str, Any], slug: str) -> str:
    """Evaluate the runs of `arm` and of its baseline with another protocol."""
    config = _only(summary)
    protocol = [text for name, value in fields.items() for text in (f"--{name}", str(value))]
    words = _words(config, "evaluate")
    if words:
        for name, value in fields.items():
            words = _set(words, f"--{name}", str(value))
        out = (_values(words, "--out") or ["runs/evaluation"])[0]
        return shlex.join(_set(words, "--out", f"{out}-{slug}"))
    words, settings = _words(config, "compare"), config.get("settings", {})
    if not words or "data" not in settings:
        return ""
    out = _out(config, words)
    base = summary.baselines[arm]
    runs = [summary.runs[name, seed] for name in (base, arm) for seed in summary.seeds_of(name)]
    command = ["anchored", "evaluate", *(f"{out}/runs/{run}" for run in runs), "--data", str(settings["data"])]
    given = {name: settings.get(name) for name in ("root", "limit", "on", "severities", "anomalies")}
    for name, value in given.items():
        if value and not (name == "severities" and list(value) == _SEVERITIES):
            command += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join([*command, *protocol, "--baseline", runs[0], "--out", f"{out}-{slug}"])


def _only(summary: Summary) -> Mapping[str, Any]:
    """The config of the one folder that the rows come from; of several none says all."""
    return summary.configs[0] if len(summary.configs) == 1 else {}


def _words(config: Mapping[str, Any], command: str) -> list[str]:
    """The words of the command that was run, if it is that one."""
    said = config.get("command", "")
    try:
        words = [str(word) for word in said] if isinstance(said, list) else shlex.split(str(said))
    except ValueError:
        return []
    return words if words[:2] == ["anchored", command] else []


def _out(config: Mapping[str, Any], words: Sequence[str]) -> str:
    """The folder of the comparison: the one it was told, or the one it then has by its data and settings."""
    data = config.get("data")
    name = str(data.get("name") if isinstance(data, Mapping) else data).replace(":", "-").replace("/", "_")
    given = _values(words, "--out")
    return given[0].rstrip("/") if given else f"runs/compare-{name}-{str(config.get('config_hash', ''))[:8]}"


def _with_flags(
    summary: Summary, config: Mapping[str, Any], words: list[str], arm: str, fields: Mapping[str, Any], slug: str
) -> str:
    """The command of a comparison by methods with other flags, for the arm and its baseline alone."""
    base = summary.baselines[arm]
    if arm not in _DEFAULT_ARMS or _DEFAULT_ARMS.get(base) != "standard":
        return ""
    method = str(fields.get("method", _DEFAULT_ARMS[arm]))
    values = {"masked_target": summary.fact(arm, "masked_target"), **fields}
    out = f"{_out(config, words)}-{slug}"
    words = _set(_without(words, *_METHODS), "--methods", "standard", method)
    for name, flag in _FLAGS.items():
        if values.get(name) is not None:
            words = _set(words, flag, str(values[name]))
    return shlex.join(_set(words, "--out", out))


def _spec(config: Mapping[str, Any], arm: str, name: str, fields: Mapping[str, Any]) -> str | None:
    """`arm` as --arm takes it, called `name` and with other `fields`; None where its settings do not say it."""
    flat, shared = config["arms"].get(arm, {}).get("settings"), config.get("settings", {})
    recipe = shared.get("recipe")
    if not isinstance(flat, Mapping) or not isinstance(recipe, Mapping) or flat.get("recipe") != recipe.get("name"):
        return None
    own = {}
    for key, value in flat.items():
        if key in ("method", "recipe"):
            continue
        place = recipe if key.startswith("recipe.") or key not in shared else shared
        there = place.get(key.removeprefix("recipe."), value)
        if key == "masked_target" and isinstance(there, list):
            there = there[0]
        if there != value:
            own[key] = value
    own |= {key: value for key, value in fields.items() if key != "method"}
    words = [f"{key}={_yaml(value)}" for key, value in own.items()]
    return f"{name}: {' '.join([str(fields.get('method', flat.get('method'))), *map(shlex.quote, words)])}"


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """`name`, at most as long as an arm's may be, with a number where there is one of that name."""
    name = name[:76]
    return next(each for each in (name, *(f"{name}-{i}" for i in range(2, 1000))) if each not in taken)


def _span(words: Sequence[str], flag: str) -> tuple[int, int] | None:
    """Where the flag and its values stand."""
    for start, word in enumerate(words):
        if word == flag or word.startswith(f"{flag}="):
            end = start + 1
            while word == flag and end < len(words) and not words[end].startswith("--"):
                end += 1
            return start, end
    return None


def _values(words: Sequence[str], flag: str) -> list[str]:
    span = _span(words, flag)
    if span is None:
        return []
    start, end = span
    return (
        [words[start].partition("=")[2]] if end == start + 1 and "=" in words[start] else list(words[start + 1 : end])
    )


def _without(words: Sequence[str], *flags: str) -> list[str]:
    words = list(words)
    for flag in flags:
        while (span := _span(words, flag)) is not None:
            del words[slice(*span)]
    return words


def _set(words: Sequence[str], flag: str, *values: str) -> list[str]:
    """The command with `flag` set: in its place, or at the end."""
    span, rest = _span(words, flag), _without(words, flag)
    start = span[0] if span else len(rest)
    return [*rest[:start], flag, *values, *rest[start:]]
