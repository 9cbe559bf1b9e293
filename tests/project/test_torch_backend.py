"""The backend "ingot" of torch.compile, against eager torch."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

import ingot

pytest.importorskip("torch.export")  # a folder that is called torch is none
torch = import_module("torch")
backend = import_module("ingot.torch_backend")


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Reads weights, a constant and sizes, and writes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any, factor: int) -> Any:
        self.calls.add_(1)
        y = self.linear(x) * factor + torch.tensor([1.0, 2, 3, 4])
        return y, x.shape[0] * 2, y.t()


def compiled(module: Any, counts: list[int], **options: Any) -> Any:
    """torch.compile with the backend, whose compiles `counts` counts."""
    torch._dynamo.reset()

    def counted(graph: Any, inputs: Any) -> Any:
        counts.append(len(inputs))
        return backend.backend(graph, inputs)

    return torch.compile(module, backend=counted, **options)


def check(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        else:
            assert (type(a), a) == (type(b), b)


@pytest.mark.parametrize(("dynamic", "compiles"), [(True, 1), (False, 3), (None, 2)])
def test_sizes_and_numbers_may_change(dynamic: bool | None, compiles: int) -> None:
    torch.manual_seed(0)
    layer, counts = Layer(), []
    run = compiled(layer, counts, dynamic=dynamic)
    with torch.no_grad():
        for rows, factor in ((3, 5), (7, 6), (2, 7)):
            x = torch.randn(rows, 4)
            check(run(x, factor), layer(x, factor))
    assert len(counts) == compiles
    assert layer.calls == 6


def test_sizes_are_summed_and_heads_are_grouped() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        q = torch.cat((x, y, z), 1)
        heads = [each.unflatten(2, (-1, 2)).transpose(1, 2) for each in (q, q[:, :, :4])]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*heads, heads[1], enable_gqa=True), q.shape[1]

    run = compiled(f, [], dynamic=True)
    given = [torch.randn(1, rows, 8) for rows in (2, 3, 5)]
    check(run(*given), f(*given))


@pytest.mark.slow
def test_bins_of_regions_are_sizes_of_the_call() -> None:
    ops = pytest.importorskip("torchvision.ops")

    def f(x: Any, rois: Any, bins: int) -> Any:
        size = (bins, bins + 1)
        of_all = ops.roi_align(x, rois, size, 0.5, 2, True), ops.roi_pool(x, rois, size, 0.5)
        return *of_all, ops.ps_roi_align(x, rois, (bins, 2), 0.5, 2)

    counts: list[int] = []
    run = compiled(f, counts, dynamic=True)
    rois = torch.tensor([[0.0, 1, 2, 8, 7], [0, 0, 0, 3, 5]])
    for bins in (3, 4):
        x = torch.randn(1, 4 * bins, 9, 11)
        check(run(x, rois, bins), f(x, rois, bins))
    assert len(counts) == 1


@pytest.mark.filterwarnings("ignore:flex_attention called without")  # as what is compared with
def test_flexible_attention_agrees() -> None:
    attend = import_module("torch.nn.attention.flex_attention").flex_attention

    def f(q: Any, bias: Any) -> Any:
        return (attend(q, q, q, lambda score, b, h, i, j: score + bias[h] * (i - j)),)

    given = torch.randn(1, 2, 8, 4), torch.randn(2)
    with torch.no_grad():
        check(compiled(f, [])(*given), f(*given))


def test_weights_that_change_are_seen_without_another_compile() -> None:
    layer, counts = Layer(), []
    run, x = compiled(layer, counts), torch.randn(3, 4)
    with torch.inference_mode():
        check(run(x, 2), layer(x, 2))
    with torch.no_grad():
        check(run(x, 2), layer(x, 2))
        compiles = len(counts)
        layer.linear.weight.mul_(2)
        check(run(x, 2), layer(x, 2))
        layer.load_state_dict({**layer.state_dict(), "linear.bias": torch.ones(4)})
        check(run(x, 2), layer(x, 2))
    assert len(counts) == compiles


def test_a_graph_break_leaves_the_rest_compiled() -> None:
    def f(x: Any) -> Any:
        y = (x * 2).sin()
        torch._dynamo.graph_break()
        return (y.cos() + x,)

    counts: list[int] = []
    run, x = compiled(f, counts), torch.randn(5)
    check(run(x), f(x))
    assert len(counts) == 2


def test_inputs_of_any_layout_and_dtype() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + 1, y * 2, (x.unsqueeze(1) * x.unsqueeze(2)).permute(2, 0, 1)

    run = compiled(f, [])
    x = torch.randn(6, 4).t()[1:]
    y = torch.randn(3, requires_grad=False).bfloat16()
    check(run(x, y), f(x, y))


def test_results_share_memory_as_those_of_eager_torch() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        part = y[1:]
        part.add_(1)
        return y, part, y.t(), (x + 1).expand(2, *x.shape), *(x + 3).chunk(2), x.expand(2, *x.shape)

    run = compiled(f, [], dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 3)
        found, expected = run(x), f(x)
        check(found, expected)
        for results in (found, expected):
            results[1].fill_(7)
        check(found, expected)
        assert found[-1].data_ptr() == x.data_ptr()


def test_views_begin_where_numbers_of_the_call_say() -> None:
    def f(x: Any, n: int) -> Any:
        rows = x[n - 1 :]
        return rows, rows[:, n // 2 :].t(), (x + 1)[n - 1 :]

    run = compiled(f, [], dynamic=True)
    for count, n in ((4, 2), (6, 3), (6, 5)):
        x = torch.randn(count, 4)
        found = run(x, n)
        check(found, f(x, n))
        found[0].zero_()
        assert not x[n - 1 :].any()
        assert not found[1].any()


def test_a_buffer_that_is_bound_again_may_have_other_sizes() -> None:
    class Bound(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("last", torch.zeros(2, 4))

        def forward(self, x: Any) -> Any:
            self.last = torch.tanh(x + self.last[: x.shape[0]].sum(0))
            torch._dynamo.graph_break()
            self.calls += 1
            return self.last * self.calls

    module, plain = Bound(), Bound()
    run = compiled(module, [], dynamic=True)
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4)
        check([run(x), module.last], [plain(x), plain.last])


def test_arguments_that_share_memory_are_written() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return (a + b,)

    run = compiled(f, [])
    found, expected = torch.arange(20.0).reshape(5, 4), torch.arange(20.0).reshape(5, 4)
    check(run(found[:3], found[1:4]), f(expected[:3], expected[1:4]))
    torch.testing.assert_close(found, expected)


def test_layers_and_masks_agree() -> None:
    torch.manual_seed(0)
    layers = [
        torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first,
                                         activation=name).eval()
        for first, name in ((False, "relu"), (True, "gelu"))
    ]  # fmt: skip
    bilinear = torch.nn.Bilinear(8, 8, 3)

    def f(x: Any, hidden: Any, kept: Any) -> Any:
        given = ({}, {"src_key_padding_mask": hidden}, {"src_mask": kept.logical_not()})
        found = [layer(x, **each) for layer in layers for each in given]
        mask = kept & hidden.logical_not()[:, None]  # which hides all from some rows
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return [*found, attended, bilinear(x, x)]

    x, hidden = torch.randn(2, 4, 8), torch.zeros(2, 4, dtype=torch.bool)
    hidden[1, :2] = True
    kept = torch.ones(4, 4, dtype=torch.bool).tril()
    with torch.no_grad():
        torch.testing.assert_close(compiled(f, [])(x, hidden, kept), f(x, hidden, kept))


def test_weights_whose_writes_torch_does_not_count() -> None:
    x = torch.randn(3, 4)
    with torch.inference_mode():
        layer = torch.nn.Linear(4, 4)
        run = compiled(layer, [])
        torch.testing.assert_close(run(x), layer(x))
        layer.weight.mul_(2)
        torch.testing.assert_close(run(x), layer(x))
    layer = torch.nn.Linear(4, 4).requires_grad_(False)
    run = compiled(layer, [])
    torch.testing.assert_close(run(x), layer(x))
    layer.weight.data = torch.randn(4, 4)
    torch.testing.assert_close(run(x), layer(x))


def test_gradients_are_refused_with_what_to_do() -> None:
    with pytest.raises(Exception, match=r"for inference.*torch\.no_grad\(\)"):
        compiled(Layer(), [])(torch.randn(3, 4), 2)


def test_training_is_refused_with_what_to_do() -> None:
    said = r"'0\.1/native_dropout': .*training mode: call model\.eval\(\)"
    inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout())
    with torch.no_grad(), pytest.raises(Exception, match=said):
        compiled(torch.nn.Sequential(inner), [])(torch.randn(3))


def test_numbers_of_tensors_are_taken() -> None:
    counts: list[int] = []
    run, x = compiled(lambda x: (x * x.sum().item(),), counts), torch.tensor([1, 2.5, 3]).half()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(run(x), (x * x.sum().item(),))
    assert len(counts) == 1


def test_what_is_not_supported_is_named() -> None:
    def f(x: Any) -> Any:
        return torch.linalg.ldl_factor(x).LD

    with pytest.raises(Exception, match=r"aten\.linalg_ldl_factor"):
        compiled(f, [])(torch.randn(3, 3))
    with pytest.raises(ingot.InvalidArgument, match="has no option 'threads'"):
        backend.backend(None, (), options={"threads": 4})


def test_torch_finds_the_backend_without_an_import_of_ingot() -> None:
    script = (
        "import torch; f = torch.compile(lambda x: x + 1, backend='ingot'); print(f(torch.ones(2)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "tensor([2., 2.])\n", run.stderr
