"""Calling a model: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.hal import spec
from ingot.hal.device import instance
from ingot.hal.native import check, ffi, lib
from tests.support.assembler import (
    Assembler,
    add_copy,
    copy_module,
    count_module,
    pair_module,
    parameter_module,
)


@pytest.fixture(scope="module")
def copy() -> ingot.Model:
    """main(x: f32[d0]) -> (y: f32[d0])"""
    return ingot.load(copy_module())


@pytest.fixture(scope="module")
def pair() -> ingot.Model:
    """main(a: f32[n], b: i32[]) -> (first: f32[n], second: i32[])"""
    return ingot.load(pair_module())


def x_of(count: int = 4) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def test_result_is_a_fresh_array(copy: ingot.Model) -> None:
    x = x_of()
    y = copy(x)
    assert isinstance(y, ingot.Array)
    assert (y.shape, y.dtype, y.device) == ((4,), spec.dtype("f32"), "cpu")
    np.testing.assert_array_equal(y, x)
    z = copy(x)
    y.numpy()[0] = 99
    assert z.numpy()[0] == x[0] == 0


def test_results_outlive_the_model() -> None:
    model = ingot.load(copy_module())
    y = model(x_of())
    values = y.numpy()
    model.close()
    del model, y
    gc.collect()
    np.testing.assert_array_equal(values, x_of())


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_shapes_may_change_from_call_to_call(copy: ingot.Model, count: int) -> None:
    np.testing.assert_array_equal(copy(x_of(count)), x_of(count))
    assert copy(x_of(count)).shape == (count,)


@pytest.mark.parametrize("dtype", spec.DTYPES.values(), ids=repr)
def test_every_dtype_goes_in_and_out(dtype: spec.DType) -> None:
    model = ingot.load(copy_module(dtype.name, rank=2))
    x = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    y = model(x)
    assert y.dtype is dtype
    assert y.numpy().dtype == x.dtype
    assert y.numpy().tobytes() == x.tobytes()


def test_rank_zero_and_high_rank() -> None:
    scalar = ingot.load(copy_module(rank=0))
    assert float(scalar(2.5)) == 2.5
    assert scalar(np.float32(1)).shape == ()
    high = ingot.load(copy_module(rank=8))
    x = np.ones((1, 2) * 4, np.float32)
    assert high(x).shape == x.shape


@pytest.mark.parametrize(
    "x",
    [
        np.arange(8, dtype=np.float32)[::2],
        np.arange(8, dtype=np.float32)[::-1],
        np.arange(4, dtype=">f4"),
        np.frombuffer(b"\0" + np.arange(4, dtype=np.float32).tobytes(), np.float32, 4, offset=1),
        np.broadcast_to(np.float32(3), (4,)),
        [0, 1.5, 2, 3],
        (1, 2),
        [],
    ],
    ids=["strided", "reversed", "big-endian", "misaligned", "broadcast", "list", "tuple", "empty"],
)
def test_unusual_arguments_work(copy: ingot.Model, x: object) -> None:
    np.testing.assert_array_equal(copy(x), np.asarray(x, np.float32))


def test_read_only_arguments_work_and_are_not_written(copy: ingot.Model) -> None:
    x = x_of()
    x.flags.writeable = False
    np.testing.assert_array_equal(copy(x), x)


def test_arrays_go_in_without_numpy(copy: ingot.Model) -> None:
    y = copy(copy(x_of()))
    np.testing.assert_array_equal(y, x_of())


def test_subclass_of_ndarray_works(copy: ingot.Model) -> None:
    x = x_of().view(np.recarray)
    np.testing.assert_array_equal(copy(x), x_of())


def test_object_with_array_method_works(copy: ingot.Model) -> None:
    class Holder:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return x_of()

    np.testing.assert_array_equal(copy(Holder()), x_of())


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"argument 0 'x': dtype is f64, but must be f32; .*astype\(\"float32\"\)"),
        (np.zeros(3, np.int32), r"argument 0 'x': dtype is i32"),
        (np.float64(1), r"argument 0 'x': dtype is f64"),
        (np.zeros((2, 2), np.float32), r"argument 0 'x'.*rank"),
        (np.float32(1), r"argument 0 'x'.*rank"),
        (np.zeros((1,) * 33, np.float32), r"argument 0 'x': rank is 33, but can be 32 at most"),
        (1j, r"argument 0 'x': is complex, which f32 cannot hold"),
        ("text", r"argument 0 'x': is str, but must be an array"),
        (None, r"argument 0 'x': is NoneType, but must be an array"),
        ([[1, 2], [3]], r"argument 0 'x': list is no array"),
        pytest.param(object(), r"argument 0 'x': is object, but must be an array", id="an object"),
        (np.array(["a"]), r"argument 0 'x': NumPy dtype str.* has no counterpart"),
        (np.zeros(3, "datetime64[s]"), r"argument 0 'x': NumPy dtype datetime64"),
    ],
    ids=str,
)
def test_wrong_argument_is_named(copy: ingot.Model, x: object, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        copy(x)
    np.testing.assert_array_equal(copy(x_of()), x_of())


@pytest.mark.parametrize(
    ("dtype", "x", "message"),
    [
        ("i32", 1.5, "is a float, which i32 cannot hold"),
        ("i1", 1, "is an integer, which i1 cannot hold"),
        ("i8", 300, "out of the range of i8"),
        ("u8", -1, "out of the range of u8"),
        ("i64", 1 << 64, "out of the range|must be an array"),
    ],
)
def test_python_scalars_keep_their_kind(dtype: str, x: object, message: str) -> None:
    model = ingot.load(copy_module(dtype, rank=0))
    with pytest.raises(ingot.InvalidArgument, match=message):
        model(x)


def test_python_scalars_take_the_expected_dtype() -> None:
    assert ingot.load(copy_module("bf16", rank=0))(1.5).item() == 1.5
    assert ingot.load(copy_module("c64", rank=0))(1).item() == 1 + 0j
    assert ingot.load(copy_module("i1", rank=0))(True).item() is True
    assert ingot.load(copy_module("u8", rank=0))(200).item() == 200


def test_arguments_by_position_and_by_name(pair: ingot.Model) -> None:
    for first, second in (
        pair(x_of(), 7),
        pair(x_of(), b=7),
        pair(b=7, a=x_of()),
        pair.main(x_of(), np.int32(7)),
    ):
        np.testing.assert_array_equal(first, x_of())
        assert int(second) == 7


def test_results_by_name(pair: ingot.Model) -> None:
    results = pair.call(x_of(), 7, as_dict=True)
    assert list(results) == ["first", "second"]
    assert int(results["second"]) == 7
    assert len(pair.call(x_of(), 7)) == 2


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((), {}, "argument 'a' is missing; the signature is main"),
        ((1,), {}, "argument 'b' is missing"),
        ((1, 2, 3), {}, "3 arguments for main.*, which takes 2"),
        ((1, 2), {"b": 2}, "argument 'b' is given by position and by name"),
        ((1,), {"c": 2}, "no argument is called 'c'"),
    ],
)
def test_wrong_call_shows_the_signature(
    pair: ingot.Model, arguments: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        pair(*arguments, **named)


def test_out_is_written_in_place(copy: ingot.Model) -> None:
    out = np.zeros(4, np.float32)
    assert copy(x_of(), out=out) is out
    np.testing.assert_array_equal(out, x_of())
    array = copy(np.zeros(4, np.float32))
    assert copy(x_of(), out=array) is array
    np.testing.assert_array_equal(array, x_of())
    np.testing.assert_array_equal(copy(x_of()), x_of())
    assert copy(x_of()) is not array


def test_out_of_several_results(pair: ingot.Model) -> None:
    first = np.zeros(4, np.float32)
    results = pair(x_of(), 7, out=(first, None))
    assert results[0] is first
    assert int(results[1]) == 7
    by_name = pair.call(x_of(), 8, out={"first": first}, as_dict=True)
    assert by_name["first"] is first
    assert int(by_name["second"]) == 8
    with pytest.raises(ingot.InvalidArgument, match=r"out= holds 1 arrays, .* has 2 results"):
        pair(x_of(), 7, out=first)
    with pytest.raises(ingot.InvalidArgument, match="no result is called 'third'"):
        pair.call(x_of(), 7, out={"third": first})


def read_only(count: int) -> np.ndarray:
    array = np.zeros(count, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(4), "result 0 'y': dtype is f64, but must be f32"),
        (np.zeros(5, np.float32), "result 0 'y'"),
        (np.zeros((4, 1), np.float32), "result 0 'y'"),
        (np.zeros(8, np.float32)[::2], "result 0 'y': must be C-contiguous"),
        (np.zeros(4, ">f4"), "result 0 'y': must be C-contiguous, aligned and in native"),
        (read_only(4), "result 0 'y': is read-only"),
        ([0, 0, 0, 0], "out= holds 4 arrays"),
        ("text", "result 0 'y': is str"),
    ],
    ids=["dtype", "count", "rank", "strided", "big-endian", "read-only", "list", "text"],
)
def test_wrong_out_is_named(copy: ingot.Model, out: object, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        copy(x_of(), out=out)
    np.testing.assert_array_equal(copy(x_of()), x_of())


def test_out_may_not_overlap_an_argument(copy: ingot.Model) -> None:
    x = x_of(8)
    with pytest.raises(ingot.InvalidArgument, match="over argument 0"):
        copy(x[:4], out=x[2:6])


def test_signature_tells_names_dtypes_dims_and_docs(pair: ingot.Model) -> None:
    signature = pair.signature
    assert str(signature) == "main(a: f32[n], b: i32[]) -> (first: f32[n], second: i32[])"
    assert signature.arguments[0].shape == ("n",)
    assert signature.arguments[1].dtype is spec.dtype("i32")
    documented = ingot.load(copy_module()).signature
    assert documented.doc == "Copies x (main)."
    assert documented.arguments[0].doc == "what is copied"


def test_other_functions_are_attributes() -> None:
    assembler = Assembler()
    add_copy(assembler, "encode")
    add_copy(assembler, "decode", "i32")
    model = ingot.load(assembler.module())
    assert list(model.functions) == ["encode", "decode"]
    assert int(model.decode([5])) == 5
    assert "encode" in dir(model)
    assert "encode(x: f32[d0])" in repr(model)
    with pytest.raises(ingot.NotFound, match="no function called main; call one of: encode, d"):
        model(x_of())
    with pytest.raises(AttributeError, match="no function 'other'; its functions are: encode"):
        model.other  # noqa: B018


def test_function_without_results_gives_none() -> None:
    model = ingot.load(count_module())
    assert model.count(3) is None
    assert model.count.call(3, as_dict=True) == {}


def test_failure_in_the_program_leaves_the_model_usable() -> None:
    model = ingot.load(count_module())
    with pytest.raises(ingot.OutOfRange, match="steps is -2, but must not be negative"):
        model.count(-2)
    assert model.count(2) is None


def test_closed_model_refuses_calls() -> None:
    with ingot.load(copy_module()) as model:
        other = model.fork()
    with pytest.raises(ingot.FailedPrecondition, match="closed; load it again"):
        model(x_of())
    with pytest.raises(ingot.FailedPrecondition, match="closed"):
        model.fork()
    model.close()
    np.testing.assert_array_equal(other(x_of()), x_of())


def test_threads_share_a_model(copy: ingot.Model) -> None:
    wrong = []

    def call(number: int) -> None:
        for count in range(200):
            x = np.full(count % 7, number, np.float32)
            if not np.array_equal(copy(x), x):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_while_a_call_runs() -> None:
    model = ingot.load(count_module())
    thread = threading.Thread(target=model.count, args=(50_000_000,))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10


def test_many_calls_leak_no_memory(copy: ingot.Model) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    x = x_of(100_000)
    for _ in range(20):
        copy(x)
    before = resident()
    for _ in range(300):
        copy(x)
    assert resident() - before < 10_000_000


def test_parameters_from_a_dict() -> None:
    weight, bias = x_of(3), x_of(6)[::2]
    model = ingot.load(parameter_module(), parameters={"weight": weight, "bias": bias, "more": 1})
    weight[:] = -1
    np.testing.assert_array_equal(model(), [[0, 1, 2], [0, 2, 4]])


def test_parameters_from_a_safetensors_file(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"weight": x_of(3), "bias": x_of(3) * 2, "more": x_of(1)}, path)
    model = ingot.load(parameter_module(), parameters=path)
    path.unlink()
    np.testing.assert_array_equal(model(), [[0, 1, 2], [0, 2, 4]])
    np.testing.assert_array_equal(model.fork()(), [[0, 1, 2], [0, 2, 4]])


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        (None, ingot.NotFound, "needs 2 parameters .'weight', 'bias'.; pass parameters="),
        ({"weight": x_of(3)}, ingot.NotFound, "1 of 2 parameters are missing: 'bias'"),
        ({}, ingot.NotFound, "2 of 2 parameters .* has nothing"),
        ({"weight": x_of(3), "bias": np.zeros(3)}, ingot.Error, "bias"),
        ({"weight": x_of(3), "bias": x_of(4)}, ingot.Error, "bias"),
        ({"weight": x_of(3), "bias": "text"}, ingot.InvalidArgument, "bias"),
        ("missing.safetensors", ingot.NotFound, "missing.safetensors"),
        (7, ingot.InvalidArgument, "parameters is int, but must be the path"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(
    parameters: object, error: type[ingot.Error], message: str
) -> None:
    with pytest.raises(error, match=message):
        ingot.load(parameter_module(), parameters=parameters)


def test_a_safetensors_file_may_be_cut_once_it_is_open(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[2048],"data_offsets":[0,8192]}}'
    path = tmp_path / "weights.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x07" * 8192)
    out = ffi.new("ingot_safetensors_t **")
    check(lib.ingot_safetensors_open(instance().pointer, bytes(path), out))
    path.write_bytes(b"")
    span = ffi.new("ingot_parameter_span_t *")
    table = lib.ingot_safetensors_parameters(out[0])
    check(table.find(table.user, b"", b"w", span))
    assert bytes(ffi.buffer(span.data, span.length)) == b"\x07" * 8192
    lib.ingot_safetensors_close(out[0])
