"""Rows of contractions: dot_general, convolution, their packed forms, attention.

The packed forms are made by passes: one operand is a weight in panels of 16 columns. f16,
bf16 and f8 accumulate in f32, narrow integers in i32, rounded or wrapped once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ingot.compiler.graph.forms.winograd import BY_PLACES, FORMS, WINDOW
from ingot.compiler.graph.ops.reduction import check_positive, window_dim
from ingot.compiler.graph.ops.shape import can_broadcast, check_axes
from ingot.compiler.graph.ops.table import OpRow, RuleError, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Dims, Ints, Pairs, by_operands
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, floordiv, known_dims, product, prove_le
from ingot.hal.spec import DType, dtype

__all__ = [
    "PANEL",
    "PARTS_STEPS",
    "Attention",
    "AttentionPaged",
    "ConvPacked",
    "ConvPlanar",
    "ConvWinograd",
    "Convolution",
    "ConvolutionLayout",
    "Depthwise",
    "DotGeneral",
    "DotPacked",
    "lane_depth",
    "lanes_of_groups",
    "packed_shape",
    "parse_layout",
]

PANEL = 16
"""Columns of a panel of packed weights."""

PARTS_STEPS = 32
"""Steps of K that a product of parts takes at once."""


def _dtype_of(x: TensorType, *_: TensorType) -> DType:
    return x.dtype


def _spatial_ones(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (1,) * (x.rank - 2)


def _no_padding(x: TensorType, *_: TensorType) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) * (x.rank - 2)


def lane_depth(dtype: DType) -> int:
    """K-steps that share a 4-byte lane of a packed line: 1 for f32, 2 for bf16, 4 for i8."""
    return max(1, 4 // dtype.bytes)


def packed_shape(k: Dim, n: Dim, dtype: DType) -> tuple[Dim, Dim, Dim, Dim]:
    """The shape of a packed [k, n] weight: [ceil(n/16), ceil(k/s), 16, s]."""
    depth = lane_depth(dtype)
    return (ceildiv(n, PANEL), ceildiv(k, depth), PANEL, depth)


def _same_class(a: TensorType, b: TensorType) -> None:
    both_integer = a.dtype.is_integer and b.dtype.is_integer
    require(
        a.dtype is b.dtype or both_integer,
        f"{a} and {b} do not contract: convert one to the other's dtype",
    )


def _check_packed_parts(count: int, parts: TensorType | None, k: Dim, n: Dim) -> None:
    """RuleError: they are not so many parts of a packed [k, n] weight."""
    if parts is not None:
        half = dtype("bf16")
        depth = ceildiv(k, PARTS_STEPS) * PARTS_STEPS
        wanted = TensorType(half, (count, *packed_shape(depth, n, half)))
        require(count > 0 and parts == wanted, f"parts are {parts}, expected {wanted}")


def _check_parts(parts: int, a: TensorType, b: TensorType) -> None:
    """RuleError: factors of these types are not taken as so many bf16."""
    require(parts in (0, 2, 3), f"bf16_parts is {parts}, expected 0, 2 or 3")
    is_f32 = a.dtype.name == b.dtype.name == "f32"
    require(not parts or is_f32, f"{a} and {b} are not taken as {parts} bf16: they are not f32")


@dataclass(frozen=True, kw_only=True)
class DotGeneral(Attributes):
    """Sum of products over the contracted axes: [batch, free of a, free of b]. `exact`: of factors
    as they are, whatever precision is asked for. `bf16_parts`, 2 or 3: each factor, f32, may be
    taken as the sum of so many bf16, and products of these that are small beside the rest of the
    last one left out: what is off is less than 2^-14 or 2^-22 of the terms' magnitudes."""

    lhs_batch: Ints = ()
    rhs_batch: Ints = ()
    lhs_contract: Ints
    rhs_contract: Ints
    dtype: DType = field(metadata=by_operands(_dtype_of))
    exact: bool = field(default=False, metadata=LEFT_OUT)
    bf16_parts: int = field(default=0, metadata=LEFT_OUT)

    def batch(self, side: str) -> Ints:
        """The batch axes of the side "lhs" or "rhs"."""
        return self.lhs_batch if side == "lhs" else self.rhs_batch

    def contract(self, side: str) -> Ints:
        """The contracted axes of the side "lhs" or "rhs"."""
        return self.lhs_contract if side == "lhs" else self.rhs_contract

    def result(self, a: TensorType, b: TensorType) -> TensorType:
        _same_class(a, b)
        _check_parts(self.bf16_parts, a, b)
        check_axes((*self.lhs_batch, *self.lhs_contract), a.rank, "lhs_batch and lhs_contract")
        check_axes((*self.rhs_batch, *self.rhs_contract), b.rank, "rhs_batch and rhs_contract")
        require(
            len(self.lhs_batch) == len(self.rhs_batch), "lhs_batch and rhs_batch differ in count"
        )
        require(len(self.lhs_contract) == len(self.rhs_contract), "contracted axes differ in count")
        pairs = (
            *zip(self.lhs_batch, self.rhs_batch, strict=True),
            *zip(self.lhs_contract, self.rhs_contract, strict=True),
        )
        for i, j in pairs:
            require(
                a.shape[i] == b.shape[j],
                f"dim {i} of {a} is {a.shape[i]}, but dim {j} of {b} is {b.shape[j]}",
            )
        shape = [a.shape[axis] for axis in self.lhs_batch]
        shape += [
            dim
            for axis, dim in enumerate(a.shape)
            if axis not in (*self.lhs_batch, *self.lhs_contract)
        ]
        shape += [
            dim
            for axis, dim in enumerate(b.shape)
            if axis not in (*self.rhs_batch, *self.rhs_contract)
        ]
        return TensorType(self.dtype, tuple(shape))


