"""Shared by the StableHLO tests: export a jax function, import it, compare with jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Module, verify
from tests.support.devices import load_best
from tests.support.results import arrays_of, assert_same

Array = np.ndarray[Any, Any]


def export(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.export.export(jax.jit(function))(*arguments)


def spec(*shape: Any, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def normal(*shape: int, dtype: Any = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 9, dtype: Any = "int32") -> Array:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


def check(
    function: Callable[..., Any],
    *arguments: Any,
    specs: Sequence[Any] | None = None,
    inputs: Sequence[Sequence[Any]] | None = None,
    tolerance: float = 1e-5,
) -> Module:
    """Import `function` once, verify the module, and compare it with jax on each of `inputs`."""
    exported = export(function, *(arguments if specs is None else specs))
    module = import_stablehlo(exported)
    verify(module, GRAPH)
    for each in inputs or [arguments]:
        leaves = jax.tree_util.tree_leaves(each)
        kept = [np.asarray(leaves[place]) for place in exported.module_kept_var_idx]
        assert_gives(interpret(module, "main", kept), function, *each, tolerance=tolerance)
    return module


def check_compiled(function: Callable[..., Any], *arguments: Any, tolerance: float = 1e-5) -> None:
    """Compile `function`, run it, and compare it with jax."""
    results = run_compiled(export(function, *arguments), *arguments)
    assert_gives(results, function, *arguments, tolerance=tolerance)


def run_compiled(source: Any, *arguments: Any) -> list[Array]:
    """The results of a program compiled for this machine."""
    return arrays_of(load_best(source)(*arguments))


def artifact(text: str) -> bytes:
    """A text of StableHLO as the portable artifact that jax would export."""
    return stablehlo.serialize_portable_artifact_str(text, "1.9.0")  # type: ignore[no-any-return]


def assert_gives(
    results: Sequence[Array], function: Callable[..., Any], *arguments: Any, tolerance: float
) -> None:
    """The results are what jax gives for `function`."""
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    for place, (found, leaf) in enumerate(zip(results, wanted, strict=True)):
        assert_same(found, np.asarray(leaf), tolerance, tolerance, f"result {place}")
