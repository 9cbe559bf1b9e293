"""Tuples, lists and dicts of tensors, as users pass and return them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.program.tensor import ComplexTensor, Tensor

__all__ = ["flatten", "unflatten"]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves in order, and the structure, which compares by value."""
    if isinstance(tree, dict):
        parts = [flatten(each) for each in tree.values()]
        shape: Any = (dict, tuple(tree), tuple(part[1] for part in parts))
    elif isinstance(tree, ComplexTensor):
        both = (tree._value, tree._imaginary)
        return [Tensor(part, tree._trace) for part in both], (ComplexTensor, (), (None, None))
    elif isinstance(tree, (tuple, list)):
        parts = [flatten(each) for each in tree]
        shape = (tuple, (), tuple(part[1] for part in parts))
    else:
        return [tree], None
    return [leaf for leaves, _ in parts for leaf in leaves], shape


def unflatten(shape: Any, leaves: Sequence[Any]) -> Any:
    """The leaves in the structure; lists have become tuples."""
    rest = iter(leaves)

    def build(shape: Any) -> Any:
        if shape is None:
            return next(rest)
        kind, keys, parts = shape
        built = tuple(build(each) for each in parts)
        if kind is ComplexTensor:
            return ComplexTensor(tuple(each._value for each in built), built[0]._trace)
        return dict(zip(keys, built, strict=True)) if kind is dict else built

    return build(shape)
