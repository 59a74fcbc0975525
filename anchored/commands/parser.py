"""Parsers of the command line and of its YAML files."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from argparse import Action
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from jsonargparse import ArgumentParser, set_dumper, set_loader


class _Loader(yaml.SafeLoader):
    """YAML 1.2's booleans and numbers: `on` is a flag here and no boolean, and 1e-3 is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF")
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    "-+0123456789.",
)


class Parser(ArgumentParser):
    """The parser of one command, `command`, and of the YAML files of its flags.

    In a file `on:` is the flag and no boolean, 1e-3 is a number, a flag that takes several values may have one without
    brackets, and names may have dashes.
    """

    def __init__(self, command: str = "anchored", **options: Any) -> None:
        self.mode = mode = f"anchored {command}"
        self.lists: set[str] = set()
        set_loader(mode, self._load, exceptions=(yaml.YAMLError,))
        set_dumper(mode, lambda values: yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
        super().__init__(parser_mode=mode, usage=f"anchored {command} [flags]", **options)

    def below(self, commands: Any, name: str, help: str) -> None:
        """Make this the parser of the subcommand `name`."""
        commands.add_subcommand(name, self, help=help)
        self.parser_mode = self.mode  # where the parent's has been set

    def group(self, title: str) -> Callable[..., Any]:
        """What adds arguments under a heading of the help."""
        group = self.add_argument_group(title)

        def add(*names: str, **options: Any) -> Any:
            action = group.add_argument(*names, **options)
            if options.get("nargs") is not None:
                self.lists.add(action.dest)
            return action

        return add

    def _load(self, text: str) -> Any:
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader
        if not isinstance(value, dict):
            return value
        flags = {name.replace("-", "_") if isinstance(name, str) else name: flag for name, flag in value.items()}
        return {
            name: [flag] if name in self.lists and isinstance(flag, (str, int, float)) else flag
            for name, flag in flags.items()
        }


class Version(Action):
    """--version: versions of the package, of torch and of Python, in one line."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest="==SUPPRESS==", default="==SUPPRESS==", nargs=0, help="print versions")

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        version = importlib.metadata.version
        print(f"anchored {version('anchored')}, torch {version('torch')}, Python {platform.python_version()}")
        parser.exit()
