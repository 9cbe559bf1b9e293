"""What a function takes and gives: names, dtypes, dims, docs, as the module tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingot.hal.native import check, ffi, lib, text
from ingot.hal.spec import DType, dtype_of_code
from ingot.hal.value_kind import kind_of_code, kind_text

__all__ = [
    "Parameter",
    "Signature",
    "Value",
    "read_parameters",
    "read_signature",
    "read_variables",
]


@dataclass(frozen=True)
class Value:
    """An argument, result or variable. A dim is an integer, or text such as "2*batch"; those of
    variables are integers.

    `kind` is "tensor", "sequence" (a list of arrays), "optional" (an array or None), or
    "optional_sequence". Of all but tensors dtype and shape are those of the elements, with "?"
    for a dim in which they may differ; the shape ("*",) stands for any one rank. A "reference" is
    an `ingot.Reference` of the type `reference`."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    doc: str = ""
    kind: str = "tensor"
    reference: str = ""

    def __str__(self) -> str:
        if self.reference:
            return f"{self.name}: &{self.reference}"
        dims = ",".join(map(str, self.shape))
        return f"{self.name}: {kind_text(self.kind, f'{self.dtype}[{dims}]')}"


@dataclass(frozen=True)
class Parameter:
    """A weight that a module is given when it is loaded."""

    scope: str
    key: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """A function's name, arguments and results."""

    name: str
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    doc: str = ""

    def __str__(self) -> str:
        arguments = ", ".join(map(str, self.arguments))
        return f"{self.name}({arguments}) -> ({', '.join(map(str, self.results))})"


def read_signature(module: Any, function: int) -> Signature:
    """The signature of function number `function` of a C module."""
    info = ffi.new("ingot_function_info_t *")
    check(lib.ingot_module_function(module, function, info))
    count = info.argument_count + info.result_count
    values = tuple(_read_value(module, function, ordinal) for ordinal in range(count))
    return Signature(
        text(info.name),
        values[: info.argument_count],
        values[info.argument_count :],
        text(info.doc),
    )


def _read_value(module: Any, function: int, ordinal: int) -> Value:
    info = ffi.new("ingot_value_info_t *")
    check(lib.ingot_module_value(module, function, ordinal, info))
    return _value(module, info)


def read_variables(module: Any) -> tuple[Value, ...]:
    """The variables of a C module."""
    info = ffi.new("ingot_value_info_t *")
    variables = []
    for ordinal in range(lib.ingot_module_info(module).variable_count):
        check(lib.ingot_module_variable(module, ordinal, info))
        variables.append(_value(module, info))
    return tuple(variables)


def read_parameters(module: Any) -> tuple[Parameter, ...]:
    """The weights that a C module is given when it is loaded."""
    info = ffi.new("ingot_parameter_info_t *")
    parameters = []
    for ordinal in range(lib.ingot_module_info(module).parameter_count):
        check(lib.ingot_module_parameter(module, ordinal, info))
        shape = tuple(int(_read_dim(module, info.first_dim + axis)) for axis in range(info.rank))
        parameters.append(
            Parameter(text(info.scope), text(info.key), dtype_of_code(info.dtype), shape)
        )
    return tuple(parameters)


def _value(module: Any, info: Any) -> Value:
    dims = tuple(_read_dim(module, info.first_dim + index) for index in range(info.rank))
    kind, any_rank = kind_of_code(info.kind)
    shape = ("*",) if any_rank else dims
    reference = str(_read_dim(module, info.first_dim)) if kind == "reference" else ""
    return Value(text(info.name), dtype_of_code(info.dtype), shape, text(info.doc), kind, reference)


def _read_dim(module: Any, dim: int) -> int | str:
    info = ffi.new("ingot_dim_info_t *")
    check(lib.ingot_module_dim(module, dim, info))
    return int(info.size) if info.size >= 0 else text(info.text) or "?"
