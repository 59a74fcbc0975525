"""The README's Python blocks run, in order, in one namespace."""

from __future__ import annotations

import re

import pytest
from fixtures import ROOT


def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 3
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert "tensor" in capsys.readouterr().out


def test_the_main_command_is_the_compare_of_the_embedded_data() -> None:
    assert ".venv/bin/anchored compare\n" in (ROOT / "README.md").read_text()
