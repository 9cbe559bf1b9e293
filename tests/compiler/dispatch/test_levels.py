"""The dispatch and stream levels: what the verifier lets through, and what it names."""

from __future__ import annotations

import pytest

from ingot.compiler.dispatch.level import DISPATCH
from ingot.compiler.ir.parser import parse
from ingot.compiler.ir.verifier import verify
from ingot.compiler.stream.level import STREAM
from ingot.hal.errors import CompileError

GOOD = """
module {} {
  func @main(%x: f32[b] "x") -> (f32[b] "y") symbols {b in [0, none]} {
    %0 = dispatch.call(%x) {entry="double", dims=[<b>]} : f32[b]
    return(%0)
  }
  func private @double(%x: f32[s0]) -> (f32[s0]) symbols {s0 in [0, none]} attributes {entry=true} {
    %0 = add(%x, %x) : f32[s0]
    return(%0)
  }
}
"""


def test_calls_of_entries_are_legal_at_the_dispatch_level() -> None:
    verify(parse(GOOD), DISPATCH)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('entry="double"', 'entry="triple"', "names the entry 'triple'"),
        ("dims=[<b>]", "dims=[]", "has (1, 1, 0) operands, results and dims"),
        (
            'dispatch.call(%x) {entry="double", dims=[<b>]}',
            "add(%x, %x)",
            "op 'add' computes a tensor outside of any entry",
        ),
    ],
)
def test_what_does_not_fit_is_named(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(CompileError) as caught:
        verify(parse(GOOD.replace(old, new)), DISPATCH)
    assert message in str(caught.value)


def test_tensor_ops_of_the_graph_are_not_legal_at_the_stream_level() -> None:
    head = "module {} { func @main(%x: f32[4]) -> (f32[4]) "
    text = head + "{ %0 = tanh(%x) : f32[4] return(%0) } }"
    with pytest.raises(CompileError, match=r"'tanh'.*is not legal at the stream level"):
        verify(parse(text), STREAM)
