"""Calls that do not wait: futures, fences, asyncio; what cancels, fails and outlives them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, CancelledError, as_completed, wait
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import ingot
from tests.support.assembler import copy_module, count_module, total_module

ROOT = Path(__file__).parents[2]
ENDLESS = 1 << 40  # steps: an hour
SOON = 600.0  # seconds: no test waits that long


@pytest.fixture
def counter() -> Iterator[ingot.Model]:
    """count(steps: i64[]) -> (), on one thread"""
    with ingot.load(count_module(), threads=1) as model:
        yield model


def test_a_future_has_what_a_call_gives() -> None:
    model = ingot.load(copy_module())
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    future = model.submit(x)
    assert np.array_equal(future.result(SOON).numpy(), model(x).numpy())
    assert model.submit(x, out=out).result(SOON) is out
    assert np.array_equal(out, model(x).numpy())
    (name,) = [value.name for value in model.signature.arguments]
    assert np.array_equal(model.main.submit(**{name: x}).result(SOON), out)


def test_calls_keep_their_order_and_their_arguments() -> None:
    model = ingot.load(total_module())
    calls = [model.submit(np.array(step)) for step in range(50)]
    gc.collect()  # the arrays are theirs alone
    assert wait(calls, SOON).not_done == set()
    totals = [int(call.result()) for call in calls]
    assert totals == (100 + np.cumsum(np.arange(50))).tolist()
    assert all(call.done() for call in as_completed(calls))


def test_a_call_that_waits_comes_behind_those_that_were_submitted() -> None:
    model = ingot.load(total_module())
    calls = [model.submit(1) for _ in range(5)]
    assert int(model(1)) == 106
    assert [int(call.result(SOON)) for call in calls] == [101, 102, 103, 104, 105]
    late = model.submit(1)
    model.reset()  # waits too
    assert late.done()
    assert int(model.call(1, timeout=SOON)) == 101


def test_a_failed_call_fails_alone() -> None:
    model = ingot.load(total_module())
    failed, good = model.submit(-1), model.submit(2)
    with pytest.raises(ingot.OutOfRange, match="x is -1"):
        failed.result(SOON)
    assert isinstance(good.exception(SOON), ingot.FailedPrecondition)  # the state is half changed
    model.reset()
    failed, good = model.submit(-10), model.submit(2)
    assert isinstance(failed.exception(SOON), ingot.OutOfRange)
    assert int(good.result(SOON)) == 102


def test_wrong_arguments_are_refused_at_once(counter: ingot.Model) -> None:
    with pytest.raises(ingot.InvalidArgument, match="argument 0"):
        counter.count.submit(np.zeros(3, np.float32))
    with pytest.raises(ingot.InvalidArgument, match="takes 1"):
        counter.count.submit(1, 2)
    with pytest.raises(ingot.InvalidArgument, match="wait_for= has 3"):
        counter.count.submit(1, wait_for=[3])
    with pytest.raises(ingot.InvalidArgument, match="timeout is -1"):
        counter.count.submit(1, timeout=-1)
    assert counter.count.submit(1).result(SOON) is None


def test_cancelled_futures_stop_the_work(counter: ingot.Model) -> None:
    running, pending, last = (counter.count.submit(steps) for steps in (ENDLESS, ENDLESS, 3))
    assert pending.cancel()
    assert pending.cancelled()
    assert not running.done()
    assert running.cancel()
    with pytest.raises(CancelledError):
        running.result()
    assert last.result(SOON) is None
    assert not last.cancel()
    assert wait([running, pending], SOON, ALL_COMPLETED).not_done == set()
    assert counter.count(3) is None


def test_a_deadline_counts_the_time_in_the_queue(counter: ingot.Model) -> None:
    running = counter.count.submit(ENDLESS)
    late = counter.count.submit(1, timeout=0.02)
    with pytest.raises(ingot.DeadlineExceeded, match="did not begin within"):
        late.result(SOON)
    assert not running.done()
    with pytest.raises(ingot.DeadlineExceeded, match="those that were submitted"):
        counter.count.call(1, timeout=0.02)
    running.cancel()
    limited = counter.count.submit(ENDLESS, max_steps=100)
    with pytest.raises(ingot.DeadlineExceeded, match="100"):
        limited.result(SOON)


def test_fences_order_calls_of_several_models() -> None:
    first, second = ingot.load(copy_module()), ingot.load(copy_module())
    begin, between = ingot.Fence(), ingot.Fence(5)
    x, y, z = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    last = second.submit(y, out=z, wait_for=[(between, 6)])
    one = first.submit(x, out=y, wait_for=[(begin, 1)], signal=[(between, 6)])
    time.sleep(0.01)
    assert not one.done()
    assert not last.done()
    begin.signal(1)
    last.result(SOON)
    assert np.array_equal(z, np.asarray(second(np.asarray(first(x)))))
    assert between.value == 6
    between.wait(6, timeout=0)


def test_fences_may_come_from_a_generator(counter: ingot.Model) -> None:
    begin, end = ingot.Fence(), ingot.Fence()
    call = counter.count.submit(
        1, wait_for=((each, 1) for each in [begin]), signal=iter([(end, 1)])
    )
    time.sleep(0.01)
    assert not call.done()
    begin.signal(1)
    end.wait(1, SOON)


def test_fences_fail(counter: ingot.Model) -> None:
    fence = ingot.Fence(3)
    with pytest.raises(ingot.InvalidArgument, match="at 3 is to be signalled with 3"):
        fence.signal(3)
    with pytest.raises(ingot.InvalidArgument, match="must be an integer"):
        ingot.Fence(-1)
    fence.wait(3, float("inf"))
    with pytest.raises(ingot.InvalidArgument, match="timeout is '1'"):
        fence.wait(3, "1")  # type: ignore[arg-type]
    with pytest.raises(ingot.DeadlineExceeded):
        fence.wait(5, float("nan"))
    with pytest.raises(ingot.DeadlineExceeded, match="at 3"):
        fence.wait(4, timeout=0.01)
    waiting = counter.count.submit(1, wait_for=[(fence, 4)])
    fence.fail(ingot.DataLoss("the camera is gone"))
    with pytest.raises(ingot.DataLoss, match="the camera is gone"):
        waiting.result(SOON)
    with pytest.raises(ingot.DataLoss, match="the camera"):
        _ = fence.value
    assert "the camera" in repr(fence)
    fence = ingot.Fence()
    failing = counter.count.submit(ENDLESS, max_steps=10, signal=[(fence, 1)])
    with pytest.raises(ingot.DeadlineExceeded):
        fence.wait(1, SOON)
    assert failing.exception(SOON)
    forgotten = counter.count.submit(1, wait_for=[(ingot.Fence(), 1)])
    with pytest.raises(ingot.Cancelled, match="nobody can signal it"):
        forgotten.result(SOON)


def test_a_circle_is_cancelled(counter: ingot.Model) -> None:
    fence = ingot.Fence()
    first = counter.count.submit(1, wait_for=[(fence, 1)])
    second = counter.count.submit(1, signal=[(fence, 1)])
    time.sleep(0.01)
    assert not second.done()
    assert first.cancel()
    assert second.result(SOON) is None


def test_callbacks_may_submit_but_not_wait(counter: ingot.Model) -> None:
    begin = ingot.Fence()
    heard: list[object] = []

    def call(_future: object) -> None:
        try:
            heard.append(counter.count(1))
        except ingot.FailedPrecondition as error:
            heard.append(str(error))
            heard.append(counter.count.submit(2))

    counter.count.submit(1, wait_for=[(begin, 1)]).add_done_callback(call)
    last = counter.count.submit(1)
    begin.signal(1)
    last.result(SOON)
    deadline = time.monotonic() + SOON
    while len(heard) < 2 and time.monotonic() < deadline and heard != [None]:
        time.sleep(0.001)
    if heard != [None]:  # the last call had ended by then
        assert "cannot wait for calls that were submitted" in str(heard[0])
        assert heard[1].result(SOON) is None  # type: ignore[attr-defined]


def test_callbacks_do_not_wait_for_who_waits_for_them(counter: ingot.Model) -> None:
    first, second = ingot.Fence(), ingot.Fence()
    heard: list[str] = []

    def call(_future: object) -> None:
        try:
            counter.count(1)
        except ingot.FailedPrecondition as error:
            heard.append(str(error))

    counter.count.submit(1, wait_for=[(first, 1)]).add_done_callback(call)
    last = counter.count.submit(1, wait_for=[(second, 1)])
    waiting = threading.Thread(target=counter.count, args=(1,), daemon=True)
    waiting.start()
    time.sleep(0.05)  # it has the model by now, and waits for both
    first.signal(1)
    deadline = time.monotonic() + SOON
    while not heard and time.monotonic() < deadline:
        time.sleep(0.001)
    assert "cannot wait for calls that were submitted" in heard[0]
    second.signal(1)
    last.result(SOON)
    waiting.join(SOON)
    assert not waiting.is_alive()


def test_a_callback_may_close_a_model_that_another_thread_waits_for() -> None:
    model = ingot.load(count_module(), threads=1)
    first, second = ingot.Fence(), ingot.Fence()
    call = model.count.submit(1, wait_for=[(first, 1)])
    call.add_done_callback(lambda _: model.close())
    last = model.count.submit(1, wait_for=[(second, 1)])

    def wait_behind() -> None:
        with contextlib.suppress(ingot.Error):
            model.count(1)

    waiting = threading.Thread(target=wait_behind, daemon=True)
    waiting.start()
    time.sleep(0.05)  # it has the model by now, and waits for both
    first.signal(1)
    assert isinstance(last.exception(SOON), ingot.Cancelled)
    waiting.join(SOON)
    assert not waiting.is_alive()


def test_strings_and_sequences_come_and_go() -> None:
    model = ingot.load(
        ingot.compile(
            onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 19]>
    model (string[n] words, seq(float[3]) xs) => (string[n] same, seq(float[3]) ys) {
      same = Identity (words)
      ys = Identity (xs)
    }""")
        )
    )
    xs = [np.ones(3, np.float32), np.zeros(3, np.float32)]
    words, ys = model.submit(["a", "bc"], xs).result(SOON)
    assert words.tolist() == ["a", "bc"]
    assert [y.numpy().tolist() for y in ys] == [x.tolist() for x in xs]


