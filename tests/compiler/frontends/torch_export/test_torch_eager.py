"""Modules and exported programs in memory, which need torch, against eager torch."""

from __future__ import annotations

import io
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.torch import import_torch, live
from ingot.compiler.graph.forms.fuse_scales import fuse_scales
from ingot.compiler.graph.forms.multiply_codes import IN_INTEGERS, multiply_codes
from ingot.compiler.graph.forms.store_narrow import store_narrow
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import to_text
from ingot.compiler.read_source import read_source
from tests.support.devices import load_best

pytest.importorskip("torch.export")  # a folder that is called torch is none
torch = import_module("torch")


def network() -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(20, 8), layer, torch.nn.Linear(8, 3)).eval()


def shapes() -> Any:
    batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", min=2, max=32)
    return ({0: batch, 1: length},)


@pytest.mark.parametrize("is_exported", [False, True])
def test_a_transformer_agrees_for_other_sizes(is_exported: bool) -> None:
    model, ids = network(), torch.randint(0, 20, (2, 5))
    if is_exported:
        program = torch.export.export(model, (ids,), dynamic_shapes=shapes())
        module = read_source(program)
    else:
        module = read_source(model, example_inputs=(ids,), dynamic_shapes=shapes())
    other = torch.randint(0, 20, (3, 7))
    (found,) = interpret(module, "main", [other.numpy()])
    np.testing.assert_allclose(found, model(other).detach().numpy(), 1e-4, 1e-5)


def test_dims_have_the_user_s_names() -> None:
    class Sum(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, pair: Any, z: Any) -> Any:
            return (pair[0] + pair[1]["y"]).sum(1) * z

    rows, columns = torch.export.Dim("rows", max=9), torch.export.Dim("columns", min=2)
    wide = {0: rows, 1: columns}
    x, z = torch.ones(3, 4), torch.ones(3)
    for shapes in (((wide, {"y": wide}), (rows,)), {"z": {0: rows}, "pair": (wide, {"y": wide})}):
        module = read_source(Sum(), example_inputs=((x, {"y": x}), z), dynamic_shapes=shapes)
        function = module.functions["main"]
        assert function.symbols == {"rows": (0, 9), "columns": (2, None)}
        assert str(function.block.arguments[1].type) == "f32[rows,columns]"


