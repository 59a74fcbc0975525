"""Imports point one way: from the command line down to the core, which needs torch alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from fixtures import ROOT

PACKAGE = ROOT / "anchored"
LOW = {"core", "stem", "modes", "metrics", "models", "augment", "data", "corruptions", "references", "protocols"}
HIGH = {"train", "evaluate", "cells", "runs", "compare", "assess", "report", "robustness", "cli"}


def imported(file: Path) -> Iterator[str]:
    """Whole names of what a file imports, also inside functions, but not for types alone."""
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(file: Path) -> str:
    """The module, or the package within `anchored`, that a file belongs to."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def graph() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        names = {name.split(".")[1] for name in imported(file) if name.startswith("anchored.")}
        found.setdefault(part(file), set()).update(names - {part(file)})
    return found


def test_there_is_no_circle() -> None:
    arrows = {module: others for module, others in graph().items() if module != "__init__"}
    assert "core" in TopologicalSorter(arrows).static_order()


def test_low_parts_do_not_know_high_ones() -> None:
    arrows = graph()
    for module in LOW:
        seen, waiting = set(), [module]
        while waiting:
            seen.add(here := waiting.pop())
            waiting += arrows.get(here, set()) - seen
        assert not seen & HIGH, module


def test_the_core_needs_torch_alone() -> None:
    assert graph()["core"] == {"stem", "modes"}
    for name in ("core", "stem", "modes"):
        tops = {found.partition(".")[0] for found in imported(PACKAGE / f"{name}.py")}
        assert tops - set(sys.stdlib_module_names) <= {"anchored", "torch"}, name


def test_the_report_reads_rows_and_scores_alone() -> None:
    assert graph()["report"] <= {"errors", "files", "metrics", "rows", "summaries"}


def test_only_the_command_line_imports_the_command_line() -> None:
    users = {module for module, others in graph().items() if any(other.startswith("cli") for other in others)}
    assert users == {"cli", "__main__"}


def test_starting_loads_no_library_that_one_command_needs() -> None:
    # torchvision alone brings torch's compiler: a second and 150 MiB, in each process of `anchored corrupt` too.
    slow = ["torchvision", "timm", "sklearn", "matplotlib", "transformers", "accelerate", "datasets", "onnx"]
    code = f"import sys, anchored, anchored.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
