"""Calls that are kept in a file and made again: `model.record`, `ingot.read_call`."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingot
from ingot.hal.spec import dtype
from ingot.runtime import recording
from tests.support.assembler import (
    Assembler,
    copy_argument,
    copy_module,
    count_module,
    parameter_module,
    state_module,
    tensor,
    total_module,
)
from tests.support.drawn import examples

WEIGHTS = {"weight": np.arange(3, dtype=np.float32), "bias": np.full(3, 7, np.float32)}
NEVER = float("inf")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "call.ingotcall"


@pytest.fixture
def total() -> ingot.Model:
    """main(x: i64[]) -> (y: i64[]) with the state total: i64[] = 100, last: f32[2,3]"""
    return ingot.load(total_module())


def again(file: Path, **options: Any) -> Any:
    """What the call gives when it is made again, with the state in front of it."""
    call = ingot.read_call(file)
    model = call.load(**options)
    outcome = call.run(model)
    assert outcome.error is None, outcome.error
    return outcome.results


def test_a_call_has_its_arguments_and_the_state_before_it(total: ingot.Model, file: Path) -> None:
    total(5)
    saved = total.record(file)
    assert (int(total(3)), int(total(3))) == (108, 111)
    assert saved.is_over
    assert saved.error is None
    call = ingot.read_call(file)
    assert (call.function, int(call.arguments["x"]), call.outcome.error) == ("main", 3, None)
    assert call.outcome.results is not None
    assert int(call.outcome.results["y"]) == 108
    assert call.facts["device"]["uri"] == "cpu"
    assert 0 < call.outcome.seconds < 1
    model = call.load()
    for _ in range(2):
        assert int(call.run(model).results["y"]) == 108  # type: ignore[index]
        call.restore(model)
    assert int(model(0)) == 105


def test_the_callers_memory_is_copied_before_the_call(file: Path) -> None:
    model = ingot.load(copy_module())
    x = np.arange(4, dtype=np.float32)
    with model.record(file):
        model.call(x[::-1], out=x, max_steps=1000, timeout=9.0)
    call = ingot.read_call(file)
    (argument,) = call.arguments.values()
    np.testing.assert_array_equal(argument, [3, 2, 1, 0])
    assert call.facts["limits"] == {"max_steps": 1000, "timeout": 9.0}
    assert call.facts["out"] == [{"dtype": "f32", "shape": [4]}]
    (result,) = again(file).values()
    np.testing.assert_array_equal(result, [3, 2, 1, 0])
    with np.load(file) as arrays:  # the tensors are those of an .npz archive
        np.testing.assert_array_equal(arrays["argument.0"], argument)


@pytest.mark.parametrize("name", ["bf16", "i4", "f16", "i1", "c64"])
def test_every_dtype_is_kept(name: str, file: Path) -> None:
    model = ingot.load(copy_module(name))
    x = np.array([0, 1, 1, 0]).astype(dtype(name).numpy)
    model.record(file)
    model(x)
    (result,) = again(file).values()
    np.testing.assert_array_equal(result, x)
    state = ingot.load(state_module(name))
    state.load_state({"v": np.ones((2, 3)).astype(dtype(name).numpy)})
    state.record(file)
    state()
    model = ingot.read_call(file).load()
    np.testing.assert_array_equal(model.state()["v"], np.ones((2, 3)))


def test_strings_are_kept(file: Path) -> None:
    assembler = Assembler()
    sizes = [("const.i64", 9, 8), ("argument.dim", 0, 0, 0), ("argument.dim", 1, 1, 0)]
    copies = [*copy_argument(0, 0, [0], length=2), *copy_argument(1, 1, [1], length=1)]
    code = [*sizes, ("mul.size", 2, 0, 9), *copies, ("return", [], [], [])]
    data = ("u8", "m"), {"doc": "UTF-8 of 's'"}
    values = [tensor("s", "i64", "n"), tensor("s.utf8", *data[0], **data[1])]
    assembler.function("main", values, values, code)
    model = ingot.load(assembler.module())
    model.record(file)
    assert list(model(["a", "bcd"])) == ["a", "bcd"]
    results = again(file)
    assert results["s"].numpy().tolist() == [1, 4]
    assert results["s.utf8"].numpy().tobytes() == b"abcd"
    model.record(file)
    assert list(model.submit(["a"]).result(9)) == ["a"]
    assert ingot.read_call(file).outcome.results is None  # they were strings by then
    assert again(file)["s.utf8"].numpy().tobytes() == b"a"


def test_a_call_that_fails_fails_again(total: ingot.Model, file: Path) -> None:
    saved = total.record(file, slower_than=NEVER)
    total(1)
    assert not saved.is_over
    with pytest.raises(ingot.OutOfRange, match="x is -1"):
        total(-1)
    assert saved.is_over
    call = ingot.read_call(file)
    assert call.outcome.error == ("OutOfRange", "x is -1")
    model = call.load()
    assert call.run(model).error == call.outcome.error
    call.restore(model)
    assert int(model(0)) == 101
    wrong = ingot.load(copy_module())
    with wrong.record(file), pytest.raises(ingot.InvalidArgument, match="rank"):
        wrong(np.zeros((2, 2), np.float32))
    assert ingot.read_call(file).outcome.error is not None
    stopped = ingot.load(count_module())
    with stopped.record(file), pytest.raises(ingot.DeadlineExceeded):
        stopped.count.call(1 << 40, max_steps=100)
    call = ingot.read_call(file)
    assert call.run(call.load()).error == call.outcome.error


def test_a_recording_waits_for_a_slow_call_and_ends(total: ingot.Model, file: Path) -> None:
    with total.record(file, slower_than=NEVER) as saved:
        total(1)
    with pytest.raises(ingot.OutOfRange):
        total(-1)
    assert saved.is_over
    assert not file.exists()
    total.reset()
    total.record(file, slower_than=0)
    total(2)
    assert int(ingot.read_call(file).arguments["x"]) == 2
    model = ingot.load(copy_module())
    saved = model.record(file)
    with pytest.raises(ingot.InvalidArgument, match="dtype"):
        model(np.zeros(4, np.int32))  # no call of the module
    model(np.zeros(4, np.float32))
    assert saved.is_over
    assert ingot.read_call(file).outcome.error is None


def test_submitted_calls_are_recorded_behind_those_before_them(
    total: ingot.Model, file: Path
) -> None:
    first = total.submit(1)
    saved = total.record(file)
    assert int(total.submit(2).result(9)) == 103
    first.result(9)
    assert saved.error is None
    assert int(again(file)["y"]) == 103
    total.record(file)
    assert int(asyncio.run(total.async_call(4))) == 107
    assert int(again(file)["y"]) == 107
    saved = total.record(file)
    with pytest.raises(ingot.OutOfRange):
        total.submit(-1).result(9)
    assert ingot.read_call(file).outcome.error == ("OutOfRange", "x is -1")
    fence = ingot.Fence()
    saved = total.record(file)
    total.reset()
    waits = total.submit(1, wait_for=[(fence, 1)])
    fence.signal(1)
    waits.result(9)
    assert not saved.is_over


def test_one_call_of_several_threads_is_recorded(total: ingot.Model, file: Path) -> None:
    total.record(file)
    threads = [threading.Thread(target=total, args=(1,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert int(total(0)) == 104
    assert again(file)["y"].item() == 101


def test_weights_are_told_by_path_and_hash_or_are_in_the_file(file: Path, tmp_path: Path) -> None:
    module, weights = tmp_path / "m.ingot", tmp_path / "w.npz"
    module.write_bytes(parameter_module())
    np.savez(weights, **WEIGHTS)
    model = ingot.load(module, parameters=weights)
    model.record(file)
    expected = model().numpy()
    whole = tmp_path / "whole.ingotcall"
    model.record(whole, with_weights=True)
    model()
    np.testing.assert_array_equal(again(file)["y"], expected)
    np.savez(weights, **{**WEIGHTS, "bias": np.zeros(3, np.float32)})
    with pytest.raises(ingot.FailedPrecondition, match="is not that of the call"):
        ingot.read_call(file).load()
    weights.unlink()
    with pytest.raises(ingot.NotFound, match="no longer at"):
        ingot.read_call(file).load()
    np.testing.assert_array_equal(again(file, parameters=WEIGHTS)["y"], expected)
    module.unlink()
    np.testing.assert_array_equal(again(whole)["y"], expected)


def test_errors_of_what_is_passed_are_the_callers(total: ingot.Model, file: Path) -> None:
    class Refusing(dict[str, Any]):
        def __getitem__(self, _name: str) -> Any:
            raise LookupError("nothing is lent today")

    total.record(file)
    total(1)
    with pytest.raises(LookupError, match="lent today"):
        ingot.read_call(file).load(modules=Refusing({"": None}))


def test_weights_in_memory_and_swapped_ones_are_packed(file: Path) -> None:
    model = ingot.load(parameter_module(), parameters=WEIGHTS)
    model.record(file)
    model()
    with pytest.raises(ingot.NotFound, match=r"were given as arrays.*pass them as parameters"):
        ingot.read_call(file).load()
    model.swap_parameters({**WEIGHTS, "bias": np.zeros(3, np.float32)})
    model.record(file, with_weights=True)
    expected = model().numpy()
    np.testing.assert_array_equal(again(file)["y"], expected)


def test_a_large_module_is_told_by_path_and_hash(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_SMALL", 100)
    module = tmp_path / "m.ingot"
    module.write_bytes(total_module())
    model = ingot.load(module)
    model.record(file)
    model(1)
    assert int(again(file)["y"]) == 101
    module.write_bytes(copy_module())
    with pytest.raises(ingot.FailedPrecondition, match="is not that of the call"):
        ingot.read_call(file).load()
    saved = model.record(file)
    model(1)
    assert "was replaced since" in str(saved.error)
    module.unlink()
    with pytest.raises(ingot.NotFound, match="no longer at"):
        ingot.read_call(file).load()
    assert int(again(file, modules={"": total_module()})["y"]) == 101
    inside = ingot.load(total_module())
    inside.record(file)
    inside(1)
    with pytest.raises(ingot.NotFound, match="is not in the file"):
        ingot.read_call(file).load()


def test_where_nothing_can_be_written_the_call_goes_on(
    total: ingot.Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = total.record("/dev/full")
    with caplog.at_level(logging.WARNING, "ingot"):
        assert int(total(1)) == 101
    assert isinstance(saved.error, OSError)
    assert "not recorded in '/dev/full'" in caplog.text
    assert int(total(1)) == 102
    with pytest.raises(ingot.NotFound, match="no folder for the recording"):
        total.record(tmp_path / "none" / "call")
    with pytest.raises(ingot.InvalidArgument, match="slower_than is -1"):
        total.record(tmp_path / "call", slower_than=-1)


def test_the_environment_asks_for_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INGOT_RECORD", str(tmp_path / "call-%p"))
    monkeypatch.setenv("INGOT_RECORD_SLOWER_THAN", "inf")
    recording.environment_recording.cache_clear()
    try:
        first, second = ingot.load(total_module()), ingot.load(total_module())
        first(1)
        with pytest.raises(ingot.OutOfRange):
            second(-2)
        with pytest.raises(ingot.OutOfRange):
            first(-1)
        (file,) = tmp_path.iterdir()
        assert file.name[5:].isdecimal()
        assert int(ingot.read_call(file).arguments["x"]) == -2
        monkeypatch.setenv("INGOT_RECORD_SLOWER_THAN", "soon")
        recording.environment_recording.cache_clear()
        ingot.load(total_module())(1)
        assert "is not used: could not convert" in caplog.text
    finally:
        recording.environment_recording.cache_clear()


def test_linked_modules_are_all_there(file: Path) -> None:
    model = ingot.load({"a": total_module(), "b": copy_module()})
    model.record(file)
    model.functions["a.main"](1)
    assert int(again(file)["y"]) == 101
    assert list(ingot.read_call(file).modules()) == ["a", "b"]
    with pytest.raises(ingot.NotFound, match=r"has no module 'c'; it has: a, b"):
        ingot.read_call(file).load(modules={"c": copy_module()})
    alone = ingot.load(total_module())
    alone.record(file)
    alone(1)
    with pytest.raises(ingot.NotFound, match=r"has no module 'c'; it has: one without a name"):
        ingot.read_call(file).load(modules={"c": copy_module()})


def test_functions_of_the_application_are_named(file: Path) -> None:
    module = ingot.compile(
        "module {} { func @main(%x: f32[3]) -> (f32[3]) { %y = native_call(%x) "
        '{name="f", signature="(f32[n]) -> (f32[n])"} : f32[3] return(%y) } }'
    )
    model = ingot.load(module, natives={"f": np.negative})
    model.record(file)
    model(np.ones(3, np.float32))
    assert ingot.read_call(file).facts["natives"] == ["f"]
    with pytest.raises(ingot.NotFound, match="native function is missing: 'f'"):
        ingot.read_call(file).load()
    (result,) = again(file, natives={"f": np.negative}).values()
    assert result.numpy().tolist() == [-1, -1, -1]


# Files that are none.


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("good") / "call"
    model = ingot.load(total_module())
    model.record(file)
    model(1)
    return file.read_bytes()


@pytest.mark.parametrize("data", [b"", b"PK", copy_module(), b"\0" * 100])
def test_foreign_files_are_refused(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    with pytest.raises(ingot.DataLoss, match="is no recorded call, or is damaged"):
        ingot.read_call(file)
    with pytest.raises(ingot.NotFound):
        ingot.read_call(file.parent / "none")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", b"")
    with pytest.raises(ingot.DataLoss, match=r"no item named 'call\.json'"):
        ingot.read_call(file)


def rewritten(good: bytes, file: Path, change: Callable[[str, bytes], bytes]) -> None:
    """The file with other entries, whose checksums are right."""
    (source := file.with_suffix(".good")).write_bytes(good)
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(file, "w") as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"version": 1', b'"version": 2', "version 2 of the format, but this Ingot reads 1"),
        (b'"i64"', b'"f32"', "argument.0.npy is of int64, but must be of float32"),
        (b'"i64"', b'"i65"', "i65"),
        (b'"argument.0.npy"', b'"other"', "no item named 'other'"),
        (b'"seconds"', b'"minutes"', "no 'seconds' of the right form"),
        (b'"seconds": ', b'"seconds": 1%0400d, "_": ' % 0, "int too large to convert to float"),
        (b'"uri": "cpu"', b'"uri": "opencl://77"', "made on 'opencl://77': name another device"),
        (b'"function": "main"', b'"function": "f"', "no function 'f', which was called"),
    ],
)
def test_facts_are_checked(good: bytes, file: Path, old: bytes, new: bytes, message: str) -> None:
    rewritten(good, file, lambda _, data: data.replace(old, new))
    with pytest.raises(ingot.Error, match=message):
        ingot.read_call(file).load()


def test_names_of_weights_stay_in_their_folder(file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **WEIGHTS)
    model = ingot.load(parameter_module(), parameters=tmp_path / "w.npz")
    model.record(file, with_weights=True)
    model()
    good = file.read_bytes()
    for name in ("../w", "/w", "a\\..\\..\\w", "C:\\w", "C:w", "\\\\host\\w"):
        text = json.dumps(name).encode()
        rewritten(good, file, lambda _, data, text=text: data.replace(b'"w.npz"', text))
        with pytest.raises(ingot.DataLoss, match="a file of weights is called "):
            ingot.read_call(file).load()


@given(data=st.data())
@examples(40)
def test_damaged_files_give_an_error(
    good: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("damaged") / "call"
    damaged = bytearray(good[: data.draw(st.integers(0, len(good)))])
    for place in data.draw(st.lists(st.integers(0, max(len(damaged) - 1, 0)), max_size=4)):
        if damaged:
            damaged[place] = data.draw(st.integers(0, 255))
    file.write_bytes(damaged)
    try:
        call = ingot.read_call(file)
        call.run(call.load())
    except ingot.Error:
        return


@given(text=st.text(max_size=8), place=st.integers(0, 1 << 30), value=st.integers(-3, 1 << 66))
@examples(40)
def test_damaged_facts_give_an_error(
    good: bytes, tmp_path_factory: pytest.TempPathFactory, text: str, place: int, value: int
) -> None:
    file = tmp_path_factory.mktemp("facts") / "call"

    def change(name: str, data: bytes) -> bytes:
        if name != recording.FACTS:
            return data
        words = data.split(b" ")
        words[place % len(words)] = repr(value).encode() if value % 2 else text.encode()
        return b" ".join(words)

    rewritten(good, file, change)
    try:
        call = ingot.read_call(file)
        call.run(call.load())
    except ingot.Error:
        return
