"""What importing costs and needs. Which room may import which is a contract of import-linter, in pyproject.toml."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fixtures import ROOT

PACKAGE = ROOT / "anchored"


def imported(file: Path) -> Iterator[str]:
    """Whole names of what a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_method_needs_torch_alone() -> None:
    for file in (PACKAGE / "method").glob("*.py"):
        tops = {found.partition(".")[0] for found in imported(file)}
        assert tops - set(sys.stdlib_module_names) <= {"anchored", "torch"}, file.name


def test_every_room_says_what_it_is_for() -> None:
    for room in (path.parent for path in PACKAGE.glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        assert "What may enter:" in text, room.name


def test_starting_loads_no_library_that_one_command_needs() -> None:
    # torchvision alone brings torch's compiler: a second and 150 MiB, in each process of `anchored corrupt` too.
    slow = ["torchvision", "timm", "sklearn", "matplotlib", "transformers", "accelerate", "datasets", "onnx"]
    code = f"import sys, anchored, anchored.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
