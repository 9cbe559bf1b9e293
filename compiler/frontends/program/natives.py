"""Calls of functions of the application, and of kernels of the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ingot.compiler.frontends.natives import Native, call_own, check_name
from ingot.compiler.frontends.program.tensor import current, given, public, value_of
from ingot.compiler.graph.native_signature import parse_signature
from ingot.hal.errors import CompileError, InvalidArgument

__all__: list[str] = []


@public
def kernel(name: str, signature: str, /, *operands: Any) -> Any:
    """What the kernel `name` makes of the operands: a tensor, or a tuple of them. It is given when
    the program is compiled, with the same signature: ingot.compile(..., kernels={name: ...})."""
    try:
        types = parse_signature(signature)
    except InvalidArgument as error:
        raise CompileError(str(error)) from None
    dtypes = [type.dtype for type in types.arguments] + [None] * len(operands)
    values = [value_of(each, dtype) for each, dtype in zip(operands, dtypes, strict=False)]
    named = {"name": name, "signature": str(types)}
    found = current().builder.append("kernel_call", values, (), named).results
    return given(found[0]) if len(found) == 1 else tuple(map(given, found))


@partial(public, takes_complex=True)
def native(
    name: str,
    signature: str,
    /,
    *operands: Any,
    effects: bool = False,
    otherwise: Callable[..., Any] | None = None,
    **told: Any,
) -> Any:
    """What the application's function `name` gives for the operands: a tensor, or a tuple of them.
    `signature` is that of `ingot.Native`; numbers take the dtype that it says. `told` are numbers,
    texts and lists that the function gets as keywords (in C as JSON). The function is given when
    the module is loaded: ingot.load(..., natives={name: f}). With `otherwise` it need not be: then
    that function of the same is computed in its place."""
    try:
        check_name(name)
        declared = Native(signature, effects, None, otherwise)
    except InvalidArgument as error:
        raise CompileError(str(error)) from None
    return call_own(name, declared, operands, told)
