"""Every node test of the ONNX standard: imported and interpreted, and compiled and run.

A case either gives the standard's results or one CompileError. The counts of right cases may
only grow; every op with a lowering must have at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from ingot.compiler.frontends.onnx.registry import registered_ops
from ingot.compiler.ir import Module
from ingot.hal.errors import CompileError
from tests.support.devices import load_best
from tests.support.node_tests import (
    Import,
    Run,
    check,
    interpreted,
    node_tests,
    one_per_op,
    read,
    read_dynamic,
)
from tests.support.results import several

INTERPRETED_COUNT = 1874
COMPILED_COUNT = 1874
DYNAMIC_COUNT = 1841
OPS_COUNT = 196
GROUP = 32  # cases in one module: many of their kernels are the same


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return node_tests()


def _interpreted(modules: list[Module]) -> list[Run | None]:
    return [interpreted(module) for module in modules]


def _compiled(modules: list[Module]) -> list[Run | None]:
    """Calls of one module that has them all, which takes less time to build than one each; of
    two halves where one of them is refused."""
    try:
        model = load_best({f"f{place}": each for place, each in enumerate(modules)})
    except CompileError:
        half = len(modules) // 2
        return [*_compiled(modules[:half]), *_compiled(modules[half:])] if half else [None]
    functions = [model.functions[f"f{place}"] for place in range(len(modules))]
    return [partial(lambda each, given: several(each(*given)), each) for each in functions]


def _run_all(
    cases: list[Any], read: Import, prepare: Callable[[list[Module]], list[Run | None]]
) -> Iterator[tuple[Any, str]]:
    """Each case with what is wrong with it: "" if it is right, "refused" for a CompileError."""
    modules: list[tuple[Any, Module]] = []
    for case in cases:
        try:
            modules.append((case, read(case)))
        except CompileError:
            yield case, "refused"
    for start in range(0, len(modules), GROUP):
        group = modules[start : start + GROUP]
        runs = prepare([module for _, module in group])
        for (case, _), run in zip(group, runs, strict=True):
            yield case, "refused" if run is None else _judge(case, run)


def _judge(case: Any, run: Run) -> str:
    try:
        check(case, run)
    except AssertionError as error:
        return str(error) or "wrong"
    return ""


def _right(
    cases: list[Any], prepare: Callable[[list[Module]], list[Run | None]], read: Import = read
) -> list[Any]:
    """The cases that are right; the others must be refused."""
    with np.errstate(all="ignore"):
        outcomes = list(_run_all(cases, read, prepare))
    wrong = {case.name: what for case, what in outcomes if what not in ("", "refused")}
    assert not wrong, "\n".join(f"{name}: {what[:200]}" for name, what in wrong.items())
    return [case for case, what in outcomes if not what]


@pytest.mark.slow
def test_every_node_test_of_the_standard_is_right_or_refused_with_a_compile_error(
    cases: list[Any],
) -> None:
    right = _right(cases, _interpreted)
    assert len(right) >= INTERPRETED_COUNT, len(right)
    covered = {node.op_type for case in right for node in case.model.graph.node}
    # ops without a node test of their own in the standard
    elsewhere = {"ConcatFromSequence", "GlobalLpPool", "GroupNormalization", "MaxRoiPool"}
    elsewhere |= {"SequenceErase", "Multinomial", "RandomNormal", "RandomNormalLike"}
    elsewhere |= {"RandomUniform", "SequenceAt", "SequenceConstruct", "Optional"}
    # of onnxruntime, without a domain
    elsewhere |= {"Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale"}
    elsewhere |= {"ScaledTanh", "SimplifiedLayerNormalization"}
    assert set(registered_ops()) - covered <= elsewhere


@pytest.mark.slow
def test_a_node_test_of_every_op_runs_right_when_compiled(cases: list[Any]) -> None:
    right = _right(list(one_per_op(cases)), _compiled)
    assert len(right) >= OPS_COUNT, len(right)


@pytest.mark.long
def test_every_node_test_of_the_standard_runs_right_or_is_refused_when_compiled(
    cases: list[Any],
) -> None:
    right = _right(cases, _compiled)
    assert len(right) >= COMPILED_COUNT, len(right)


def test_every_node_test_of_the_standard_with_symbolic_dims_is_right_or_refused(
    cases: list[Any],
) -> None:
    right = _right(cases, _interpreted, read_dynamic)
    assert len(right) >= DYNAMIC_COUNT, len(right)
