"""Reads the `dim_param` of a dim: a name, or an expression such as "past + 1" or "s0//2".

Exporters of torch models write sizes that follow from others as expressions of Python or
sympy. A name may hold any character, so a text is an expression only if it reads as one whose
symbols are names of other dims, or as a multiple of one symbol and a number.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection

import onnx

from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError

__all__ = ["noted_name", "noted_size", "plain_name", "read_expression"]

_OPERATORS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: dims.floordiv,
    ast.Mod: dims.modulo,
}
_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "FloorDiv": dims.floordiv,
    "Max": dims.maximum,
    "Min": dims.minimum,
    "Mod": dims.modulo,
    "PythonMod": dims.modulo,
    "floordiv": dims.floordiv,
    "max": dims.maximum,
    "min": dims.minimum,
    "mod": dims.modulo,
}
_GREATEST_POWER = 8
_GREATEST_LENGTH = 10_000  # characters; what is longer is a name


class _NoExpressionError(Exception):
    """The text is a name like any other."""


def noted_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """The size that a model notes; None for a dim that it leaves open, also by -1."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def noted_name(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name that a model gives a dim; "" for "-1" and one without a letter or digit such as "?",
    which some exporters write for every dim that they leave open."""
    name = str(dim.dim_param)
    return name if any(each.isalnum() for each in name) and name != "-1" else ""


def plain_name(parameter: str) -> str:
    """The name as a symbol can have it."""
    name = re.sub(r"\W", "_", parameter)
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    return f"{name}_" if name in ("floordiv", "mod", "min", "max", "broadcast") else name


def read_expression(parameter: str, names: Collection[str]) -> Dim | None:
    """The expression that a `dim_param` is; None for a name. `names` are those of all dims."""
    if (parameter in names and parameter.isidentifier()) or len(parameter) > _GREATEST_LENGTH:
        return None
    try:
        with warnings.catch_warnings():  # of Python, for texts such as "1if a"
            warnings.simplefilter("ignore")
            tree = ast.parse(parameter.strip(), mode="eval")
        dim = _read(tree.body)
    except (SyntaxError, ValueError, _NoExpressionError, ZeroDivisionError):
        return None
    except (MemoryError, RecursionError):  # what Python says of a text that is nested too deep
        return None
    except CompileError as error:
        raise CompileError(f"dim '{parameter[:80]}': {error}") from None
    symbols = dims.symbols_of(dim)
    if not symbols or any(dim == dims.symbol(name) for name in symbols):
        return None
    multiple = len(symbols) == 1 and dims.linear_in(dim, next(iter(symbols))) is not None
    return dim if multiple or symbols <= set(names) else None


def _read(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name):
            return dims.symbol(plain_name(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _read(operand) * -1
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
            if not 0 <= power <= _GREATEST_POWER:
                raise _NoExpressionError
            return _bounded(dims.product([_read(left)] * power))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _bounded(_OPERATORS[type(operator)](_read(left), _read(right)))
        case ast.Call(func=ast.Name(id=name), args=[first, *rest], keywords=[]):
            if name in _FUNCTIONS and rest:
                result = _read(first)
                for other in rest:
                    result = _FUNCTIONS[name](result, _read(other))
                return result
    raise _NoExpressionError


def _bounded(dim: Dim) -> Dim:
    """The dim, unless it is a number that no size is; symbols are bounded by themselves."""
    if isinstance(dim, int) and abs(dim) >= 1 << 63:
        raise CompileError(f"it computes a number of {dim.bit_length()} bits, a size has 63")
    return dim
