"""Packing: ranges that are in use together never overlap, and it never makes a slab longer."""

from __future__ import annotations

from random import Random
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.ir.dims import Dim, ceildiv, symbol
from ingot.compiler.stream.pack import Span, count_of, pack, unit_of
from tests.support.drawn import examples

B, S = symbol("b"), symbol("s")


def spans() -> st.SearchStrategy[list[Span]]:
    one = st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(1, 8))
    return st.lists(
        st.builds(lambda each: Span(each[0] * 64, each[1], each[1] + each[2]), one), min_size=1
    )


@examples(200)
@given(spans())
def test_what_is_in_use_together_does_not_overlap(ranges: list[Span]) -> None:
    one_behind_the_other = sum(each.length for each in ranges)
    packed = pack(ranges, one_behind_the_other)
    times = range(30)
    at = [[each for each in ranges if each.begin <= time < each.end] for time in times]
    least = max(sum(each.length for each in together) for together in at)
    if packed is None:  # all of them are in use together
        assert one_behind_the_other == least
        return
    offsets, length = packed
    assert least <= length < one_behind_the_other
    for time in times:
        together = sorted(
            (offset, offset + each.length)
            for offset, each in zip(offsets, ranges, strict=True)
            if each.begin <= time < each.end and each.length
        )
        ends = [end for _, end in together]
        begins = [begin for begin, _ in together]
        assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
        assert all(end <= length for end in ends)


def test_a_plan_that_was_made_in_order_gets_its_gaps_filled() -> None:
    ranges = [Span(1, 0, 2), Span(2, 1, 3), Span(3, 2, 4)]  # met in this order they need 6
    assert pack(ranges, 6) == ([0, 3, 0], 5)
    assert pack(ranges, 5) is None


def test_lengths_of_one_kind_are_numbers_of_a_unit() -> None:
    lengths: list[Dim] = [B * S * 64, 0, B * S * 192]
    assert unit_of(lengths) == B * S
    assert [count_of(each) for each in lengths] == [64, 0, 192]
    assert unit_of([64, 128]) == 1
    rounded = ceildiv(B, 64) * 64
    assert unit_of([rounded]) == ceildiv(B, 64)


def test_other_lengths_are_left_where_they_are() -> None:
    assert unit_of([B * 64, S * 64]) is None
    assert unit_of([B * 64, 64]) is None
    assert unit_of([B * 64 + 64]) is None
    assert unit_of([0]) is None


def test_thousands_of_ranges_are_placed_in_a_second_or_two() -> None:
    random = Random(0)
    ranges = [Span(random.randint(1, 999), at, at + random.randint(1, 200)) for at in range(4000)]
    start = process_time()
    assert pack(ranges, 1 << 60) is not None
    assert process_time() - start < 3


def test_lengths_beyond_64_bits_stay_where_they_are() -> None:
    assert pack([Span(1 << 62, 0, 1), Span(1 << 62, 1, 2)], 1 << 64) is None
