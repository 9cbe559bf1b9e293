"""Shared by the StableHLO tests: export a jax function, import it, compare with jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Module, verify

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
        results = interpret(module, "main", kept)
        wanted = jax.tree_util.tree_leaves(jax.jit(function)(*each))
        assert len(results) == len(wanted)
        for place, (found, leaf) in enumerate(zip(results, wanted, strict=True)):
            reference = np.asarray(leaf)
            assert (found.shape, found.dtype) == (reference.shape, reference.dtype)
            if reference.dtype.kind in "biu":
                np.testing.assert_array_equal(found, reference, f"result {place}")
            else:
                np.testing.assert_allclose(
                    np.asarray(found, np.float64),
                    np.asarray(reference, np.float64),
                    rtol=tolerance,
                    atol=tolerance,
                    err_msg=f"result {place}",
                )
    return module