@pytest.mark.parametrize("is_exported", [False, True])
def test_sizes_that_torch_names_may_be_one(is_exported: bool) -> None:
    class Rows(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.softmax(0), x.unsqueeze(1) + x.unsqueeze(0), x.cumsum(0)[:, 1:], x.mean(0)

    x, shapes = torch.randn(3, 4), ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(Rows(), (x,), dynamic_shapes=shapes)
    source = read_source(program) if is_exported else read_source(
        Rows(), example_inputs=(x,), dynamic_shapes=shapes
    )  # fmt: skip
    for rows in (5, 1):
        other = torch.randn(rows, 4)
        found = interpret(source, "main", [other.numpy()])
        for each, expected in zip(found, program.module()(other), strict=True):
            np.testing.assert_allclose(each, expected.numpy(), 1e-5, 1e-6)


def test_windows_of_unequal_length_and_numbers_beside_nan_agree() -> None:
    class Pools(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            pool = torch.nn.functional.adaptive_max_pool2d
            numbers = torch.fmax(x, x.flip(0)), torch.fmin(x, x.flip(0))
            written = torch.as_strided_scatter(x, x[0, 0, :2, :2], (2, 2), (1, 7), 3)
            pooled = [pool(x, size, return_indices=True) for size in ((3, 2), (5, 3), 1)]
            return numbers, written, pooled

    x = torch.randn(2, 3, 5, 6)
    x[0, 0, 1] = torch.nan
    found = interpret(read_source(Pools(), example_inputs=(x,)), "main", [x.numpy()])
    leaves = torch.utils._pytree.tree_leaves(Pools()(x))
    for each, expected in zip(found, leaves, strict=True):
        np.testing.assert_array_equal(each, expected.numpy())


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves
def test_blocks_of_images_and_weights_of_given_lengths_need_no_decomposition() -> None:
    norm, unfold = torch.nn.utils.parametrizations.weight_norm, torch.nn.functional.unfold

    class Blocks(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.along = norm(torch.nn.Conv1d(3, 4, 3), dim=2)
            self.whole = norm(torch.nn.Linear(3, 4), dim=-1)

        def forward(self, x: Any) -> Any:
            rows = x.flatten(2)
            blocks = [unfold(x, 3, 1, 1, 1), unfold(x, (2, 4), 1, 0, (2, 4))]
            odd = unfold(x, (3, 2), (2, 1), (2, 1), (1, 2)), unfold(x[0], 2)
            return self.along(rows), self.whole(rows.mT), *blocks, *odd

    auto, data, model = torch.export.Dim.AUTO, io.BytesIO(), Blocks()
    shapes = ({0: auto, 2: auto, 3: auto},)
    torch.export.save(
        torch.export.export(model, (torch.randn(2, 3, 8, 12),), dynamic_shapes=shapes), data
    )
    x = torch.randn(3, 3, 10, 16)
    found = interpret(read_source(data.getvalue()), "main", [x.numpy()])
    for each, expected in zip(found, model(x), strict=True):
        np.testing.assert_allclose(each, expected.detach().numpy(), 1e-4, 1e-5)


def test_what_a_model_checks_of_data_is_checked() -> None:
    class Fills(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, mask: Any, count: Any) -> Any:
            torch._check_tensor_all(mask.sum() * 2 == 4, lambda: "the mask does not fit")
            n = count.item()
            torch._check(n + 1 <= x.shape[0])
            y = torch.broadcast_tensors(x, x.new_zeros(2, 1))[0]
            return y.masked_scatter(mask, x.flip(0) * 2), x[:n]

    auto, mask = torch.export.Dim.AUTO, torch.tensor([False, True, True, False, False])
    shapes, x, count = ({0: auto}, {0: auto}, None), torch.randn(5), torch.tensor(3)
    program = torch.export.export(Fills(), (x, mask, count), dynamic_shapes=shapes)
    model = load_best(program)
    given = [each.numpy() for each in (x, mask, count)]
    for found, expected in zip(model(*given), Fills()(x, mask, count), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())
    with pytest.raises(ingot.InvalidArgument):
        model(given[0], ~given[1], given[2])
    with pytest.raises(ingot.InvalidArgument):
        model(*given[:2], np.array(5))


def test_weights_that_are_written_are_state() -> None:
    model = torch.nn.Embedding(10, 4, max_norm=1.0).eval()
    ids, state = torch.randint(0, 10, (3, 4)), dict[str, Any]()
    module = read_source(model, example_inputs=(ids,))
    (found,) = interpret(module, "main", [ids.numpy()], state=state)
    np.testing.assert_allclose(found, model(ids).detach().numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(state["weight"], model.weight.detach().numpy(), 1e-5, 1e-6)


def test_composite_ops_stay_whole() -> None:
    module = read_source(network(), example_inputs=(torch.randint(0, 20, (2, 5)),))
    ops = [op.name for op in module.functions["main"].block.ops]
    assert ops.count("dot_general") == 7  # q k v, scores, values, out, two layers, head


def test_what_has_lowerings_is_not_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    decompose = torch.export.ExportedProgram.run_decompositions
    monkeypatch.setattr(
        torch.export.ExportedProgram,
        "run_decompositions",
        lambda program, table: asked.append(program) or decompose(program, table),
    )
    ids = torch.randint(0, 20, (2, 5))
    read_source(torch.export.export(network(), (ids,)))
    assert not asked

    class Turns(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                angles = torch.outer(torch.arange(3), torch.arange(2.0))
                turns = torch.polar(torch.ones_like(angles), angles)
            pairs = torch.view_as_complex(x.reshape(3, 2, 2))
            return torch.view_as_real(pairs * turns[:, None][:, 0]).flatten(1)

    x = torch.randn(3, 4)
    (found,) = interpret(read_source(torch.export.export(Turns(), (x,))), "main", [x.numpy()])
    np.testing.assert_allclose(found, Turns()(x).numpy(), 1e-5, 1e-6)
    assert not asked

    class Writes(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, view: Any) -> None:
            super().__init__()
            self.view, self.relu = view, torch.nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            y = self.relu(x + 1)
            z = self.view(y)
            y[1:, 0] = x[:2, 1] * 3
            return z.neg(), torch.dropout(y, 0.5, False).add_(x), y.sum(0)

    views: list[tuple[Any, bool]] = [
        (lambda y: y.sin().mul_(2), False),
        (lambda y: y[2].unsqueeze(0), False),
        (lambda y: y.to(torch.float64), False),
        (lambda y: y.to(torch.float32).add_(1), False),  # y itself
        (lambda y: y.to(torch.float32, copy=True), False),
        (lambda y: y.reshape(12), False),
        (lambda y: y.T.reshape(12), True),  # which may be a copy
        (lambda y: (y[:, :3].swapaxes_(0, 1), y)[1], True),  # whose elements stay
        (lambda y: torch.broadcast_tensors(y, y)[0], True),  # which is y
        (lambda y: torch.broadcast_tensors(y.sin(), y)[1], True),
        (lambda y: torch.broadcast_tensors(y.sin(), y.cos())[1], False),
        (lambda y: torch.broadcast_tensors(y.sin(), y.cos())[0].mul_(2), True),
        (lambda y: y.negative_().absolute(), False),
        (lambda y: y.tensor_split((1, 2))[2], False),
    ]
    for view, decomposes in views:
        asked.clear()
        found = interpret(read_source(torch.export.export(Writes(view), (x,))), "main", [x.numpy()])
        assert bool(asked) == decomposes
        for each, expected in zip(found, Writes(view)(x), strict=True):
            np.testing.assert_allclose(each, expected.numpy(), 1e-6)


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves
@pytest.mark.parametrize("is_saved", [False, True])
def test_writes_of_a_part_without_gradients_are_seen_around_it(is_saved: bool) -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                self.calls.add_(1)
                part, made = self.calls[1:], x * 2
                ends = made[::3], made[1:]
            part[0] = 7
            ends[1].mul_(3)
            return x + self.calls, part, made, *ends

    x = torch.randn(4)
    source: Any = torch.export.export(Counts(), (x,))
    if is_saved:
        data = io.BytesIO()
        torch.export.save(source, data)
        source = data.getvalue()
    module, state, eager = read_source(source), dict[str, Any](), Counts()
    for _ in range(2):
        found = interpret(module, "main", [x.numpy()], state=state)
        for each, expected in zip(found, eager(x), strict=True):
            np.testing.assert_allclose(each, expected.numpy(), 1e-6)
    np.testing.assert_array_equal(state["calls"], eager.calls.numpy())


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves
def test_views_of_what_a_part_made_and_wrote_see_later_writes() -> None:
    class Writes(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                made = x * 2
                row = made[0]
                end = row[1:]
                made.add_(1)
            made.add_(2)
            seen = row * 1, end * 1
            row.add_(3)
            with torch.no_grad():
                end.mul_(5)
                rows = made[1:]
            rows.mul_(7)
            return *seen, made, row * 1, end * 1, rows * 1

    x, data = torch.randn(2, 3), io.BytesIO()
    torch.export.save(torch.export.export(Writes(), (x,)), data)
    found = interpret(read_source(data.getvalue()), "main", [x.numpy()])
    for each, expected in zip(found, Writes()(x), strict=True):
        np.testing.assert_allclose(each, expected.numpy(), 1e-6)


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves
def test_a_program_in_memory_is_what_its_archive_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.shifted = torch.nn.Parameter(torch.arange(24.0).reshape(4, 6).T[1:4, 1:])
            self.register_buffer("part", torch.linspace(0, 1, 3).to(torch.bfloat16), False)
            self.register_buffer("empty", torch.ones(0, 3))

        def forward(self, ids: Any) -> Any:
            y = self.inner(ids).clamp(min=-float("inf")) @ self.shifted
            return {"y": y, "z": torch.cat([self.empty, self.part[None].float()])}

    program = torch.export.export(
        Odd(), (torch.randint(0, 20, (2, 5)),), dynamic_shapes=shapes()
    ).run_decompositions()
    saved = io.BytesIO()
    torch.export.save(program, saved)
    expected = to_text(read_source(saved.getvalue()))
    with monkeypatch.context() as patch:
        patch.setattr(torch.export, "save", None)
        assert to_text(read_source(program)) == expected
    monkeypatch.setattr(live, "GraphWriter", None)  # as of what it does not know: it is saved
    assert to_text(read_source(program)) == expected


@pytest.mark.filterwarnings("ignore")  # torch, of what it saved
@pytest.mark.parametrize("name", ["indexed", "complex", "layers", "scans", "draws"])
def test_each_kind_of_node_is_read_as_torch_saves_it(name: str) -> None:
    folder = Path(__file__).parents[3] / "models" / "torch_export"
    with np.load(folder / "programs.npz") as files:
        program = torch.export.load(io.BytesIO(files[f"{name}:program"].tobytes()))
    saved = io.BytesIO()
    torch.export.save(program, saved)
    expected = to_text(import_torch(saved.getvalue()))
    assert to_text(import_torch(live.program_archive(torch, program))) == expected


def test_dtypes_promote_as_in_torch() -> None:
    from ingot.compiler.frontends.torch.archive import DTYPES
    from ingot.compiler.frontends.torch.lowerings.arithmetic import promoted
    from ingot.compiler.ir import Block, TensorType, Value
    from ingot.hal.spec import dtype

    kinds = {
        name: getattr(torch, long)
        for name, long in {
            "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
            "f16": "float16",
            "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool",
        }.items()
    }  # fmt: skip
    assert set(kinds) <= set(DTYPES.values())
    for a, first in kinds.items():
        for b, second in kinds.items():
            for ranks in ((2, 2), (2, 0), (0, 0)):
                block = Block([])
                values = [
                    Value(TensorType(dtype(name), (2,) * rank), block)
                    for name, rank in zip((a, b), ranks, strict=True)
                ]
                tensors = (torch.ones((2,) * ranks[0], dtype=first),
                           torch.ones((2,) * ranks[1], dtype=second))  # fmt: skip
                assert kinds[promoted(*values).name] == torch.result_type(*tensors)
        for number in (True, 3, 2.5):
            value = Value(TensorType(dtype(a), (2,)), Block([]))
            expected = torch.result_type(torch.ones(2, dtype=first), number)
            assert kinds[promoted(value, number).name] == expected


def test_modules_need_example_inputs() -> None:
    with pytest.raises(ingot.CompileError, match="needs example inputs"):
        read_source(network())
    with pytest.raises(ingot.CompileError, match=r"torch\.export\.export refuses the module"):
        read_source(network(), example_inputs=(1, 2))


def test_what_torch_refuses_has_the_line_and_no_more() -> None:
    class Branches(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ingot.CompileError) as caught:
        read_source(Branches(), example_inputs=(torch.ones(3),))
    text = str(caught.value)
    assert "\n" not in text
    assert "TORCH" not in text
    assert "return x if x.sum() > 0 else -x); torch.compile(model, backend=" in text


def test_a_loop_that_torch_cannot_decompose_is_taken_as_it_is() -> None:
    class Loop(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch._higher_order_ops.while_loop(
                lambda i, _: i < 5, lambda i, y: (i + 1, y * 1.5 + x.sum()), (torch.tensor(0), x)
            )

    x = torch.randn(3)
    count, found = interpret(read_source(Loop(), example_inputs=(x,)), "main", [x.numpy()])
    assert count == 5
    np.testing.assert_allclose(found, Loop()(x)[1].numpy(), 1e-5)


def test_the_core_ops_are_those_of_torch() -> None:
    from ingot.compiler.frontends.torch.core_ops import CORE

    schemas = torch._C._jit_get_all_schemas()
    named = [each.name.removeprefix("aten::") for each in schemas if each.name.startswith("aten::")]
    packets = [getattr(torch.ops.aten, name) for name in sorted(set(named))]
    ops = [getattr(packet, each) for packet in packets for each in packet.overloads()]
    core = {str(op).removeprefix("aten.") for op in ops if torch.Tag.core in op.tags}
    core = {name for name in core if not name.endswith("out")}
    assert core <= set(CORE)  # an older torch has fewer


def test_a_spectrogram_agrees() -> None:
    class Spectrogram(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()

    x = torch.randn(2, 64)
    (found,) = interpret(read_source(Spectrogram(), example_inputs=(x,)), "main", [x.numpy()])
    np.testing.assert_allclose(found, Spectrogram()(x).numpy(), 1e-4, 1e-5)


def test_complex_numbers_of_python_agree() -> None:
    class Numbers(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, z: Any) -> Any:
            chosen = torch.where(x > 0, z, 2j), z.masked_fill(x > 0, 5j)
            full = torch.full((3,), 1 - 1j, dtype=torch.complex64)
            return x * (1 + 2j), 1j - z, (3 - 1j) / z, z ** (1 + 1j), z + full, z == 2j, *chosen

    x, z = torch.randn(3), torch.tensor([2j, 1 - 1j, 0.5])
    found = interpret(read_source(Numbers(), example_inputs=(x, z)), "main", [x.numpy(), z.numpy()])
    for each, expected in zip(found, Numbers()(x, z), strict=True):
        np.testing.assert_allclose(each, expected.numpy(), 1e-5)


@pytest.mark.slow
def test_images_of_any_size_are_resized() -> None:
    resize = torch.nn.functional.interpolate
    modes: list[tuple[str, dict[str, Any]]] = [
        ("nearest", {}),
        ("nearest-exact", {}),
        ("bilinear", {"align_corners": True}),
        ("bicubic", {}),
        ("bilinear", {"antialias": True}),
        ("bicubic", {"antialias": True}),
    ]

    class Resized(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            sizes = ({"size": y.shape}, {"scale_factor": 0.4}, {"size": (5, 11)})
            return [resize(x, mode=mode, **m, **each) for mode, m in modes for each in sizes]

    height, width = (torch.export.Dim(name, min=5, max=64) for name in ("height", "width"))
    shapes = ({2: height, 3: width}, {0: torch.export.Dim("h"), 1: torch.export.Dim("w")})
    x, y = torch.randn(1, 2, 9, 14), torch.randn(20, 6)
    dynamic = read_source(Resized(), example_inputs=(x, y), dynamic_shapes=shapes)
    fixed = read_source(Resized(), example_inputs=(x, y))
    others = (torch.randn(1, 2, 15, 8), torch.randn(9, 31))
    for module, given in ((dynamic, others), (fixed, (x, y))):
        found = interpret(module, "main", [each.numpy() for each in given])
        for each, expected in zip(found, Resized()(*given), strict=True):
            np.testing.assert_allclose(each, expected.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("align", [False, True])
def test_bytes_of_images_are_resized(align: bool) -> None:
    resize = torch.nn.functional.interpolate
    kinds = [("bilinear", True), ("bilinear", False), ("bicubic", True), ("bicubic", False)]

    class Resized(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return [
                resize(x, size, mode=mode, antialias=smooth, align_corners=align)
                for mode, smooth in kinds
                for size in ((20, 31), (5, 6), (9, 3), (9, 1))
            ]

    x = torch.randint(0, 256, (2, 3, 9, 14), dtype=torch.uint8)
    dims = {2: torch.export.Dim("h", min=6, max=64), 3: torch.export.Dim("w", min=7, max=64)}
    fixed = read_source(Resized(), example_inputs=(x,))
    free = read_source(Resized(), example_inputs=(x,), dynamic_shapes=(dims,))
    for module in (fixed, free):
        found = interpret(module, "main", [x.numpy()])
        for each, expected in zip(found, Resized()(x), strict=True):
            np.testing.assert_array_equal(each, expected.numpy())


@pytest.mark.slow
def test_keras_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("keras runs on another back end in this process")
    layers = keras.layers
    model = keras.Sequential(
        [
            *(keras.Input((6, 6, 2)), layers.Conv2D(4, 3, activation="relu")),
            *(layers.BatchNormalization(), layers.MaxPooling2D(), layers.Reshape((4, 4))),
            *(layers.LSTM(3), layers.Dropout(0.5), layers.Dense(2, activation="softmax")),
        ]
    ).eval()
    x, batch = torch.randn(2, 6, 6, 2), torch.export.Dim("batch", max=8)
    module = read_source(model, example_inputs=(x,), dynamic_shapes=(({0: batch},),))
    other = torch.randn(3, 6, 6, 2)
    (found,) = interpret(module, "main", [other.numpy()])
    np.testing.assert_allclose(found, model(other).detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_products_of_torchao_are_of_codes(bits: int) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    granularity = import_module("torchao.quantization.granularity")
    per = granularity.PerAxis(0) if bits == 8 else granularity.PerGroup(32)
    dynamic = quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=getattr(torch, f"int{bits}"), weight_granularity=per
    )
    for configuration in (quantization.Int8WeightOnlyConfig(version=2), dynamic):
        model, x = torch.nn.Sequential(torch.nn.Linear(64, 32)).eval(), torch.randn(2, 3, 64)
        quantization.quantize_(model, configuration)
        lines = torch.export.Dim("lines", max=64)
        program = torch.export.export(model, (x,), dynamic_shapes=({1: lines},), strict=False)
        module = fuse_scales(multiply_codes(store_narrow(read_source(program))))
        found = [op for op in module.functions["main"].block.ops if op.name.startswith("dot_")]
        if configuration is dynamic:
            assert module.attributes[IN_INTEGERS] == ("0/linear",)
            assert [op.name for op in found] == ["dot_general" if bits == 8 else "dot_scaled"]
        else:
            assert [str(op.attributes.coding) for op in found] == ["i8"]
        (found,) = interpret(module, "main", [x.numpy()])
        np.testing.assert_allclose(found, model(x).detach().numpy(), 1e-4, 1e-5)


def test_rows_are_quantised_in_the_dtype_that_torchao_computes_with() -> None:
    affine = pytest.importorskip("torchao.quantization.quant_primitives")
    block, limits = (1, 32), (torch.int8, -128, 127)

    class Rows(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            results = []
            for kind in (torch.bfloat16, torch.float16, torch.float32):
                for mapping in ("SYMMETRIC", "ASYMMETRIC"):
                    for wide in (None, torch.float32):
                        mapped = getattr(affine.MappingType, mapping)
                        rows = x.to(kind)
                        numbers = affine.choose_qparams_affine(
                            rows, mapped, block, *limits, scale_dtype=wide
                        )
                        codes = affine.quantize_affine(rows, block, *numbers, *limits)
                        results += [codes, *(each.float() for each in numbers)]
            return results

    x = torch.randn(50, 32) * torch.logspace(-6, 4, 50)[:, None]
    module = read_source(torch.export.export(Rows(), (x,)))
    for found, wanted in zip(interpret(module, "main", [x.numpy()]), Rows()(x), strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves
def test_weights_that_share_memory_are_read_alone() -> None:
    class Parts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for place, part in enumerate(torch.randn(1 << 16).chunk(16)):
                self.register_buffer(f"part{place}", part)

        def forward(self, x: Any) -> Any:
            for part in self.buffers():
                x = x * part
            return x

    program = torch.export.export(Parts(), (torch.ones(1 << 12),))
    data = io.BytesIO()
    torch.export.save(program, data)
    for source in (program, data.getvalue()):
        read_source(source)  # what is imported on first use
        tracemalloc.start()
        try:
            module = read_source(source)
            assert tracemalloc.get_traced_memory()[0] < 1 << 19
        finally:
            tracemalloc.stop()
        (found,) = interpret(module, "main", [np.ones(1 << 12, np.float32)])
        np.testing.assert_allclose(found, program.module()(torch.ones(1 << 12)).numpy(), 1e-5)
