"""Kernels that compute something else than their entry says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ingot.compiler.ir import Function, clone_region
from ingot.compiler.kernels import classes

__all__ = ["make_wrong"]


def make_wrong(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, becomes: str, layer: str = ""
) -> None:
    """From now on kernels of a class compute op `becomes` where op `name` of `layer` stands."""
    lower = classes.lower_entry

    def wrong(function: Function, target: Any) -> Any:
        found = classes.kernel_class(function)
        if found is None or found.name != kind:
            return lower(function, target)
        copy = replace(function, body=clone_region(function.body, {}))
        for op in copy.block.ops:
            if op.name == name and layer in op.location:
                op.name = becomes
        return lower(copy, target)

    monkeypatch.setattr(classes, "lower_entry", wrong)
