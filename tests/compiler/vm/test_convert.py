"""vm code of stream programs, run by the C runtime: checks of arguments, sizes, copies.

The programs here have no kernels: a result that is an argument is a copy, which is enough
to see that symbols are solved, relations checked and sizes right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.dispatch.ops import Check, CheckedFunction
from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Dim, floordiv, maximum, symbol
from ingot.compiler.stream.convert import convert as stream_convert
from ingot.compiler.stream.data import ProgramData
from ingot.compiler.stream.plan_memory import plan_memory
from ingot.compiler.vm.build_module import TargetCode, build_module
from ingot.compiler.vm.convert import convert as vm_convert
from ingot.hal.spec import dtype

F32 = dtype("f32")
B, S = symbol("b"), symbol("seq")


def copies(
    *shapes: tuple[Dim, ...],
    results: tuple[tuple[int, tuple[Dim, ...]], ...] = (),
    symbols: dict[str, tuple[int, int | None]] | None = None,
    checks: tuple[Check, ...] = (),
) -> Any:
    """A loaded module: result i is argument results[i][0] as a tensor of shape results[i][1]."""
    block = Block(TensorType(F32, shape) for shape in shapes)
    values = []
    for argument, shape in results:
        reshape = Op("reshape", [block.arguments[argument]], [TensorType(F32, shape)])
        values.append(block.append(reshape).result)
    block.append(Op("return", values))
    names = [f"x{i}" for i in range(len(shapes))]
    outputs = [f"y{i}" for i in range(len(results))]
    function = Function("main", Region([block]), names, outputs, symbols=symbols or {})
    function.attributes = CheckedFunction(checks=checks)
    module = Module()
    module.add(function)
    data = ProgramData()
    planned = plan_memory(stream_convert(module, {}, data))
    code = TargetCode("cpu", module, planned, vm_convert(planned), {}, (), ())
    return ingot.load(build_module([code], data, {}))


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def test_a_returned_argument_is_copied() -> None:
    model = copies((B, 4), results=((0, (4, B)),), symbols={"b": (0, None)})
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = model(x).numpy()
    assert y.shape == (4, 3)
    np.testing.assert_array_equal(y.reshape(3, 4), x)
    assert model(zeros(0, 4)).shape == (4, 0)


def test_symbols_must_agree_between_arguments() -> None:
    model = copies((B, S), (B, S), symbols={"b": (0, None), "seq": (0, None)})
    model(zeros(2, 16), zeros(2, 16))
    expected = r"argument 1 'x1': dim 1 \('seq'\) is 12, but argument 0 'x0' has seq = 16"
    with pytest.raises(ingot.InvalidArgument, match=expected):
        model(zeros(2, 16), zeros(2, 12))


def test_symbols_stay_within_their_bounds() -> None:
    model = copies((S,), symbols={"seq": (1, 512)})
    model(zeros(512))
    with pytest.raises(ingot.InvalidArgument, match=r"'seq'\) is 0, expected at least 1"):
        model(zeros(0))
    with pytest.raises(ingot.InvalidArgument, match=r"'seq'\) is 513, expected at most 512"):
        model(zeros(513))


def test_a_symbol_is_solved_from_an_expression() -> None:
    model = copies((2 * B + 1,), results=((0, (2 * B + 1, 1)),), symbols={"b": (0, None)})
    assert model(zeros(7)).shape == (7, 1)
    with pytest.raises(ingot.InvalidArgument, match=r"is 6, which is not of the form 2\*b\+1"):
        model(zeros(6))


def test_an_expression_of_known_symbols_is_compared() -> None:
    model = copies((B * S,), (B,), (S,), symbols={"b": (0, None), "seq": (0, None)})
    model(zeros(6), zeros(2), zeros(3))
    with pytest.raises(ingot.InvalidArgument, match=r"dim 0 \('b\*seq'\) is 7, expected 6"):
        model(zeros(7), zeros(2), zeros(3))


@pytest.mark.parametrize(
    "text", ["3*b+7", "b*b", "floordiv(b, 3)", "mod(b, 5)", "max(b, 4)", "b*b-b", "min(b, 3)"]
)
def test_size_arithmetic_is_exact(text: str) -> None:
    dim = parse_dim(text)
    model = copies((B,), (dim,), symbols={"b": (1, None)})
    for b in (1, 2, 10):
        size = int(eval(text, {"b": b, "floordiv": lambda x, y: x // y, **_FUNCTIONS}))
        model(zeros(b), zeros(size))
        with pytest.raises(ingot.InvalidArgument, match=f"is {size + 1}, expected {size}"):
            model(zeros(b), zeros(size + 1))


_FUNCTIONS = {"mod": lambda x, y: x % y, "max": max, "min": min}


def test_relations_of_layers_are_checked_before_any_work() -> None:
    checks: tuple[Check, ...] = (
        Check("le", S, 512, "positions"),
        Check("broadcast", B, 4),
        Check("equal", maximum(S, 2), floordiv(B * 4, 2), "half"),
    )
    model = copies((B, S), symbols={"b": (0, None), "seq": (0, None)}, checks=checks)
    model(zeros(1, 2))
    model(zeros(4, 8))
    with pytest.raises(ingot.InvalidArgument, match="layer 'positions': seq is 600, expected at"):
        model(zeros(1, 600))
    with pytest.raises(ingot.InvalidArgument, match="b is 3, expected 1 or 4 = 4"):
        model(zeros(3, 6))
    with pytest.raises(ingot.InvalidArgument, match="layer 'half'"):
        model(zeros(1, 3))


def test_dims_that_no_argument_tells_are_refused() -> None:
    with pytest.raises(ingot.CompileError, match="dims that no argument tells: seq"):
        copies((B,), symbols={"b": (0, None), "seq": (0, None)})
    with pytest.raises(ingot.CompileError, match="cannot be solved"):
        copies((B + S,), symbols={"b": (0, None), "seq": (0, None)})
