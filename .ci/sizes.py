"""The longest files and functions; fails above 400 lines a file or 60 a function."""

import ast
import subprocess
import sys
from pathlib import Path

FILE, FUNCTION = 400, 60
ROOT = Path(__file__).resolve().parents[1]

files, functions = [], []
for name in subprocess.run(
    ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split():
    if not (ROOT / name).exists():
        continue
    text = (ROOT / name).read_text()
    files.append((text.count("\n"), name))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append((node.end_lineno - node.lineno + 1, f"{name}:{node.lineno} {node.name}"))
wrong = 0
for what, found, most in (("file", files, FILE), ("function", functions, FUNCTION)):
    found.sort(reverse=True)
    over = [each for each in found if each[0] > most]
    wrong += len(over)
    print(f"longest {what}s (at most {most} lines):")
    for lines, where in over or found[:3]:
        print(f"  {lines:4} {where}")
sys.exit(wrong > 0)
