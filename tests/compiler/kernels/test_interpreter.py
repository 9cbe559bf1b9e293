"""Kernels of every class, for lanes and for items, run by the interpreter of loop IR: they give
what the graph interpreter gives, touch nothing else, and what printed C gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.compiler.ir import Function
from ingot.compiler.kernels.classes import KERNEL_CLASSES, kernel_class, lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.spec import dtype
from tests.support import kernel_runner
from tests.support.class_entries import ENTRIES, interpret
from tests.support.entries import assert_close, entry, make, reference
from tests.support.loops import kernel_of
from tests.support.work_items import SMALL

V3 = kernel_runner.V3
F32, I32, I64 = map(dtype, ("f32", "i32", "i64"))


SUPPRESS = entry(
    ["f32[3,4,n]", "i64[3,2,n]", "i1[3,2,n]", "i64[]", "f32[]"],
    lambda b, *x: b.op("suppress", *x),
    {"n": (0, None)},
)


@pytest.mark.parametrize("target", [V3, SMALL], ids=["lanes", "items"])
@pytest.mark.parametrize("name", [*ENTRIES, "suppress"])
def test_a_kernel_gives_what_the_graph_gives(name: str, target: Any) -> None:
    function = ENTRIES.get(name, lambda: SUPPRESS)()
    if name == "scaled" and target is SMALL:  # expand_scaled leaves none for such targets
        with pytest.raises(CompileError, match="groups of work items have no kernel"):
            lower_entry(function, target)
        return
    kernel = parse_kernel(kernel_text(lower_entry(function, target)))
    for n in (37, 4) if function.symbols else (0,):
        operands = [
            make(each.type, np.random.default_rng(n), {"n": n}) for each in function.arguments
        ]
        if name == "suppress":  # numbers of any kind are no boxes, and overlap by chance
            corners = np.abs(operands[0][:, :2])
            operands[0] = np.concatenate([corners, corners + 1], axis=1)
            operands[4] = np.array(0.2, np.float32)
        expected = reference(function, operands)
        results = [np.full(each.shape, 77).astype(each.dtype) for each in expected]
        interpret(kernel, operands, results, n=n)
        for mine, theirs in zip(results, expected, strict=True):
            assert_close(mine, theirs, 3e-6)


def test_all_classes_are_here() -> None:
    assert {lower_class(each()) for each in (*ENTRIES.values(), lambda: SUPPRESS)} == {
        each.name
        for each in KERNEL_CLASSES
        if each.name != "own"  # text of users, no loops
    }


def lower_class(function: Function) -> str:
    found = kernel_class(function)
    assert found is not None
    return found.name


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_of_memory_is_told(index: int) -> None:
    b = LoopBuilder()
    b.store(b.binding(1, F32), 0, b.load(b.binding(0, F32), index))
    arrays = [np.zeros(4, np.float32) for _ in range(2)]
    with pytest.raises(InvalidArgument, match=f"loop.load at index {index} of 4 elements"):
        run_kernel(kernel_of(b), arrays, {})


@pytest.mark.parametrize("guarded", [True, False])
def test_what_no_barrier_guards_is_told(guarded: bool) -> None:
    b = LoopBuilder()
    shared, item = b.local(0, F32), b.local_id(0)
    b.store(shared, item, b.load(b.binding(0, F32), item))
    if guarded:
        b.barrier()
    b.store(b.binding(1, F32), item, b.load(shared, b.sub(3, item)))
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    if guarded:
        assert run_kernel(kernel_of(b), [x, y], {}) is None
        assert y.tolist() == [3, 2, 1, 0]
        return
    with pytest.raises(InvalidArgument, match="without a barrier in between"):
        run_kernel(kernel_of(b), [x, y], {})


def test_a_fault_ends_its_item_and_is_told() -> None:
    b = LoopBuilder()
    item = b.local_id(0)
    b.fault(b.compare("ge", item, 2), item, 2, 0)
    b.store(b.binding(1, F32), item, b.constant(1.0, F32))
    y = np.zeros(4, np.float32)
    assert run_kernel(kernel_of(b), [y, y], {}) == (0, 2, 2)
    assert y.tolist() == [1, 1, 0, 0]


OPS = st.sampled_from(
    ["add", "sub", "mul", "max", "min", "select", "shuffle", "pick", "reduce", "rem"]
)


def drawn(data: st.DataObject, element: Any, lanes: int) -> Kernel:
    """A loop over vectors with a tail, a branch, carried values and drawn arithmetic."""
    b = LoopBuilder()
    x, y = b.binding(0, element), b.binding(1, element)
    length, start = 11, b.constant(1, element, lanes)
    with b.for_(
        data.draw(st.integers(0, 5)), length, data.draw(st.integers(1, lanes)), [start]
    ) as loop:
        value = b.load(x, loop.index, lanes, b.min(b.sub(length, loop.index), lanes))
        known = [value, loop.carried[0], b.convert(b.broadcast(loop.index, lanes), element)]
        for _ in range(data.draw(st.integers(1, 5))):
            name = data.draw(OPS)
            one, other = (data.draw(st.sampled_from(known)) for _ in range(2))
            if name == "select":
                less = b.op("compare", one, other, direction="lt")
                known.append(b.op("select", less, other, one))
            elif name == "shuffle":
                order = data.draw(
                    st.lists(st.integers(0, 2 * lanes - 1), min_size=lanes, max_size=lanes)
                )
                known.append(b.shuffle(one, other, order))
            elif name == "pick":
                places = b.op("and", b.lanes(lanes), b.broadcast(b.value(loop.index), lanes))
                known.append(b.part("loop.pick", one, b.convert(places, dtype(f"i{element.bits}"))))
            elif name == "reduce":
                known.append(b.broadcast(b.reduce(one, "max"), lanes))
            else:
                known.append(b.op(name, one, other))
        last = known[-1]
        even = b.compare("eq", b.rem(loop.index, 2), 0)
        (last,) = b.if_(even, lambda: [last], lambda: [b.op("neg", last)])
        b.store(y, loop.index, last, b.min(b.sub(length, loop.index), lanes))
        loop.yield_(last)
    b.store(y, length, loop.results[0])
    return kernel_of(b, bindings=(element, element), local_size=(1, 1, 1), local_length=0)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([F32, I32, I64]), st.sampled_from([4, 8]))
def test_drawn_loops_agree_with_c_and_opencl(data: Any, element: Any, lanes: int) -> None:
    kernel = parse_kernel(kernel_text(drawn(data, element, lanes)))
    x = np.random.default_rng(lanes).integers(-9, 9, 11).astype(element.numpy)
    results = []
    for variant in (None, *kernel_runner.all_variants()[-2:]):
        y = np.zeros(11 + lanes, element.numpy)
        if variant is None:
            assert run_kernel(kernel, [x, y], {}) is None
        else:
            kernel_runner.run(kernel, [x], [y], variant)
        results.append(y)
    for each in results[1:]:
        np.testing.assert_array_equal(each, results[0])