@dataclass(frozen=True)
class ConvolutionLayout:
    """The axes of a convolution: of input, weight and result; spatial axes in input order."""

    batch: int
    feature: int
    spatial: tuple[int, ...]
    weight_output: int
    weight_input: int
    weight_spatial: tuple[int, ...]
    result_batch: int
    result_feature: int
    result_spatial: tuple[int, ...]


def parse_layout(layout: str) -> ConvolutionLayout:
    """Read "nchw,oihw->nchw": n batch, c features, o and i of the weight, the rest spatial."""
    operands, arrow, result = layout.partition("->")
    x, comma, w = operands.partition(",")
    spatial = [letter for letter in x if letter not in "nc"]
    good = arrow and comma and sorted(x) == sorted(["n", "c", *spatial])
    good = good and sorted(w) == sorted(["o", "i", *spatial])
    good = good and sorted(result) == sorted(x) and len(set(x)) == len(x)
    if not good:
        raise RuleError(f"layout {layout!r} is not like 'nchw,oihw->nchw'")
    return ConvolutionLayout(
        x.index("n"),
        x.index("c"),
        tuple(x.index(letter) for letter in spatial),
        w.index("o"),
        w.index("i"),
        tuple(w.index(letter) for letter in spatial),
        result.index("n"),
        result.index("c"),
        tuple(result.index(letter) for letter in spatial),
    )


