"""What ends a call early: Ctrl-C, other signals, cancel, timeouts; and what a fork leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import ingot
from ingot.runtime import trace
from ingot.runtime.session import Session
from tests.support.assembler import Assembler, copy_module, count_module, total_module
from tests.support.devices import best_variant, load_best
from tests.support.onnx_models import build_model
from tests.support.onnx_sequences import Node, sequence

ROOT = Path(__file__).parents[2]
ENDLESS = 1 << 40  # steps: an hour
SOON = 600.0  # seconds; milliseconds, unless the machine has much else to do: less than for ever
LITTLE = 2.0  # seconds of processor time, which do not depend on what else the machine does


@contextmanager
def soon(
    action: Callable[[], object], delay: float = 0.05, within: float = LITTLE
) -> Iterator[None]:
    """Does it in another thread after some time, again as long as it gives False, and asks that the
    block computes little more. What a signal raises may come before the block."""
    at: list[float] = []
    has_ended = threading.Event()

    def act() -> None:
        time.sleep(delay)
        while not has_ended.wait(0.001):
            at.append(time.process_time())
            if action() is not False:
                return

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        taken = time.process_time()
        has_ended.set()
        thread.join()
        assert at, "the block ended by itself"
        assert taken - at[-1] < within


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def is_in_call(model: ingot.Model) -> bool:
    """Whether a signal's handler runs inside of a call of count_module, which refuses another; a
    signal may come before it."""
    try:
        model.count(1)
    except ingot.FailedPrecondition as error:
        return "is in a call" in str(error)
    return False


@contextmanager
def raising_alarm(delay: float) -> Iterator[None]:
    """A signal whose handler raises TimeoutError."""

    def hear(_number: int, _frame: object) -> None:
        raise TimeoutError("a signal")

    saved = signal.signal(signal.SIGALRM, hear)
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)


@pytest.fixture(scope="module", autouse=True)
def _keyboard() -> Iterator[None]:
    """Python hears SIGINT, also where the shell that started the tests has it ignored."""
    saved = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, saved)


@pytest.fixture(scope="module")
def model() -> ingot.Model:
    """count(steps: i64[]) -> ()"""
    return ingot.load(count_module())


@pytest.fixture(scope="module")
def long() -> tuple[ingot.Model, np.ndarray]:
    """A kernel of some seconds, and its argument."""
    (n,) = export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((n, 2048), jnp.float32)
    exported = export.export(jax.jit(lambda x: jnp.tanh(x @ x.T)))(x)
    model = load_best(exported)
    return model, np.ones((8_000, 2048), np.float32)


def test_control_c_ends_a_call(model: ingot.Model) -> None:
    with pytest.raises(KeyboardInterrupt), soon(interrupt):
        model.count(ENDLESS)
    assert model.count(3) is None


def test_any_handler_may_run_and_raise(model: ingot.Model) -> None:
    heard: list[bool] = []

    def hear(_number: int, _frame: object) -> None:
        heard.append(is_in_call(model))
        if sum(heard) == 3:
            raise TimeoutError("enough")
        assert len(heard) < 500

    saved = signal.signal(signal.SIGALRM, hear)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(TimeoutError, match="enough"):
            model.count(ENDLESS)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)
    assert sum(heard) == 3


def test_a_handler_may_close_the_model() -> None:
    model = ingot.load(count_module())

    def close(_number: int, _frame: object) -> None:
        if is_in_call(model):
            model.close()
            model.cancel()
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.02)

    saved = signal.signal(signal.SIGALRM, close)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(ingot.Cancelled, match="the call was cancelled"):
            model.count(ENDLESS)
    finally:
        signal.signal(signal.SIGALRM, saved)
    with pytest.raises(ingot.FailedPrecondition, match="closed"):
        model.count(1)


def test_a_call_of_another_thread_is_not_interrupted(model: ingot.Model) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            model.count(ENDLESS)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    with pytest.raises(KeyboardInterrupt), soon(interrupt):
        threading.Event().wait()
    assert thread.is_alive()
    while not model.cancel():
        time.sleep(0.001)
    thread.join()
    assert [type(each) for each in errors] == [ingot.Cancelled]


def test_cancel_ends_the_call_that_runs_and_no_other(model: ingot.Model) -> None:
    assert model.cancel() is False
    assert model.count(3) is None
    with pytest.raises(ingot.Cancelled, match="the call was cancelled"), soon(model.cancel):
        model.count(ENDLESS)
    assert model.count(3) is None


def test_kernels_end_between_two_workgroups(long: tuple[ingot.Model, np.ndarray]) -> None:
    model, x = long
    with pytest.raises(KeyboardInterrupt), soon(interrupt):
        model(x)
    with pytest.raises(ingot.Cancelled, match=r".: the call was cancelled"), soon(model.cancel):
        model(x)
    begin = time.process_time()
    with pytest.raises(ingot.DeadlineExceeded, match="longer than its timeout"):
        model.call(x, timeout=0.05)
    assert time.process_time() - begin < LITTLE
    np.testing.assert_allclose(model(x[:2, :]), np.ones((2, 2)))


LONG_ROWS = """
module {producer="test"} {
  func @sort(%x: f32[n] "x") -> (f32[n] "y") symbols {n in [1, 10000000]} {
    %y = sort(%x) {axis=0} : f32[n] ({
    ^(%a: f32, %b: f32):
      %less = compare(%a, %b) {direction="lt"} : i1
      yield(%less)
    })
    return(%y)
  }
  func @sort_rows(%x: f32[2,n] "x") -> (f32[2,n] "y") symbols {n in [1, 10000000]} {
    %y = sort(%x) {axis=1} : f32[2,n] ({
    ^(%a: f32, %b: f32):
      %less = compare(%a, %b) {direction="lt"} : i1
      yield(%less)
    })
    return(%y)
  }
}
"""
LONG_LENGTH = 10_000_000  # seconds of work in one workgroup
AT_ONCE = 0.25  # seconds of processor time


@pytest.mark.parametrize(("function", "threads"), [("sort", 1), ("sort_rows", 2)])
def test_a_workgroup_ends_in_the_middle(function: str, threads: int) -> None:
    model = ingot.load(ingot.compile(LONG_ROWS, variants=[best_variant()]), threads=threads)
    shape = (LONG_LENGTH,) if threads == 1 else (2, LONG_LENGTH // 2)
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    call = getattr(model, function)
    with pytest.raises(KeyboardInterrupt), soon(interrupt, within=AT_ONCE):
        call(x)
    with pytest.raises(ingot.Cancelled), soon(model.cancel, within=AT_ONCE):
        call(x)
    begin = time.process_time()
    with pytest.raises(ingot.DeadlineExceeded):
        call.call(x, timeout=0.05)
    assert time.process_time() - begin < threads * 0.05 + AT_ONCE
    few = x[..., :1000].copy()
    np.testing.assert_array_equal(call(few), np.sort(few))


def test_a_cancelled_call_leaves_the_state_as_a_failed_one() -> None:
    model = ingot.load(total_module())
    errors = 0

    def cancel_often() -> None:
        while errors < 20:
            model.cancel()

    thread = threading.Thread(target=cancel_often)
    thread.start()
    total = 100
    for _ in range(10_000):
        try:
            assert model(1).item() == total + 1
            total += 1
        except ingot.Cancelled:
            errors += 1
        except ingot.FailedPrecondition:
            model.load_state({"total": total, "last": np.zeros((2, 3), np.float32)})
    errors = 20
    thread.join()
    assert model(0).item() == total


def endless_init_module() -> bytes:
    """main() -> (), behind an init that takes an hour where steps are not limited."""
    assembler = Assembler()
    code: list[Any] = [("label", "again"), ("const.i64", 0, 1), ("branch", "again")]
    assembler.function("init", [], [], code, init=True)
    assembler.function("main", [], [], [("return", [], [], [])])
    return assembler.module()


def test_load_has_a_timeout_and_hears_control_c() -> None:
    module = endless_init_module()
    with pytest.raises(ingot.DeadlineExceeded, match="init: the call has run longer"):
        ingot.load(module, timeout=0.02)
    with pytest.raises(ingot.DeadlineExceeded, match="load has run longer than its timeout"):
        ingot.load(copy_module(), timeout=1e-9)
    ingot.load(copy_module(), timeout=100)
    for timeout in (0, -1, "1"):
        with pytest.raises(
            ingot.InvalidArgument,
            match=r"timeout is .*, (but must be seconds above 0|expected a number)",
        ):
            ingot.load(module, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt), soon(interrupt, 0.01):
        ingot.load(module)


def test_what_is_raised_while_a_trace_is_read_leaves_it_whole() -> None:
    model = ingot.load(copy_module())
    x = np.ones(4, np.float32)

    class Failing(trace.TraceEvent):
        def __init__(self, *_: object) -> None:
            raise MemoryError("no room for events")

    with pytest.MonkeyPatch.context() as patch, model.trace() as events:
        patch.setattr(trace, "TraceEvent", Failing)
        model(x)
        with pytest.raises(MemoryError, match="no room for events"):
            len(events)
    assert [event.kernel for event in events] == ["copy"]
    np.testing.assert_array_equal(model(x), x)


def test_a_timeout_holds_while_a_call_of_another_thread_runs(model: ingot.Model) -> None:
    def call() -> None:
        with pytest.raises(ingot.Cancelled):
            model.count(ENDLESS)

    thread = threading.Thread(target=call)
    thread.start()
    begin = time.monotonic()
    with suppress(ingot.DeadlineExceeded):  # until the thread has begun, calls end
        while time.monotonic() - begin < SOON:
            model.functions["count"].call(1, timeout=0.01)
    with pytest.raises(ingot.DeadlineExceeded, match=r"calls of other threads.* timeout of 0.05"):
        model.functions["count"].call(3, timeout=0.05)
    with pytest.raises(TimeoutError), raising_alarm(0.05):
        model.functions["count"].call(3, timeout=100)
    assert time.monotonic() - begin < SOON
    assert thread.is_alive()
    while not model.cancel():
        time.sleep(0.001)
    thread.join()
    for timeout in (10, float("inf")):
        assert model.functions["count"].call(3, timeout=timeout) is None
    worker = threading.Thread(target=model.count, args=(3,), daemon=True)
    worker.start()
    worker.join(SOON)
    assert not worker.is_alive(), "the lock was not let go"


def test_a_trace_that_cannot_start_is_not_kept(model: ingot.Model) -> None:
    trace_context = model.trace()
    with pytest.MonkeyPatch.context() as patch:
        real = Session.begin_trace

        def begin(session: Session, which: int) -> None:
            real(session, which)
            raise TimeoutError("a signal")

        patch.setattr(Session, "begin_trace", begin)
        with pytest.raises(TimeoutError), trace_context:
            pass
    assert not model._session._traces
    assert model._session._recorder is None


def run_python(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(program)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SOON, cwd=ROOT, **options
    )


@pytest.mark.slow
def test_the_child_of_a_fork_during_calls_works() -> None:
    """Other threads of the parent are in calls, loads and closes at the time."""
    done = run_python("""
        import os, sys, threading, time
        import numpy as np
        import ingot
        from tests.support.assembler import count_module, copy_module
        busy, idle = ingot.load(count_module()), ingot.load(copy_module())
        x, data = np.ones(100_000, np.float32), copy_module()
        stop = False
        def call():
            while not stop:
                busy.count(20_000)
                ingot.load(data)(x)
        threads = [threading.Thread(target=call) for _ in range(3)]
        for each in threads: each.start()
        seen = set()
        for turn in range(40):
            time.sleep(0.001)
            child = os.fork()
            if child == 0:
                code = 0
                try:
                    busy.count(5)
                except ingot.FailedPrecondition as error:
                    assert "in the child" in str(error), error
                    code = 1
                    busy.fork().count(5)
                    busy.close()
                    assert busy.cancel() is False
                assert (idle(x).numpy() == 1).all()
                assert (ingot.load(data)(x).numpy() == 1).all()
                os._exit(code)
            deadline = time.monotonic() + 300
            while (result := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    sys.exit("the child hangs")
                time.sleep(0.001)
            seen.add(os.waitstatus_to_exitcode(result[1]))
        stop = True
        for each in threads: each.join()
        assert seen <= {0, 1} and 1 in seen, seen
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_handler_may_fork_the_process_inside_a_call() -> None:
    done = run_python("""
        import os, signal, sys
        import ingot
        from tests.support.assembler import count_module
        model = ingot.load(count_module())
        children = []
        def fork(*_):
            try:
                model.count(1)
                signal.setitimer(signal.ITIMER_REAL, 0.02)  # the call has not begun
            except ingot.FailedPrecondition:
                children.append(os.fork())
                model.cancel()
        signal.signal(signal.SIGALRM, fork)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            model.count(1 << 40)
        except ingot.Cancelled:
            model.count(3)
            model.close()
            if children == [0]:
                os._exit(7)
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
    """)
    assert (done.returncode, done.stderr) == (7, "")


def test_a_child_of_a_submitted_native_function_ends_with_it() -> None:
    done = run_python("""
        import os, sys
        import numpy as np
        import ingot
        source = '''module {} { func @main(%x: f32[3]) -> (f32[3]) {
            %y = native_call(%x) {name="f", signature="(f32[n]) -> (f32[n])"} : f32[3]
            return(%y) } }'''
        def f(x):
            child = os.fork()
            if child == 0:
                if ends:
                    raise ends[-1]
                return x
            found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return 2 * x
        found = []
        model = ingot.load(ingot.compile(source), natives={"f": f})
        for ends in [], [SystemExit(7)], [ValueError("x")]:
            assert model.submit(np.ones(3, np.float32)).result().numpy().tolist() == [2] * 3
        assert found == [0, 7, 1], found
    """)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("ValueError: x\n")


def test_a_child_of_a_callback_of_a_future_ends_with_it() -> None:
    done = run_python("""
        import os, sys, threading
        import ingot
        from tests.support.assembler import count_module
        forked = threading.Event()
        def fork(_future):
            children.append(os.fork())
            forked.set()
        children = []
        ingot.load(count_module()).count.submit(3).add_done_callback(fork)
        forked.wait()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
    """)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_results_that_a_signal_left_behind_are_freed() -> None:
    """The handlers raise at any time, so also between the end of C and the result's object."""
    done = run_python("""
        import resource, signal, sys, time
        import numpy as np
        import ingot
        from tests.support.assembler import copy_module
        from ingot.hal.native import raised
        def hear(*_):
            if armed: raise TimeoutError
        x, armed, interrupts = np.ones(1 << 20, np.float32), False, 0
        models = [ingot.load(copy_module(), threads=1) for _ in range(2)]
        for model in models:
            for _ in range(5): model(x)
        signal.signal(signal.SIGALRM, hear)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        end = time.process_time() + 20
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.00071)
        while interrupts < 600 and time.process_time() < end:
            try:
                try:
                    armed = True
                    for _ in range(20): models[0](x)
                finally:
                    armed = False
            except TimeoutError:
                interrupts += 1
                assert not raised, raised
                models[1](x[:1])
        signal.setitimer(signal.ITIMER_REAL, 0)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(interrupts, grown)
    """)
    assert done.stderr == ""
    interrupts, grown = map(int, done.stdout.split())
    assert interrupts > 100
    assert grown < 100_000  # KB: 25 results


LISTS = """
import random, signal, sys
import numpy as np
import ingot

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

signal.signal(signal.SIGALRM, stop)
sys.unraisablehook = lambda _: None  # a signal may come in a destructor
model, xs = ingot.load(sys.argv[1]), [np.ones(5000, np.float32)] * 6
draw, hits, before = random.Random(0), 0, 0
while hits < 1800:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(5e-6, 3e-4))
        for _ in range(5):
            model(xs)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        hits += 1
        if hits == 600:
            before = resident()
signal.setitimer(signal.ITIMER_REAL, 0)
print(resident() - before)
"""


@pytest.mark.slow
def test_a_signal_anywhere_frees_the_arrays_of_a_sequence_once(tmp_path: Path) -> None:
    model = build_model([Node("Identity", ["xs"], ["ys"])], [sequence("xs")], ["ys"], opset=18)
    ingot.compile(model, variants=[best_variant()]).save(tmp_path / "lists.ingot")
    command = [sys.executable, "-c", LISTS, str(tmp_path / "lists.ingot")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4_000_000  # the calls have made arrays of 140 MB and more
