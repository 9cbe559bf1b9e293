"""Signatures of native functions: `(f32[h,w,3], i64[]) -> (f32[224,224,3])`.

Symbols stand for dims that a call tells: of an argument, those that its operand has; of a result,
formulas of the arguments' symbols. A symbol of results alone is a dim that the function decides.
`&acme.tokenizer` is a reference to an object of the application, of a type that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ingot.compiler.ir import ReferenceType, TensorType
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Dim, substitute, symbol, symbols_of
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import DTYPES, DType

__all__ = ["NativeSignature", "parse_signature"]

_GREATEST_COUNT = 64
_GREATEST_RANK = 32
_REFERENCE = re.compile(r"&([A-Za-z_][\w.]*)\s*(?=,|\Z)", re.ASCII)
_EXAMPLE = "'(f32[h,w,3]) -> (f32[224,224,3])'"


@dataclass(frozen=True)
class NativeSignature:
    """What a native function takes and gives."""

    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    def __str__(self) -> str:
        arguments, results = (
            ", ".join(map(str, types)) for types in (self.arguments, self.results)
        )
        return f"({arguments}) -> ({results})"

    @property
    def decided(self) -> tuple[str, ...]:
        """The symbols that the function decides, in the order in which results have them."""
        known = {name for type in self.arguments for name in _symbols(type)}
        names = (name for type in self.results for name in _symbols(type))
        return tuple(dict.fromkeys(name for name in names if name not in known))

    @property
    def has_complex(self) -> bool:
        """Whether tensors of complex numbers are among them."""
        types = (*self.arguments, *self.results)
        return any(not isinstance(type, ReferenceType) and type.dtype.is_complex for type in types)

    def decides(self, result: int) -> bool:
        """Whether the function decides dims of a result."""
        return not _symbols(self.results[result]).isdisjoint(self.decided)

    def bind(self, operands: Sequence[TensorType]) -> dict[str, Dim]:
        """The dims that the arguments' symbols stand for."""
        found: dict[str, Dim] = {}
        for type, operand in zip(self.arguments, operands, strict=True):
            for dim, size in zip(type.shape, operand.shape, strict=True):
                if isinstance(dim, int):
                    continue
                for name in symbols_of(dim):
                    if dim == symbol(name):
                        found.setdefault(name, size)
        return found

    def relations(self, operands: Sequence[TensorType]) -> Iterator[tuple[Dim, Dim]]:
        """Pairs of dims, of operands and as expected, that must be equal and are not the same."""
        known = self.bind(operands)
        for type, operand in zip(self.arguments, operands, strict=True):
            for dim, size in zip(type.shape, operand.shape, strict=True):
                expected = substitute(dim, known)
                if size != expected:
                    yield size, expected

    def given(self, operands: Sequence[TensorType], decided: Sequence[str]) -> list[TensorType]:
        """The types of the results, with these names for what the function decides."""
        known = self.bind(operands)
        known |= {old: symbol(new) for old, new in zip(self.decided, decided, strict=True)}
        return [
            TensorType(type.dtype, tuple(substitute(dim, known) for dim in type.shape))
            if type.shape
            else type
            for type in self.results
        ]


def _symbols(type: TensorType) -> set[str]:
    return {name for dim in type.shape for name in symbols_of(dim)}


@lru_cache(maxsize=256)
def parse_signature(text: str) -> NativeSignature:
    """The signature that a text says. InvalidArgument: it says none."""
    if not isinstance(text, str):
        raise InvalidArgument(f"a signature is {type(text).__name__}; write it as {_EXAMPLE}")
    arguments, arrow, results = text.partition("->")
    if not arrow:
        raise InvalidArgument(f"signature {text!r} has no '->'; write it as {_EXAMPLE}")
    signature = NativeSignature(_types(arguments, text), _types(results, text))
    if len(signature.arguments) + len(signature.results) > _GREATEST_COUNT:
        raise InvalidArgument(f"signature {text!r} has more than {_GREATEST_COUNT} tensors")
    _check_symbols(signature, text)
    return signature


def _types(text: str, whole: str) -> tuple[TensorType, ...]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    types: list[TensorType] = []
    while text.strip():
        text = text.strip().removeprefix(",").lstrip() if types else text.strip()
        reference = _REFERENCE.match(text)
        if reference:
            types.append(ReferenceType(name=reference[1]))
            text = text[reference.end() :]
            continue
        name, bracket, rest = text.partition("[")
        dims, end, text = rest.partition("]")
        if not bracket or not end or (text.strip() and not text.strip().startswith(",")):
            raise InvalidArgument(
                f"signature {whole!r}: expected tensors such as f32[n,4] with commas between; "
                f"write it as {_EXAMPLE}"
            )
        types.append(TensorType(_dtype(name.strip(), whole), _shape(dims, whole)))
    return tuple(types)


def _dtype(name: str, whole: str) -> DType:
    found = DTYPES.get(name)
    if found is None or not _is_taken(found):
        known = ", ".join(each.name for each in DTYPES.values() if _is_taken(each))
        raise InvalidArgument(
            f"signature {whole!r}: {name!r} is no dtype of native functions; those are: {known}"
        )
    return found


def _is_taken(dtype: DType) -> bool:
    """Whether elements of the dtype lie in memory as a program computes with them."""
    return dtype.is_complex or dtype.is_boolean or dtype.bits >= (16 if dtype.is_float else 8)


def _shape(text: str, whole: str) -> tuple[Dim, ...]:
    parts = _split(text) if text.strip() else []
    try:
        shape = tuple(map(parse_dim, parts))
    except ValueError as error:
        raise InvalidArgument(f"signature {whole!r}: {error}") from None
    if len(shape) > _GREATEST_RANK or any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise InvalidArgument(f"signature {whole!r}: {text!r} are no dims of a tensor")
    return shape


def _split(text: str) -> list[str]:
    """The parts between commas, but for those in parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _check_symbols(signature: NativeSignature, text: str) -> None:
    """Every symbol of the arguments is a dim of one, and every decided one a dim of its own."""
    plain = {str(dim) for type in signature.arguments for dim in type.shape}
    for type in signature.arguments:
        for name in _symbols(type) - plain:
            raise InvalidArgument(
                f"signature {text!r}: no argument has a dim '{name}' that would tell it"
            )
    decided = set(signature.decided)
    for type in signature.results:
        for dim in type.shape:
            if not isinstance(dim, int) and symbols_of(dim) & decided and str(dim) not in decided:
                raise InvalidArgument(
                    f"signature {text!r}: no argument tells the dim '{dim}' of a result; what the "
                    "function decides has a name of its own"
                )