async def _gather(model: ingot.Model) -> list[int]:
    steps = [model.async_call(step) for step in range(5)]
    return [int(total) for total in await asyncio.gather(*steps)]


def test_calls_are_awaited() -> None:
    assert asyncio.run(_gather(ingot.load(total_module()))) == [100, 101, 103, 106, 110]


def test_a_cancelled_task_stops_the_work(counter: ingot.Model) -> None:
    async def run() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(counter.count.async_call(ENDLESS), 0.02)

    asyncio.run(run())
    assert counter.count(1) is None  # waits for what was cancelled


def test_a_closed_model_cancels_its_calls(counter: ingot.Model) -> None:
    futures = [counter.count.submit(ENDLESS) for _ in range(2)]
    counter.close()
    for future in futures:
        with pytest.raises(ingot.Cancelled):
            future.result(SOON)
    with pytest.raises(ingot.FailedPrecondition, match="closed"):
        counter.count.submit(1)


def test_calls_outlive_their_model() -> None:
    model = ingot.load(count_module())
    begin = ingot.Fence()
    future = model.count.submit(100, wait_for=[(begin, 1)])
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    begin.signal(1)
    assert future.result(SOON) is None


def test_the_interpreter_is_free_meanwhile(counter: ingot.Model) -> None:
    """Threads submit and cancel at random; all of it ends."""
    futures: list[object] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            steps = ENDLESS if random.random() < 0.2 else int(random.integers(1, 500))
            future = counter.count.submit(steps, timeout=None if random.random() < 0.5 else SOON)
            if steps == ENDLESS or random.random() < 0.2:
                future.cancel()
            futures.append(future)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait(futures, SOON).not_done == set()  # type: ignore[type-var]
    assert counter.count(1) is None


