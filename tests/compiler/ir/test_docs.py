"""The modules shown in docs/ir.md parse, verify and print as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir import parse, to_text, verify


def test_shown_modules_are_right(project_root: Path) -> None:
    page = (project_root / "docs" / "ir.md").read_text(encoding="utf-8")
    shown = re.findall(r"```\n(module .*?)```", page, re.DOTALL)
    assert len(shown) >= 2
    for text in shown:
        module = parse(text)
        verify(module, GRAPH)
        assert to_text(parse(to_text(module))) == to_text(module)


def test_every_graph_pass_is_listed(project_root: Path) -> None:
    page = (project_root / "docs" / "ir.md").read_text(encoding="utf-8")
    for each in GRAPH_PASSES:
        assert f"`{each.__name__}`" in page
