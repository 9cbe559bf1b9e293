"""Core ATen ops with the arguments that torch's own tests draw (OpInfo), against eager torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from ingot.compiler.frontends.torch.core_ops import CORE

pytest.importorskip("torch.export")  # a folder that is called torch is none
pytest.importorskip("expecttest")  # which torch's tests need
torch = import_module("torch")
op_db = import_module("torch.testing._internal.common_methods_invocations").op_db

SAMPLES = 8  # of an op and a dtype
NAMES = {name.partition(".")[0] for name in CORE} | {"_softmax", "softmax", "log_softmax"}
OPS = [op for op in op_db if {op.aten_name, op.name.rpartition(".")[2]} & NAMES]
DTYPES = (torch.float32, torch.int64, torch.bool, torch.float16)
REFUSED = {
    "empty": "what they give is arbitrary",
}


class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The op on all samples; only tensors are arguments."""

    def __init__(self, op: Any, samples: list[Any]) -> None:
        super().__init__()
        self.op, self.samples = op, samples

    def forward(self, tensors: list[Any]) -> list[Any]:
        left = iter(tensors)

        def given(x: Any) -> Any:
            return next(left) if isinstance(x, torch.Tensor) else x

        results = []
        for sample in self.samples:
            whole = (sample.input, sample.args, sample.kwargs)
            first, args, kwargs = torch.utils._pytree.tree_map(given, whole)
            results.append(self.op(first, *args, **kwargs))
        return results


def leaves(tree: Any) -> list[Any]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]
