"""Ops of complex tensors. Between ops these lie in memory as pairs; an op works with all real and
all imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.complex_numbers import (
    BINARY,
    UNARY,
    Complex,
    Parts,
    absolute,
    join,
    take_apart,
)
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.tflite.lowering import LOWERINGS, OF_COMPLEX, Context, lowering
from ingot.compiler.frontends.tflite.lowerings import (  # noqa: F401 - they fill the table
    control,
    elementwise,
    signals,
)
from ingot.compiler.frontends.tflite.lowerings.strings import MOVES
from ingot.compiler.ir import Value

__all__: list[str] = []

_BINARY = {"ADD": "add", "DIV": "divide", "MUL": "multiply", "SUB": "subtract"}


def _is_complex(x: Any) -> bool:
    return isinstance(x, Value) and type_of(x).dtype.is_complex


def _check(given: Sequence[Any]) -> None:
    """UnsupportedNode: what is no index or condition is not complex, or of several dtypes."""
    types = {type_of(x).dtype for x in given if isinstance(x, Value)}
    numbers = sorted(each.name for each in types if each.is_float or each.is_complex)
    if len(numbers) != 1 or not any(each.is_complex for each in types):
        found = " and ".join(numbers) or "none"
        raise UnsupportedNode(f"its numbers are {found}, expected complex ones: cast the others")


def _moved(name: str) -> Callable[..., list[Value]]:
    """What moves elements moves both parts alike."""
    function = LOWERINGS[name].function

    def lower(c: Context, *given: Any) -> list[Value]:
        _check(given)
        apart = [take_apart(c.builder, x) if _is_complex(x) else (x, x) for x in given]
        made = [function(c, *parts) for parts in zip(*apart, strict=True)]
        real, imaginary = (each if isinstance(each, list) else [each] for each in made)
        return [join(c.builder, pair) for pair in zip(real, imaginary, strict=True)]

    return lower


def _register_binary(name: str) -> None:
    function = BINARY[_BINARY[name]]

    @lowering(name, into=OF_COMPLEX)
    def lower(c: Context, *given: Value) -> Value:
        _check(given)
        parts = zip(*(take_apart(c.builder, x) for x in given), strict=True)
        apart = zip(*(c.broadcast(*each) for each in parts), strict=True)
        return join(c.builder, function(Complex(c.builder), *apart))


for _name in (*MOVES, "PAD", "PADV2", "REVERSE_SEQUENCE"):
    lowering(_name, into=OF_COMPLEX)(_moved(_name))
for _name in _BINARY:
    _register_binary(_name)


@lowering("NEG", into=OF_COMPLEX)
def negate(c: Context, x: Value) -> Value:
    _check([x])
    return join(c.builder, UNARY["negate"](Complex(c.builder), take_apart(c.builder, x)))


@lowering("CAST", into=OF_COMPLEX)
def cast(c: Context, x: Value) -> Value:
    """A real number is the real part of the complex one."""
    target = c.outputs[0].dtype
    real, imaginary = _parts(c, x)
    if not target.is_complex:
        return c.convert(real, target)
    element = "f32" if target.bits == 64 else "f64"
    return join(c.builder, (c.convert(real, element), c.convert(imaginary, element)))


def _parts(c: Context, x: Value) -> Parts:
    return take_apart(c.builder, x) if _is_complex(x) else (x, c.fill(0, like=x))


@lowering("REAL", raw=True)
def real(c: Context, x: Value) -> Value:
    return _parts(c, x)[0]


@lowering("IMAG", raw=True)
def imaginary(c: Context, x: Value) -> Value:
    return _parts(c, x)[1]


@lowering("COMPLEX_ABS", raw=True)
def size(c: Context, x: Value) -> Value:
    return absolute(Complex(c.builder), _parts(c, x))


_WHOLE = (
    *("ASSIGN_VARIABLE", "CALL", "CALL_ONCE", "COMPLEX_ABS", "IF", "IMAG", "RANK", "READ_VARIABLE"),
    *("REAL", "RFFT2D", "SHAPE", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE"),
    *("VAR_HANDLE", "WHILE"),
)  # ops that take complex tensors as they are
for _name in _WHOLE:
    OF_COMPLEX[_name] = LOWERINGS[_name]
