"""What is special about OpenCL: faults found late, the host's part, self-tests, arrays that lie
on the device, and how often a call waits. That programs are right there is shown by the other
files, which run on both devices.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import ingot
from ingot.checked_run import Comparison
from ingot.checking import Mismatch, check_model
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, to_text
from ingot.compiler.ir.dims import symbol
from ingot.compiler.targets.opencl import object as opencl_object
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_module
from ingot.hal.errors import CompileError
from tests.support.compiled_programs import build
from tests.support.devices import opencl_uri
from tests.support.lookups import TABLE, compile_lookup

Array = np.ndarray[Any, Any]
X = np.linspace(-2, 2, 9, dtype=np.float32)


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")


def uri() -> str:
    return str(opencl_uri())


@pytest.fixture(scope="module")
def lookup() -> ingot.Module:
    return compile_lookup()


@pytest.fixture(scope="module")
def model(lookup: ingot.Module) -> ingot.Model:
    return ingot.load(lookup, device=uri())


# Devices.


def test_devices_are_listed_with_what_they_are() -> None:
    (device,) = [each for each in ingot.devices() if each.uri == uri()]
    assert "compute units" in device.description


def test_an_unknown_device_lists_those_there_are(lookup: ingot.Module) -> None:
    with pytest.raises(ingot.NotFound, match=r"(?s)no OpenCL device is.*there are: opencl://0"):
        ingot.load(lookup, device="opencl://no such device")


def test_a_module_for_the_cpu_says_how_to_compile_it() -> None:
    module = ingot.compile(build(lambda b, x: [b.op("neg", x)], ("f32", (4,))))
    with pytest.raises(ingot.Unsupported, match=r'target=\["cpu", "opencl"\]'):
        ingot.load(module, device=uri())


# Faults.


def test_a_fault_names_layer_index_and_bound_and_the_model_goes_on(model: ingot.Model) -> None:
    expected = r"take 'embeddings' \(operand 1\): index 12 is out of range \[0, 10\)"
    with pytest.raises(ingot.OutOfRange, match=expected):
        model(TABLE, np.array([1, 12, 3]))
    np.testing.assert_array_equal(model(TABLE, np.array([1, 9])), TABLE[[1, 9]])


def adding() -> ingot.Module:
    """main(state, indices) -> state: adds the rows of a table at `indices` to the state."""

    def make(b: Builder, state: Value, indices: Value) -> list[Value]:
        rows = b.op("take", b.constant(TABLE), indices, axis=0, mode="check")
        return [b.op("add", state, b.op("reshape", rows, shape=(2, 4)))]

    program = build(make, ("f32", (2, 4)), ("i64", (2,)))
    return ingot.compile(program, target=["cpu", "opencl"], state={"y0": "x0"})


def test_a_fault_while_state_changes_refuses_calls_until_a_reset() -> None:
    model = ingot.load(adding(), device=uri())
    model(np.array([1, 2]))
    kept = model.state()
    np.testing.assert_array_equal(kept["x0"], TABLE[[1, 2]])
    with pytest.raises(ingot.OutOfRange, match="index 10 is out of range"):
        model(np.array([1, 10]))
    with pytest.raises(ingot.FailedPrecondition, match="reset the session or load its state"):
        model(np.array([0, 0]))
    with pytest.raises(ingot.FailedPrecondition):
        model.state()
    model.load_state(kept)
    model(np.array([1, 2]))
    np.testing.assert_array_equal(model.state()["x0"], 2 * TABLE[[1, 2]])
    model.reset()
    np.testing.assert_array_equal(model.state()["x0"], np.zeros((2, 4)))


def test_state_moves_between_devices() -> None:
    module = adding()
    here, there = ingot.load(module), ingot.load(module, device=uri())
    here(np.array([3, 4]))
    there.load_state(here.state())
    there(np.array([1, 1]))
    np.testing.assert_array_equal(there.state()["x0"], TABLE[[3, 4]] + TABLE[[1, 1]])
    assert there.fork(state=False).state()["x0"].numpy().any() == np.False_


# Arrays.


def test_results_stay_on_the_device_and_go_into_the_next_call(model: ingot.Model) -> None:
    y = model(TABLE, np.arange(10)[::-1])
    assert y.device == uri()
    assert not y.is_host
    z = model(y, np.array([0, 1]))
    np.testing.assert_array_equal(z.numpy(), TABLE[[9, 8]])
    np.testing.assert_array_equal(np.asarray(z), z.numpy())
    assert z.astype("f64").device == uri()
    assert "device='opencl://0'" in repr(z)


def test_out_may_be_on_the_device_or_in_this_process(model: ingot.Model) -> None:
    y = model(TABLE, np.array([1, 2]))
    assert model(TABLE, np.array([3, 4]), out=y) is y
    np.testing.assert_array_equal(y, TABLE[[3, 4]])
    host = np.zeros((2, 4), np.float32)
    assert model(TABLE, np.array([5, 6]), out=host) is host
    np.testing.assert_array_equal(host, TABLE[[5, 6]])


def test_arrays_of_another_device_are_refused(lookup: ingot.Module, model: ingot.Model) -> None:
    there = ingot.Array.from_numpy(TABLE, uri())
    with pytest.raises(ingot.InvalidArgument, match="on another device than the program"):
        ingot.load(lookup)(there, np.array([1]))
    with pytest.raises(ingot.InvalidArgument, match="on another device than the program"):
        model(ingot.Array.from_numpy(TABLE), np.array([1]))


def test_dlpack_gets_a_copy_where_it_asks_for_the_cpu(model: ingot.Model) -> None:
    y = model(TABLE, np.array([1, 2]))
    assert y.__dlpack_device__()[0] == 4
    with pytest.raises(BufferError, match="no way without a copy"):
        y.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"not in this process's memory; take \.numpy\(\)"):
        memoryview(y)
    copied = np.from_dlpack(ingot.Array.from_numpy(y.numpy()))
    np.testing.assert_array_equal(copied, TABLE[[1, 2]])


class _Foreign:
    """An array as another library's tensor."""

    def __init__(self, array: ingot.Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)