def _program(code: str) -> str:
    """What a program prints that loads count_module."""
    start = (
        "import os, sys, time, ingot\n"
        "from tests.support.assembler import count_module\n"
        "model = ingot.load(count_module(), threads=1)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", start + code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=SOON
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_ends_behind_its_calls() -> None:
    code = """
future = model.count.submit(3_000_000)
future.add_done_callback(lambda future: print("done", future.exception()))
"""
    assert _program(code) == "done None\n"


def test_a_forked_child_submits_calls_of_its_own() -> None:
    code = """
running = model.count.submit(1 << 40)
child = os.fork()
if child == 0:
    try:
        model.count.submit(1)
    except ingot.FailedPrecondition as error:
        print("fork" in str(error))
    print("ends in the parent" in str(running.exception()), running.cancel())
    print(model.fork(state=False).count.submit(5).result(600), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(running.cancel(), model.count.submit(5).result(600))
"""
    assert _program(code) == "True\nTrue False\nNone\nTrue None\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in finalizers
def test_signals_may_raise_while_calls_are_submitted(counter: ingot.Model) -> None:
    """A handler that raises anywhere: every call ends, and frames are not mixed up."""

    armed = False

    def hear(_number: int, _frame: object) -> None:
        if armed:  # a slow machine hears some alarms outside of the block that expects them
            raise KeyboardInterrupt

    saved = signal.signal(signal.SIGALRM, hear)
    futures = [counter.count.submit(20)]  # the thread of futures starts without signals
    try:
        for _ in range(100):
            with contextlib.suppress(KeyboardInterrupt):
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 0.0004)
                for _ in range(200):  # should a finalizer have heard it
                    futures.append(counter.count.submit(20))
                armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, saved)
    assert wait(futures, SOON).not_done == set()
    assert counter.count(1) is None
    assert counter._session.pending == set()
