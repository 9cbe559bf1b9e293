"""Functions of torch as programs, compared with eager torch. Where torch is not installed, a module
of tests that imports this one is skipped."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source

__all__ = ["Calls", "check", "drawn", "leaves", "torch"]

pytest.importorskip("torch.export")  # a folder that is called torch is none
torch = import_module("torch")


class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def leaves(results: Any) -> list[Any]:
    found = torch.utils._pytree.tree_leaves(results)
    return [torch.as_tensor(each).resolve_conj().numpy() for each in found]


def check(function: Callable[..., Any], *tensors: Any, near: float = 1e-4) -> None:
    program = torch.export.export(Calls(function), tensors, strict=False)
    with np.errstate(all="ignore"):
        found = interpret(read_source(program), "main", [each.numpy() for each in tensors])
    for a, b in zip(found, leaves(function(*tensors)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, near, near)


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=dtype)
