"""Map kernels: element-wise DAGs and index maps, against the interpreter of graph IR."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir import walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.printer import to_text
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.loop_attributes import Ordinal
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.kernel_runner import PLAIN, V3, V4
from tests.support.work_items import needs_device

F32 = dtype("f32")
B = symbol("b")


@on_every_target
@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"])
def test_arithmetic_of_every_dtype(target, name: str) -> None:
    def body(b, x, y):
        return b.op("max", b.op("sub", b.op("mul", x, y), y), b.op("neg", x))

    target.check(entry([f"{name}[5,39]"] * 2, body), one=target is OPENCL)


@on_every_target
def test_symbolic_count(target) -> None:
    function = entry(["f32[b]", "f32[b]"], lambda b, x, y: b.op("add", x, y), {"b": (0, None)})
    for n in (0, 1, 5, 8, 15, 16, 33, 1000, 5003):
        target.check(function, b=n)


@on_every_target
def test_rows_that_are_repeated_beside_others_are_not_divided(target) -> None:
    def body(b, x, y):
        wide = b.op("broadcast", x, shape=(3, 2, 5, 32), dimensions=(0, 2, 3))
        wide = b.op("reshape", wide, shape=(6, 5, 32))
        return b.op("concatenate", wide, y, axis=2)

    function = entry(["f32[3,5,32]", "f32[6,5,16]"], body)
    target.check(function)
    if target is CPU:
        kernel = lower_map(function, PLAIN)
        names = {op.name for op in walk(kernel.loops)}
        assert not {"div", "rem", "loop.gather"} & names


@needs_device
def test_symbolic_rows_of_a_costly_function() -> None:
    function = entry(["f32[n,6]"], lambda b, x: b.op("exp", x), {"n": (0, None)})
    for n in (1, 77):
        OPENCL.check(function, n=n)


@needs_device
@pytest.mark.parametrize("shape", [(50, 37), (50, 64), (7,), (2000,), (3, 5, 4)])
def test_elementwise_with_a_broadcast(shape) -> None:
    def body(b, x, y):
        return b.op("tanh", b.op("add", x, b.broadcast_to(y, shape)))

    OPENCL.check(entry([f"f32[{','.join(map(str, shape))}]", f"f32[{shape[-1]}]"], body))


@pytest.mark.parametrize(("length", "first", "asks"), [(18, 2, 1), (144, 16, 3), (16, 0, 0)])
def test_parts_of_blocks_of_bytes_are_asked_for_ahead(length: int, first: int, asks: int) -> None:
    """Each line of a block once; bytes that are all read are left to the processor."""

    def codes(b, x):
        part = b.op("slice", x, start=(0, first), limit=(1000, length), stride=(1, 1))
        wide = b.op("reshape", part, shape=(1000, 1, length - first))
        wide = b.op("broadcast", wide, shape=(1000, 2, length - first), dimensions=(0, 1, 2))
        return b.op("and", wide, b.full(15, dtype("u8"), (1000, 2, length - first)))

    function = entry([f"u8[1000,{length}]"], codes)
    CPU.check(function)
    found = [op for op in walk(CPU.lower(function).loops) if op.name == "loop.prefetch"]
    assert len(found) == asks


def test_bias_is_broadcast_and_rows_are_not_merged() -> None:
    def body(b, x, y):
        wide = b.op("broadcast", y, shape=(B, 20), dimensions=(1,))
        return b.op("max", b.op("add", x, wide), b.full(0.0, F32, (B, 20)))

    function = entry(["f32[b,20]", "f32[20]"], body, {"b": (1, 64)})
    CPU.check(function, b=3)
    kernel = CPU.lower(function)
    assert kernel.schedule.extents == (B, 20)
    assert kernel.in_place == ((0, 0),)


def test_equal_maps_merge_to_one_axis() -> None:
    function = entry(["f32[4,5,6]"] * 2, lambda b, x, y: b.op("add", x, y))
    assert CPU.lower(function).schedule.extents == (120,)


def test_head_split_needs_no_division() -> None:
    def body(b, x):
        return b.op("transpose", b.op("reshape", x, shape=(9, 3, 32)), permutation=(1, 0, 2))

    function = entry(["f32[9,96]"], body)
    CPU.check(function)

    def back(b, x):
        x = b.op("transpose", b.op("neg", x), permutation=(1, 0, 2))
        return b.op("reshape", x, shape=(9, 96))

    function = entry(["f32[3,9,32]"], back)
    CPU.check(function)
    assert "loop.div" not in {op.name for op in all_ops(CPU.lower(function))}


def all_ops(kernel):
    from ingot.compiler.ir import walk

    return list(walk(kernel.loops))


@pytest.mark.parametrize("shape", [(40, 50), (3, 70), (70, 3), (2, 17, 19)])
def test_transposes(shape: tuple[int, ...]) -> None:
    permutation = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    text = ",".join(map(str, shape))
    CPU.check(entry([f"f32[{text}]"], lambda b, x: b.op("transpose", x, permutation=permutation)))


def test_slice_reverse_and_strides() -> None:
    def body(b, x):
        x = b.op("slice", x, start=(1, 3), limit=(9, 40), stride=(2, 3))
        return b.op("reverse", x, axes=(1,))

    CPU.check(entry(["f32[10,50]"], body))


@on_every_target
@pytest.mark.parametrize("kind", ["f32", "i64", "f16", "u8"])
def test_every_other_element(target, kind: str) -> None:
    n = symbol("n")

    def body(b, x):
        return [b.op("slice", x, start=(a,), limit=(2 * n,), stride=(2,)) for a in (0, 1)]

    function = entry([f"{kind}[2*n]"], body, {"n": (1, None)})
    for size in (1, 4, 16, 37):
        target.check(function, n=size)


@on_every_target
@pytest.mark.parametrize(
    ("kind", "step"),
    [("f32", 3), ("f32", 8), ("u8", 3), ("u8", 5), ("f16", 4), ("f64", 7), ("i1", 3), ("i16", 6)],
)
def test_elements_that_lie_apart(target, kind: str, step: int) -> None:
    def body(b, x):
        return b.op("transpose", x, permutation=(1, 0))

    target.check(entry([f"{kind}[150,{step}]"], body))


@pytest.mark.parametrize(("length", "steps"), [(64, 3), (71, 4), (8197, 2)])
@pytest.mark.parametrize("kind", ["u8", "f32"])
def test_what_lies_alternately_is_read_once(kind: str, length: int, steps: int) -> None:
    """Also where vectors end with the line, and with an operand whose place the result takes."""

    def body(b, x, scale, y):
        shape = (symbol("n"), steps, length)
        x = b.op("convert", b.op("transpose", x, permutation=(0, 2, 1)), dtype=F32)
        x = b.op("mul", x, b.op("broadcast", scale, shape=shape, dimensions=(1,)))
        return b.op("add", x, y)

    types = [f"{kind}[n,{length},{steps}]", f"f32[{steps}]", f"f32[n,{steps},{length}]"]
    function = entry(types, body, {"n": (0, None)})
    for n in (0, 2):
        CPU.check(function, n=n)
    kernel = CPU.lower(function)
    reads = [op for op in walk(kernel.loops) if op.name == "loop.load"]
    ordinals = [Ordinal.of(op.operands[0].owner).ordinal for op in reads]
    assert (ordinals.count(0), ordinals.count(2)) == (steps, steps)
    assert bool(kernel.in_place) == (length % kernel.schedule.lanes == 0)


@pytest.mark.parametrize("kind", ["u8", "i16", "f16", "f32", "f64"])
def test_workgroups_for_what_lies_alternately_are_those_of_all_variants(kind: str) -> None:
    """Of a line that is as long as some registers, and of one whose last part is."""
    for length in (4, 8, 16, 24, 32, 64, 20488):
        function = entry(
            [f"{kind}[2,{length},4]"], lambda b, x: b.op("transpose", x, permutation=(0, 2, 1))
        )
        workloads = {lower_entry(function, each).workload for each in (V4, V3, PLAIN)}
        assert len(workloads) == 1, length


@pytest.mark.parametrize(
    ("low", "high", "interior"), [((1, 2), (2, 3), (0, 0)), ((0, -1), (1, 5), (1, 2))]
)
def test_padding(low, high, interior) -> None:
    def body(b, x):
        return b.op("pad", x, b.constant(np.float32(9)), low=low, high=high, interior=interior)

    CPU.check(entry(["f32[5,18]"], body))


def test_concatenation_inside_and_outside() -> None:
    def body(b, x, y):
        inner = b.op("concatenate", x, b.op("neg", y), axis=1)
        return b.op("concatenate", inner, b.op("exp2", inner), axis=0)

    CPU.check(entry(["f32[3,16]", "f32[3,32]"], body), tolerance=1e-6)
    CPU.check(entry(["f32[3,5]", "f32[3,9]"], body), tolerance=1e-6)


@pytest.mark.parametrize("shape", ["3,n", "3,33", "n,33", "2,9000"])
def test_conditions_on_the_last_axis_divide_it(shape: str) -> None:
    def body(b, x, y):
        nine = b.constant(np.float32(9))
        x = b.op("pad", x, nine, low=(0, 3), high=(1, 18), interior=(0, 0))
        y = b.op("pad", y, nine, low=(0, 0), high=(1, 0), interior=(0, 0))
        return b.op("exp2", b.op("concatenate", x, y, axis=1))

    texts = [f"f32[{shape}]", f"f32[{shape.partition(',')[0]},21]"]
    function = entry(texts, body, {"n": (1, None)} if "n" in shape else None)
    for n in (1, 2, 50, 9000) if "n" in shape else (1,):
        CPU.check(function, n=n, tolerance=1e-6)
    assert CPU.lower(function).schedule.parts == 4


@pytest.mark.parametrize("shape", ["n,1", "3,2", "3,4"])
def test_operands_that_are_joined_are_parts_of_the_last_axis(shape: str) -> None:
    function = entry(
        [f"f32[{shape}]"] * 20,
        lambda b, *parts: b.op("exp", b.op("concatenate", *parts, axis=1)),
        {"n": (1, None)} if "n" in shape else None,
    )
    CPU.check(function, n=5)
    assert CPU.lower(function).schedule.parts == 20


def test_iota_dim_and_convert() -> None:
    def body(b, x):
        count = b.op("iota", dtype=dtype("i64"), shape=(B, 6), axis=0)
        n = b.op("broadcast", b.op("dim", value=B, dtype=dtype("i64")), shape=(B, 6), dimensions=())
        return b.op("add", x, b.op("convert", b.op("sub", n, count), dtype=F32))

    CPU.check(entry(["f32[b,6]"], body, {"b": (1, None)}), b=5)


@on_every_target
@pytest.mark.parametrize("mode", ["clamp", "check", "wrap_check"])
def test_embedding_rows(target, mode: str) -> None:
    function = entry(
        ["f32[20,33]", "i32[6,9]"], lambda b, x, i: b.op("take", x, i, axis=0, mode=mode)
    )
    rng = np.random.default_rng(1)
    table = rng.standard_normal((20, 33)).astype(np.float32)
    low = {"clamp": -9, "check": 0, "wrap_check": -20}[mode]
    indices = rng.integers(low, 29 if mode == "clamp" else 20, (6, 9)).astype(np.int32)
    target.check(function, [table, indices])
    if mode != "clamp":
        indices[1, 1] = 20
        results = [np.zeros((6, 9, 33), np.float32)]
        assert target.fault(function, [table, indices], results) == (1, 20, 20)


def test_take_along_the_lanes() -> None:
    function = entry(
        ["f32[4,10]", "i64[37]"], lambda b, x, i: b.op("take", x, i, axis=1, mode="check")
    )
    rng = np.random.default_rng(1)
    table = rng.standard_normal((4, 10)).astype(np.float32)
    indices = rng.integers(0, 10, 37)
    CPU.check(function, [table, indices])
    indices[36] = -1
    assert CPU.fault(function, [table, indices], [np.zeros((4, 37), np.float32)]) == (1, -1, 10)


def test_masks_of_mixed_width() -> None:
    def body(b, x, y, p):
        both = b.op("and", b.op("compare", x, b.op("neg", x), direction="gt"), p)
        other = b.op("compare", y, b.op("neg", y), direction="lt")
        mixed = b.op("xor", both, b.op("not", other))
        return [b.op("select", mixed, y, b.op("neg", y)), b.op("select", mixed, y, y)]

    CPU.check(entry(["f32[37]", "i64[37]", "i1[37]"], body))


@pytest.mark.parametrize("times", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["f32", "f64", "i32", "f16"])
def test_short_last_axes_are_woven_of_vectors(name: str, times: int) -> None:
    def body(b, x, y):
        shape = (3, symbol("n"), times)
        wide = b.op("broadcast", x, shape=shape, dimensions=(0, 1))
        return b.op("add", wide, b.op("broadcast", y, shape=shape, dimensions=(2,)))

    function = entry([f"{name}[3,n]", f"{name}[{times}]"], body, {"n": (0, None)})
    assert CPU.lower(function).schedule.woven == (times if times <= 4 else 1)
    for n in (0, 1, 15, 16, 100):
        CPU.check(function, n=n)


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize("shift", ["shift_left", "shift_right_logical"])
def test_bytes_by_the_steps_of_a_short_last_axis_are_woven_alone(times: int, shift: str) -> None:
    """Not walked by one vector of the short axes, too."""

    def body(b, x, y):
        shape = (symbol("m"), symbol("n"), times)
        wide = b.op("broadcast", x, shape=shape, dimensions=(0, 1))
        return b.op(shift, wide, b.op("broadcast", y, shape=shape, dimensions=(2,)))

    function = entry(["u8[m,n]", f"u8[{times}]"], body, {"m": (1, 9), "n": (16, 99)})
    schedule = CPU.lower(function).schedule
    assert (schedule.woven, schedule.joined) == (times, 0)
    for n in (16, 37):
        CPU.check(function, m=2, n=n)


@pytest.mark.parametrize(
    ("name", "channels", "width", "low", "high"),
    [  # each width with all channels, and with elements of 1, 2 and 4 bytes
        (("u8", "f32", "bf16", "i8")[(place + channels) % 4], channels, *borders)
        for place, borders in enumerate(
            [(224, 1, 1), (40, 0, 3), (33, 2, 0), (15, 1, 0), (17, 0, 0), (16, 1, 1)]
        )
        for channels in (2, 3, 4)
    ],
)
def test_images_that_become_channels_last_are_woven_inside_their_borders(
    name: str, channels: int, width: int, low: int, high: int
) -> None:
    def body(b, x):
        x = b.op("transpose", x, permutation=(0, 2, 3, 1))
        around = (0, low, low, 0), (0, high, high, int(channels < 4))
        value = b.full(7, dtype(name))
        return b.op("pad", x, value, low=around[0], high=around[1], interior=(0,) * 4)

    function = entry([f"{name}[1,{channels},5,{width}]"], body)
    assert CPU.lower(function).schedule.woven > 1 or width < 40
    CPU.check(function)


@pytest.mark.parametrize("name", ["u8", "i8"])
@pytest.mark.parametrize("length", [4, 8, 12, 16, 34])
@pytest.mark.parametrize("shift", ["shift_left", "shift_right_logical"])
def test_short_axes_of_bytes_are_walked_by_one_vector(name: str, length: int, shift: str) -> None:
    def body(b, x, y):
        n, half = symbol("n"), length // 2
        x = b.op("slice", x, start=(0, 1), limit=(n, 1 + length))
        wide = b.op("broadcast", x, shape=(n, 2, length), dimensions=(0, 2))
        by = b.op("broadcast", y, shape=(n, 2, length), dimensions=(1,))
        fields = b.op("reshape", b.op(shift, wide, by), shape=(n, 2, 2, half))
        parts = [
            b.op("slice", fields, start=(0, 0, at, 0), limit=(n, 2, at + 1, 2)) for at in (0, 1)
        ]
        return b.op("xor", *parts)

    function = entry([f"{name}[n,{length + 2}]", f"{name}[2]"], body, {"n": (0, None)})
    schedule = CPU.lower(function).schedule
    assert (schedule.joined, schedule.lanes) == (2, 4)
    for n in (0, 1, 7):
        CPU.check(function, n=n)


@pytest.mark.parametrize("apart", [14, 15])
def test_bytes_that_lie_in_two_vectors_at_most_are_shuffled(apart: int) -> None:
    def body(b, x):
        taken = b.op("slice", x, start=(0, 0, 1), limit=(symbol("n"), 3, 3))
        return b.op("slice", taken, start=(0, 0, 0), limit=(symbol("n"), 3, 2), stride=(1, 2, 1))

    function = entry([f"u8[n,3,{apart}]"], body, {"n": (0, None)})
    assert CPU.lower(function).schedule.joined == (2 if 2 * apart + 2 <= 32 else 1)
    for n in (0, 1, 7):
        CPU.check(function, n=n)


def test_i1_results_and_two_results() -> None:
    def body(b, x, y):
        less = b.op("compare", x, y, direction="lt")
        return [less, b.op("or", less, b.op("is_nan", x))]

    CPU.check(entry(["f32[41]", "f32[41]"], body))


def test_rank_zero_and_zero_size() -> None:
    CPU.check(entry(["f32[]"], lambda b, x: b.op("add", x, x)))
    CPU.check(entry(["f32[0,4]"], lambda b, x: b.op("add", x, x)))


def test_a_dim_that_may_be_one_at_the_call() -> None:
    from ingot.compiler.ir.dims import broadcast

    wide = broadcast(symbol("a"), symbol("c"))

    def body(b, x, y):
        left = b.op("broadcast", x, shape=(wide,), dimensions=(0,))
        return b.op("add", left, b.op("broadcast", y, shape=(wide,), dimensions=(0,)))

    function = entry(["f32[a]", "f32[c]"], body, {"a": (1, None), "c": (1, None)})
    for sizes in ({"a": 1, "c": 20}, {"a": 20, "c": 1}, {"a": 20, "c": 20}):
        CPU.check(function, **sizes)


@pytest.mark.parametrize("name", ["f32", "u8", "bf16", "f64"])
@pytest.mark.parametrize("shape", [(64, 64), (37, 70), (2, 130, 33), (3, 5, 16)])
def test_squares_of_a_transposed_operand_are_turned_in_registers(shape, name: str) -> None:
    swapped = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)

    def body(b, x, y):
        return b.op("add", b.op("transpose", x, permutation=swapped), y)

    result = tuple(shape[axis] for axis in swapped)
    types = [f"{name}[{','.join(map(str, each))}]" for each in (shape, result)]
    function = entry(types, body)
    CPU.check(function)
    assert CPU.lower(function).schedule.turned == 1


@pytest.mark.parametrize(("channels", "width"), [(16, 8), (8, 24), (5, 16), (20, 19)])
def test_channels_of_rows_that_lie_apart_are_turned_in_registers(channels, width) -> None:
    # What a transposed convolution of 2 x 2 makes: height, width * 2, 2, channels.
    def body(b, x, y):
        high = b.op("transpose", x, permutation=(3, 0, 2, 1))
        bias = b.op("broadcast", y, shape=(channels, 3, 2, 2 * width), dimensions=(0,))
        return b.op("add", high, bias)

    function = entry([f"f32[3,{2 * width},2,{channels}]", f"f32[{channels}]"], body)
    CPU.check(function)
    schedule = CPU.lower(function).schedule
    assert schedule.turned == (channels in (16, 8, 20))
    if channels == 8:
        assert (schedule.extents, schedule.lanes) == ((3, 2, 8, 48), 8)


def test_transposes_of_symbolic_sides() -> None:
    function = entry(
        ["f32[m,n]"],
        lambda b, x: b.op("transpose", x, permutation=(1, 0)),
        {"m": (0, None), "n": (0, None)},
    )
    for m, n in ((0, 3), (1, 1), (15, 16), (16, 15), (70, 130)):
        CPU.check(function, m=m, n=n)


def test_a_dim_under_another_name_is_walked_without_a_division() -> None:
    """A reshape to dims that an assertion makes equal to the operand's."""

    def body(b, x, y):
        renamed = b.op("reshape", b.op("exp", x), shape=(symbol("b"), symbol("m"), 4))
        return b.op("add", renamed, y)

    shapes = ["f32[b,n,4]", "f32[b,m,4]"]
    function = entry(shapes, body, {"b": (0, None), "n": (0, None), "m": (0, None)})
    assert "loop.rem" not in to_text(CPU.lower(function).loops)
    for b, n in ((2, 3), (0, 5), (3, 1)):
        CPU.check(function, b=b, n=n, m=n)