def test_dlpack_hands_memory_of_the_device_on(model: ingot.Model) -> None:
    table = ingot.Array.from_numpy(TABLE, uri())
    y = model(_Foreign(table), np.array([3, 4]))
    np.testing.assert_array_equal(y, TABLE[[3, 4]])
    out = model(TABLE, np.array([1, 2]))
    foreign = _Foreign(out)
    assert model(table, np.array([5, 6]), out=foreign) is foreign
    np.testing.assert_array_equal(out, TABLE[[5, 6]])
    with pytest.raises(ingot.InvalidArgument, match="dtype is f64, but must be f32"):
        model(_Foreign(ingot.Array.from_numpy(TABLE.astype("f8"), uri())), np.array([1]))
    copied = table.__dlpack__(copy=True, max_version=(1, 0))
    assert "dltensor_versioned" in repr(copied)


# What the host does.


def make_tanh() -> Any:
    return build(
        lambda b, x: [b.op("tanh", x), b.op("neg", b.op("cumulative", x, axis=0, kind="add"))],
        ("f32", (symbol("n"),)),
        symbols={"n": (1, None)},
    )


def check_tanh(model: ingot.Model) -> None:
    for _ in range(2):
        y, z = model(X)
        np.testing.assert_allclose(y.numpy(), np.tanh(X), rtol=1e-6)
        np.testing.assert_allclose(z.numpy(), -np.cumsum(X), rtol=1e-5, atol=1e-6)


