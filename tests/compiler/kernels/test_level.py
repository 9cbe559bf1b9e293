"""The loop level: its table and page are whole, and the verifier names what breaks a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.document_loops import loops_markdown
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.references import REFERENCES
from ingot.compiler.kernels.table import LOOP_OPS
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.loops import kernel_of

F32, I64 = dtype("f32"), dtype("i64")


def small() -> Kernel:
    b = LoopBuilder()
    x, y, shared = b.binding(0, F32), b.binding(1, F32), b.local(0, F32)
    item, lanes = b.local_id(0), 4
    b.store(shared, item, b.load(x, item))
    b.barrier()
    with b.for_(0, b.dim(symbol("n")), lanes, [b.constant(0.0, F32, lanes)]) as loop:
        value = b.load(x, loop.index, lanes, b.sub(b.dim(symbol("n")), loop.index))
        loop.yield_(b.fma(value, b.constant(2.0, F32), loop.carried[0]))
    positive = b.compare("gt", item, 0)
    (chosen,) = b.if_(positive, lambda: [b.load(shared, 1)], lambda: [b.load(shared, 0)])
    b.store(y, item, b.op("add", chosen, b.reduce(loop.results[0], "add")))
    return kernel_of(b)


def test_the_page_of_loop_ops_is_fresh(project_root: Path) -> None:
    page = (project_root / "docs" / "loops.md").read_text(encoding="utf-8")
    command = "python -m ingot.compiler.kernels.document_loops docs/loops.md"
    assert page == loops_markdown(), f"run: {command}"


def test_every_row_has_a_doc_line_and_registers_a_reference() -> None:
    for row in LOOP_OPS.values():
        assert row.doc.endswith("."), row.name
    computed = {
        row.name for row in LOOP_OPS.values() if row.family in ("Lanes", "Index arithmetic")
    }
    assert set(REFERENCES) == computed


def test_a_kernel_reads_back_as_it_was_printed() -> None:
    text = kernel_text(small())
    again = parse_kernel(text)
    assert kernel_text(again) == text
    assert again.bindings == (F32, F32)
    assert again.constants == (symbol("n"),)
    assert again.local_size == (4, 1, 1)


def small_text() -> str:
    return kernel_text(small())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loop.fma(", "loop.dot9(", "op 'loop.dot9': is not legal at the loop level"),
        ("loop.fma(", "loop.load(", r"op 'loop.load': operand 0 is vector<4xf32>"),
        ('kind="add"', 'kind="mean"', "op 'loop.reduce': attribute 'kind' must be .*, not 'mean'"),
        ('kind="add"', 'kind="xor"', "op 'loop.reduce': xor of vector<4xf32> has no meaning"),
        (' {kind="add"}', "", "op 'loop.reduce': needs the attribute 'kind'"),
        ("ordinal=1}", "ordinal=0}", "op 'loop.store': stores into binding 0, which is an operand"),
        ("ordinal=1}", "ordinal=2}", "op 'loop.binding': its ordinal is 2, but the kernel has 2"),
        ("axis=0", "axis=3", "op 'loop.local_id': axis 3 is not 0, 1 or 2"),
        ("offset=0", "offset=64", "op 'loop.local': its offset is 64, but the kernel has 64 bytes"),
        ("offset=0", "offset=-64", "op 'loop.local': its offset is -64"),
        ("offset=0", "offset=8", "op 'loop.local': its offset is 8, no multiple of 64"),
        ("value=4}", "value=0}", "op 'loop.for': its step is not above 0"),
        ("value=4}", "value=3000000000}", "the value 3000000000 is none of index"),
        ("value=2.0}", "value=2}", "op 'loop.constant': the value 2 is no f32"),
        ("(%12: index", "(%12: f32", "op 'loop.for': its body takes an index first"),
        ("constants=[<n>]", "constants=[]", "op 'loop.dim': its ordinal is 0"),
        ('direction="gt"', 'direction="above"', "op 'compare': attribute 'direction'"),
        ("loop.barrier()", "loop.barrier(%1)", "op 'loop.barrier': takes the op"),
        ("loop.barrier()", "loop.poll() {work=9}", "op 'loop.poll': polls, but would end one"),
        ("unroll=false", "unroll=false, poll=9", "op 'loop.for': polls, but would end one item"),
        ("local_size=[4, 1, 1]", "local_size=[4, 1]", "attribute 'local_size' must be a 3-tuple"),
        ("result_count=1, ", "", "needs the attribute 'result_count'"),
        ("vector<4xf32> ({", "vector<3xf32> ({", "op 'loop.for': has the results"),
        ("  return()\n", "", "without a terminator"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_op_and_rule(old: str, new: str, message: str) -> None:
    text = small_text()
    assert old in text, text
    with pytest.raises(CompileError, match=message):
        parse_kernel(text.replace(old, new, 1))


def test_a_barrier_that_some_items_may_miss_is_refused() -> None:
    b = LoopBuilder()
    b.if_(b.compare("gt", b.local_id(0), 0), lambda: b.barrier())
    with pytest.raises(CompileError, match=r"has a barrier in a loop\.if that work items"):
        verify_kernel(kernel_of(b))


def test_wide_index_arithmetic_and_narrow_indices_are_told_by_their_types() -> None:
    b = LoopBuilder()
    y = b.binding(1, I64)
    with b.for_(0, b.dim(symbol("n"))) as loop:
        place = b.mul(loop.index, 3)
        b.store(y, place, b.value(b.add(loop.index, b.dim(symbol("m")))))
    kernel = kernel_of(b, bindings=(F32, I64))
    verify_kernel(kernel)
    text = kernel_text(kernel)
    assert text.count("loop.mul(") == text.count("loop.add(") == 1
    types = {line.split(" = ")[1].split("(")[0]: line.rsplit(" : ")[1] for line in
             text.splitlines() if "loop.mul" in line or "loop.add" in line}  # fmt: skip
    assert types == {"loop.mul": "index", "loop.add": "i64"}


def test_a_loop_that_starts_with_an_index_cannot_go_on_with_data() -> None:
    b = LoopBuilder()
    x = b.binding(0, I64)
    with (
        pytest.raises(TypeError, match="starts as an index and goes on as data"),
        b.for_(0, 9, 1, [b.value(0)]) as loop,
    ):
        loop.yield_(b.load(x, loop.index))


def test_a_branch_that_gives_an_index_beside_data_gives_data() -> None:
    b = LoopBuilder()
    x, y, item = b.binding(0, I64), b.binding(1, I64), b.local_id(0)
    positive = b.compare("gt", item, 0)
    (value,) = b.if_(positive, lambda: [item], lambda: [b.load(x, 0)])
    b.store(y, item, value)
    kernel = kernel_of(b, bindings=(I64, I64))
    verify_kernel(kernel)
    assert re.search(r"= loop.if\(%\d+\) : i64 ", kernel_text(kernel))
