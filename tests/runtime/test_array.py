"""Arrays: their values for NumPy, DLPack and Python, and how long their memory lives."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import ingot
from ingot.hal import dlpack, spec
from ingot.hal.array import Array
from tests.support.assembler import copy_module

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def array() -> Array:
    """f32[2,3]"""
    return Array.from_numpy(VALUES)


def test_numpy_shares_the_memory(array: Array) -> None:
    values = array.numpy()
    values[0, 0] = 7
    assert array.numpy()[0, 0] == 7
    assert np.asarray(array)[0, 0] == 7
    copied = np.array(array)
    copied[0, 0] = 8
    assert array[0, 0] == 7


def test_memory_lives_as_long_as_any_view_of_it() -> None:
    values = Array.from_numpy(VALUES).numpy()
    gc.collect()
    others = [Array.from_numpy(VALUES * 0 - 1) for _ in range(20)]
    np.testing.assert_array_equal(values, VALUES)
    del others


def test_array_protocol_converts_and_refuses(array: Array) -> None:
    assert np.asarray(array, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.add(array, 1), VALUES + 1)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="f32 cannot become float64 without a copy"):
            array.__array__(np.float64, copy=False)
        with pytest.raises(ValueError, match="avoid copy"):  # NumPy's own, of the buffer
            np.asarray(array, np.float64, copy=False)


def test_indexing_and_length(array: Array) -> None:
    assert len(array) == 2
    assert array[1, 2] == 5
    assert [row.sum() for row in array] == [3, 12]
    with pytest.raises(TypeError, match="rank 0 has no length"):
        len(Array.from_numpy(1.0))


def test_scalars_convert() -> None:
    number = Array.from_numpy(np.int32(3))
    assert (int(number), float(number), complex(number), bool(number)) == (3, 3.0, 3 + 0j, True)
    assert [10, 20, 30, 40][number] == 40
    assert Array.from_numpy(np.ones((1, 1))).item() == 1
    with pytest.raises(ingot.InvalidArgument, match=r"shape \(2, 3\) is not one scalar"):
        float(Array.from_numpy(VALUES))
    with pytest.raises(TypeError, match="only an integer can be an index, not f64"):
        [1, 2][Array.from_numpy(1.0)]


def test_repr_shows_values_dtype_and_shape(array: Array) -> None:
    assert repr(array).startswith("Array([[0., 1., 2.],")
    assert repr(array).endswith("dtype=f32, shape=(2, 3), device='cpu')")
    narrow = Array.from_numpy(VALUES.astype(ml_dtypes.bfloat16))
    assert "[[0., 1., 2.]" in repr(narrow)


@pytest.mark.parametrize("dtype", spec.DTYPES.values(), ids=repr)
def test_astype_rounds_as_numpy_does(dtype: spec.DType) -> None:
    source = Array.from_numpy(np.array([0, 1, 0.5, 1], np.float32))
    converted = source.astype(dtype)
    assert converted.dtype is dtype
    with np.errstate(all="ignore"):
        expected = source.numpy().astype(dtype.numpy)
    assert converted.numpy().tobytes() == expected.tobytes()
    back = converted.astype("c64" if dtype.is_complex else "f32")
    np.testing.assert_array_equal(back.numpy(), expected.astype(back.numpy().dtype))


def test_narrow_results_are_readable_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    array = Array.from_numpy(VALUES.astype(ml_dtypes.bfloat16))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(array.dtype.__dict__, "numpy", raising=False)
    with pytest.raises(ingot.Unsupported, match=r'astype\("f32"\)'):
        array.numpy()
    np.testing.assert_array_equal(array.astype("f32"), VALUES)
    np.testing.assert_array_equal(array.astype(np.int32), VALUES.astype(np.int32))


def test_from_numpy_takes_any_layout() -> None:
    for values in (VALUES.T, VALUES[::-1], VALUES.astype(">f4"), np.zeros((0, 3), np.float32)):
        np.testing.assert_array_equal(Array.from_numpy(values), values)


# -- DLPack ------------------------------------------------------------------------------------


def test_dlpack_export_shares_the_memory(array: Array) -> None:
    values = np.from_dlpack(array)
    assert np.shares_memory(values, array.numpy())
    del array
    gc.collect()
    np.testing.assert_array_equal(values, VALUES)


def test_dlpack_export_of_an_older_version_and_unused_capsules(array: Array) -> None:
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(array.__dlpack__())
    gc.collect()
    np.testing.assert_array_equal(array, VALUES)


def test_dlpack_copy_and_refusals(array: Array) -> None:
    copied = np.from_dlpack(array, copy=True) if np.__version__ >= "2.1" else array.numpy().copy()
    assert not np.shares_memory(copied, array.numpy())
    assert array.__dlpack_device__() == dlpack.CPU == (1, 0)
    with pytest.raises(BufferError, match="no other device"):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="i4 cannot be exchanged"):
        array.astype("i4").__dlpack__()


@pytest.mark.parametrize("dtype", ["i1", "i8", "u16", "i32", "f16", "bf16", "f32", "c64"])
def test_jax_arrays_go_in_and_results_come_back(dtype: str) -> None:
    model = ingot.load(copy_module(dtype, rank=2))
    x = jnp.arange(6).reshape(2, 3).astype(spec.dtype(dtype).numpy)
    y = model(x)
    assert y.dtype.name == dtype
    back = jax.dlpack.from_dlpack(y)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)


def test_imported_memory_is_not_copied() -> None:
    x = jnp.arange(6, dtype=jnp.float32)
    bits, dtype = dlpack.import_array(x)
    assert dtype.name == "f32"
    assert bits.ctypes.data == x.unsafe_buffer_pointer()
    del x
    gc.collect()
    np.testing.assert_array_equal(bits, range(6))


class Producer:
    """An object that speaks DLPack, with the faults that a test asks for."""

    def __init__(self, source: object, device: tuple[int, int] = (1, 0), fault: str = "") -> None:
        self.source = source
        self.device = device
        self.fault = fault

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: object) -> object:
        if self.fault == "old" and options:
            raise TypeError("unexpected keyword argument 'max_version'")
        if self.fault == "refuses":
            raise BufferError("it requires a gradient")
        return self.source.__dlpack__(**options)  # type: ignore[attr-defined]


def test_producers_of_any_version_work() -> None:
    model = ingot.load(copy_module(rank=2))
    np.testing.assert_array_equal(model(Producer(Array.from_numpy(VALUES))), VALUES)
    np.testing.assert_array_equal(model(Producer(Array.from_numpy(VALUES), fault="old")), VALUES)
    np.testing.assert_array_equal(model(Producer(VALUES.T)), VALUES.T)
    np.testing.assert_array_equal(model(Producer(VALUES[:0])), VALUES[:0])


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        (Producer(VALUES, device=(2, 0)), r"argument 0 'x': the tensor is on DLPack device \(2"),
        (Producer(VALUES, fault="refuses"), "argument 0 'x': .*requires a gradient"),
        (Producer(VALUES.astype("f8")), "argument 0 'x': dtype is f64, but must be f32"),
    ],
    ids=["device", "refuses", "dtype"],
)
def test_wrong_producer_is_named(producer: Producer, message: str) -> None:
    model = ingot.load(copy_module(rank=2))
    with pytest.raises(ingot.InvalidArgument, match=message):
        model(producer)


def test_out_can_be_a_dlpack_tensor() -> None:
    model = ingot.load(copy_module(rank=2))
    out = np.zeros((2, 3), np.float32)
    model(VALUES, out=Producer(out))
    np.testing.assert_array_equal(out, VALUES)
    with pytest.raises(ingot.InvalidArgument, match="result 0 'y': is read-only"):
        model(VALUES, out=Producer(np.broadcast_to(np.float32(0), (2, 3))))


def test_arrays_may_be_alive_when_python_ends() -> None:
    program = """
        import numpy as np
        from ingot.hal.array import Array
        array = Array.from_numpy(np.ones(3))
        values, capsule = array.numpy(), array.__dlpack__()
        cycle = [array]
        cycle.append(cycle)
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_in_a_dead_cycle_with_its_memory_is_freed_safely() -> None:
    """The C library fills memory that is freed, so that using it shows."""
    program = """
        import gc, ingot
        for _ in range(20):
            cycle = [ingot.Array.from_numpy([1.0])]
            cycle += [cycle[0]._map(), cycle]
            del cycle
            gc.collect()
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
