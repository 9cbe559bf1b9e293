"""State: private to a model, kept from call to call, saved, loaded, reset; limits of calls."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.compiler.ir.dims import symbol
from ingot.hal import spec
from tests.support.assembler import Assembler, count_module, state_module, total_module


@pytest.fixture
def model() -> ingot.Model:
    """main(x: i64[]) -> (y: i64[]) with the state total: i64[] = 100, last: f32[2,3]"""
    return ingot.load(total_module())


def test_variables_have_a_signature(model: ingot.Model) -> None:
    total, last = model.variables
    assert (total.name, total.dtype, total.shape) == ("total", spec.dtype("i64"), ())
    assert total.doc == "all of x"
    assert str(last) == "last: f32[2,3]"
    assert repr(model).endswith("; state: total: i64[], last: f32[2,3]>")
    assert ingot.load(count_module()).variables == ()


def test_state_is_kept_and_reset(model: ingot.Model) -> None:
    assert [int(model(x)) for x in (1, 2, 3)] == [101, 103, 106]
    assert int(model.state()["total"]) == 106
    model.reset()
    assert int(model.state()["total"]) == 100
    assert int(model(1)) == 101


def test_a_fork_goes_on_from_the_state_and_is_separate(model: ingot.Model) -> None:
    model(5)
    other = model.fork()
    third = other.fork()
    assert int(other(1)) == 106
    assert int(model(2)) == 107
    assert int(third.state()["total"]) == 105
    other.reset()
    third.load_state({**third.state(), "total": 7})
    model.close()
    assert [int(each(0)) for each in (other, third, third.fork())] == [100, 7, 7]


def test_a_fork_without_state_starts_anew(model: ingot.Model) -> None:
    model(5)
    assert int(model.fork(state=False)(1)) == 101
    assert int(model(1)) == 106


def test_a_fork_in_the_middle_of_a_change_is_refused(model: ingot.Model) -> None:
    with pytest.raises(ingot.OutOfRange, match="x is -1"):
        model(-1)
    with pytest.raises(ingot.FailedPrecondition, match="'total': reset the session or load"):
        model.fork()
    assert int(model.fork(state=False)(1)) == 101


def test_state_is_a_copy(model: ingot.Model) -> None:
    state = model.state()
    assert list(state) == ["total", "last"]
    assert state["last"].shape == (2, 3)
    state["total"].numpy()[...] = 7
    assert int(model(0)) == 100
    assert int(state["total"]) == 7


def test_state_travels_between_models_and_files(model: ingot.Model, tmp_path: Path) -> None:
    model(11)
    saved = model.state()
    other = model.fork()
    other.load_state(saved)
    assert int(other(1)) == 112
    np.savez(tmp_path / "state.npz", **saved)
    with np.load(tmp_path / "state.npz") as file:
        other.load_state(file)
    assert int(other(2)) == 113
    other.load_state({"total": 3, "last": [[1, 2, 3], [4, 5, 6]]})
    np.testing.assert_array_equal(other.state()["last"], [[1, 2, 3], [4, 5, 6]])
    assert int(other(2)) == 5


@pytest.mark.parametrize("dtype", spec.DTYPES.values(), ids=repr)
def test_state_of_every_dtype_comes_back_from_a_file(dtype: spec.DType, tmp_path: Path) -> None:
    model = ingot.load(state_module(dtype.name))
    values = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    model.load_state({"v": values})
    model.save_state(tmp_path / "v.state")
    model.reset()
    model.load_state(tmp_path / "v.state")
    assert model.state()["v"].numpy().tobytes() == values.tobytes()


def test_a_file_without_state_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model = ingot.load(state_module("f32"))
    model.load_state({"v": np.ones((2, 3), np.float32)})
    path = tmp_path / "v.state"
    with pytest.raises(ingot.NotFound, match="there is no file"):
        model.load_state(path)
    model.save_state(path)
    whole = path.read_bytes()
    other = bytearray(whole)
    other[8] = 9
    for error, message, damaged in (
        (ingot.DataLoss, "v.state': the state is damaged: it ends too early", b""),
        (ingot.DataLoss, "these bytes are no state", b"text" * 20),
        (ingot.DataLoss, "it ends too early", whole[: len(whole) // 2]),
        (ingot.DataLoss, "it ends too early", whole[:-1]),
        (ingot.DataLoss, "its crc is wrong", whole.replace(b"\0\0\x80?", b"\0\0\0?")),
        (ingot.DataLoss, "no .npy or .npz file", b"PK" + whole),
        (ingot.Incompatible, "the state has version 9, this runtime reads version 1", other),
    ):
        path.write_bytes(damaged)
        with pytest.raises(error, match=message):
            model.load_state(path)
    with pytest.raises(ingot.NotFound, match="nowhere"):
        model.save_state(tmp_path / "nowhere" / "v.state")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["v.state"]
    np.testing.assert_array_equal(model.state()["v"], np.ones((2, 3)))


def test_the_state_of_another_module_is_refused_with_what_differs(
    model: ingot.Model, tmp_path: Path
) -> None:
    model.save_state(tmp_path / "two")
    ingot.load(state_module("f32")).save_state(tmp_path / "f32")
    other = ingot.load(state_module("bf16"))
    with pytest.raises(ingot.InvalidArgument, match="it has 2 variables, the session has 1"):
        other.load_state(tmp_path / "two")
    differs = r"another module: it has 'v': f32\[2,3\] where the session has 'v': bf16\[2,3\]"
    with pytest.raises(ingot.InvalidArgument, match=differs):
        other.load_state(tmp_path / "f32")


def test_what_cannot_be_written_leaves_the_model(model: ingot.Model) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(OSError, match="No space left"):
        model.save_state("/dev/full")
    assert int(model(1)) == 101


def test_bytes_of_another_width_are_no_state() -> None:
    model = ingot.load(state_module("bf16"))
    for width in (1, 4):
        with pytest.raises(ingot.InvalidArgument, match="variable 'v'"):
            model.load_state({"v": np.zeros((2, 3), f"V{width}")})
    with pytest.raises(ingot.InvalidArgument, match="variable 'v'"):
        ingot.load(state_module("f32")).load_state({"v": np.zeros((2, 3), "V4")})


@pytest.mark.parametrize("dtype", spec.DTYPES.values(), ids=repr)
def test_state_of_every_dtype_is_saved_and_loaded(dtype: spec.DType) -> None:
    model = ingot.load(state_module(dtype.name))
    values = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    model.load_state({"v": values})
    state = model.state()
    assert state["v"].dtype is dtype
    model.reset()
    model.load_state(state)
    assert model.state()["v"].numpy().tobytes() == values.tobytes()


ZEROS = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"total": 1}, "the state lacks variable 'last'; the variables are: total, last"),
        ({"total": 1, "last": ZEROS, "more": 1}, "the model has no variable 'more'; the var"),
        ({"total": 1.5, "last": ZEROS}, "variable 'total': is a float"),
        ({"total": 1, "last": ZEROS.T}, r"'last': shape is \(3, 2\), but must be \(2, 3\)"),
        ({"total": 1, "last": np.zeros((2, 3))}, "'last': dtype is f64, but must be f32"),
        ([1, 2], "the state is list, but must be a dict"),
    ],
    ids=["missing", "unknown", "kind", "shape", "dtype", "list"],
)
def test_wrong_state_is_refused_as_a_whole(model: ingot.Model, state: object, message: str) -> None:
    model(5)
    with pytest.raises(ingot.InvalidArgument, match=message):
        model.load_state(state)  # type: ignore[arg-type]
    assert int(model.state()["total"]) == 105


def test_a_variable_that_grows_takes_any_number_of_rows() -> None:
    assembler = Assembler()
    assembler.variable("rows", "i64", symbol("n"))
    assembler.function("main", [], [], [("return", [], [], [])])
    model = ingot.load(assembler.module())
    for rows in ([1, 2, 3], [4], []):
        model.load_state({"rows": rows})
        np.testing.assert_array_equal(model.state()["rows"], rows)
    for wrong in (5, [[1, 2]]):
        with pytest.raises(ingot.InvalidArgument, match=r"'rows': shape is .*, but must be \('n',"):
            model.load_state({"rows": wrong})


@pytest.mark.parametrize("count", [700, pytest.param(6_000_000, marks=pytest.mark.slow)])
def test_a_saved_variable_that_grows_asks_for_no_more_than_its_file_holds(
    count: int, tmp_path: Path
) -> None:
    assembler = Assembler()
    assembler.variable("rows", "i64", symbol("n"))
    assembler.function("main", [], [], [("return", [], [], [])])
    module, path = assembler.module(), tmp_path / "rows.state"
    model = ingot.load(module)
    rows = np.arange(count) % 5 * (np.arange(count) // 1000 % 2 == 0)  # some pages are zeros
    model.load_state({"rows": rows})
    model.save_state(path)
    other = ingot.load(module)
    other.load_state(path)
    np.testing.assert_array_equal(other.state()["rows"], rows)
    room = np.zeros(count, np.int64)
    room[: count // 2] = 1
    model.load_state({"rows": room})
    model.save_state(path)
    other.load_state(path)  # room behind what is used stays
    np.testing.assert_array_equal(other.state()["rows"], room)

    data = bytearray(path.read_bytes())
    other = ingot.load(module, memory_limit=16 * count + (5 << 20))
    at = 16 + 12  # the dims of the first variable
    assert struct.unpack_from("<q", data, at) == (8 * count,)
    struct.pack_into("<q", data, at, 1 << 43)
    path.write_bytes(data)
    with pytest.raises(ingot.DataLoss, match="it ends too early"):
        other.load_state(path)
    assert other.statistics().state.peak < 16 * count + (5 << 20)


def test_state_without_room_is_not_set_in_part() -> None:
    assembler = Assembler()
    for name in "ab":
        assembler.variable(name, "i64", symbol("n"))
    assembler.function("main", [], [], [("return", [], [], [])])
    model = ingot.load(assembler.module(), memory_limit=4000)
    few, many = np.array([1, 2, 3]), np.arange(600)
    model.load_state({"a": few, "b": few})
    with pytest.raises(ingot.OutOfMemory, match=r"^4800 bytes are asked for"):
        model.load_state({"a": many, "b": few})
    assert np.array_equal(model.state()["a"], few)
    with pytest.raises(ingot.OutOfMemory, match=r"'b': 4800 bytes .* before, the state was reset"):
        model.load_state({"a": few + 1, "b": many})
    assert not any(np.any(each) for each in model.state().values())


def test_a_call_that_fails_early_leaves_the_state(model: ingot.Model) -> None:
    model(5)
    with pytest.raises(ingot.OutOfRange, match="x is -10"):
        model(-10)
    assert int(model(1)) == 106


def test_a_call_that_fails_while_it_changes_state_asks_for_a_reset(model: ingot.Model) -> None:
    saved = model.state()
    for restore in (model.reset, lambda: model.load_state(saved)):
        with pytest.raises(ingot.OutOfRange, match="x is -1"):
            model(-1)
        for refused in (lambda: model(1), model.state):
            with pytest.raises(
                ingot.FailedPrecondition, match="'total': reset the session or load"
            ):
                refused()
        restore()
        assert int(model(1)) == 101
        model.reset()


def test_a_closed_model_has_no_state(model: ingot.Model) -> None:
    saved = model.state()
    model.close()
    for refused in (model.state, model.reset, lambda: model.load_state(saved)):
        with pytest.raises(ingot.FailedPrecondition, match="closed"):
            refused()


def test_threads_add_to_one_state(model: ingot.Model) -> None:
    def add() -> None:
        for _ in range(500):
            model(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(model.state()["total"]) == 2100


def test_limits_end_a_call() -> None:
    model = ingot.load(count_module())
    with pytest.raises(ingot.DeadlineExceeded, match="limit of 1000 steps"):
        model.count.call(10_000_000, max_steps=1000)
    with pytest.raises(ingot.DeadlineExceeded, match="longer than its timeout"):
        model.count.call(2**60, timeout=0.01)
    with pytest.raises(ingot.DeadlineExceeded, match="timeout"):
        model.count.call(2**60, timeout=1e-12)
    assert model.count.call(1000, max_steps=100_000, timeout=math.inf) is None
    assert model.count(10_000) is None


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_steps": 0}, "max_steps is 0, but must be an integer above 0"),
        ({"max_steps": 1.5}, "max_steps is 1.5"),
        ({"timeout": 0}, "timeout is 0, but must be seconds above 0"),
        ({"timeout": -1.0}, "timeout is -1.0"),
        ({"timeout": math.nan}, "timeout is nan"),
        ({"timeout": "1s"}, "timeout is '1s'"),
    ],
    ids=str,
)
def test_wrong_limits_are_named(limits: dict[str, object], message: str) -> None:
    model = ingot.load(count_module())
    with pytest.raises(ingot.InvalidArgument, match=message):
        model.count.call(1, **limits)
    assert model.count(1) is None


ROOM = """
import numpy as np
import ingot
from ingot import ops

def private():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1000 for line in file if line.startswith("RssAnon"))

@ingot.program(ingot.spec("f32[300000,64]"), ingot.spec("i64[]"), ingot.spec("f32[1,64]"))
def push(cache, at, row):
    return {"cache_out": ops.dynamic_update_slice(cache, row, [at, 0]), "sum": ops.sum(row)}

model = ingot.load(ingot.compile(push, state={"cache_out": "cache"}))
before, row = private(), np.ones((1, 64), np.float32)
model.reset()
for at in (0, 150000, 299999):
    model(at, row)
used = private() - before
assert np.asarray(model.state()["cache"]).sum() == 3 * 64
model.reset()
assert not np.asarray(model.state()["cache"]).any()
print(before, used)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere zeros are written")
def test_room_that_a_cache_does_not_use_costs_no_memory() -> None:
    """77 MB of state, three rows of which are used, in large pages."""
    run = subprocess.run([sys.executable, "-c", ROOM], capture_output=True, text=True, check=True)
    before, used = map(int, run.stdout.split())
    assert used < 20, f"{used} MB more than {before}"
