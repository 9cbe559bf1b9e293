"""A node test of the ONNX standard for every op, on an OpenCL device.

One module has twenty of them as its functions, because what takes time is to build kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from tests.support.devices import opencl_uri
from tests.support.node_tests import check, node_tests, one_per_op, read
from tests.support.results import several

GROUP = 20
LEAST = 150  # ops

pytestmark = pytest.mark.slow


def check_group(group: list[Any]) -> dict[str, str]:
    """What is wrong, by the name of the case."""
    names = [f"f{place}" for place in range(len(group))]
    sources = {name: read(case) for name, case in zip(names, group, strict=True)}
    model = ingot.load(ingot.compile(sources, target="opencl"), device=str(opencl_uri()))
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


def test_a_node_test_of_every_op_is_right() -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")
    cases = list(one_per_op(node_tests()))
    assert len(cases) >= LEAST
    wrong: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for start in range(0, len(cases), GROUP):
            wrong |= check_group(cases[start : start + GROUP])
    assert wrong == {}
