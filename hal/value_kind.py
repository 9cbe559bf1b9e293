"""What arguments and results are: tensors, or the kinds of `ingot.h`, by names.

An `optional` is a tensor or nothing, an `optional_sequence` a sequence or nothing, a `reference` an
object of the application. Here too,
nothing needs the compiled extension.
"""

from __future__ import annotations

from functools import lru_cache

from ingot.hal import header

__all__ = ["PASSED_KINDS", "code_of_kind", "kind_of_code", "kind_text"]

PASSED_KINDS = ("sequence", "optional", "optional_sequence", "reference")
"""The kinds that are no tensors."""


@lru_cache(maxsize=1)
def _flags() -> dict[str, int]:
    constants = header.constants(header.read("ingot.h"))
    return {
        name: int(constants[f"INGOT_VALUE_{name.upper()}"])
        for name in ("sequence", "optional", "any_rank", "reference")
    }


def code_of_kind(kind: str, any_rank: bool = False) -> int:
    """The number of a kind in C. `any_rank`: the rank of its elements is open."""
    parts = kind.split("_") if kind in PASSED_KINDS else []
    return sum(_flags()[each] for each in parts) + any_rank * _flags()["any_rank"]


def kind_of_code(code: int) -> tuple[str, bool]:
    """The kind with that number, and whether the rank of its elements is open."""
    any_rank = bool(code & _flags()["any_rank"])
    kinds = {code_of_kind(kind): kind for kind in ("tensor", *PASSED_KINDS)}
    return kinds[code & ~_flags()["any_rank"]], any_rank


def kind_text(kind: str, element: str) -> str:
    """`optional(sequence(f32[?]))` for elements `f32[?]`; a tensor is its element."""
    for part in reversed(kind.split("_") if kind in PASSED_KINDS else []):
        element = f"{part}({element})"
    return element
