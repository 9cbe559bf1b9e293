"""Small graph programs for tests: build one from a function, run it, compare two forms of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Region,
    TensorType,
    Value,
    Variable,
    parse,
    parse_type,
    to_text,
    verify,
)

Build = Callable[..., Any]

COUNTER = """(%x: f32[2]) -> (f32[2]) {
  %old = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]
  %new = add(%old, %x) : f32[2]
  variable.store(%new) {name="total"}
  return(%old)
}"""
TOTAL = "variable @total: f32[2] = dense<f32[] 1.5>"


def function(
    name: str,
    types: Iterable[str | TensorType],
    build: Build,
    symbols: Mapping[str, tuple[int, int | None]] | None = None,
) -> Function:
    """A function of arguments x0, x1, ..., which returns what build(builder, *values) gives as
    y0, y1, ..."""
    block = Block(parse_type(type) if isinstance(type, str) else type for type in types)
    builder = Builder(block)
    made = build(builder, *block.arguments)
    results = made if isinstance(made, (tuple, list)) else (made,)
    builder.return_(*results)
    arguments = [f"x{place}" for place in range(len(block.arguments))]
    outputs = [f"y{place}" for place in range(len(results))]
    return Function(name, Region([block]), arguments, outputs, symbols=dict(symbols or {}))


def program(
    build: Build,
    *types: str | TensorType,
    symbols: Mapping[str, tuple[int, int | None]] | None = None,
    variables: Mapping[str, Variable] | None = None,
) -> Module:
    """A verified module whose `main` is such a function."""
    module = Module(variables=dict(variables or {}))
    module.add(function("main", types, build, symbols))
    verify(module, GRAPH)
    return module


def module_of(body: str, head: str = "") -> Module:
    """The verified module of one function, after a round trip through text."""
    text = f"module {{}} {{\n{head}\nfunc @main{body}\n}}\n"
    module = parse(text)
    printed = to_text(module)
    assert to_text(parse(printed)) == printed
    verify(module, GRAPH)
    return module


def run(module: Module, *arrays: Any, parameters: dict[str, Any] | None = None) -> list[Any]:
    """The results of `main`, checked against their static types."""
    results = interpret(module, "main", arrays, parameters)
    for result, type in zip(results, module.functions["main"].result_types, strict=True):
        assert isinstance(type, TensorType)
        assert result.dtype == type.dtype.numpy
        assert result.ndim == type.rank
    return results


def evaluate(build: Build, *arrays: np.ndarray[Any, Any]) -> Any:
    """The one result of an op on arrays, through builder, printer, parser and interpreter."""
    from ingot.hal.spec import DType

    types = [
        f"{DType.from_numpy(array.dtype).name}[{','.join(map(str, array.shape))}]"
        for array in arrays
    ]
    module = program(build, *types)
    results = run(parse(to_text(module)), *arrays)
    return results[0] if len(results) == 1 else results


def names(module: Module, function: str = "main") -> Counter[str]:
    """How often each op stands in a function."""
    return Counter(op.name for op in module.functions[function].block.ops)


def check_pass(
    passes: Sequence[Callable[[Module], Module]],
    module: Module,
    *arrays: Any,
    tolerance: float = 0.0,
    parameters: dict[str, Any] | None = None,
) -> Module:
    """Run passes on a copy; the copy verifies and gives the same results. Returns the copy."""
    copy = parse(to_text(module))
    for each in passes:
        each(copy)
        verify(copy, GRAPH)
    before, after = (run(each, *arrays, parameters=parameters) for each in (module, copy))
    for old, new in zip(before, after, strict=True):
        if tolerance == 0:
            assert old.tobytes() == new.tobytes()
        else:
            wide = old.astype(np.float64)
            greatest = float(np.abs(wide[np.isfinite(wide)]).max(initial=1e-30))
            np.testing.assert_allclose(new.astype(np.float64), wide, 0, tolerance * greatest)
    return copy


def constant(builder: Builder, seed: int, *shape: int) -> Value:
    """A f32 constant of normal numbers."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return builder.constant(array)


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """A f32 array of normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
