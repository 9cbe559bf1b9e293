"""Windows over tensors, element by element, for what no graph op does with them.

`reduce_window` combines the elements of windows by a known kind. What a front end wants else
(which element a window selects, or a combination of its own) is a loop over the elements of
all windows at once, built with the functions of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.graph.ops.reduction import window_dim
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Windows", "select_elements"]

_I64 = dtype("i64")


@dataclass(frozen=True)
class Windows:
    """Windows that move over padded operands of shape `padded`."""

    sizes: Sequence[Dim]
    strides: Sequence[Dim]
    dilation: Sequence[Dim]
    padded: Sequence[Dim]

    @property
    def places(self) -> tuple[Dim, ...]:
        """How many windows there are, per dim."""
        columns = zip(self.padded, self.sizes, self.strides, self.dilation, strict=True)
        return tuple(window_dim(dim, n, step, (0, 0), 1, d) for dim, n, step, d in columns)

    @property
    def count(self) -> Dim:
        """How many elements a window has."""
        return dims.product(self.sizes)

    def taps(self, builder: Builder, index: Value) -> list[Value]:
        """Where element `index` stands in its window, per dim."""
        taps: list[Value] = []
        for size in reversed(self.sizes):
            divisor = builder.number(size, "i64")
            taps.insert(0, builder.value("rem", index, divisor))
            index = builder.value("div", index, divisor)
        return taps

    def elements(self, builder: Builder, x: Value, index: Value) -> Value:
        """Element `index` of every window of x, which is padded: [places...]."""
        starts = [
            builder.value("mul", tap, builder.number(step, "i64"))
            for tap, step in zip(self.taps(builder, index), self.dilation, strict=True)
        ]
        spans = tuple((n - 1) * step + 1 for n, step in zip(self.places, self.strides, strict=True))
        block = builder.value("dynamic_slice", x, *starts, sizes=spans)
        if all(step == 1 for step in self.strides):
            return block
        return builder.value(
            "slice", block, start=(0,) * len(spans), limit=spans, stride=tuple(self.strides)
        )


def select_elements(
    builder: Builder,
    xs: Sequence[Value],
    numbers: Value,
    windows: Windows,
    keeps: Callable[[Builder, Sequence[Value], Sequence[Value]], Value],
) -> list[Value]:
    """Which element of xs each window selects, and its number: [places...] each.

    xs are the parts of one number. They and `numbers` are padded; a negative number is no
    element. The first element of a window is replaced by a later one unless
    `keeps(builder, it, the later one)`. A window without elements gives 0 and -1.
    """

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        *best, chosen = before
        *value, number = (windows.elements(inner, each, index) for each in (*xs, numbers))
        nothing = inner.full(0, _I64, windows.places)
        empty = inner.value("compare", chosen, nothing, direction="lt")
        takes = inner.value("or", inner.value("not", keeps(inner, best, value)), empty)
        takes = inner.value("and", takes, inner.value("compare", number, nothing, direction="ge"))
        pairs = zip([*value, number], before, strict=True)
        return [inner.value("select", takes, new, old) for new, old in pairs]

    element = tensor_type(xs[0]).dtype
    best = builder.full(False if element.is_boolean else 0, element, windows.places)
    chosen = builder.full(-1, _I64, windows.places)
    start = [*(best for _ in xs), chosen]
    return counted_loop(builder, builder.number(windows.count, "i64"), start, step)
