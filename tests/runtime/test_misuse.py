"""Ordinary Python in unusual places never brings the process down: copies, pickles, closes and
calls from within calls, finalizers in any order."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ingot
from ingot.hal import dlpack
from ingot.hal.array import Array
from ingot.hal.native import ffi
from tests.support.assembler import copy_module, count_module, pair_module, total_module

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def copies_of(array: Array) -> Iterator[Array]:
    yield copy.copy(array)
    yield copy.deepcopy(array)
    yield from (pickle.loads(pickle.dumps(array, protocol)) for protocol in range(2, 6))
    yield copy.deepcopy({"x": [array]})["x"][0]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i1", "c64", "i4"])
def test_copies_of_an_array_are_values(dtype: str) -> None:
    array = Array.from_numpy(VALUES).astype(dtype)
    bits = array._storage(np.dtype(f"V{array.dtype.bytes}")).tobytes()
    for other in copies_of(array):
        assert (other.dtype, other.shape, other.device) == (array.dtype, array.shape, "cpu")
        assert other._storage(np.dtype(f"V{array.dtype.bytes}")).tobytes() == bits
        assert other._map() != array._map()
    empty = Array.from_numpy(np.empty((0, 3), ml_dtypes.bfloat16))
    assert all(each.shape == (0, 3) for each in copies_of(empty))


class Named(Array):
    name = "x"


class Lazy(Array):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("make", [Array.__new__, Named.__new__, lambda kind: Lazy()])
def test_an_array_that_was_never_made_says_so(make: Callable[[type], Any]) -> None:
    array = make(Named if make is Named.__new__ else Array)
    uses: list[Callable[[], object]] = [
        lambda: array.shape,
        array.numpy,
        array.item,
        lambda: repr(array),
        lambda: array + 0 if hasattr(array, "__add__") else array.astype("f32"),
        lambda: np.asarray(array),
        lambda: copy.copy(array),
        lambda: pickle.dumps(array),
        lambda: np.from_dlpack(array),
        lambda: ingot.load(copy_module(rank=2))(array),
        lambda: ingot.load(copy_module(rank=2))(VALUES, out=array),
    ]
    for use in uses:
        with pytest.raises(ingot.FailedPrecondition, match="the array was never made"):
            use()
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        array.other  # noqa: B018


def test_arrays_are_not_made_by_their_class() -> None:
    array = Array.from_numpy(VALUES)
    for arguments in ((), (ffi.NULL, None), (array._view, array._device), (VALUES,)):
        with pytest.raises(TypeError, match="from_numpy"):
            Array(*arguments)
        with pytest.raises(TypeError, match="from_numpy"):
            array.__init__(*arguments)  # type: ignore[misc]
    np.testing.assert_array_equal(array, VALUES)


def test_a_subclass_of_array_goes_in() -> None:
    array = Array.from_numpy(VALUES)
    named = object.__new__(Named)
    named._view, named._device = array._view, array._device
    model = ingot.load(copy_module(rank=2))
    np.testing.assert_array_equal(model(named), VALUES)
    np.testing.assert_array_equal(named, array)


class Speaking:
    """Says so about DLPack, with these answers."""

    def __init__(self, device: object, capsule: object = None) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> object:
        return self.device

    def __dlpack__(self, **_: object) -> object:
        return self.capsule


def test_answers_that_are_no_dlpack_are_refused() -> None:
    model = ingot.load(copy_module(rank=2))
    taken = VALUES.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(Speaking((1, 0), taken)), VALUES)  # type: ignore[arg-type]
    for device in (None, (1,), ("a", 0), 3):
        with pytest.raises(ingot.InvalidArgument, match="expected two integers"):
            model(Speaking(device))
    for capsule in (None, 5, taken):
        with pytest.raises(ingot.InvalidArgument, match="a capsule not yet taken"):
            model(Speaking((1, 0), capsule))


class Failing(Speaking):
    def __dlpack__(self, **_: object) -> object:
        raise KeyError("of its own")


def test_whatever_a_library_raises_is_told() -> None:
    torch = pytest.importorskip("torch")
    model = ingot.load(copy_module(rank=2))
    with pytest.raises(ingot.InvalidArgument, match="cannot be read: 'of its own'"):
        model(Failing((1, 0)))
    with pytest.raises(ingot.InvalidArgument, match=r"cannot be read: .*meta"):
        model(torch.empty(2, 3, device="meta"))
    with pytest.raises(ingot.InvalidArgument, match="has no memory"):
        model(torch._efficientzerotensor(2, 3))


def test_signs_that_torch_has_not_applied_are_not_lost() -> None:
    torch = pytest.importorskip("torch")
    model, values = ingot.load(copy_module()), torch.tensor([1 + 2j, 3j]).conj().imag
    with pytest.raises(ingot.InvalidArgument, match="resolve_neg"):
        model(values)
    np.testing.assert_array_equal(model(values.resolve_neg()), [-2, -3])


def test_masks_are_not_lost() -> None:
    model, whole = ingot.load(copy_module(rank=2)), np.ma.masked_array(VALUES)
    np.testing.assert_array_equal(model(whole), VALUES)
    masked = np.ma.masked_array(VALUES, mask=VALUES.min() < VALUES)
    for take in (model, lambda array: model(VALUES, out=array), Array.from_numpy):
        with pytest.raises(ingot.InvalidArgument, match=r"masked elements.*\.filled"):
            take(masked)
    for rows in (list(masked), [[np.ma.masked] * 3], (masked, VALUES)):
        with pytest.raises(ingot.InvalidArgument, match=r"masked elements.*\.filled"):
            model(rows)
    filled = masked.filled(0)
    np.testing.assert_array_equal(model(filled), filled)


def test_types_that_others_give_functions_of_python_are_theirs() -> None:
    new = ctypes.pythonapi.PyCapsule_New
    kept, new.argtypes = new.argtypes, [ctypes.c_char_p]
    try:
        np.testing.assert_array_equal(np.from_dlpack(Array.from_numpy(VALUES)), VALUES)
    finally:
        new.argtypes = kept


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_models_and_functions_are_not_copied(take: Callable[[object], object]) -> None:
    model = ingot.load(copy_module(rank=2))
    models = (model, ingot.Model.__new__(ingot.Model))
    with model.trace() as trace:
        submission = model.submit(VALUES)
        submission.result()
    parts = (model.main, model._program, model._session, trace, submission)
    for each in (*parts, *(models if take is not pickle.dumps else ())):
        with pytest.raises(TypeError, match=r"load it again, or fork\(\) the model"):
            take(each)
    np.testing.assert_array_equal(model(VALUES), VALUES)


def test_devices_are_shared_by_copies() -> None:
    (device,) = (each for each in ingot.devices() if each.uri == "cpu")
    assert copy.copy(device) is copy.deepcopy([device])[0] is device
    with pytest.raises(TypeError, match="neither pickled"):
        pickle.dumps(device)


@pytest.mark.parametrize("kind", [ingot.Model, ingot.Function, ingot.Device])
def test_objects_without_their_parts_raise(kind: type) -> None:
    empty: Any = kind.__new__(kind)
    for use in (repr, lambda it: it(VALUES), lambda it: it.close(), lambda it: it.signature):
        with pytest.raises((AttributeError, TypeError)):
            use(empty)
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        ingot.Model(ffi.NULL)


def test_closed_twice_and_used_after() -> None:
    model = ingot.load(total_module())
    function = model.main
    model.close()
    model.close()
    assert model.cancel() is False
    uses: list[Callable[[], object]] = [
        lambda: model(1),
        lambda: function(1),
        model.state,
        lambda: model.load_state({"total": 1, "last": VALUES}),
        model.reset,
        model.fork,
        lambda: model.trace().__enter__(),
    ]
    for use in uses:
        with pytest.raises(ingot.FailedPrecondition, match="the model is closed"):
            use()


class Acting:
    """An argument that does something when its values are asked for."""

    def __init__(self, values: Any, action: Callable[[], object]) -> None:
        self.values = np.asarray(values)
        self.action = action

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        self.action()
        return self.values


class ActingProducer(Acting):
    __array__ = None  # type: ignore[assignment]

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __dlpack__(self, **options: Any) -> object:
        self.action()
        return self.values.__dlpack__(**options)


@pytest.mark.parametrize("kind", [Acting, ActingProducer])
def test_a_model_closed_while_it_takes_arguments(kind: type[Acting]) -> None:
    model = ingot.load(pair_module())
    with pytest.raises(ingot.FailedPrecondition, match="the model is closed"):
        model(VALUES[0], kind(np.int32(1), model.close))
    model = ingot.load(total_module())
    with pytest.raises(ingot.FailedPrecondition, match="the model is closed"):
        model.load_state({"total": kind(np.int64(1), model.close), "last": VALUES})
    model = ingot.load(total_module())
    state = {"total": kind(np.int64(5), lambda: model(1)), "last": VALUES}
    model.load_state(state)
    assert model(1).item() == 6


def test_a_call_from_within_the_arguments_of_a_call() -> None:
    model = ingot.load(pair_module())
    inner: list[Any] = []
    argument = Acting(np.int32(7), lambda: inner.append(model(VALUES[0] + 1, 3)))
    first, second = model(VALUES[0], argument)
    np.testing.assert_array_equal(first, VALUES[0])
    np.testing.assert_array_equal(inner[0][0], VALUES[0] + 1)
    assert (second.item(), inner[0][1].item()) == (7, 3)


def test_a_model_closed_inside_its_trace() -> None:
    model = ingot.load(copy_module())
    with model.trace() as events:
        model(VALUES[0])
        model.close()
    assert len(events) == 1


def test_traces_nest_and_end_in_any_order() -> None:
    model = ingot.load(copy_module())
    with model.trace() as first:
        model(VALUES[0])
        with model.trace() as second:
            model(VALUES[0])
        model(VALUES[0])
        assert (len(first), len(second)) == (3, 1)
    outer, inner = model.trace(), model.trace()
    first, second = outer.__enter__(), inner.__enter__()
    model(VALUES[0])
    outer.__exit__(None, None, None)
    model(VALUES[0])
    inner.__exit__(None, None, None)
    model(VALUES[0])
    assert (len(first), len(second)) == (1, 2)


def test_a_trace_entered_in_one_thread_and_left_in_another() -> None:
    model = ingot.load(copy_module())
    trace = model.trace()
    events: list[Any] = []
    thread = threading.Thread(target=lambda: events.append(trace.__enter__()))
    thread.start()
    thread.join()
    model(VALUES[0])
    trace.__exit__(None, None, None)
    model(VALUES[0])
    assert len(events[0]) == 1


@pytest.mark.slow
def test_finalizers_of_garbage_may_use_what_is_garbage_with_them() -> None:
    """In a dead cycle finalizers run in an order that nobody knows."""
    problems: list[BaseException] = []

    class Last:
        def __del__(self) -> None:
            for use in (
                lambda: self.model(self.array),
                lambda: self.model.fork()(self.array),
                self.model.trace().__enter__,
                self.model.state,
                self.model.cancel,
                lambda: repr(self.array) + repr(self.model.device),
                lambda: self.array.numpy().sum(),
                self.model.close,
            ):
                try:
                    use()
                except ingot.FailedPrecondition:
                    pass
                except BaseException as error:
                    problems.append(error)

    for order in permutations(range(3)):
        last: Any = Last()
        parts = [
            ("model", ingot.load(copy_module(rank=2))),
            ("array", Array.from_numpy(VALUES)),
            ("last", last),
        ]
        for place in order:
            setattr(last, *parts[place])
        last.model.__dict__["last"] = last
        trace = last.model.trace()
        last.trace = (trace, trace.__enter__())
        del last, parts, trace
        gc.collect()
    assert problems == []


def test_threads_call_close_cancel_trace_and_copy_at_once() -> None:
    model = ingot.load(count_module())
    array = Array.from_numpy(VALUES)
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        choose = random.Random(seed).choice
        own = model.fork()
        for _ in range(150):
            it = choose((model, own))
            try:
                choose(
                    (
                        partial(it.count, 2000),
                        it.cancel,
                        it.reset,
                        it.state,
                        it.trace().__enter__,
                        lambda: copy.copy(array).numpy(),
                        lambda: pickle.loads(pickle.dumps(array)),
                        own.close,
                    )
                )()
            except (ingot.FailedPrecondition, ingot.Cancelled):
                own = model.fork()
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with pytest.raises(ingot.OutOfRange, match="steps is -2"):
        model.count(-2)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "cycle = [model, values]; cycle.append(cycle)",
        "trace = model.trace(); trace.__enter__()",
    ],
    ids=["plain", "cycle", "trace"],
)
def test_python_ends_in_silence_whatever_is_alive(end: str) -> None:
    program = f"""
        import sys
        import numpy as np
        import ingot
        from tests.support.assembler import copy_module
        model = ingot.load(copy_module())
        y = model(np.ones(3, np.float32))
        values, pointer, sliced = y.numpy(), y._map(), y[1:]
        sys.modules["keeper"] = [y, values, pointer, sliced]
        {end}
    """
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