@pytest.mark.parametrize("name", ["i1", "u8", "f64"])
def test_rows_become_columns_of_every_width(name: str) -> None:
    function = entry([f"{name}[37,45]"], lambda b, x: b.op("transpose", x, permutation=(1, 0)))
    CPU.check(function)


@needs_device
def test_whole_tiles_and_edges_of_many_vectors_per_item() -> None:
    def body(b, x, y):
        return b.op("add", x, b.broadcast_to(y, (4099, 2048)))

    function = entry(["f32[4099,2048]", "f32[2048]"], body)
    kernel = OPENCL.lower(function)
    assert kernel.schedule.tile[0] * kernel.schedule.tile[1] > 256 * kernel.schedule.lanes
    OPENCL.check(function, one=True)


@needs_device
@pytest.mark.parametrize(
    ("shape", "permutation", "turned"),
    [
        ((70, 50), (1, 0), 1),
        ((2, 33, 40), (0, 2, 1), 1),
        ((2, 9, 40, 50), (0, 2, 3, 1), 1),
        ((2, 40, 3, 50), (3, 1, 2, 0), 0),
        ((5, 6, 7), (2, 1, 0), 0),
    ],
)
def test_transposes_of_groups(shape, permutation, turned: int) -> None:
    def body(b, x):
        return b.op("neg", b.op("transpose", x, permutation=permutation))

    function = entry([f"f32[{','.join(map(str, shape))}]"], body)
    OPENCL.check(function)
    assert OPENCL.lower(function).schedule.turned == turned


