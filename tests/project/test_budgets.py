"""How much code there is: lines per folder and in all, the longest functions and files.

The numbers of the table are what stood when they were written, with a little room. A change that
needs more raises its number in the same commit, and says in its message what the lines are worth:
growth is a decision. A change that makes something smaller lowers it. Lines of code are those with
more than white space, comments, docstrings or a lone bracket.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINES = {
    "compiler": 2598,
    "compiler/bundling": 720,
    "compiler/dispatch": 2370,
    "compiler/frontends": 43300,
    "compiler/graph": 12201,
    "compiler/ir": 2445,
    "compiler/kernels": 17895,
    "compiler/stream": 1655,
    "compiler/targets": 5185,
    "compiler/vm": 2746,
    "csrc": 102,
    "csrc/api": 2795,
    "csrc/base": 972,
    "csrc/hal": 6733,
    "csrc/include": 1124,
    "csrc/module": 1367,
    "csrc/platform": 1430,
    "csrc/vm": 2333,
    "hal": 3132,
    "runtime": 3260,
    "python/ingot": 4170,
    "python/ingot/explorer": 1900,
    "python/ingot/language": 3000,
    "python/ingot/onnxruntime": 1820,
    "python/ingot/quantizing": 1316,
    "benchmarks": 2675,
    "web": 950,
    "samples": 2030,
}
IN_ALL = 132130
LONGEST_FILE = 600
API = "csrc/include/ingot/ingot.h"  # one header with all that applications call, and its manual
LONGEST_API = 821
LONGEST_FUNCTION = 60
SUFFIXES = (".py", ".c", ".h", ".cl", ".def", ".js", ".kt", ".swift")
OTHERS = {"__pycache__", "libraries"}  # what nobody here wrote
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
CODE = re.compile(r"[^\s(){}\[\],;]")


def _files(folder: str) -> Iterator[Path]:
    """Files of code below a folder; for a folder of folders with numbers, those in itself."""
    inner = any(other.startswith(f"{folder}/") for other in LINES)
    for path in sorted((ROOT / folder).glob("*" if inner else "**/*")):
        if path.suffix in SUFFIXES and not OTHERS.intersection(path.parts):
            yield path


class Counts(NamedTuple):
    """The lines of a file, those of code, and those of each function of Python."""

    all: int
    code: int
    functions: list[tuple[str, int]]


@cache
def _counts(path: Path) -> Counts:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix != ".py":
        code = sum(bool(CODE.search(line)) for line in C_COMMENT.sub("", text).splitlines())
        return Counts(len(lines), code, [])
    prose, functions = set[int](), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef):
            functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
    code = sum(
        number not in prose and bool(CODE.search(line.partition("#")[0]))
        for number, line in enumerate(lines, 1)
    )
    return Counts(len(lines), code, functions)


@pytest.fixture(scope="module")
def sums() -> dict[str, int]:
    return {folder: sum(_counts(path).code for path in _files(folder)) for folder in LINES}


def test_every_folder_with_code_has_a_number() -> None:
    for parent in ("compiler", "csrc", "python/ingot"):
        for path in (ROOT / parent).iterdir():
            name = f"{parent}/{path.name}"
            assert name in LINES or not any(_files(name)), f"{name} has no number"


@pytest.mark.parametrize("folder", LINES)
def test_a_folder_stays_within_its_lines(folder: str, sums: dict[str, int]) -> None:
    assert sums[folder] <= LINES[folder], f"{folder} has {sums[folder]} lines of code"


def test_the_whole_stays_within_its_lines(sums: dict[str, int]) -> None:
    assert sum(sums.values()) <= IN_ALL, f"there are {sum(sums.values())} lines of code"


def test_no_file_and_no_function_is_longer_than_the_longest() -> None:
    wrong = []
    for path in (path for folder in LINES for path in _files(folder)):
        length = _counts(path).all
        if length > (LONGEST_API if path == ROOT / API else LONGEST_FILE):
            wrong.append(f"{path.relative_to(ROOT)} has {length} lines")
        for name, count in _counts(path).functions:
            if count > LONGEST_FUNCTION:
                wrong.append(f"{path.relative_to(ROOT)}: {name} has {count} lines")
    assert not wrong, "\n".join(wrong)
