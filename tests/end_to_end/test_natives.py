"""Native functions: compiled code calls functions of the application, on every device alike."""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ingot
from ingot import ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.references.natives import native_functions
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_module
from ingot.hal.spec import dtype
from tests.support.assembly import assert_assembles
from tests.support.devices import best_variant, on_every_device, opencl_device, targets

Array = npt.NDArray[Any]
F32 = np.float32


@ingot.program(ingot.spec("f32[n]"), ingot.spec("i64[]"))
def everything(x: Any, steps: Any) -> Any:
    """Known and decided dims, side by side, in a branch and in every step of a loop."""
    doubled = ops.native("acme.scale", "(f32[n]) -> (f32[n])", x, factor=2, note=["a", "b"])
    kept, places = ops.native("acme.keep", "(f32[n]) -> (f32[k], i64[k])", doubled)

    def grow(state: Any) -> Any:
        step, total, sum = state
        part = ops.native("acme.range", "(i64[], f32[]) -> (f32[m])", step, total)
        return step + 1, ops.sum(part), sum + ops.max(part, axis=0)

    _, total, sums = ops.while_loop(
        lambda state: state[0] < steps, grow, (ops.asarray(1, dtype=ops.int64), ops.sum(kept), kept)
    )
    chosen = ops.cond(
        steps > 2,
        lambda: ops.native("acme.scale", "(f32[n]) -> (f32[n])", kept, factor=-1, note=[]),
        lambda: kept + 1,
    )
    return kept, places, total, sums, chosen


def scale(x: Array, factor: int, note: list[str]) -> Array:
    assert note in (["a", "b"], [])
    return x * F32(factor)


def keep(x: Array) -> tuple[Array, Array]:
    places = np.flatnonzero(x > 0)
    return x[places], places


def count(steps: Array, start: Array) -> Array:
    return np.asarray(start + np.arange(int(steps), dtype=F32))


NATIVES: dict[str, Any] = {"acme.scale": scale, "acme.keep": keep, "acme.range": count}


def expected(x: Array, steps: int) -> list[Array]:
    kept, places = keep(2 * x)
    total, sums = kept.sum(), kept
    for step in range(1, steps):
        part = count(np.asarray(step), total)
        total, sums = part.sum(), sums + part.max()
    return [kept, places, total, sums, -kept if steps > 2 else kept + 1]


@pytest.fixture(scope="module")
def module() -> ingot.Module:
    return ingot.compile(everything, target=targets(), variants=[best_variant()])


@on_every_device
def test_calls_are_computed_wherever_they_stand(module: ingot.Module, device: str) -> None:
    model = ingot.load(module, device=device, natives=NATIVES)
    for length, steps in ((5, 1), (9, 4), (0, 3), (1, 2), (300, 3), (5, 1)):
        x = np.linspace(-1, 2, length, dtype=F32)
        for got, wanted in zip(model(x, np.int64(steps)), expected(x, steps), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5)


