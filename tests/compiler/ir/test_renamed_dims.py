"""Sizes by names that an import replaced."""

from __future__ import annotations

import pytest

from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.renamed_dims import sizes_of_symbols


def test_sizes_follow_from_what_stands_for_a_name() -> None:
    renamed = {"n": parse_dim("2*s+5"), "k": 384, "p": parse_dim("a*b")}
    assert sizes_of_symbols({"n": 9, "k": 384, "t": 1}, renamed) == {"s": 2, "t": 1}
    for wrong in ({"n": 3}, {"n": 8}, {"k": 1}):
        with pytest.raises(ValueError, match="in this program, which"):
            sizes_of_symbols(wrong, renamed)
    with pytest.raises(ValueError, match="give sizes to a, b"):
        sizes_of_symbols({"p": 4}, renamed)
