"""The compiler: a source program to the bytes of a module.

`compile` is the entrance; `pipeline.py` lists the passes in between. The folders are the
levels in order: ir, graph, dispatch, stream, vm; `frontends` read source programs and
`targets` print and build kernels. The compiler needs no device and no compiled extension.
Names are imported on first use, so that `ingot inspect` does not load every pass.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ingot.compiler.rare_collections import rare_collections

if TYPE_CHECKING:
    from ingot.compiler.module import Module
    from ingot.compiler.pipeline import compile
    from ingot.compiler.report import Report

__all__ = ["Module", "Report", "compile"]

_HOMES = {"Module": "module", "Report": "report", "compile": "pipeline"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ingot.compiler' has no attribute {name!r}")
    with rare_collections():
        value = getattr(import_module(f"ingot.compiler.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
