"""Ops of a source program that the application computes: what `natives=` of `ingot.compile` says.

    ingot.compile("model.onnx", natives={"acme.Resize": ingot.Native("(f32[h,w]) -> (f32[8,8])")})

Names are those of `own_ops.py` with a dot between domain and op. A native op comes before every
other lowering of its name.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.native_signature import parse_signature
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.spec import DType

__all__ = [
    "Native",
    "OwnOps",
    "any_natives",
    "call_native",
    "call_own",
    "check_name",
    "find_native",
    "given_natives",
    "python_functions",
]


@dataclass(frozen=True)
class Native:
    """A function of the application that compiled code calls.

    `signature` is what it takes and gives, as "(f32[h,w,3], i64[]) -> (f32[224,224,3])": symbols
    are dims of the arguments, which results may be formulas of; a symbol of results alone is a dim
    that the function decides. Calls with `effects` are made in the order of the program, all of
    them; others may be left out or merged. `function` is the function itself, in Python: a model
    that is loaded from the compiled module, in this process, then needs no natives=. That is for
    development: a saved module needs the function again. `otherwise` makes it optional: a function
    of traced tensors (`ingot.ops`), which takes what the native one takes and is computed in its
    place by programs that are loaded without it.

    InvalidArgument: the signature says none, or `function` or `otherwise` cannot be called.
    """

    signature: str
    effects: bool = False
    function: Callable[..., Any] | None = None
    otherwise: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        parse_signature(self.signature)
        for name in ("function", "otherwise"):
            each = getattr(self, name)
            if each is not None and not callable(each):
                raise InvalidArgument(f"{name} is {each!r}, expected a function or None")


_given: ContextVar[Mapping[str, Native | str]] = ContextVar("natives of the program", default={})  # noqa: B039
"""Native functions, and signatures of kernels, by name."""


@dataclass(frozen=True)
class OwnOps:
    """What computes ops of the user's own: native functions, and kernels, one or more for a name,
    of one `signature`."""

    natives: Mapping[str, Native | str]
    kernels: Mapping[str, Sequence[Any]]


@contextmanager
def given_natives(own: OwnOps | None) -> Iterator[None]:
    """Inside, ops of these names are calls of these. InvalidArgument: one is no `Native`."""
    own = own or OwnOps({}, {})
    found: dict[str, Native | str] = {
        name: each[0].signature for name, each in own.kernels.items() if each
    }
    for name, native in own.natives.items():
        if isinstance(native, str):
            native = Native(native)
        if not isinstance(name, str) or not name or not isinstance(native, Native):
            raise InvalidArgument(
                f"natives[{name!r}] is {type(native).__name__}, but must be an ingot.Native or its "
                'signature, such as "(f32[n]) -> (f32[n])", by the name of the op'
            )
        check_name(name)
        if name in own.kernels:
            raise InvalidArgument(f"'{name}' is given as a native function and as a kernel")
        found[name] = native
    token = _given.set(found)
    try:
        yield
    finally:
        _given.reset(token)


def check_name(name: str) -> None:
    """InvalidArgument: no native function can be called that."""
    if name.startswith("?"):
        raise InvalidArgument(
            f"a native function cannot be called '{name}': '?' asks whether there is one"
        )


def python_functions(natives: Mapping[str, Native | str]) -> dict[str, Callable[..., Any]]:
    """The functions that are given with their declarations; a warning says that there are some."""
    functions = {
        name: native.function
        for name, native in natives.items()
        if isinstance(native, Native) and native.function is not None
    }
    if functions:
        warnings.warn(
            f"ops that run as Python functions of this process: {', '.join(functions)}; this is "
            "for development: a saved module needs them again, as ingot.load(..., natives=...)",
            stacklevel=4,
        )
    return functions


def any_natives() -> bool:
    """Whether a program that is compiled now may have native functions."""
    return bool(_given.get())


def find_native(domain: str, name: str) -> Callable[..., Any] | None:
    """What lowers an op that is a native function or a kernel of the user; None: it is neither."""
    called = f"{domain}.{name}" if domain else name
    native = _given.get().get(called)
    if native is None:
        return None

    def lower(*operands: Any, **attributes: Any) -> Any:
        from ingot.compiler.frontends.program.tensor import Tensor, current, given, value_of

        if any(not isinstance(each, Tensor) for each in operands):
            raise UnsupportedNode(
                f"the native function '{called}' takes tensors, and all of them: an operand is "
                "left out, or a list"
            )
        if isinstance(native, Native):
            return call_own(called, native, operands, attributes)
        if attributes:
            raise UnsupportedNode(
                f"the kernel '{called}' takes tensors alone, but the op has the attributes "
                f"{', '.join(attributes)}: pass them as tensors"
            )
        named = {"name": called, "signature": native}
        values = [value_of(each) for each in operands]
        return tuple(map(given, current().builder.append("kernel_call", values, (), named).results))

    return lower


def call_own(name: str, native: Native, operands: Sequence[Any], told: Mapping[str, Any]) -> Any:
    """What the function gives for traced operands, or in its place what `native.otherwise` does: a
    tensor, or a tuple of them."""
    from ingot.compiler.frontends.program.control import cond
    from ingot.compiler.frontends.program.tensor import current, given

    types = parse_signature(native.signature).arguments
    dtypes = [type.dtype for type in types] + [None] * (len(operands) - len(types))
    values = [_operand(each, dtype) for each, dtype in zip(operands, dtypes, strict=False)]

    def call(optional: bool = False) -> Any:
        trace = current()
        found = call_native(trace.builder, trace.fresh, name, native, values, told, optional)
        return given(found[0]) if len(found) == 1 else tuple(map(given, found))

    substitute = native.otherwise
    if substitute is None:
        return call()
    tensors = list(map(given, values))
    trace, asks = current(), Native("() -> (i1[])")
    return cond(
        given(call_native(trace.builder, trace.fresh, f"?{name}", asks, (), {})[0]),
        lambda: call(optional=True),
        lambda: substitute(*tensors, **told),
    )


def _operand(x: Any, dtype: DType | None) -> Value:
    """What is not traced, in the dtype of the signature."""
    from ingot.compiler.frontends.program.tensor import FUNCTIONS, Tensor, value_of

    if dtype is not None and dtype.is_complex and not isinstance(x, Tensor):
        x = FUNCTIONS["asarray"](x, dtype=dtype)
    return value_of(x, dtype)


def call_native(
    builder: Builder,
    fresh: Callable[[str], str],
    name: str,
    native: Native,
    operands: Sequence[Value],
    details: Mapping[str, Any],
    optional: bool = False,
) -> list[Value]:
    """A call of the function. CompileError: operands do not fit the signature, or details are
    nothing that JSON has."""
    attributes = {
        "name": name,
        "signature": str(parse_signature(native.signature)),
        "details": json.dumps(_plain(details), sort_keys=True) if details else "",
        "effects": native.effects,
        "symbols": tuple(fresh(hint) for hint in parse_signature(native.signature).decided),
        "optional": optional,
    }
    return list(builder.append("native_call", operands, (), attributes).results)


def _plain(value: Any) -> Any:
    """What JSON has of a value."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise CompileError(
        f"a native function is told {type(value).__name__} {value}, but beside tensors it gets "
        "numbers, texts and lists of them alone: pass it as a tensor"
    )
