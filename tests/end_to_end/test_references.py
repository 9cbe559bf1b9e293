"""References: objects of the application that programs pass on, on every device alike."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ingot
from ingot import ops
from ingot.hal.native import check, ffi, lib
from ingot.hal.reference import reference_of_view
from tests.support.assembly import assert_assembles
from tests.support.devices import best_variant, on_every_device, targets

Array = npt.NDArray[Any]
X = np.arange(3, dtype=np.float32)
APPLY = "(&acme.scale, f32[n]) -> (f32[n])"
OPEN = "(&acme.scale, i64[]) -> (&acme.log, i64[k])"


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor


class Log:
    def __init__(self, scale: Scale) -> None:
        self.scale = scale


@ingot.program(
    ingot.spec("&acme.scale"), ingot.spec("&acme.scale"), ingot.spec("f32[n]"), ingot.spec("i64[]")
)
def everything(a: Any, b: Any, x: Any, steps: Any) -> Any:
    """Two that change places in a loop, one that a branch chooses, one that a function makes."""

    def step(_: Any, state: Any) -> Any:
        first, second, total = state
        return second, first, total + ops.native("acme.apply", APPLY, first, x)

    chosen = ops.cond(steps > 2, lambda: a, lambda: b)
    first, _, total = ops.fori_loop(0, steps, step, (chosen, b, x))
    log, numbers = ops.native("acme.open", OPEN, first, steps)
    return {"total": total, "first": first, "log": log, "numbers": numbers}


@pytest.fixture(scope="module")
def module() -> ingot.Module:
    return ingot.compile(everything, target=targets())


def _apply(scale: Scale, x: Array) -> Array:
    return x * np.float32(scale.factor)


def _open(scale: Scale, steps: Array) -> Any:
    return Log(scale), np.arange(int(steps))


NATIVES = {"acme.apply": _apply, "acme.open": _open}


def _model(module: ingot.Module, device: Any = "cpu", **natives: Any) -> ingot.Model:
    return ingot.load(module, device=device, natives=NATIVES | natives)


@on_every_device
def test_references_pass_through_branches_loops_functions_and_results(
    module: ingot.Module, device: str
) -> None:
    model = _model(module, device)
    two, three = (ingot.Reference("acme.scale", Scale(each)) for each in (2, 3))
    for steps, factors in ((0, []), (1, [3]), (2, [3, 3]), (3, [2, 3, 2]), (4, [2, 3, 2, 3])):
        total, first, log, numbers = model(two, three, X, steps)
        np.testing.assert_array_equal(total, X + sum(factors) * X)
        assert (first.type, log.type) == ("acme.scale", "acme.log")
        wanted = two if steps == 4 else three
        assert first.object is wanted.object
        assert log.object.scale is wanted.object
        assert len(numbers) == steps
        if steps == 3:  # what came out goes in again, also in submitted calls
            again = model.submit(two, first, X, 1).result()
            assert again[1].object is first.object
            np.testing.assert_array_equal(again[0], 4 * X)


def test_modules_with_references_are_text_and_back(module: ingot.Module) -> None:
    assert_assembles(bytes(module))
    model = _model(module)
    assert str(model.signature).startswith("main(a: &acme.scale, b: &acme.scale, x: f32[n]")
    assert [each.kind for each in model.signature.results][1:3] == ["reference"] * 2
    assert "&acme.scale" in str(everything)


def test_objects_live_as_long_as_anybody_can_see_them(module: ingot.Module) -> None:
    logs: list[weakref.ref[Log]] = []
    models: list[ingot.Model] = []

    def opens(scale: Scale, steps: Array) -> Any:
        log = Log(scale)
        logs.append(weakref.ref(log))
        if steps == 7:
            raise OSError("the disk is full")
        if steps == 8:
            models[0].cancel()
        return log, np.arange(0)

    model = _model(module, **{"acme.open": opens})
    models.append(model)
    scale = Scale(1)
    alive = weakref.ref(scale)
    reference = ingot.Reference("acme.scale", scale)
    results = model(reference, reference, X, 1)
    assert logs[0]() is results[2].object
    del results
    assert logs.pop()() is None
    with pytest.raises(OSError, match="the disk is full"):
        model(reference, reference, X, 7)
    with pytest.raises(ingot.Cancelled):
        model(reference, reference, X, 8)
    gc.collect()
    assert [each() for each in logs] == [None, None]
    future = model.submit(reference, reference, X, 1)
    del scale, reference
    first = future.result()[1]
    del future, model, models[:]
    gc.collect()
    assert first.object is alive()
    del first
    gc.collect()
    assert alive() is None


def test_what_is_no_reference_of_the_type_is_refused(module: ingot.Module) -> None:
    model = _model(module)
    scale = ingot.Reference("acme.scale", Scale(2))
    for wrong, message in (
        (None, r"argument 1 'b': is NoneType, but must be an ingot.Reference\('acme.scale', ...\)"),
        (scale.object, "argument 1 'b': is Scale, but must be"),
        (ingot.Reference("acme.log", 1), "argument 1 'b': &acme.log, expected &acme.scale"),
    ):
        with pytest.raises(ingot.InvalidArgument, match=message):
            model(scale, wrong, X, 1)
    with pytest.raises(ingot.InvalidArgument, match="result 1 'first': is no tensor"):
        model(scale, scale, X, 1, out=(None, np.empty(3), None, None))
    for given, message in (
        (ingot.Reference("acme.scale", 1), "result 0: &acme.scale, expected &acme.log"),
        (None, "result 0 is None, expected an object for &acme.log"),
    ):
        wrong = _model(module, **{"acme.open": lambda *_, given=given: (given, np.arange(0))})
        with pytest.raises(ingot.InvalidArgument, match=message):
            wrong(scale, scale, X, 1)
    with pytest.raises(ingot.InvalidArgument, match="type of a reference is 'a b'"):
        ingot.Reference("a b", 1)


def test_what_programs_cannot_do_with_references_is_said_when_they_are_compiled(
    tmp_path: Path,
) -> None:
    reference = ingot.spec("&acme.scale")
    with pytest.raises(ingot.CompileError, match=r"&acme\.scale, which only native functions look"):
        ingot.trace(lambda a: a + 1, reference)
    with pytest.raises(ingot.CompileError, match=r"argument 0 of native .* is &acme\.scale"):
        ingot.trace(lambda a: ops.native("f", "(&acme.log) -> (f32[])", a), reference)
    with pytest.raises(ingot.CompileError, match=r"argument 0 of native function 'f' is i64\[\]"):
        ingot.trace(lambda a: ops.native("f", "(&acme.log) -> (f32[])", a), ingot.spec("i64[]"))
    with pytest.raises(ingot.CompileError, match=r"is of the types &acme\.scale, &acme\.log"):
        ingot.trace(
            lambda a, b, k: ops.cond(k, lambda: a, lambda: b),
            reference,
            ingot.spec("&acme.log"),
            ingot.spec("i1[]"),
        )
    with pytest.raises(ingot.CompileError, match="gives tensors, not references"):
        ingot.trace(lambda k: ops.kernel("f", "(i64[]) -> (&acme.log)", k), ingot.spec("i64[]"))
    passed = ingot.trace(lambda a: {"b": a}, reference)
    with pytest.raises(
        ingot.CompileError, match=r"'a' is &acme\.scale, a reference, which ends with"
    ):
        ingot.compile(passed, state={"b": "a"})
    with pytest.raises(ingot.Unsupported, match="'a' is a reference, and typed C functions"):
        ingot.bundle(passed, tmp_path)


def test_a_loop_finds_what_it_made_last_at_once() -> None:
    scale = ingot.spec("&acme.scale")

    def last(a: Any, steps: Any) -> Any:
        again = "(&acme.scale) -> (&acme.scale)"
        return ops.fori_loop(0, steps, lambda _, one: ops.native("f", again, one), a)

    module = ingot.compile(ingot.trace(last, scale, ingot.spec("i64[]")), variants=[best_variant()])
    model = ingot.load(module, natives={"f": lambda one: Scale(one.factor + 1)})
    one, times = ingot.Reference("acme.scale", Scale(1)), {}
    for steps in (500, 8000):
        taken = []
        for _ in range(3):
            begin = time.process_time()
            assert model(one, steps).object.factor == steps + 1
            taken.append(time.process_time() - begin)
        times[steps] = min(taken)
    assert times[8000] < 48 * times[500]  # for 16 times the steps


def test_modules_pass_references_to_each_other(module: ingot.Module) -> None:
    @ingot.program(ingot.spec("&acme.scale"), ingot.spec("f32[n]"))
    def main(a: Any, x: Any) -> Any:
        found = ops.native(
            "lib.main",
            "(&acme.scale, &acme.scale, f32[n], i64[]) -> (f32[n], &acme.scale, &acme.log, i64[k])",
            a,
            a,
            x,
            3,
        )
        return found[0], found[2]

    net = ingot.compile(main, variants=[best_variant()])
    model = ingot.load({"net": net, "lib": module}, natives=NATIVES)
    total, log = model.functions["net.main"](ingot.Reference("acme.scale", Scale(2)), X)
    np.testing.assert_array_equal(total, 7 * X)
    assert log.object.scale.factor == 2
    other = ingot.trace(
        lambda a: ops.native("lib.pass", "(&acme.log) -> (&acme.log)", a), ingot.spec("&acme.log")
    )
    library = ingot.trace(lambda a: a, ingot.spec("&acme.scale"))
    with pytest.raises(ingot.InvalidArgument, match=r"given as \(&acme.scale\) -> \(&acme.scale\)"):
        ingot.load({"net": ingot.compile(other), "lib": ingot.compile({"pass": library})})


def test_calls_with_references_are_not_recorded(module: ingot.Module, tmp_path: Path) -> None:
    model = _model(module)
    scale = ingot.Reference("acme.scale", Scale(2))
    with model.record(tmp_path / "call.ingotcall") as recording:
        np.testing.assert_array_equal(model(scale, scale, X, 1)[0], 3 * X)
    assert isinstance(recording.error, ingot.Unsupported)
    assert "argument 'a' is a reference to an object" in str(recording.error)
    assert not list(tmp_path.iterdir())


def test_objects_that_c_made_are_their_addresses(module: ingot.Module) -> None:
    seen: list[Any] = []

    def apply(scale: Any, x: Array) -> Array:
        seen.append(scale)
        return x

    cpu, other = ingot.open_device("cpu"), ingot.open_device("cpu://?threads=1")
    out = ffi.new("ingot_buffer_view_t **")
    address = ffi.cast("void *", 64)
    check(
        lib.ingot_reference_create(
            cpu.handle.pointer, b"acme.scale", address, ffi.NULL, ffi.NULL, out
        )
    )
    made = reference_of_view(ffi.gc(out[0], lib.ingot_buffer_view_release), "acme.scale", cpu)
    model = ingot.load(module, device=cpu, natives=NATIVES | {"acme.apply": apply})
    assert model(made, made, X, 2)[1].object == made.object == 64
    assert seen == [64, 64]
    same = ingot.trace(
        lambda a: ops.native("f", "(&acme.scale) -> (&acme.scale)", a), ingot.spec("&acme.scale")
    )
    passed = ingot.load(ingot.compile(same), device=cpu, natives={"f": lambda a: a})(made)
    check(lib.ingot_reference_object(passed.view(cpu), b"acme.scale", found := ffi.new("void **")))
    assert found[0] == address  # not an object of Python's
    with pytest.raises(ingot.FailedPrecondition, match="that a function in C made is for its own"):
        _model(module, other)(made, made, X, 2)