@pytest.fixture
def print_tanh(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Puts a function in the place of the printer, for kernels that compute tanh."""
    print_kernel = opencl_object.print_kernel

    def set(replacement: Callable[[Any], Any]) -> None:
        def choose(kernel: Any) -> Any:
            printed = print_kernel(kernel)
            return replacement(printed) if "tanh" in kernel.name else printed

        monkeypatch.setattr(opencl_object, "print_kernel", choose)

    return set


def test_a_kernel_without_opencl_runs_on_the_host(
    print_tanh: Callable[[Callable[[Any], Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(printed: Any) -> Any:
        raise CompileError("there is no tanh today")

    print_tanh(refuse)
    module = ingot.compile(make_tanh(), target="opencl")
    with caplog.at_level(logging.INFO, "ingot"):
        model = ingot.load(module, device=uri())
    (kernel,) = model.host_kernels
    assert "tanh" in kernel.kernel
    assert any("runs on the host" in record.getMessage() for record in caplog.records)
    check_tanh(model)


def computing_sinh(printed: Any) -> Any:
    """The kernel as a bad compiler would make it."""
    functions = tuple(name.replace("tanh", "sinh") for name in printed.functions)
    text = printed.text.replace("tanh_f32", "sinh_f32")
    return dataclasses.replace(printed, text=text, functions=functions)


def test_a_wrong_kernel_is_quarantined_and_the_verdict_is_kept(
    print_tanh: Callable[[Callable[[Any], Any]], None],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    print_tanh(computing_sinh)
    module = ingot.compile(make_tanh(), target="opencl")
    where = f"{uri()}?cache={tmp_path}"
    for _ in range(2):  # built, then from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, "ingot"):
            model = ingot.load(module, device=where)
        (kernel,) = model.host_kernels
        assert "tanh" in kernel.kernel
        assert "self-test" in kernel.reason
        assert any(kernel.kernel in record.getMessage() for record in caplog.records)
        check_tanh(model)
    untested = ingot.load(module, device=f"{uri()}?cache=off&self_test=off")
    assert untested.host_kernels == ()
    np.testing.assert_allclose(untested(X)[0].numpy(), np.sinh(X), rtol=1e-6)


def test_a_wrong_kernel_without_a_fallback_is_an_error(
    print_tanh: Callable[[Callable[[Any], Any]], None],
) -> None:
    module = ingot.compile(make_tanh(), target="opencl", fallback=False)
    check_tanh(ingot.load(module, device=f"{uri()}?cache=off"))
    print_tanh(lambda printed: dataclasses.replace(printed, text="this is no C\n"))
    broken = ingot.compile(make_tanh(), target="opencl", fallback=False)
    with pytest.raises(ingot.Error, match="error"):
        ingot.load(broken, device=f"{uri()}?cache=off")


def test_the_uri_says_which_schedules_a_device_gets(
    print_tanh: Callable[[Callable[[Any], Any]], None],
) -> None:
    """Whatever the device is: both give the same results, and only one of them is built."""

    def broken(printed: Any) -> Any:
        return dataclasses.replace(printed, text="this is no C\n")

    module = ingot.compile(make_tanh(), target="opencl")
    for groups in ("large", "small"):
        check_tanh(ingot.load(module, device=f"{uri()}?cache=off&groups={groups}"))
    large_first = iter((broken, lambda printed: printed))
    print_tanh(lambda printed: next(large_first)(printed))
    module = ingot.compile(make_tanh(), target="opencl", fallback=False)
    check_tanh(ingot.load(module, device=f"{uri()}?cache=off&groups=small"))
    with pytest.raises(ingot.Error, match="error"):
        ingot.load(module, device=f"{uri()}?cache=off&groups=large")
    with pytest.raises(ingot.InvalidArgument, match="groups=large or groups=small"):
        ingot.load(module, device=f"{uri()}?groups=huge")


def test_check_compares_the_kernels_of_the_device(
    print_tanh: Callable[[Callable[[Any], Any]], None], tmp_path: Path
) -> None:
    path = tmp_path / "tanh.ir"
    path.write_text(to_text(make_tanh()), encoding="utf-8")

    def run() -> list[str]:
        where = f"{uri()}?cache=off&self_test=off"
        return check_model(Comparison(str(path), sizes={"n": 9}, device=where))

    assert run()[-1].endswith("dispatches compared")
    print_tanh(computing_sinh)
    with pytest.raises(Mismatch, match="tanh"):
        run()


# Control flow.


def code_of(module: ingot.Module) -> str:
    return disassemble(read_module(bytes(module)))


def exported(function: Callable[..., Any], *arguments: Array) -> Any:
    return jax.export.export(jax.jit(function))(*arguments)


def test_a_counted_loop_reads_nothing_back() -> None:
    def function(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, c: c * 0.5 + jnp.asarray(x)[i % 9], x)

    module = ingot.compile(exported(function, X, np.int32(5)), target="opencl")
    code = code_of(module)
    assert code.count("read.") == 1  # the argument n, in front of the loop
    assert code.index("read.") < code.index("label0:")
    model = ingot.load(module, device=uri())
    for n in (0, 1, 40):
        expected = np.asarray(function(X, n))
        np.testing.assert_allclose(model(X, np.int32(n)), expected, rtol=1e-5)


def test_a_condition_on_data_is_read_once_for_several_steps() -> None:
    def function(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: (jnp.sum(c[0]) > 1) & (c[1] < 9), lambda c: (c[0] * 0.5, c[1] + 1), (x, 0)
        )

    module = ingot.compile(exported(function, X), target=["cpu", "opencl"])
    cpu, opencl = code_of(module).split("func main")[1:]
    assert cpu.count("read.") == opencl.count("read.") == 1
    assert opencl.count("dispatch @") > cpu.count("dispatch @")
    model = ingot.load(module, device=uri())
    for scale in (0, 0.11, 0.3, 1.1, 3, 9, 1e9):  # any number of steps, up to the bound
        x = np.abs(X) * np.float32(scale)
        got, wanted = model(x), function(x)
        np.testing.assert_array_equal(got[0], np.asarray(wanted[0]))
        assert int(got[1]) == int(wanted[1])


def test_a_loop_without_end_is_ended_by_the_timeout() -> None:
    def function(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 1e9, lambda c: -c, x)

    model = ingot.load(ingot.compile(exported(function, X), target="opencl"), device=uri())
    with pytest.raises(ingot.DeadlineExceeded):
        model.call(X, timeout=0.2)
    with pytest.raises(ingot.DeadlineExceeded):
        model.call(X, max_steps=1000)


def test_the_trace_has_the_times_of_the_device(model: ingot.Model) -> None:
    with model.trace() as events:
        model(TABLE, np.array([1, 2]))
    (event,) = events
    assert "take" in event.kernel
    assert event.layer == "embeddings"
    assert event.begin < event.end


# Many at once.


def test_kernels_of_host_and_device_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other kernel of a program with branches, a loop and memory that is used again."""
    print_kernel = opencl_object.print_kernel

    def refuse_some(kernel: Any) -> Any:
        if sum(kernel.name.encode()) % 2:
            raise CompileError("not this one")
        return print_kernel(kernel)

    monkeypatch.setattr(opencl_object, "print_kernel", refuse_some)

    def function(x: Any, y: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            c = jnp.tanh(c @ y) + jnp.sum(c, 0)
            return jax.lax.cond(i % 2 == 0, lambda: c * 0.25, lambda: jnp.sort(c, 1))

        looped = jax.lax.fori_loop(0, 5, body, x)
        return looped, jax.nn.softmax(looped @ looped.T), jnp.cumsum(looped, 0)

    x, y = (np.random.default_rng(seed).standard_normal((6, 6), np.float32) for seed in (0, 1))
    module = ingot.compile(exported(function, x, y), target="opencl")
    kernels = module.report.targets["opencl"]
    assert 0 < len(kernels.host) < kernels.kernel_count
    model = ingot.load(module, device=uri())
    assert {each.kernel for each in model.host_kernels} == set(kernels.host)
    for _ in range(2):
        for got, wanted in zip(model(x, y), function(x, y), strict=True):
            np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_sessions_of_one_device_run_in_threads(lookup: ingot.Module) -> None:
    first = ingot.load(lookup, device=uri())
    models = [first, first.fork(), ingot.load(lookup, device=uri())]

    def run(number: int) -> bool:
        model = models[number % len(models)]
        indices = np.arange(number % 7 + 1) % 10
        return bool((model(TABLE, indices).numpy() == TABLE[indices]).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(120)))