@needs_device
def test_a_transposed_operand_beside_a_straight_one_and_a_symbol() -> None:
    def body(b, x, y):
        return b.op("add", b.op("transpose", x, permutation=(1, 0)), y)

    function = entry(["f32[n,40]", "f32[40,n]"], body, {"n": (1, None)})
    for n in (1, 31, 97):
        OPENCL.check(function, n=n)
    assert OPENCL.lower(function).schedule.turned == 1


@needs_device
def test_pads_slices_and_concatenations() -> None:
    def body(b, x, y):
        zero = b.full(0.0, dtype("f32"), ())
        wide = b.op("pad", x, zero, low=(1, 2), high=(0, 3), interior=(0, 1))
        cut = b.op("slice", wide, start=(1, 1), limit=(9, 20), stride=(1, 2))
        return b.op("concatenate", cut, y, axis=1)

    OPENCL.check(entry(["f32[8,10]", "f32[8,7]"], body))


@needs_device
def test_an_index_out_of_range_is_a_fault_behind_barriers() -> None:
    def body(b, x, i, y):
        rows = b.op("take", x, i, axis=0, mode="check")
        return b.op("add", rows, b.op("transpose", y, permutation=(1, 0)))

    turned = entry(["f32[20,33]", "i32[9]", "f32[33,9]"], body)
    assert OPENCL.lower(turned).schedule.turned == 1
    indices = np.array([3, 4, -1, 1, 0, 1, 2, 3, 4], np.int32)
    operands = [np.zeros((20, 33), np.float32), indices, np.ones((33, 9), np.float32)]
    assert OPENCL.fault(turned, operands, [np.zeros((9, 33), np.float32)]) == (1, -1, 20)