def _spatial_dims(
    sizes: Sequence[Dim],
    window: Sequence[Dim],
    strides: Sequence[Dim],
    padding: Sequence[tuple[Dim, Dim]],
    lhs_dilation: Sequence[Dim],
    rhs_dilation: Sequence[Dim],
) -> list[Dim]:
    count = len(sizes)
    for name, values in (
        ("window", window),
        ("strides", strides),
        ("padding", padding),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        require(len(values) == count, f"{name} needs {count} entries, got {len(values)}")
    for name, steps in (
        ("strides", strides),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        check_positive(steps, name)
    columns = zip(sizes, window, strides, padding, lhs_dilation, rhs_dilation, strict=True)
    return [window_dim(*column) for column in columns]


@dataclass(frozen=True, kw_only=True)
class Convolution(Attributes):
    """Sum of products under a window; `layout` such as nchw,oihw->nchw names the axes.
    `exact` and `bf16_parts`: as of dot_general."""

    layout: str
    strides: Dims = field(metadata=by_operands(_spatial_ones))
    padding: Pairs = field(metadata=by_operands(_no_padding))
    lhs_dilation: Dims = field(metadata=by_operands(_spatial_ones))
    rhs_dilation: Dims = field(metadata=by_operands(_spatial_ones))
    groups: int = 1
    dtype: DType = field(metadata=by_operands(_dtype_of))
    exact: bool = field(default=False, metadata=LEFT_OUT)
    bf16_parts: int = field(default=0, metadata=LEFT_OUT)

    def result(self, x: TensorType, w: TensorType) -> TensorType:
        _same_class(x, w)
        _check_parts(self.bf16_parts, x, w)
        axes = parse_layout(self.layout)
        rank = len(axes.spatial) + 2
        require(
            x.rank == rank and w.rank == rank, f"layout {self.layout!r} does not fit {x} and {w}"
        )
        features, inputs = x.shape[axes.feature], w.shape[axes.weight_input]
        outputs = w.shape[axes.weight_output]
        require(self.groups >= 1, f"groups is {self.groups}, expected 1 or more")
        require(
            features == inputs * self.groups,
            f"x has {features} features, but w takes {inputs} in each of {self.groups} groups",
        )
        require(
            not isinstance(outputs, int) or outputs % self.groups == 0,
            f"w has {outputs} output features, which {self.groups} groups do not divide",
        )
        spatial = _spatial_dims(
            [x.shape[axis] for axis in axes.spatial],
            [w.shape[axis] for axis in axes.weight_spatial],
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
        )
        shape: list[Dim] = [0] * rank
        shape[axes.result_batch] = x.shape[axes.batch]
        shape[axes.result_feature] = outputs
        for axis, dim in zip(axes.result_spatial, spatial, strict=True):
            shape[axis] = dim
        return TensorType(self.dtype, tuple(shape))


@dataclass(frozen=True)
class DotPacked(Attributes):
    """[..., k] times a packed [k, n] weight: [..., n]. A weight of f16 or bf16 may meet f32.
    `bf16_parts`: as of dot_general; `parts` are those of b, bf16, each packed with zeros behind a
    K that is no multiple of 32."""

    n: int
    dtype: DType = field(metadata=by_operands(_dtype_of))
    bf16_parts: int = field(default=0, metadata=LEFT_OUT)

    def result(self, a: TensorType, b: TensorType, parts: TensorType | None = None) -> TensorType:
        if a.dtype.name != "f32" or b.dtype.name not in ("f16", "bf16"):
            _same_class(a, b)
        _check_parts(self.bf16_parts, a, b)
        require(a.rank >= 1, "a must have at least one dim")
        wanted = packed_shape(a.shape[-1], self.n, b.dtype)
        require(b.shape == wanted, f"b is {b}, expected {TensorType(b.dtype, wanted)}")
        _check_packed_parts(self.bf16_parts, parts, a.shape[-1], self.n)
        return TensorType(self.dtype, (*a.shape[:-1], self.n))


@dataclass(frozen=True)
class ConvPacked(Attributes):
    """Convolution of [batch, spatial..., features] with a packed weight whose K runs over the
    window and then the features, features innermost. `bf16_parts`, and `parts`: as of
    dot_packed."""

    window: Dims
    strides: Dims = field(metadata=by_operands(_spatial_ones))
    rhs_dilation: Dims = field(metadata=by_operands(_spatial_ones))
    padding: Pairs = field(metadata=by_operands(_no_padding))
    n: int
    dtype: DType = field(metadata=by_operands(_dtype_of))
    bf16_parts: int = field(default=0, metadata=LEFT_OUT)

    def result(self, x: TensorType, w: TensorType, parts: TensorType | None = None) -> TensorType:
        _same_class(x, w)
        _check_parts(self.bf16_parts, x, w)
        require(x.rank >= 3, f"x must be [batch, spatial..., features], got {x}")
        depth = product(self.window) * x.shape[-1]
        wanted = packed_shape(depth, self.n, w.dtype)
        require(w.shape == wanted, f"w is {w}, expected {TensorType(w.dtype, wanted)}")
        _check_packed_parts(self.bf16_parts, parts, depth, self.n)
        ones = (1,) * len(self.window)
        spatial = _spatial_dims(
            x.shape[1:-1], self.window, self.strides, self.padding, ones, self.rhs_dilation
        )
        return TensorType(self.dtype, (x.shape[0], *spatial, self.n))


@dataclass(frozen=True)
class ConvPlanar(Attributes):
    """Convolution of [batch, features, spatial...], one or two dims, with a weight of `conv_packed`
    or, if it has a dim less than x, of `depthwise`: [batch, n, spatial...]."""

    window: Dims
    strides: Dims = field(metadata=by_operands(_spatial_ones))
    rhs_dilation: Dims = field(metadata=by_operands(_spatial_ones))
    padding: Pairs = field(metadata=by_operands(_no_padding))
    n: int
    dtype: DType = field(metadata=by_operands(_dtype_of))

    def result(self, x: TensorType, w: TensorType) -> TensorType:
        _same_class(x, w)
        require(x.rank in (3, 4), f"x must be [batch, features, spatial...] of rank 3 or 4: {x}")
        wanted: Dims = packed_shape(product(self.window) * x.shape[1], self.n, w.dtype)
        if w.rank < x.rank:
            wanted = (*self.window, self.n)
            require(x.shape[1] == self.n, f"x {x} has not {self.n} features")
        require(w.shape == wanted, f"w is {w}, expected {TensorType(w.dtype, wanted)}")
        ones = (1,) * len(self.window)
        spatial = _spatial_dims(
            x.shape[2:], self.window, self.strides, self.padding, ones, self.rhs_dilation
        )
        return TensorType(self.dtype, (x.shape[0], self.n, *spatial))


@dataclass(frozen=True)
class ConvWinograd(Attributes):
    """Convolution of [batch, height, width, features] with a 3x3 window, by Winograd's F(4, 3) or
    F(2, 3), or of [batch, depth, height, width, features] with one of [taps, 3, 3]: u is the
    transformed weight, [36 or 16, panels, taps * features, 16], in the dtype of sums."""

    padding: Pairs = field(metadata=by_operands(_no_padding))
    n: Dim

    def result(self, x: TensorType, u: TensorType) -> TensorType:
        require(x.rank in (4, 5), f"x must be [batch, depth?, height, width, features], got {x}")
        sums = "f64" if x.dtype.bytes == 8 else "f32"
        require(u.dtype.name == sums, f"u is {u}, expected the dtype of sums, {sums}")
        taps = self.taps(x, u) if u.rank == 4 else 1
        form = next((BY_PLACES[dim] for dim in u.shape[:1] if dim in BY_PLACES), FORMS[0])
        wanted = (form.places, ceildiv(self.n, PANEL), taps * x.shape[-1], PANEL)
        require(u.shape == wanted, f"u is {u}, expected {TensorType(u.dtype, wanted)}")
        ones, window = (1,) * (x.rank - 2), (taps, WINDOW, WINDOW)[5 - x.rank :]
        spatial = _spatial_dims(x.shape[1:-1], window, ones, self.padding, ones, ones)
        return TensorType(x.dtype, (x.shape[0], *spatial, self.n))

    def taps(self, x: TensorType, u: TensorType) -> int:
        """The size of the window along the depth, 1 without one."""
        if x.rank == 4:
            return 1
        depth, features = known_dims((u.shape[2], x.shape[-1]))
        return max(depth // max(features, 1), 1)


def lanes_of_groups(lanes: int, inputs: int, outputs: int) -> int:
    """Lanes, at most `lanes`, that hold whole groups of `outputs`, the inputs of which fit, too, or
    are part of one."""
    while lanes > 1 and outputs % lanes and (lanes % outputs or inputs > outputs):
        lanes //= 2
    return lanes


@dataclass(frozen=True)
class Depthwise(Attributes):
    """Convolution of each feature of [batch, spatial..., features] with its own window [window...,
    features], or of groups of neighbours with [window..., features of a group, result features]."""

    strides: Dims = field(metadata=by_operands(_spatial_ones))
    rhs_dilation: Dims = field(metadata=by_operands(_spatial_ones))
    padding: Pairs = field(metadata=by_operands(_no_padding))
    dtype: DType = field(metadata=by_operands(_dtype_of))

    def result(self, x: TensorType, w: TensorType) -> TensorType:
        _same_class(x, w)
        wanted = f"x {x} must have as many dims as w {w}, or one more"
        require(w.rank in (x.rank - 1, x.rank), wanted)
        if w.rank == x.rank:
            features, inputs, outputs = known_dims((x.shape[-1], *w.shape[-2:]))
            fits = inputs > 0 and features % inputs == 0 and features > 0
            fits = fits and outputs % (features // inputs) == 0
            require(fits, f"x {x} and w {w} have no groups in common")
        else:
            require(x.shape[-1] == w.shape[-1], f"the features of x {x} and w {w} differ")
        ones, window = (1,) * (x.rank - 2), w.shape[: x.rank - 2]
        spatial = _spatial_dims(
            x.shape[1:-1], window, self.strides, self.padding, ones, self.rhs_dilation
        )
        return TensorType(self.dtype, (x.shape[0], *spatial, w.shape[-1]))


@dataclass(frozen=True)
class Attention(Attributes):
    """softmax(scale * q k^T + mask) v over the last two dims; floats round once, at its end.
    A row whose scores are all -inf gives NaN, with `empty` 0. A batch dim of k and v divides that
    of q: neighbours of q share a head."""

    scale: float
    empty: bool = False

    def result(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> TensorType:
        require(q.rank >= 2 and q.rank == k.rank == v.rank, "q, k and v must have one rank >= 2")
        require(q.dtype is k.dtype is v.dtype, "q, k and v must have one dtype")
        require(k.shape[:-2] == v.shape[:-2], f"the batch dims of k {k} and v {v} differ")
        pairs = zip(q.shape[:-2], k.shape[:-2], strict=True)
        fits = all(a == b or (b != 0 and floordiv(a, b) * b == a) for a, b in pairs)
        require(fits, f"the batch dims of k {k} do not divide those of q {q}")
        require(q.shape[-1] == k.shape[-1], f"q {q} and k {k} differ in the last dim")
        require(k.shape[-2] == v.shape[-2], f"k {k} and v {v} differ in the dim before the last")
        if mask is not None:
            scores = (*q.shape[:-1], k.shape[-2])
            fits = mask.rank <= len(scores) and all(
                can_broadcast(a, b) for a, b in zip(mask.shape[::-1], scores[::-1], strict=False)
            )
            wanted = TensorType(q.dtype, scores)
            require(fits and mask.dtype is q.dtype, f"mask {mask} does not broadcast to {wanted}")
        return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1]))


@dataclass(frozen=True)
class AttentionPaged(Attributes):
    """Attention of a batch q[b, h, m, d] over keys in pages: k[pages, h, p, d], v[pages, h, p, e].
    Key n of batch item i is row n % p of page table[i, n / p]. Row r of it sees those in front of
    ends[i, r], and of these the last `window` where that is not 0; without keys it is 0. Scores s
    are cap * tanh(s / cap) where `cap` is not 0. In a ring, columns begin anew behind the last one.
    Numbers that are out of range are the nearest. sinks[h, m] are scores of no key: the sum of a
    row's weights has e to their power, too."""

    scale: float
    window: int = 0
    cap: float = 0.0
    ring: bool = False

    def result(
        self,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        table: TensorType,
        ends: TensorType,
        sinks: TensorType | None = None,
    ) -> TensorType:
        require(q.rank == k.rank == v.rank == 4, "q, k and v must have the rank 4")
        require(table.rank == ends.rank == 2, "the table and the ends must have the rank 2")
        require(k.dtype is v.dtype, "k and v must have one dtype")
        require(k.shape[:3] == v.shape[:3], f"k {k} and v {v} differ in pages, heads or rows")
        require(k.shape[1] == q.shape[1], f"q {q} and k {k} differ in their heads")
        require(k.shape[3] == q.shape[3], f"q {q} and k {k} differ in the last dim")
        is_one = table.shape[1] == 1 and not self.ring
        require(is_one or isinstance(k.shape[2], int), f"the rows of a page must be a number: {k}")
        require(table.shape[0] == q.shape[0], f"the table {table} is not for the batch of {q}")
        require(ends.shape == (q.shape[0], q.shape[2]), f"the ends {ends} are not for {q}")
        fits = sinks is None or sinks.shape == q.shape[1:3]
        require(fits, f"the sinks {sinks} are not for the heads and rows of {q}")
        require(self.window >= 0, f"the window is {self.window}, expected at least 0")
        room = table.shape[1] * k.shape[2]
        fits = self.window > 0 and prove_le(self.window, room)
        require(fits or not self.ring, f"a ring of {room} rows is too short for {self.window}")
        return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1]))


for _row in (
    OpRow("dot_general", "contraction", ("a: number", "b: number"), DotGeneral, ulp=4),
    OpRow("convolution", "contraction", ("x: number", "w: number"), Convolution, ulp=4),
    OpRow(
        "dot_packed", "contraction", ("a: number", "b: number", "parts: float?"), DotPacked, ulp=4
    ),
    OpRow(
        "conv_packed", "contraction", ("x: number", "w: number", "parts: float?"), ConvPacked, ulp=4
    ),
    OpRow("conv_planar", "contraction", ("x: number", "w: number"), ConvPlanar, ulp=4),
    OpRow("conv_winograd", "contraction", ("x: real", "u: real"), ConvWinograd, ulp=32),
    OpRow("depthwise", "contraction", ("x: number", "w: number"), Depthwise, ulp=4),
    OpRow(
        "attention",
        "contraction",
        ("q: real", "k: real", "v: real", "mask: real?"),
        Attention,
        ulp=8,
    ),
    OpRow(
        "attention_paged",
        "contraction",
        ("q: float", "k: float", "v: float", "table: integer", "ends: integer", "sinks: float?"),
        AttentionPaged,
        ulp=8,
    ),
):
    register(_row)
