"""Elements without those that are equal. How many there are is a dim that the call finds."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from ingot.compiler.frontends.program.creation import asarray, ones
from ingot.compiler.frontends.program.manipulation import concat, reshape
from ingot.compiler.frontends.program.reductions import cumulative_sum
from ingot.compiler.frontends.program.searching import argsort, nonzero, take
from ingot.compiler.frontends.program.tensor import Tensor, public

__all__: list[str] = []


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


@partial(public, takes_complex=True)
def unique_all(x: Any, /) -> UniqueAll:
    """The elements of x in rising order, each once (of complex ones, imaginary parts decide where
    real ones are equal); where each stands first in x; which of them
    each element of x is; and how often each occurs. No NaN equals another one."""
    tensor = asarray(x)
    flat = reshape(tensor, (-1,))
    count = flat.size
    order = argsort(flat)
    rising = take(flat, order)
    begins = concat([ones(1, dtype="bool"), rising[1:] != rising[:-1]])[:count]
    (starts,) = nonzero(begins)
    ends = concat([starts[1:], reshape(asarray(count), (1,))])[: starts.size]
    places = take(cumulative_sum(begins) - 1, argsort(order))
    return UniqueAll(
        take(rising, starts), take(order, starts), reshape(places, tensor.shape), ends - starts
    )


@partial(public, takes_complex=True)
def unique_counts(x: Any, /) -> UniqueCounts:
    """The elements of x in rising order, each once, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@partial(public, takes_complex=True)
def unique_inverse(x: Any, /) -> UniqueInverse:
    """The elements of x in rising order, each once, and which of them each element of x is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@partial(public, takes_complex=True)
def unique_values(x: Any, /) -> Tensor:
    """The elements of x in rising order, each once."""
    return unique_all(x).values
