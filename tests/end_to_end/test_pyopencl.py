"""pyopencl's contexts and queues as devices, its arrays as arguments and results."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest

import ingot
from tests.support.devices import opencl_uri
from tests.support.lookups import TABLE, compile_lookup


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")


@pytest.fixture(scope="module")
def lookup() -> ingot.Module:
    return compile_lookup()


@pytest.fixture(scope="module")
def queue() -> Any:
    pyopencl = pytest.importorskip("pyopencl")
    context = pyopencl.Context(pyopencl.get_platforms()[0].get_devices()[:1])
    return pyopencl.CommandQueue(context)


@pytest.fixture(scope="module", params=["queue", "context"])
def shared(request: pytest.FixtureRequest, lookup: ingot.Module, queue: Any) -> ingot.Model:
    return ingot.load(lookup, device=queue if request.param == "queue" else queue.context)


def test_arrays_of_pyopencl_go_in_and_out_without_a_copy(shared: ingot.Model, queue: Any) -> None:
    import pyopencl.array

    table = pyopencl.array.to_device(queue, TABLE)
    result = shared(table, np.array([1, 2])).to_pyopencl(queue)
    np.testing.assert_array_equal((result + 1).get(), TABLE[[1, 2]] + 1)
    table += 1
    np.testing.assert_array_equal(shared(table, np.array([0])), TABLE[[0]] + 1)
    out = pyopencl.array.zeros(queue, (2, 4), np.float32)
    assert shared(TABLE, np.array([3, 4]), out=out) is out
    np.testing.assert_array_equal(out.get(), TABLE[[3, 4]])


def test_a_part_of_a_buffer_is_taken_by_its_offset(shared: ingot.Model, queue: Any) -> None:
    import pyopencl.array

    whole = pyopencl.array.to_device(queue, np.concatenate([TABLE + 100, TABLE]))
    np.testing.assert_array_equal(shared(whole[10:], np.array([7])), TABLE[[7]])


@pytest.mark.parametrize("is_own", [False, True])
def test_work_of_the_application_on_an_argument_is_waited_for(
    shared: ingot.Model, queue: Any, is_own: bool
) -> None:
    import pyopencl
    import pyopencl.array

    table = shared(TABLE, np.array([0])).to_pyopencl() if is_own else None
    queue = table.queue if table is not None else queue
    table = pyopencl.array.to_device(queue, TABLE)
    changed = pyopencl.array.to_device(queue, TABLE + 1)
    gate = pyopencl.UserEvent(queue.context)
    pyopencl.enqueue_copy(queue, table.data, changed.data, wait_for=[gate])
    opener = Timer(0.2, gate.set_status, [pyopencl.command_execution_status.COMPLETE])
    opener.start()
    np.testing.assert_array_equal(shared(table, np.array([5])), TABLE[[5]] + 1)
    opener.join()


def test_arrays_of_another_context_are_refused(shared: ingot.Model, queue: Any) -> None:
    import pyopencl
    import pyopencl.array

    other = pyopencl.CommandQueue(pyopencl.Context(queue.context.devices))
    table = pyopencl.array.to_device(other, TABLE)
    with pytest.raises(ingot.InvalidArgument, match="argument 0 'x0': is in another OpenCL contex"):
        shared(table, np.array([1]))
    y = shared(TABLE, np.array([1]))
    with pytest.raises(ingot.InvalidArgument, match="another OpenCL context than the array"):
        y.to_pyopencl(other)


def test_arrays_of_pyopencl_must_fit(shared: ingot.Model, queue: Any) -> None:
    import pyopencl.array

    wide = pyopencl.array.to_device(queue, np.repeat(TABLE, 2, axis=1))
    with pytest.raises(ingot.InvalidArgument, match="must be C-contiguous"):
        shared(wide[:, ::2], np.array([1]))
    with pytest.raises(ingot.InvalidArgument, match="dtype is f64, but must be f32"):
        shared(pyopencl.array.to_device(queue, TABLE.astype(np.float64)), np.array([1]))


def test_a_context_may_be_dropped_before_the_model(lookup: ingot.Module) -> None:
    import pyopencl

    device = pyopencl.get_platforms()[0].get_devices()[0]
    model = ingot.load(lookup, device=pyopencl.Context([device]))
    np.testing.assert_array_equal(model(TABLE, np.array([2])), TABLE[[2]])


def test_other_objects_are_no_devices(lookup: ingot.Module, queue: Any) -> None:
    with pytest.raises(ingot.InvalidArgument, match="device is int, but must be a URI"):
        ingot.load(lookup, device=3)
    with pytest.raises(ingot.InvalidArgument, match="a Context or a CommandQueue"):
        ingot.load(lookup, device=queue.device)
    with pytest.raises(ingot.InvalidArgument, match="not one of OpenCL"):
        ingot.Array.from_numpy(TABLE).to_pyopencl()


def test_the_loader_of_pyopencl_serves_where_the_system_has_none() -> None:
    """In a process in which the system's loader cannot be opened."""
    pyopencl = pytest.importorskip("pyopencl")
    if not list(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*")):
        pytest.skip("pyopencl brings no loader of its own")
    program = (
        "import ctypes\n"
        "def refuse(name): raise OSError(name)\n"
        "ctypes.CDLL = refuse\n"
        "import ingot\n"
        "from ingot.hal import opencl\n"
        "assert opencl._pyopencl_library()\n"
        "print([device.uri for device in ingot.devices()])\n"
        "assert '.libs/libOpenCL' in open('/proc/self/maps').read()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "opencl://0" in done.stdout


def test_a_model_on_a_queue_cannot_be_pickled(shared: ingot.Model) -> None:
    with pytest.raises(TypeError, match="its device is of pyopencl"):
        pickle.dumps(shared)


def test_submitted_calls_wait_for_events_and_are_waited_for(
    lookup: ingot.Module, queue: Any
) -> None:
    import pyopencl
    import pyopencl.array

    model = ingot.load(lookup, device=queue.context)
    table = pyopencl.array.to_device(queue, TABLE)
    changed = pyopencl.array.to_device(queue, TABLE + 1)
    out = pyopencl.array.zeros(queue, (1, 4), np.float32)
    copied = pyopencl.array.zeros(queue, (1, 4), np.float32)
    queue.finish()
    gate, fence = pyopencl.UserEvent(queue.context), ingot.Fence()
    ready = pyopencl.enqueue_copy(queue, table.data, changed.data, wait_for=[gate])
    queue.flush()
    future = model.submit(
        table, np.array([2]), out=out, wait_for=[ready], signal=[(fence, 1)]
    )  # whose queue is not waited for
    other = pyopencl.CommandQueue(queue.context)
    done = fence.to_pyopencl(1, queue.context)
    pyopencl.enqueue_copy(other, copied.data, out.data, wait_for=[done])
    other.flush()
    assert not future.done()
    gate.set_status(pyopencl.command_execution_status.COMPLETE)
    other.finish()
    np.testing.assert_array_equal(copied.get(queue), TABLE[[2]] + 1)
    assert future.result(10) is out
    with pytest.raises(ingot.InvalidArgument, match="another context"):
        model.submit(
            TABLE,
            np.array([2]),
            wait_for=[pyopencl.UserEvent(pyopencl.Context(queue.context.devices))],
        )
