"""What ops stand for that stand for others: the function of a call, the graph op of a composite."""

from __future__ import annotations

from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, TensorType

__all__ = ["UNARY_NAMES", "count_of_top_k", "followed_function", "is_known_call", "unary_name"]

_UNARY = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cosh": "cosh",
    "erf": "erf",
    "sinh": "sinh",
    "tan": "tan",
}
UNARY_NAMES = {
    f"{dialect}.{name}": graph_name
    for dialect in ("chlo", "mhlo")
    for name, graph_name in _UNARY.items()
}
"""Graph ops by the names that composites and custom calls give them."""


def followed_function(op: SourceOp) -> str | None:
    """The function whose body replaces `op`, if one does."""
    if op.name == "call":
        return str(op.attributes.get("callee"))
    if op.name == "composite" and not is_known_call(op):
        return str(op.attributes.get("decomposition"))
    return None


def is_known_call(op: SourceOp) -> bool:
    """Whether a graph op stands for the op or composite, so that no function is needed."""
    if op.full_name in UNARY_NAMES:
        return True
    return unary_name(op) is not None or count_of_top_k(op) is not None


def unary_name(op: SourceOp) -> str | None:
    """The graph op for a composite of one real operand; complex ones are decomposed."""
    type = op.operands[0].type if len(op.operands) == 1 else None
    if not isinstance(type, TensorType) or type.element in ("c64", "c128"):
        return None
    return UNARY_NAMES.get(str(op.attributes.get("name")))


def count_of_top_k(op: SourceOp) -> int | None:
    """How many elements a composite takes from the top, None if it does something else."""
    attributes = op.attributes.get("composite_attributes")
    if op.attributes.get("name") != "chlo.top_k" or not isinstance(attributes, dict):
        return None
    plain = set(attributes) == {"k"} and len(op.operands) == 1 and len(op.results) == 2
    return int(attributes["k"]) if plain else None
