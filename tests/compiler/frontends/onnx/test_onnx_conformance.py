"""Every node test of the ONNX standard: imported and interpreted, and compiled and run.

A case either gives the standard's results or one CompileError. The counts of right cases may
only grow; every op with a lowering must have at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ingot.compiler.frontends.onnx.registry import registered_ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Module
from ingot.hal.errors import CompileError
from tests.support.devices import load_best
from tests.support.node_tests import Import, Run, check, node_tests, read, read_dynamic

INTERPRETED_COUNT = 1840
COMPILED_COUNT = 1815
DYNAMIC_COUNT = 1780


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return node_tests()


def _interpreted(module: Module) -> Run:
    return lambda arguments: interpret(module, "main", arguments)


def _compiled(module: Module) -> Run:
    """Calls the compiled module; one variant is enough, the best of this machine."""
    model = load_best(module)

    def run(arguments: list[Any]) -> list[Any]:
        results = model(*(np.asarray(each) for each in arguments))
        several = results if isinstance(results, tuple) else (results,)
        return [each.numpy() for each in several]

    return run


def _run_all(
    cases: list[Any], read: Import, prepare: Callable[[Module], Run]
) -> Iterator[tuple[Any, str]]:
    """Each case with what is wrong with it: "" if it is right, "refused" for a CompileError."""
    for case in cases:
        try:
            run = prepare(read(case))
        except CompileError:
            yield case, "refused"
            continue
        try:
            check(case, run)
        except AssertionError as error:
            yield case, str(error)
        else:
            yield case, ""


def _right(cases: list[Any], prepare: Callable[[Module], Run], read: Import = read) -> list[Any]:
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
    elsewhere |= {"RandomUniform"}
    assert set(registered_ops()) - covered <= elsewhere


@pytest.mark.slow
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
