"""The modules shown in docs/ir.md parse, verify and print as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir import parse, to_text, verify
from ingot.compiler.pipeline import compile
from tests.support.goldens import assert_golden, with_part

PROGRAM = """module {} {
  func @main(%x: f32[n,4] "x", %y: f32[n,4] "y") -> (f32[n] "out") symbols {n in [1, 64]} {
    %0 = add(%x, %y) : f32[n,4] loc("sum")
    %1 = exp(%0) : f32[n,4] loc("power")
    %2 = reduce(%1) {axes=[1], kind="add"} : f32[n] loc("total")
    return(%2)
  }
}
"""
LEVELS = {
    "import": "Graph: what a front end makes, here read from text.",
    "form_dispatches": "Dispatch: each op that computes is in a region, which becomes one kernel.",
    "outline": "Regions are functions of their own, the entries; the caller knows their dims.",
    "kernels.x86-64": "Loops: the kernel of an entry for one variant, below its schedule. "
    "The target prints it as C or OpenCL C.",
    "plan_memory": "Stream: commands in the order of the queue, and a place for each value.",
    "vm.convert": "VM: registers and checks, one op per instruction of [the VM](vm.md).",
}


def test_shown_modules_are_right(project_root: Path) -> None:
    page = (project_root / "docs" / "ir.md").read_text(encoding="utf-8")
    shown = re.findall(r"```\n(module .*?)```", page.partition("<!-- the levels")[0], re.DOTALL)
    assert len(shown) >= 2
    for text in shown:
        module = parse(text)
        verify(module, GRAPH)
        assert to_text(parse(to_text(module))) == to_text(module)


def test_every_graph_pass_is_listed(project_root: Path) -> None:
    page = (project_root / "docs" / "ir.md").read_text(encoding="utf-8")
    for each in GRAPH_PASSES:
        assert f"`{each.__name__}`" in page


def test_one_program_is_shown_at_every_level(project_root: Path, tmp_path: Path) -> None:
    compile(PROGRAM, variants=["x86-64"], dump_ir=tmp_path)
    dumps = {path.stem.partition("-")[2]: path.read_text() for path in tmp_path.iterdir()}
    part = "".join(f"\n{what}\n\n```\n{dumps[step]}```\n" for step, what in LEVELS.items())
    path = project_root / "docs" / "ir.md"
    page = path.read_text(encoding="utf-8")
    ends = "<!-- the levels: written by `make goldens` -->", "<!-- the end of the levels -->"
    assert_golden(path, with_part(page, *ends, f"{part}\n"))
