"""docs/architecture.md answers where one would change things: every file and name in its answers is there."""

from __future__ import annotations

import ast
import re

import pytest
from fixtures import ROOT

from anchored.arms.arm import FIELDS

PAGE = (ROOT / "docs" / "architecture.md").read_text()
QUESTIONS = (
    "a corruption", "a metric", "an anomaly score", "a data source", "a model source", "an augmentation",
    "a setting of the method", "an inference protocol", "a figure of the report", "a command",
)  # fmt: skip
NO_NAMES = {"NAME", "HELP", "SPEC", "parser", "run", "load", "listing"}  # what a new file has to have


def answers() -> dict[str, str]:
    return dict(re.findall(r"^\| ((?:a|an) [\w ]+) \| (.*) \|$", PAGE, re.M))


def defined(source: str) -> set[str]:
    """Names of functions, classes and constants of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_ten_questions_have_answers() -> None:
    assert tuple(answers()) == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_files_and_names_of_an_answer_exist(question: str) -> None:
    text = answers()[question]
    files = [name for name in re.findall(r"`(anchored/[\w/]+\.py)`", text) if "NAME" not in name]
    folders = re.findall(r"`(anchored/[\w/]+/)`", text)
    assert files or folders
    assert all((ROOT / name).exists() for name in [*files, *folders])
    there = set().union(*(defined((ROOT / file).read_text()) for file in files)) if files else set()
    names = set(re.findall(r"`(\w+)`", text)) - NO_NAMES
    known = defined((ROOT / "anchored" / "models" / "libraries.py").read_text())
    known |= defined((ROOT / "anchored" / "method" / "protocols.py").read_text())
    known |= defined((ROOT / "anchored" / "report" / "figures.py").read_text())
    assert names <= there | known, names - there - known


def test_every_other_name_on_the_page_exists() -> None:
    sources = [path for path in (ROOT / "anchored").rglob("*.py")]
    everything = set().union(*(defined(path.read_text()) for path in sources))
    rest = re.sub(r"^\|.*$", "", PAGE.split("## What is compared")[1], flags=re.M)
    for name in re.findall(r"`(\w+)`", rest):
        assert name in everything, name
    for file in re.findall(r"`(?:anchored/)?(\w+/\w+\.py)`", rest):
        assert (ROOT / "anchored" / file).exists() or (ROOT / file).exists(), file


def test_every_room_is_drawn() -> None:
    drawing = PAGE.split("```text")[1].split("```")[0]
    rooms = {path.parent.name for path in (ROOT / "anchored").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"(\w+)/", drawing))


def test_the_fields_of_arms_in_their_guide_are_fields() -> None:
    table = (ROOT / "docs" / "arms.md").read_text().split("## Fields")[1].split("`anchored compare --help`")[0]
    named = set(re.findall(r"`([\w.]+)`", table))
    assert named <= set(FIELDS) and {"recipe", "protocol", "mask_until"} <= named
