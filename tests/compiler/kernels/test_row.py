"""Row kernels: reductions with producers and consumers, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir import walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.loop_attributes import Ordinal
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import dtype, layout
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.kernel_runner import V4
from tests.support.rows import layer_norm, softmax, spread
from tests.support.work_items import needs_device

F32 = dtype("f32")
S, N = symbol("s"), symbol("n")


def reduce(kind: str, axes: tuple[int, ...]):
    return lambda b, x: b.op("reduce", x, axes=axes, kind=kind)


@on_every_target
@pytest.mark.parametrize("shape", [(3, 5, 32), (7, 37), (1, 5), (2, 1), (2, 1100)])
def test_softmax(target, shape) -> None:
    target.check(entry([f"f32[{','.join(map(str, shape))}]"], softmax(shape)))


def test_softmax_keeps_its_exponentials() -> None:
    schedule = CPU.lower(entry(["f32[12,128,128]"], softmax((12, 128, 128)))).schedule
    assert (schedule.passes, schedule.kept_values, schedule.together) == (2, 1, 4)
    assert schedule.kept == (1536,)
    assert CPU.lower(entry(["f32[8,1100]"], softmax((8, 1100)))).schedule.together == 1


def test_a_pass_of_exponentials_asks_for_what_the_others_wait_for() -> None:
    """The lines of this row in the result, and those of the next rows in the operand."""

    def asked(types, body) -> set[int]:
        asks = [
            op for op in walk(CPU.lower(entry(types, body)).loops) if op.name == "loop.prefetch"
        ]
        return {Ordinal.of(op.operands[0].owner).ordinal for op in asks}

    assert asked(["f32[8,640]"], softmax((8, 640))) == {0, 1}
    assert asked(["f32[8,640]", "f32[640]"], layer_norm((8, 640))) == set()


@on_every_target
def test_softmax_of_rows_with_what_is_no_number(target) -> None:
    x = np.random.default_rng(5).uniform(-120, 0, (8, 37)).astype(np.float32)
    x[0] += 3e38
    x[1, 5] = x[2, 36] = np.nan
    x[3, ::2] = x[4] = -np.inf
    x[5, 7] = np.inf
    x[6, :-1] = -1e38
    target.check(entry(["f32[8,37]"], softmax((8, 37))), [x])


def test_powers_below_the_greatest_of_a_row_are_cheaper() -> None:
    def ops(body) -> set[str]:
        return {op.name for op in walk(CPU.lower(entry(["f32[8,48]"], body)).loops)}

    def apart(b, x):  # the greatest of other elements
        top = b.op("reduce", b.op("neg", x), axes=(1,), kind="max")
        return b.op("exp", b.op("sub", x, spread(b, top, (8, 48))))

    assert "loop.exp_nonpositive" in ops(softmax((8, 48)))
    assert "loop.exp_nonpositive" not in ops(apart)


@pytest.mark.parametrize(("length", "kept"), [(262144, 1), (262160, 0)])
def test_exponentials_are_kept_while_they_fit_in_scratch(length: int, kept: int) -> None:
    kernel = CPU.lower(entry([f"f32[8,{length}]"], softmax((8, length))))
    assert (kernel.schedule.together, kernel.schedule.kept_values) == (1, kept)
    assert kernel.scratch_length == kept * MOST_SCRATCH
    assert layout().constants["INGOT_KERNEL_MAX_SCRATCH"] == MOST_SCRATCH


@needs_device
@pytest.mark.parametrize(("shape", "held"), [((7, 37), 1), ((2, 3000), 3), ((2, 40000), 0)])
def test_softmax_of_rows_in_registers_and_from_memory(shape, held: int) -> None:
    function = entry([f"f32[{','.join(map(str, shape))}]"], softmax(shape))
    OPENCL.check(function)
    assert OPENCL.lower(function).schedule.held == held


@needs_device
def test_many_rows_share_a_group() -> None:
    function = entry(["f32[3001,48]"], softmax((3001, 48)))
    OPENCL.check(function, one=True)
    assert OPENCL.lower(function).schedule.tile[0] > 1


@on_every_target
def test_softmax_of_symbolic_rows_in_registers_and_from_memory(target) -> None:
    function = entry(["f32[s,n]"], softmax((S, N)), {"s": (1, None), "n": (0, None)})
    for s, n in ((3, 0), (1, 1), (5, 16), (3, 50), (2, 3000), (3, 8192), (3, 8193)):
        target.check(function, s=s, n=n)
    if target is CPU:
        assert target.lower(function).schedule.kept_values == 1


@needs_device
def test_a_bound_of_a_symbolic_row_saves_the_second_way() -> None:
    function = entry(["f32[3,n]"], softmax((3, N)), {"n": (1, 100)})
    for n in (1, 64, 100):
        OPENCL.check(function, n=n)
    anywhere = entry(["f32[3,n]"], softmax((3, N)), {"n": (1, None)})
    short, long = (list(walk(OPENCL.lower(each).loops)) for each in (function, anywhere))
    assert len(short) < len(long)


@on_every_target
@pytest.mark.parametrize("residual", [False, True])
def test_layer_norm(target, residual: bool) -> None:
    types = ["f32[9,48]", "f32[48]"] + ["f32[9,48]"] * residual
    function = entry(types, layer_norm((9, 48), residual))
    target.check(function, tolerance=1e-5)
    assert (0, 0) in target.lower(function).in_place


@on_every_target
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "i32", "u8", "f64"])
def test_kinds_and_dtypes(target, kind: str, name: str) -> None:
    target.check(entry([f"{name}[4,21]"], reduce(kind, (1,))), one=target is OPENCL)


@on_every_target
@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_bits_and_booleans(target, kind: str) -> None:
    for name in ("i1", "i32"):
        target.check(entry([f"{name}[4,21]"], reduce(kind, (1,))), one=target is OPENCL)


@on_every_target
@pytest.mark.parametrize("axes", [(1,), (1, 2), (0,), (0, 2), (0, 1, 2), (2,), (0, 1, 2, 3)])
def test_any_axes(target, axes: tuple[int, ...]) -> None:
    target.check(entry(["f32[3,4,5,22]"], reduce("add", axes)))


@pytest.mark.parametrize(("name", "columns"), [("f32", 1024), ("bf16", 2080), ("i8", 5120)])
def test_long_columns_are_walked_in_strips(name: str, columns: int) -> None:
    """Two results in one pass with what feeds and follows them, of rows and columns of which some
    are left over."""

    def body(b, x, y):
        shape = (2, columns)
        total = b.op("reduce", b.op("mul", x, y), axes=(1,), kind="add")
        top = b.op("reduce", x, axes=(1,), kind="max")
        return b.op("max", total, b.full(1, dtype(name), shape)), top

    function = entry([f"{name}[2,515,{columns}]"] * 2, body)
    CPU.check(function)
    kernel, length = CPU.lower(function), dtype(name).bytes
    assert kernel.schedule.together * kernel.schedule.lanes * length in (2048, 4096)
    assert kernel.scratch_length > 0
    few = CPU.lower(entry([f"{name}[2,500,{columns}]"], reduce("add", (1,))))
    assert few.scratch_length == 0


@needs_device
@pytest.mark.parametrize("shape", [(300, 5), (3000, 64), (8, 700)])
def test_columns(shape) -> None:
    OPENCL.check(entry([f"f32[{shape[0]},{shape[1]}]"], reduce("max", (0,))))


@needs_device
def test_symbolic_columns() -> None:
    function = entry(["f32[s,n]"], reduce("add", (0,)), {"s": (0, None), "n": (1, None)})
    for s, n in ((0, 3), (1, 1), (70, 5), (1000, 33)):
        OPENCL.check(function, s=s, n=n)


def test_global_average_pool_of_channels_last() -> None:
    def body(b, x):
        total = b.op(
            "reduce", b.op("max", x, b.full(0.0, F32, (2, 7, 7, 64))), axes=(1, 2), kind="add"
        )
        return b.op("mul", total, b.full(1 / 49, F32, (2, 64)))

    function = entry(["f32[2,7,7,64]"], body)
    CPU.check(function)
    assert CPU.lower(function).schedule.reduced == (49,)


@on_every_target
def test_bags_of_rows_that_indices_point_at(target) -> None:
    def body(b, table, at):
        rows = b.op("take", table, at, axis=0, mode="clamp")
        return b.op("reduce", rows, axes=(1,), kind="add")

    function = entry(["f32[9,21]", "i64[n,s]"], body, {"n": (0, None), "s": (0, None)})
    table = np.linspace(-1, 1, 189, dtype=np.float32).reshape(9, 21)
    for n, s in ((2, 5), (70, 1), (3, 0)):
        at = np.random.default_rng(n).integers(0, 9, (n, s))
        target.check(function, [table, at], n=n, s=s)


def test_masked_mean_over_a_middle_axis_with_full_results() -> None:
    def body(b, x):
        top = b.op("reduce", x, axes=(1,), kind="max")
        return b.op("sub", x, b.op("broadcast", top, shape=(2, 6, 21), dimensions=(0, 2)))

    CPU.check(entry(["f32[2,6,21]"], body))


@on_every_target
@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions(target, name: str, last: bool, axis: int) -> None:
    function = entry(
        ["f32[19,37]"], lambda b, x: b.op(name, x, axis=axis, dtype=dtype("i64"), last=last)
    )
    x = np.random.default_rng(2).integers(0, 4, (19, 37)).astype(np.float32)
    x[2, 5] = x[2, 8] = x[7, 8] = np.nan
    x[3] = -np.inf
    x[:, 4] = np.inf
    target.check(function, [x])


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "i8", "i64"])
def test_positions_run_beside_elements_of_any_width(name: str) -> None:
    """As i32 where a row is known to be short: they take no lanes from the elements."""
    x = np.random.default_rng(2).integers(-9, 9, (40, 37)).astype(dtype(name).numpy)
    for axis in (0, 1):
        function = entry(
            [f"{name}[40,37]"],
            lambda b, x, axis=axis: b.op("arg_max", x, axis=axis, dtype=dtype("i64")),
        )
        CPU.check(function, [x])
        lanes = {"f64": 8, "i64": 8}.get(name, 16)
        assert lower_entry(function, V4).schedule.lanes == lanes


@on_every_target
def test_two_results_and_two_reductions(target) -> None:
    def body(b, x, y):
        total = b.op("reduce", b.op("mul", x, y), axes=(1,), kind="add")
        top = b.op("reduce", x, axes=(1,), kind="max")
        return [total, top, b.op("sub", x, spread(b, total, (5, 20)))]

    target.check(entry(["f32[5,20]", "f32[5,20]"], body))


@on_every_target
def test_nan_wins(target) -> None:
    function = entry(["f32[3,n]"], reduce("max", (1,)), {"n": (0, None)})
    x = np.zeros((3, 4000), np.float32)
    x[1, 3500] = np.nan
    target.check(function, [x], n=4000)
    target.check(function, [x[:, 3490:3520]], n=30)


@on_every_target
def test_empty_rows_give_the_identity(target) -> None:
    target.check(entry(["f32[s,n]"], reduce("add", (1,)), dict.fromkeys("sn", (0, None))), s=3, n=0)


@needs_device
def test_a_long_sum_stays_exact() -> None:
    x = np.random.default_rng(0).random((1, 1 << 20), np.float32)
    function = entry([f"f32[1,{1 << 20}]"], reduce("add", (1,)))
    OPENCL.check(function, [x], tolerance=1e-6, one=True)


def test_long_sums_keep_their_digits() -> None:
    def body(b, x):
        return [b.op("reduce", x, axes=(0,), kind=kind) for kind in ("add", "max")]

    x = np.full(1_000_007, 0.1, np.float32)
    x[5] = 3
    CPU.check(entry(["f32[1000007]"], body), [x], tolerance=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_vectors_of_a_long_row_are_merged(last) -> None:
    """Rows whose greatest element stands at several places, is a NaN, or that are all alike."""

    def body(b, x):
        names, i64 = ("arg_max", "arg_min"), dtype("i64")
        at = [b.op(name, x, axis=1, dtype=i64, last=last) for name in names]
        kinds = ("max", "min", "add")
        return [*at, *(b.op("reduce", x, axes=(1,), kind=kind) for kind in kinds)]

    x = np.random.default_rng(0).integers(-9, 9, (4, 20_011)).astype(np.float32)
    x[0, [1030, 1045, 1060, 19_000, 20_008]] = 50
    x[1, [40, 20_003]] = np.nan
    x[2] = -np.inf
    x[3, 17:] = 0
    function = entry(["f32[s,20011]"], body, {"s": (0, None)})
    for rows in (x, *x[:, None]):
        CPU.check(function, [rows], s=len(rows))


@on_every_target
def test_kept_values_of_rows_of_several_runs_stay_in_their_scratch(target) -> None:
    def body(b, x):
        def over(value):
            return b.op("broadcast", value, shape=(2, 3, 4, 5), dimensions=(1,))

        count = b.full(40, "f32", (3,))
        mean = b.op("div", b.op("reduce", x, axes=(0, 2, 3), kind="add"), count)
        centered = b.op("sub", x, over(mean))
        square = b.op("mul", centered, centered)
        variance = b.op("div", b.op("reduce", square, axes=(0, 2, 3), kind="add"), count)
        return [b.op("mul", centered, over(b.op("rsqrt", variance))), mean, variance]

    target.check(entry(["f32[2,3,4,5]"], body), tolerance=1e-5)
