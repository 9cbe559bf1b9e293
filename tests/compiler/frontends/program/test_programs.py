"""Traced programs: specs, names, control flow, images, errors, and what is compiled of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import verify
from tests.support.devices import load_everywhere

Array = np.ndarray[Any, Any]


def run(program: Any, *arrays: Any) -> list[Array]:
    verify(program.module, GRAPH)
    return [np.asarray(each) for each in interpret(program.module, "main", arrays)]


def main(program: Any) -> Any:
    return program.module.functions["main"]


# ---- arguments and results


def test_names_of_arguments_and_results() -> None:
    @ingot.program(ingot.spec("f32[n,4]", n=(1, 8)), scale=ingot.spec("f32[]"))
    def both(x: Any, *, scale: Any) -> dict[str, Any]:
        """Twice."""
        return {"scaled": x * scale, "total": ops.sum(x)}

    assert main(both).argument_names == ["x", "scale"]
    assert main(both).result_names == ["scaled", "total"]
    assert main(both).symbols == {"n": (1, 8)}
    assert both.__doc__ == "Twice."
    assert (
        str(both) == "<program both(x: f32[n,4], scale: f32[]) -> scaled: f32[n,4], total: f32[]>"
    )
    scaled, total = run(both, np.ones((2, 4), np.float32), np.float32(3))
    assert scaled.tolist() == [[3] * 4] * 2
    assert total == 8
    several = ingot.trace(lambda *xs: tuple(reversed(xs)), *[ingot.spec("i32[2]")] * 2)
    assert main(several).argument_names == ["xs_0", "xs_1"]
    assert main(several).result_names == ["result0", "result1"]


def test_annotations_are_specs() -> None:
    spec = ingot.spec("f32[n]")

    def double(x: Any) -> Any:
        return x + x

    double.__annotations__ = {"x": spec}
    program = ingot.program(double)
    assert [str(value.type) for value in main(program).arguments] == ["f32[n]"]
    with pytest.raises(ingot.CompileError, match="argument 'x' of plain has no spec: annotate it"):

        @ingot.program
        def plain(x):  # type: ignore[no-untyped-def]
            return x


def test_tensors_know_their_namespace() -> None:
    program = ingot.trace(lambda x: x.__array_namespace__().exp(x), ingot.spec("f32[2]"))
    assert run(program, np.zeros(2, np.float32))[0].tolist() == [1, 1]


def test_a_program_is_a_part_of_another_one() -> None:
    @ingot.program(ingot.spec("f32[n]"))
    def double(x: Any) -> Any:
        return x * 2

    whole = ingot.trace(lambda x: double(double(x)) + 1, ingot.spec("f32[3]"))
    assert run(whole, np.ones(3, np.float32))[0].tolist() == [5, 5, 5]


# ---- branches and loops


def test_branches() -> None:
    @ingot.program(ingot.spec("f32[n]"))
    def chosen(x: Any) -> Any:
        most = ops.max(x)
        return ops.cond(most > 1, lambda v: {"a": v / most}, lambda v: {"a": v}, x)["a"]

    assert run(chosen, np.array([1, 4], np.float32))[0].tolist() == [0.25, 1]
    assert run(chosen, np.array([0.5, 1], np.float32))[0].tolist() == [0.5, 1]
    cut = ingot.trace(lambda x: ops.cond(x[0] > 0, lambda: x[:2], lambda: x), ingot.spec("f32[n]"))
    assert [len(run(cut, np.array([sign, 2, 3], np.float32))[0]) for sign in (1, -1)] == [2, 3]


def test_loops() -> None:
    @ingot.program(ingot.spec("f32[n,n]"), ingot.spec("i64[]"))
    def power(x: Any, count: Any) -> Any:
        unit = ops.eye(x.shape[0])
        return ops.fori_loop(0, count, lambda _, state: state @ x, unit)

    x = np.array([[1, 1], [0, 1]], np.float32)
    assert run(power, x, np.int64(5))[0].tolist() == [[1, 5], [0, 1]]

    @ingot.program(ingot.spec("i64[]"))
    def collatz(n: Any) -> Any:
        def step(state: Any) -> Any:
            number, count = state
            odd = number % 2 == 1
            return ops.where(odd, 3 * number + 1, number // 2), count + 1

        return ops.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

    assert run(collatz, np.int64(27))[0] == 111


# ---- images and boxes


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_images_are_resized_as_by_jax(method: str, antialias: bool) -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(0).random((7, 10, 3), np.float32)
    for size in ((3, 20), (14, 4)):
        wanted = jax.image.resize(x, (*size, 3), method, antialias=antialias)
        for type in ("f32[7,10,3]", "f32[h,w,3]"):
            resized = ingot.trace(
                lambda x, size=size: ops.resize(
                    x, size, axes=(0, 1), method=method, antialias=antialias
                ),
                ingot.spec(type),
            )
            np.testing.assert_allclose(run(resized, x)[0], wanted, atol=1e-5)


def test_images_that_shrink_much_are_resized() -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(0).random((60, 4), np.float32)
    program = ingot.trace(lambda x: ops.resize(x, (5,), axes=(0,)), ingot.spec("f32[60,4]"))
    wanted = jax.image.resize(x, (5, 4), "linear")
    np.testing.assert_allclose(run(program, x)[0], wanted, atol=1e-5)


def test_bytes_are_resized_to_bytes() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    program = ingot.trace(
        lambda x: ops.resize(x, (x.shape[0] * 2, 4), axes=(0, 1)), ingot.spec("u8[h,4]")
    )
    (got,) = run(program, x)
    assert got.dtype == np.uint8
    assert got[0].tolist() == x[0].tolist()
    assert got[1].tolist() == [20, 40, 60, 80]


def test_crop_and_normalize() -> None:
    x = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    program = ingot.trace(
        lambda x: ops.normalize(
            ops.center_crop(x, (2, 2), axes=(0, 1)) / 255, mean=[0.5, 0, 1], std=2
        ),
        ingot.spec("u8[h,w,3]"),
    )
    wanted = (x[1:3, 1:3] / np.float32(255) - np.array([0.5, 0, 1], np.float32)) / 2
    np.testing.assert_allclose(run(program, x)[0], wanted, atol=1e-6)


def test_boxes() -> None:
    boxes = np.array([[0, 0, 2, 4], [1, 1, 4, 3]], np.float32)
    for form in ("xywh", "cxcywh"):
        back = ingot.trace(
            lambda x, form=form: ops.box_convert(ops.box_convert(x, "xyxy", form), form, "xyxy"),
            ingot.spec("f32[n,4]"),
        )
        np.testing.assert_array_equal(run(back, boxes)[0], boxes)
    decode = ingot.trace(
        lambda d, a: ops.decode_boxes(d, a, weights=(2, 2, 1, 1)),
        ingot.spec("f32[n,4]"), ingot.spec("f32[n,4]"),
    )  # fmt: skip
    deltas = np.array([[1, 0, np.log(2), 0], [0, 0, 0, 0]], np.float32)
    (got,) = run(decode, deltas, boxes)
    np.testing.assert_allclose(got, [[0, 0, 4, 4], boxes[1]], atol=1e-6)


def suppressed(boxes: Array, scores: Array, threshold: float, least: float) -> list[int]:
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable"):
        a = boxes[place]
        overlaps = False
        for other in kept:
            b = boxes[other]
            low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
            inner = np.prod(np.maximum(high - low, 0))
            areas = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])
            overlaps |= bool(inner / (areas - inner) > threshold)
        if not overlaps and scores[place] > least:
            kept.append(int(place))
    return kept


def test_boxes_that_overlap_are_suppressed() -> None:
    generator = np.random.default_rng(3)
    corners = generator.random((12, 2), np.float32)
    boxes = np.concatenate([corners, corners + generator.random((12, 2), np.float32)], 1)
    scores = generator.random(12, np.float32)
    program = ingot.trace(
        lambda b, s: ops.non_max_suppression(b, s, 0.3, score_threshold=0.2),
        ingot.spec("f32[n,4]"), ingot.spec("f32[n]"),
    )  # fmt: skip
    wanted = suppressed(boxes, scores, 0.3, 0.2)
    assert 2 < len(wanted) < 12
    assert run(program, boxes, scores)[0].tolist() == wanted


# ---- compiled


@pytest.mark.slow
def test_a_program_compiles_and_runs() -> None:
    """Everything in one module, on all targets: control flow, sizes, sorting, constants."""

    @ingot.program(ingot.spec("u8[h,w,3]", h=(2, 64)), ingot.spec("f32[n,4]"))
    def whole(image: Any, boxes: Any) -> dict[str, Any]:
        small = ops.resize(image, (4, 4), axes=(0, 1))
        pixels = ops.permute_dims(ops.normalize(small / 255, [0.5] * 3, [0.25] * 3), (2, 0, 1))
        scores, places = ops.top_k(boxes[:, 0], 2)
        return {
            "pixels": pixels[None],
            "scores": scores,
            "kept": boxes[places],
            "positive": boxes[boxes[:, 1] > 0],
            "steps": ops.while_loop(lambda x: x < 50, lambda x: x * 3, ops.asarray(2)),
            "size": image.shape[0] * image.shape[1],
            "weights": ops.matmul(boxes, np.eye(4, 2, dtype=np.float32)),
        }

    image = np.random.default_rng(0).integers(0, 256, (9, 6, 3), np.uint8)
    boxes = np.random.default_rng(1).standard_normal((5, 4), np.float32)
    wanted = run(whole, image, boxes)
    for model in load_everywhere(whole).values():
        got = model.call(image, boxes, as_dict=True)
        assert list(got) == main(whole).result_names
        for one, other in zip(got.values(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)


def test_layers_are_lines() -> None:
    program = ingot.trace(lambda x: ops.exp(x) + 1, ingot.spec("f32[n]"))
    (location,) = {op.location for op in main(program).block.ops if op.name != "return"}
    assert re.fullmatch(r"test_programs\.py:\d+", location)


# ---- what is wrong

MATRIX = ingot.spec("f32[n,4]")
WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "shapes": (lambda x: x + ops.zeros((3, 5)), r"add: shapes \[n,4\] and \[3,5\] do not broadc"),
    "axis": (lambda x: ops.sum(x, axis=2), "sum: axis 2 is out of range for rank 2"),
    "twice": (lambda x: ops.sum(x, axis=(0, -2)), "names one axis twice"),
    "index": (lambda x: x[:, 4], "index 4 is out of range for axis 1"),
    "rank": (lambda x: x[0, 0, 0], "the index has 3 axes and 0 '...' for rank 2"),
    "mask": (lambda x: x[:, np.array([True, False])], "the dims 2 and 4 differ"),
    "reshape": (lambda x: ops.reshape(x[:2], (3, 3)), "the dims .* differ: give tensors"),
    "matmul": (lambda x: x @ ops.zeros((5, 2)), "matmul: its operands: the dims 5 and 4 differ"),
    "dtype": (lambda x: ops.astype(x, "f33"), "'f33' is no dtype; the dtypes are: bool, int8"),
    "texts": (lambda x: ops.asarray(np.array(["a"])), "which no program computes with"),
    "order": (lambda x: ops.max(x * 1j), "max: complex numbers in it are not supported"),
    "string": (lambda x: ops.add(x, "a"), "an operand is 'a', expected a tensor, a number"),
    "promotion": (
        lambda x: ops.zeros(2, dtype="u64") + ops.zeros(2, dtype="i8"),
        "no dtype holds both i8 and u64",
    ),
    "bits": (lambda x: x & 1, "its operands are f32, expected integers"),
    "if": (lambda x: 1 if x.sum() else 2, "use ops.where, ops.cond or ops.while_loop in place of"),
    "numpy": (lambda x: np.asarray(x), "functions of ingot.ops in place of NumPy's"),
    "size": (lambda x: range(x.shape[0]), "the dim 'n' is known only when the program is called"),
    "compare": (lambda x: x.shape[0] > 3, "the dim 'n' is known only when"),
    "store": (lambda x: x.__setitem__(0, 1), "cannot be changed in place"),
    "axes": (lambda x: ops.permute_dims(x, (0,)), "do not name all axes"),
    "predicate": (lambda x: ops.cond(x > 0, lambda: x, lambda: x), "expected rank 0: reduce it"),
    "branches": (
        lambda x: ops.cond(x.sum() > 0, lambda: x, lambda: (x, x)),
        "the branches give results of different structure",
    ),
    "state": (
        lambda x: ops.while_loop(lambda s: ops.sum(s) < 1, lambda s: ops.sum(s), x),
        r"makes f32\[\] of tensor 0 of the state, which is f32\[n,4\]",
    ),
    "list": (lambda x: ops.asarray([1, 300], dtype="uint8"), "300 does not fit into u8"),
    "rows": (lambda x: ops.asarray([1, [2]]), "an operand is no array"),
    "negative size": (lambda x: ops.resize(x, (-1,), axes=(0,)), "a size is negative"),
    "boxes": (lambda x: ops.box_convert(x, "xyxy", "yx"), "forms of boxes are xyxy, xywh, cxcywh"),
    "result": (lambda x: {"y": "text"}, "the result 'y' of <lambda>: an operand is 'text'"),
    "nothing": (lambda x: None, "the result 'result0' of <lambda>: an operand is None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_line(name: str) -> None:
    function, message = WRONG[name]
    with pytest.raises(ingot.CompileError, match=message) as caught:
        ingot.trace(function, MATRIX)
    if "result" not in message:
        assert re.match(r"test_programs\.py:\d+: ", str(caught.value))


def test_wrong_specs() -> None:
    for text in ("f32[n", "g32[3]", "", "f32"):
        with pytest.raises(ingot.CompileError, match="is no type"):
            ingot.spec(text)
    with pytest.raises(ingot.CompileError, match="has no dim 'm', for which there is a range"):
        ingot.spec("f32[n]", m=(1, 2))
    with pytest.raises(ingot.CompileError, match="the range of 'n' is"):
        ingot.spec("f32[n]", n=(4, 2))
    with pytest.raises(ingot.CompileError, match="the specs do not fit <lambda>"):
        ingot.trace(lambda x, y: x, MATRIX)
    with pytest.raises(ingot.CompileError, match=r"expected an ingot\.spec"):
        ingot.trace(lambda x: x, "f32[2]")  # type: ignore[arg-type]
    two = ingot.spec("f32[n]", n=(1, 2)), ingot.spec("f32[n]", n=(1, 3))
    with pytest.raises(ingot.CompileError, match="the dim 'n' of 'b' has the range"):
        ingot.trace(lambda a, b: a, *two)


def test_functions_outside_of_a_trace() -> None:
    with pytest.raises(ingot.CompileError, match="no program is being traced"):
        ops.exp(np.ones(3))
    with pytest.raises(AttributeError, match=r"ingot\.ops has no 'expo'"):
        _ = ops.expo


def test_tensors_that_have_ended() -> None:
    kept: list[Any] = []

    def leak(x: Any) -> Any:
        ops.cond(ops.sum(x) > 0, lambda: kept.append(x + 1) or x, lambda: x)
        return kept[0] * 2

    with pytest.raises(ingot.CompileError, match="or to the body of a loop or branch that has end"):
        ingot.trace(leak, MATRIX)
