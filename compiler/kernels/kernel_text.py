"""A kernel as text that reads back: its loop IR, with what a caller must know as attributes.

The schedule is a comment for people: nothing below the kernel classes reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from ingot.compiler.ir import Attribute, Function, TensorType, parse_function, to_text
from ingot.compiler.ir.dims import Expr
from ingot.compiler.kernels.kernel import Kernel, checked_name
from ingot.compiler.kernels.level import verify_kernel
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["described", "kernel_text", "parse_kernel"]


def described(kernel: Kernel) -> Function:
    """The loop IR with all else that the kernel is, but its schedule, as attributes."""
    attributes = {name: cast(Attribute, getattr(kernel, name)) for name in _FIELDS}
    return replace(kernel.loops, attributes=attributes)


def kernel_text(kernel: Kernel) -> str:
    """The kernel as text."""
    return to_text(described(kernel))


def parse_kernel(text: str) -> Kernel:
    """Read a kernel. CompileError: the text is none, or its loop IR breaks a rule."""
    function = parse_function(text)
    checked_name(function.name)
    given = function.attributes
    if list(given) != list(_FIELDS):
        raise CompileError(
            f"kernel '{function.name}' has the attributes ({', '.join(given)}), "
            f"expected ({', '.join(_FIELDS)})"
        )
    for name, is_right in _FIELDS.items():
        if not is_right(given[name]):
            raise CompileError(
                f"kernel '{function.name}': attribute '{name}' cannot be {given[name]!r}"
            )
    fields = cast("dict[str, Any]", dict(given))
    loops = replace(function, attributes={})
    kernel = Kernel(name=function.name, loops=loops, **fields)
    verify_kernel(kernel)
    return kernel


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_dim(value: Any) -> bool:
    return isinstance(value, Expr) or (isinstance(value, int) and not isinstance(value, bool))


def _each(check: Callable[[Any], bool], count: int | None = None) -> Callable[[Any], bool]:
    def is_right(value: Any) -> bool:
        return isinstance(value, tuple) and count in (None, len(value)) and all(map(check, value))

    return is_right


def _is_relation(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 3
        and value[0] in ("le", "equal", "broadcast")
        and all(map(_is_dim, value[1:]))
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "bindings": _each(lambda value: isinstance(value, DType)),
    "result_count": _is_number,
    "constants": _each(_is_dim),
    "workload": _each(_is_dim, 3),
    "tile": _each(lambda value: _is_number(value) and value > 0, 3),
    "flops": _is_dim,
    "bytes": _is_dim,
    "scratch_length": _is_number,
    "local_size": _each(lambda value: _is_number(value) and value > 0, 3),
    "local_length": _is_number,
    "workspaces": _each(lambda value: isinstance(value, TensorType)),
    "in_place": _each(_each(_is_number, 2)),
    "untouched": _is_dim,
    "host": lambda value: isinstance(value, str),
    "contract": _each(_is_relation),
}