def test_the_interpreter_calls_python_functions() -> None:
    x = np.linspace(-1, 2, 9, dtype=F32)
    with pytest.raises(ingot.Unsupported, match="no Python function for the native function 'acme"):
        interpret(everything.module, arguments=[x, np.int64(4)])
    with native_functions(NATIVES):
        results = interpret(everything.module, arguments=[x, np.int64(4)])
    for got, wanted in zip(results, expected(x, 4), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_modules_with_natives_are_text_and_back(module: ingot.Module) -> None:
    assert_assembles(bytes(module))
    text = disassemble(read_module(bytes(module)))
    assert 'native acme.keep "(f32[n]) -> (f32[k], i64[k])"' in text
    assert "native.call @acme.keep" in text
    assert module.report.natives["acme.range"] == "(i64[], f32[]) -> (f32[m])"
    assert "native function acme.keep (f32[n]) -> (f32[k], i64[k])" in str(module.report)


def test_all_that_is_missing_is_said_at_once(module: ingot.Module) -> None:
    with pytest.raises(ingot.NotFound, match=r"2 native functions are missing: .*keep.*range"):
        ingot.load(module, natives={"acme.scale": scale})
    with pytest.raises(ingot.InvalidArgument, match=r"natives\['acme.scale'\] is int"):
        ingot.load(module, natives={"acme.scale": 3})
    with pytest.raises(ingot.InvalidArgument, match=r"natives is \[.*, expected a dict"):
        ingot.load(module, natives=[scale])
    with pytest.raises(ingot.InvalidArgument, match=r"native function 'a.*b' has a character"):
        ingot.load(module, natives={"a\0b": scale})


def test_models_with_natives_are_pickled_by_the_functions_names(module: ingot.Module) -> None:
    model = pickle.loads(pickle.dumps(ingot.load(bytes(module), natives=NATIVES)))
    x = np.linspace(-1, 2, 5, dtype=F32)
    np.testing.assert_allclose(model(x, 1)[0].numpy(), expected(x, 1)[0])


# One call of one function, which may do anything wrong.


@ingot.program(ingot.spec("f32[n]"))
def one(x: Any) -> Any:
    return ops.native("acme.f", "(f32[n]) -> (f32[n], f32[k])", x * 2)


@pytest.fixture(scope="module")
def single() -> ingot.Module:
    return ingot.compile(one, target=targets(), variants=[best_variant()])


X = np.arange(3, dtype=F32)
KEPT: list[Array] = []


class OwnError(Exception):
    """Of an application."""


def raises(x: Array) -> Array:
    raise OwnError("no luck")


WRONG: list[tuple[Callable[[Array], Any], type[Exception], str]] = [
    (raises, OwnError, "no luck"),
    (lambda x: x, ingot.InvalidArgument, "gave 1 results, expected 2"),
    (lambda x: None, ingot.InvalidArgument, "gave 0 results, expected 2"),
    (lambda x: (x.astype("f8"), x), ingot.InvalidArgument, "result 0: dtype is f64, but must be"),
    (lambda x: (x[1:], x), ingot.InvalidArgument, r"result 0 has the shape \[2\], expected \[3\]"),
    (lambda x: (x, x[None]), ingot.InvalidArgument, r"shape \[1, 3\], expected \[\?\]"),
    (lambda x: (x, "text"), ingot.InvalidArgument, "result 1: is str, but must be an array"),
    (lambda x: (KEPT.append(x), (x, x))[1], ingot.FailedPrecondition, "argument 0 is kept"),
]


@on_every_device
@pytest.mark.parametrize(("function", "error", "message"), WRONG)
def test_what_a_function_does_wrong_is_told_with_its_name(
    single: ingot.Module, device: str, function: Any, error: type[Exception], message: str
) -> None:
    functions = [function]
    model = ingot.load(single, device=device, natives={"acme.f": lambda x: functions[0](x)})
    with pytest.raises(error, match=message) as caught:
        model(X)
    said = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    if error is not OwnError or hasattr(caught.value, "add_note"):
        assert any(
            "native function 'acme.f'" in each and "test_natives.py" in each for each in said
        )
    KEPT.clear()
    functions[0] = lambda x: (x, x)
    np.testing.assert_array_equal(model(X)[1].numpy(), 2 * X)  # nothing is lost


@on_every_device
def test_results_may_be_the_arguments_and_lists(single: ingot.Module, device: str) -> None:
    model = ingot.load(single, device=device, natives={"acme.f": lambda x: (x[::-1], [1.0, 2.0])})
    first, second = model(X)
    np.testing.assert_array_equal(first.numpy(), [4, 2, 0])
    np.testing.assert_array_equal(second.numpy(), [1, 2])


def test_arguments_are_read_only_and_lie_where_the_call_has_them(single: ingot.Module) -> None:
    def write(x: Array) -> tuple[Array, Array]:
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            x.flags.writeable = True
        assert not x.flags.owndata
        return x, x

    ingot.load(single, natives={"acme.f": write})(X)


def test_a_function_must_not_use_the_model_that_calls_it(single: ingot.Module) -> None:
    seen: list[str] = []
    models: list[ingot.Model] = []

    def call_again(x: Array) -> tuple[Array, Array]:
        with pytest.raises(ingot.FailedPrecondition) as caught:
            models[0](X)
        seen.append(str(caught.value))
        other = ingot.load(single, natives={"acme.f": lambda x: (x, x)})
        return x, other(X)[0].numpy()

    models.append(ingot.load(single, natives={"acme.f": call_again}))
    np.testing.assert_array_equal(models[0](X)[1].numpy(), 2 * X)
    assert "inside of its native function 'acme.f'" in seen[0]
    assert "another one in a native function" in seen[0]


def test_submitted_calls_have_natives_too(single: ingot.Module) -> None:
    functions: list[Any] = [lambda x: (x, x)]
    model = ingot.load(single, natives={"acme.f": lambda x: functions[0](x)})
    np.testing.assert_array_equal(model.submit(X).result(timeout=600)[1].numpy(), 2 * X)
    functions[0] = raises
    with pytest.raises(OwnError, match="no luck"):
        model.submit(X).result(timeout=600)

    def call_again(x: Array) -> tuple[Array, Array]:
        with pytest.raises(ingot.FailedPrecondition, match="a native function cannot wait for"):
            model(X)
        return x, x

    functions[0] = call_again
    np.testing.assert_array_equal(model.submit(X).result(timeout=600)[1].numpy(), 2 * X)


@on_every_device
def test_calls_end_when_a_function_returns_too_late(single: ingot.Module, device: str) -> None:
    stopped: list[bool] = []
    begun = threading.Event()

    def wait(x: Array) -> tuple[Array, Array]:
        begun.set()
        end = time.monotonic() + 600
        while not ingot.should_stop() and time.monotonic() < end:
            time.sleep(0.001)
        stopped.append(ingot.should_stop())
        return x, x

    model = ingot.load(single, device=device, natives={"acme.f": wait})
    with pytest.raises(ingot.DeadlineExceeded, match=r"native function 'acme\.f'"):
        model.call(X, timeout=0.05)
    begun.clear()
    canceller = threading.Thread(target=lambda: begun.wait() and model.cancel())
    canceller.start()
    with pytest.raises(ingot.Cancelled, match=r"native function 'acme\.f'"):
        model(X)
    canceller.join()
    assert stopped  # the call that is out of time may not have come to the function
    assert all(stopped)
    with pytest.raises(ingot.FailedPrecondition, match="inside of a call"):
        ingot.should_stop()


def test_threads_call_at_the_same_time(single: ingot.Module) -> None:
    meeting = threading.Barrier(2, timeout=600)

    def meet(x: Array) -> tuple[Array, Array]:
        meeting.wait()  # only both together come through
        return x, x + threading.get_ident() % 7

    model = ingot.load(single, natives={"acme.f": meet})
    results: dict[int, Array] = {}

    def run(session: ingot.Model) -> None:
        for _ in range(20):
            results[threading.get_ident() % 7] = session(X)[1].numpy()

    threads = [threading.Thread(target=run, args=(each,)) for each in (model, model.fork())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results
    for number, result in results.items():
        np.testing.assert_array_equal(result, 2 * X + number)


def test_a_function_of_c_is_called_from_python(single: ingot.Module) -> None:
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    names: list[bytes] = []

    @prototype
    def function(_user: int, call: int) -> None:
        names.append(ctypes.cast(call, ctypes.POINTER(ctypes.c_char_p))[0])

    model = ingot.load(single, natives={"acme.f": function})
    with pytest.raises(ingot.InvalidArgument, match="result 1 is not given"):
        model(X)
    assert names == [b"acme.f"]


NAMES = ("i1", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64",
         "c64", "c128")  # fmt: skip


def test_elements_of_every_dtype_come_through() -> None:
    def echo(*given: Any) -> Any:
        both = [
            ops.native(f"echo_{name}", f"({name}[n,2], {name}[]) -> ({name}[n,2], {name}[k])", x, 1)
            for name, x in zip(NAMES, given, strict=True)
        ]
        return tuple(each for pair in both for each in pair)

    def echo_of(name: str) -> Any:
        def function(x: Array, one: Array) -> tuple[Array, Array]:
            assert x.dtype == one.dtype == dtype(name).numpy
            assert one.shape == ()
            return x, x[:, 0]

        return function

    program = ingot.trace(echo, *(ingot.spec(f"{name}[n,2]") for name in NAMES))
    natives = {f"echo_{name}": echo_of(name) for name in NAMES}
    module = ingot.compile(program, target=targets(), variants=[best_variant()])
    devices = ["cpu", *([uri] if (uri := opencl_device()) else [])]
    for model in (ingot.load(module, device=device, natives=natives) for device in devices):
        for rows in (3, 0):
            numbers = np.arange(2 * rows).reshape(rows, 2)
            given = [
                (numbers * 2j + 1 if dtype(name).is_complex else numbers).astype(dtype(name).numpy)
                for name in NAMES
            ]
            results = model(*given)
            for place, x in enumerate(given):
                np.testing.assert_array_equal(results[2 * place].numpy(), x)
                np.testing.assert_array_equal(results[2 * place + 1].numpy(), x[:, 0])


def test_calls_without_arguments_or_results() -> None:
    def program(x: Any) -> Any:
        ops.native("acme.note", "(f32[n]) -> ()", x, effects=True)
        return x + ops.native("acme.three", "() -> (f32[3])", effects=True)

    seen: list[Array] = []
    model = ingot.load(
        ingot.compile(ingot.trace(program, ingot.spec("f32[3]")), variants=[best_variant()]),
        natives={
            "acme.note": lambda x: seen.append(x.copy()),
            "acme.three": lambda: np.full(3, 3, F32),
        },
    )
    np.testing.assert_array_equal(model(X).numpy(), X + 3)
    np.testing.assert_array_equal(seen, [X])


def test_calls_with_effects_keep_their_order_and_others_run_where_they_are_used() -> None:
    def note(x: Any, name: str, effects: bool) -> Any:
        return ops.native(
            "acme.note" if effects else "acme.pure",
            "(f32[]) -> (f32[])",
            x,
            effects=effects,
            name=name,
        )

    @ingot.program(ingot.spec("f32[]"))
    def program(x: Any) -> Any:
        note(x, "first", effects=True)
        note(x, "unused", effects=False)
        one = note(x, "same", effects=False)
        two = note(x, "same", effects=False)
        note(x, "second", effects=True)
        note(x, "second", effects=True)
        constant = note(ops.asarray(1.0, dtype=ops.float32), "constant", effects=False)
        return one + two + constant

    seen: list[str] = []

    def noted(x: Array, name: str) -> Array:
        seen.append(name)
        return x

    model = ingot.load(
        ingot.compile(program, variants=[best_variant()]),
        natives={"acme.note": noted, "acme.pure": noted},
    )
    assert seen == []  # nothing is computed while it is compiled or loaded
    assert model(F32(3)).item() == 7
    assert [name for name in seen if name in ("first", "second")] == ["first", "second", "second"]
    assert sorted(name for name in seen if name not in ("first", "second")) == ["constant", "same"]


def test_dims_that_must_be_equal_are_checked_at_the_call() -> None:
    @ingot.program(ingot.spec("f32[a]"), ingot.spec("f32[b]"))
    def program(x: Any, y: Any) -> Any:
        return ops.native("acme.add", "(f32[n], f32[n]) -> (f32[2*n])", x, y)

    model = ingot.load(
        ingot.compile(program, variants=[best_variant()]),
        natives={"acme.add": lambda x, y: np.concatenate([x, y])},
    )
    assert model(X, X).shape == (6,)
    with pytest.raises(ingot.InvalidArgument, match=r"equal|3.* 2|2.* 3"):
        model(X, X[1:])


def test_traces_have_native_calls(single: ingot.Module) -> None:
    model = ingot.load(single, natives={"acme.f": lambda x: (x, x)})
    (event,) = (event for event in model.trace(X) if event.kernel == "acme.f")
    assert "test_natives.py" in event.layer


def test_state_and_natives_go_together() -> None:
    @ingot.program(ingot.spec("f32[4]"), ingot.spec("f32[4]"))
    def program(x: Any, total: Any) -> Any:
        return {
            "y": x + total,
            "total_out": ops.native("acme.f", "(f32[4]) -> (f32[4])", x + total),
        }

    module = ingot.compile(program, state={"total_out": "total"}, variants=[best_variant()])
    fails = [False]

    def f(x: Array) -> Array:
        if fails[0]:
            raise OwnError
        return x + 1

    model = ingot.load(module, natives={"acme.f": f})
    ones = np.ones(4, F32)
    model(ones)
    fails[0] = True
    with pytest.raises(OwnError):
        model(ones)
    fails[0] = False
    try:
        np.testing.assert_array_equal(model(ones), 3 * ones)  # the failed call changed nothing
    except ingot.FailedPrecondition:  # or the session says that it may have
        model.reset()
        np.testing.assert_array_equal(model(ones), ones)


SIGNATURES = [
    ("f32[n]", "has no '->'"),
    ("(f33[n]) -> (f32[n])", "'f33' is no dtype"),
    ("(f8e4m3fn[n]) -> (f32[n])", "'f8e4m3fn' is no dtype"),
    ("(f32[n) -> (f32[n])", "expected tensors such as"),
    ("(f32[n] f32[n]) -> (f32[n])", "expected tensors such as"),
    ("(f32[2*n]) -> (f32[n])", "no argument has a dim 'n'"),
    ("(f32[n]) -> (f32[k+1])", "no argument tells the dim 'k\\+1'"),
    ("(f32[n+]) -> (f32[n])", "dim expression"),
    ("(f32[-1]) -> (f32[4])", "are no dims"),
    ("(" + ", ".join(["f32[]"] * 65) + ") -> ()", "more than 64 tensors"),
]


@pytest.mark.parametrize(("text", "message"), SIGNATURES)
def test_texts_that_are_no_signature_are_refused(text: str, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        ingot.Native(text)


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    from ingot.hal.native import raised
    from ingot.runtime import natives

    yield
    assert not raised
    assert not natives._running
