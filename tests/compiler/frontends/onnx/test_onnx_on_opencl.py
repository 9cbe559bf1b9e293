"""Node tests of the ONNX standard with every op of graphs, on an OpenCL device. What ops of
ONNX become is the same for all devices: test_onnx_conformance.py runs one of each.

One module has twenty of them as its functions, because what takes time is to build kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.ir import walk
from tests.support.devices import opencl_device, opencl_uri
from tests.support.node_tests import check, node_tests, one_per_op, read
from tests.support.results import several

GROUP = 20
LEAST = 70  # cases

pytestmark = pytest.mark.slow


def check_group(group: list[Any]) -> dict[str, str]:
    """What is wrong, by the name of the case."""
    names = [f"f{place}" for place in range(len(group))]
    sources = {name: read(case) for name, case in zip(names, group, strict=True)}
    model = ingot.load(ingot.compile(sources, target="opencl"), device=str(opencl_device()))
    wrong = {each.kernel: each.reason for each in model.host_kernels}
    for name, case in zip(names, group, strict=True):
        function = model.functions[name]

        def run(arguments: list[Any], function: Any = function) -> list[Any]:
            return several(function(*arguments))

        try:
            check(case, run)
        except AssertionError as error:
            wrong[case.name] = str(error)[:200]
    return wrong


def one_per_graph_op(cases: Iterable[Any]) -> Iterator[Any]:
    """Those that have an op of graphs with a dtype of results that none before has."""
    seen: set[tuple[Any, ...]] = set()
    for case in cases:
        ops = {(op.name, *(str(each.type).split("[")[0] for each in op.results))
               for op in walk(read(case)) if op.name != "constant"}  # fmt: skip
        if ops - seen:
            seen |= ops
            yield case


def test_a_node_test_of_every_graph_op_is_right() -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")
    cases = list(one_per_graph_op(one_per_op(node_tests())))
    assert len(cases) >= LEAST
    wrong: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for start in range(0, len(cases), GROUP):
            wrong |= check_group(cases[start : start + GROUP])
    assert wrong == {}
