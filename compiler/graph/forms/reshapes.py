"""How a reshape regroups axes, so that passes can move it past other ops."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir.dims import Dim

__all__ = ["reshape_groups"]


def reshape_groups(old: Sequence[Dim], new: Sequence[Dim]) -> list[tuple[range, range]] | None:
    """Cut two shapes into the shortest runs of axes with equal products; None if they do not.

    Axes of 1 at the end go with the last run.
    """
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        left: Dim = 1
        right: Dim = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            grow_left = _is_less(left, right)
            if grow_left and i < len(old):
                left, i = left * old[i], i + 1
            elif j < len(new) and not grow_left:
                right, j = right * new[j], j + 1
            else:
                return None
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def _is_less(a: Dim, b: Dim) -> bool:
    """Which of two products is behind: fewer factors, by degree and then by coefficient."""
    return _weight(a) < _weight(b)


def _weight(dim: Dim) -> tuple[int, int]:
    if isinstance(dim, int):
        return 0, dim
    monomial, coefficient = dim.terms[0]
    return sum(power for _, power in monomial), coefficient
