"""The slab: ranges that live together never overlap, whatever the symbols are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.ir import dim_bounds
from ingot.compiler.ir.dims import Bounds, Dim, evaluate, prove_le, symbol
from ingot.compiler.stream import slab as slab_file
from ingot.compiler.stream.slab import Range, Slab, align
from tests.support.drawn import examples

B, S = symbol("b"), symbol("s")
BOUNDS: dict[str, tuple[int, int | None]] = {"b": (1, None), "s": (1, 512)}
LENGTHS: list[Dim] = [0, 4, 64, 4096, B * 4, B * 1536, B * S * 1536, B * S * S * 48, S * 100, B * S]


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(LENGTHS), st.integers(0, 5)), max_size=40))
def test_ranges_that_live_together_do_not_overlap(steps: list[tuple[Dim, int]]) -> None:
    slab = Slab(BOUNDS)
    live: list[tuple[Range, Dim]] = []
    seen: list[list[tuple[Dim, Dim]]] = []
    for length, kept in steps:
        live.append((slab.allocate(length), length))
        seen.append([(range_.offset, length) for range_, length in live])
        while len(live) > kept:
            slab.free(live.pop(0)[0])
    for values in ({"b": 1, "s": 1}, {"b": 3, "s": 17}, {"b": 64, "s": 512}):
        peak = evaluate(slab.peak(), values)
        for ranges in seen:
            spans = sorted((evaluate(o, values), evaluate(n, values)) for o, n in ranges)
            ends = [offset + length for offset, length in spans]
            assert all(offset % 64 == 0 for offset, _ in spans)
            assert all(end <= peak for end in ends)
            starts = [offset for offset, length in spans if length]
            full = [offset + length for offset, length in spans if length]
            assert all(end <= start for end, start in zip(full, starts[1:], strict=False))


def test_equal_symbolic_sizes_reuse_each_other() -> None:
    slab = Slab(BOUNDS)
    for _ in range(5):
        first = slab.allocate(B * S * 1536)
        second = slab.allocate(B * S * 1536)
        slab.free(first)
        slab.free(second)
    assert slab.peak() == B * S * 3072


def test_a_smaller_value_fits_into_a_larger_hole_where_that_is_proven() -> None:
    slab = Slab(BOUNDS)
    hole, after = slab.allocate(B * S * 1536), slab.allocate(64)
    slab.free(hole)
    assert slab.allocate(B * 1536).offset == 0
    assert slab.allocate(B * S * S * 48).offset != B * 1536
    assert after.offset == B * S * 1536


def test_sizes_that_cannot_be_compared_give_a_maximum() -> None:
    slab = Slab({"b": (0, None), "s": (0, None)})
    slab.free(slab.allocate(B * 64))
    slab.free(slab.allocate(S * 64))
    assert evaluate(slab.peak(), {"b": 3, "s": 2}) == 192
    assert evaluate(slab.peak(), {"b": 1, "s": 2}) == 128


def test_alignment_wastes_little_and_never_rounds_down() -> None:
    for length in LENGTHS:
        for values in ({"b": 1, "s": 1}, {"b": 7, "s": 33}):
            exact, rounded = evaluate(length, values), evaluate(align(length, BOUNDS), values)
            assert rounded % 64 == 0
            assert exact <= rounded <= max(exact + 63, exact * 1.25)


def test_holes_of_one_length_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = 0

    def count(a: Dim, b: Dim, known: Bounds | None = None, searches: bool = True) -> bool:
        nonlocal proofs
        proofs += 1
        return prove_le(a, b, known, searches)

    n, m = symbol("n"), symbol("m")
    slab = Slab({})
    ranges = [slab.allocate((n if place % 2 else m) * 64) for place in range(2000)]
    for each in ranges[::2]:
        slab.free(each)
    monkeypatch.setattr(slab_file, "prove_le", count)
    for place in range(1000):
        slab.free(slab.allocate(n * 64 + 64 * place))
    assert proofs < 20_000


def test_ends_are_compared_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w = symbol("h"), symbol("w")
    sizes = [((h + n - 1) // n) * ((w + n - 1) // n) * 64 * n for n in (2, 4, 8, 16)]
    slab, ends, placed = Slab({}), list[Dim](), list[Range]()

    def search(*_: object) -> bool:
        raise AssertionError("a search")

    with monkeypatch.context() as patched:
        patched.setattr(dim_bounds, "_prove_with_ends", search)
        for size in sizes:
            placed.append(slab.allocate(size))
            ends.append(placed[-1].offset + size)
            if len(placed) % 2:
                slab.free(placed.pop())
    for values in ({"h": 1, "w": 1}, {"h": 17, "w": 40}, {"h": 0, "w": 3}, {"h": 224, "w": 224}):
        assert evaluate(slab.peak(), values) == max(evaluate(end, values) for end in ends)
