"""A node test of the ONNX standard for every op, on an OpenCL device.

One module has twenty of them as its functions, because what takes time is to build kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.ir import Module
from ingot.hal.errors import CompileError
from tests.support.devices import opencl_uri
from tests.support.node_tests import check, node_tests, read
from tests.support.results import several

GROUP = 20
LEAST = 150  # ops

pytestmark = pytest.mark.slow


def one_per_op() -> Iterator[tuple[Any, Module]]:
    """The first case of each op that can be imported, with its module."""
    seen: set[str] = set()
    for case in node_tests():
        op = case.model.graph.node[-1].op_type
        if op in seen:
            continue
        try:
            module = read(case)
        except CompileError:
            continue
        seen.add(op)
        yield case, module


def check_group(group: list[tuple[Any, Module]]) -> dict[str, str]:
    """What is wrong, by the name of the case."""
    names = [f"f{place}" for place in range(len(group))]
    sources = {name: module for name, (_, module) in zip(names, group, strict=True)}
    model = ingot.load(ingot.compile(sources, target="opencl"), device=str(opencl_uri()))
    wrong = {each.kernel: each.reason for each in model.host_kernels}
    for name, (case, _) in zip(names, group, strict=True):
        function = model.functions[name]

        def run(arguments: list[Any], function: Any = function) -> list[Any]:
            return several(function(*arguments))

        try:
            check(case, run)
        except AssertionError as error:
            wrong[case.name] = str(error)[:200]
    return wrong


def test_a_node_test_of_every_op_is_right() -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")
    cases = list(one_per_op())
    assert len(cases) >= LEAST
    wrong: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for start in range(0, len(cases), GROUP):
            wrong |= check_group(cases[start : start + GROUP])
    assert wrong == {}
