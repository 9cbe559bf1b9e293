"""Loads modules and calls their functions; needs no compiler.

model = ingot.load("model.ingot")
y = model(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingot.runtime.fence import Fence
    from ingot.runtime.function import Function
    from ingot.runtime.model import Model, load
    from ingot.runtime.signature import Signature, Value

__all__ = ["Fence", "Function", "Model", "Signature", "Value", "load"]

_FILES = {
    "Fence": "fence",
    "Function": "function",
    "Model": "model",
    "Signature": "signature",
    "Value": "signature",
    "load": "model",
}


def __getattr__(name: str) -> Any:
    # On first use, because the HAL imports the extension from this package.
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
