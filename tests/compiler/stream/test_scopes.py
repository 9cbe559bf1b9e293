"""Slabs that open when sizes from data are known."""

from __future__ import annotations

from ingot.compiler.ir.dims import maximum, symbol
from ingot.compiler.stream.scopes import Scopes

B, N, M = symbol("b") * 64, symbol("n") * 64, symbol("m") * 64
KNOWN = {"b": (1, None)}


def test_a_scope_lies_behind_those_before_it() -> None:
    scopes = Scopes(KNOWN)
    scopes.allocate(B)
    scopes.define(["n"])
    first = scopes.allocate(N)
    second = scopes.allocate(N)
    assert (first.scope, first.range.offset) == (1, 0)
    assert (second.scope, second.range.offset) == (1, N)
    assert scopes.lengths() == (B, B + 2 * N)


def test_what_needs_no_fresh_symbol_stays_in_the_first_scope() -> None:
    scopes = Scopes(KNOWN)
    scopes.define(["n"])
    late = scopes.allocate(B)
    assert late.scope == 0
    assert scopes.lengths() == (B, B)


def test_scopes_without_values_are_shared() -> None:
    scopes = Scopes(KNOWN)
    scopes.define(["n"])
    scopes.define(["m"])
    assert scopes.allocate(N).scope == scopes.allocate(M).scope == 1
    scopes.define(["k"])
    assert scopes.allocate(symbol("k") * 64).scope == 2


def test_ranges_are_used_again_within_their_scope() -> None:
    scopes = Scopes(KNOWN)
    scopes.define(["n"])
    range_ = scopes.allocate(N)
    assert scopes.fits(N, range_)
    assert not scopes.fits(2 * N, range_)
    scopes.free(range_)
    assert scopes.allocate(N).range.offset == 0
    assert scopes.lengths() == (0, N)


def test_scopes_of_a_body_end_with_it() -> None:
    scopes = Scopes(KNOWN)
    scopes.allocate(B)
    with scopes.inside():
        scopes.define(["n"])
        assert scopes.allocate(N).scope == 1
    scopes.define(["m"])
    assert scopes.allocate(M).scope == 2
    assert scopes.starts() == (0, B, B)
    assert scopes.lengths() == (B, B + N, B + M)
    assert scopes.peak() == maximum(B + N, B + M)


def test_a_scope_that_others_lie_behind_learns_no_more_symbols() -> None:
    scopes = Scopes(KNOWN)
    scopes.define(["k"])
    with scopes.inside():
        scopes.define(["n"])
        scopes.allocate(N)
    scopes.define(["m"])
    scopes.allocate(M)
    assert scopes.lengths() == (0, 0, N, M)
