"""Ops of the user's own: lowerings that user code registers by domain and name.

    @ingot.lowering("com.acme", "MyOp")
    def my_op(x, y=None, *, alpha=1.0):
        return ops.where(x > 0, x, alpha * x)

Installed packages name modules with such functions in the entry points of the group
`ingot.lowerings`; they are imported when an op is met that nothing else lowers. What a source
program says chooses among what is registered and never what is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.natives import any_natives, find_native
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Expr
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.options import checked_options

__all__ = ["ADVICE", "OwnLowering", "find_own", "has_own", "lower_own", "lowering", "split_name"]

_GROUP = "ingot.lowerings"
_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "aten", "prims", "higher_order")
ADVICE = "give it a lowering with @ingot.lowering or declare it with natives="
"""What to do about an op of a domain that nobody knows."""

OwnLowering = Callable[..., Any]
_Function = TypeVar("_Function", bound=OwnLowering)

_own: dict[tuple[str, str], OwnLowering] = {}


@checked_options(InvalidArgument)
def lowering(domain: str, name: str) -> Callable[[_Function], _Function]:
    """Register how an op of your own is computed, as a function of traced tensors (`ingot.ops`).

    `domain`, `name`: those of an ONNX node; "acme" and "my_op" of torch.ops.acme.my_op; of a
    StableHLO custom call "acme.my_op" what stands before and behind its last dot; "tflite" and the
    name of a custom op of TFLite.
    The function takes the op's operands in order (None for one that is left out, a list where the
    op takes one) and its attributes as keywords: numbers, texts, lists of them, and NumPy arrays.
    It gives a tensor or, for several results, a tuple. Of two registrations the later one counts.

    InvalidArgument: the domain is of a standard.
    """
    if domain in _STANDARD or not name:
        raise InvalidArgument(
            f"the op '{name}' of the domain '{domain}' is no op of your own: give it a domain like "
            "'com.acme'"
        )

    def register(function: _Function) -> _Function:
        _own[domain, name] = function
        return function

    return register


def split_name(name: str) -> tuple[str, str]:
    """Domain and name of an op that has both in one text."""
    domain, _, last = name.rpartition(".")
    return domain, last


def find_own(domain: str, name: str, registered_only: bool = False) -> OwnLowering | None:
    """The function for an op, which may be a native one (`natives.py`); unless `registered_only`,
    packages are asked too. CompileError: one of them cannot be imported."""
    native = find_native(domain, name)
    if native is not None:
        return native
    if (domain, name) not in _own and not registered_only and domain not in _STANDARD:
        _import_packages()
    return _own.get((domain, name))


def has_own() -> bool:
    """Whether anything is registered."""
    return bool(_own) or any_natives()


@cache
def _import_packages() -> None:
    registered = dict(_own)
    for entry in entry_points(group=_GROUP):
        try:
            entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.value
            raise CompileError(
                f"the lowerings of the package '{package}' ({entry.value}) cannot be imported: "
                f"{type(error).__name__}: {error}; repair or uninstall it"
            ) from error
    _own.update(registered)  # what the program itself says comes first


def lower_own(
    function: OwnLowering,
    builder: Builder,
    fresh: Callable[[str], str],
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
) -> list[Value]:
    """The results of an op. Operands and attributes may be values, dims, and lists of them.

    UnsupportedNode, CompileError: the function does not take them, or what it does is no program.
    """
    from ingot.compiler.frontends.program.tensor import (
        Trace,
        as_size,
        entered,
        given,
        value_of,
    )

    trace = Trace(builder, fresh, layer=builder.location)

    def shown(value: Any) -> Any:
        if isinstance(value, Value):
            return given(value)
        if isinstance(value, (list, tuple)):
            return [shown(each) for each in value]
        return as_size(value) if isinstance(value, Expr) else value

    with entered(trace):
        arguments = [shown(each) for each in operands]
        named = {name: shown(each) for name, each in attributes.items()}
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise UnsupportedNode(
            f"its lowering, {_place(function)}, does not take its {len(arguments)} operands and "
            f"the attributes {sorted(named)}: {error}"
        ) from None
    with entered(trace):
        try:
            result = function(*arguments, **named)
        except (CompileError, UnsupportedNode):
            raise
        except Exception as error:
            raise CompileError(
                f"its lowering, {_place(function)}, failed: {type(error).__name__}: {error}"
            ) from error
        several = result if isinstance(result, (list, tuple)) else (result,)
        try:
            return [value_of(each) for each in several]
        except UnsupportedNode as error:
            raise UnsupportedNode(f"a result of {_place(function)}: {error}") from None


def _place(function: OwnLowering) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__name__", "function")
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name
