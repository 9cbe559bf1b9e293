"""Functions that torch's core opset does not have - distinct and counted elements, regions of
images, numbers of sizes, ops that are a few others - against eager torch."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.devices import load_best
from tests.support.torch_calls import Calls, check, drawn, leaves, torch

F = torch.nn.functional
S = torch.special
LINES = torch.tensor([[2.0, 0, 2, 1, 1, 2], [5, 5, 0, 0, 7, 8]])
SPARSE = torch.tensor([[2.0, torch.nan, 2, 1], [torch.nan, 1, 0, torch.nan], [1, 2, 3, 4]])
NUMBERS = torch.tensor([4, 0, -6, 9, 12, -35])
OTHERS = torch.tensor([6, 0, 4, -3, 0, 14])
COUNTING: dict[str, tuple[Any, ...]] = {
    "median": (lambda x: (x.median(1)[0], x.median(0, keepdim=True)[0], x.median()), SPARSE),
    "nanmedian": (lambda x: (x.nanmedian(1)[0], x.nanmedian()), SPARSE),
    "place_of_median": (lambda x: x.median(1), torch.tensor([[3, 1, 2], [9, 8, 7]])),
    "mode": (lambda x: (x.mode(), x.mode(0, keepdim=True)), LINES),
    "unique": (lambda x: x.unique(return_inverse=True, return_counts=True), LINES),
    "unique_values": (lambda x: x.unique(), LINES.long()),
    "unique_consecutive": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        LINES,
    ),
    "unique_slices": (
        lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
        torch.tensor([[1, 0, 1, 0], [2, 5, 2, 4]]),
    ),
    "unique_consecutive_slices": (lambda x: torch.unique_consecutive(x, dim=0), LINES[[0, 0, 1]]),
    "bincount": (lambda x: (torch.bincount(x), torch.bincount(x, minlength=20)), NUMBERS.abs()),
    "weighted": (lambda x, w: torch.bincount(x, w), NUMBERS.abs(), LINES[0]),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 1), LINES, OTHERS.abs()),
    "nonzero_static": (
        lambda x: (
            torch.nonzero_static(x, size=3),
            torch.nonzero_static(x, size=15, fill_value=-7),
        ),
        LINES,
    ),
    "gcd": (lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), NUMBERS, OTHERS),
    "logcumsumexp": (lambda x: (x.logcumsumexp(0), (x * 40).logcumsumexp(1)), drawn(5, 7)),
    "index_reduce": (
        lambda x, i, s: [x.index_reduce(0, i, s, kind) for kind in ("prod", "mean", "amax", "amin")]
        + [x.index_reduce(0, i, s, "mean", include_self=False)],
        drawn(4, 3),
        torch.tensor([0, 2, 2]),
        drawn(3, 3),
    ),
    "single_elements": (
        lambda x, i: (
            x.index_add(0, i, x),
            x.index_fill(0, i, 3.0),
            x.index_copy(0, i, x + 1),
            x.index_reduce(0, i, x + 1, "mean"),
        ),
        torch.tensor(2.5),
        torch.tensor([0]),
    ),
    "put": (
        lambda x, i: (x.put(i, i.float()), x.put(i, i.float(), accumulate=True)),
        drawn(4, 3),
        torch.tensor([0, -1, 5]),
    ),
    "diagonal_scatter": (
        lambda x: (
            torch.diagonal_scatter(x, x[:2, 0], 2),
            torch.diagonal_scatter(x, x[:3, 1], -1, 1, 0),
        ),
        drawn(4, 4),
    ),
    "greatest_of_one": (
        lambda x: (
            x.topk(1), x.topk(0), x.sort(), F.rrelu(x - 3, 0.2, 0.3), x.unfold(0, 1, 1),
            x.unfold(0, 0, 1), x[None].gather(0, torch.empty(2, 0, dtype=torch.int64)),
            x.flip(0), x.movedim(0, -1), x.gather(-1, torch.tensor(0)),
            x.scatter(-1, torch.tensor(0), x + 1), x.index_fill(-1, torch.tensor([0]), 1.0),
        ),
        torch.tensor(2.5),
    ),
    "counted": (
        lambda x: [torch.arange(*ends, dtype=kind) for kind in (torch.uint8, torch.int32)
                   for ends in ((-1, 2, 2), (-8, 0, 4), (5, 0, -2), (250, 260))],
        LINES,
    ),
    "numbers_out_of_range": (
        lambda u: (
            u < -1, u == -1, u + -1, u * -2, 3 - u, u & -2, u // -2, torch.fmod(u, -3),
            u.clamp(-3, 10), torch.full_like(u, -1), torch.where(u > 3, u, -1),
            torch.scalar_tensor(-5, dtype=u.dtype), u.masked_fill(u > 3, -1),
            u.index_add(0, torch.tensor([0, 1]), u[:2], alpha=-1), torch.rsub(u, 5, alpha=-2),
            torch.sub(u, u, alpha=-3), torch.scatter(u, 0, torch.tensor([1]), -7),
            u.to(torch.int8) - 300, torch.addcmul(u, u, u, value=-1),
        ),
        torch.tensor([1, 255, 7, 100], dtype=torch.uint8),
    ),
    "triangles": (
        lambda x: [
            make(*sizes, dtype=dtype) for make in (torch.tril_indices, torch.triu_indices)
            for sizes in ((3, 4), (4, 3, -1), (3, 5, 2), (0, 3), (2, 2, -5))
            for dtype in (torch.int64, torch.int32)
        ],
        LINES,
    ),
    "limits_and_nan": (
        lambda x: (F.threshold(x, 0.5, 9.0), F.hardshrink(x), F.elu(x), F.celu(x, 0.7)),
        torch.tensor([torch.nan, torch.inf, -torch.inf, 0.5, -0.5, 0.0, 3.0]),
    ),
    "grid_of_single_pixels": (
        lambda t: [torch.affine_grid_generator(t, [2, 1, 1, n], aligned)
                   for n in (1, 4) for aligned in (False, True)],
        drawn(2, 2, 3),
    ),
    "narrow_copy": (lambda x: torch.narrow_copy(x, 1, 1, 2), LINES),
    "searched": (
        lambda lines, x: (
            *(torch.searchsorted(lines[:, :n].contiguous(), x, right=right)
              for n in (0, 1, 2, 7, 8, 40) for right in (False, True)),
            torch.searchsorted(lines[0], x[None], side="right", out_int32=True),
            torch.bucketize(x, lines[1]), torch.searchsorted(lines[0], 0.25),
            torch.searchsorted(lines[2:].flip(-1), x[2:], sorter=torch.arange(39, -1, -1)[None]),
        ),
        torch.cat([drawn(2, 40).sort(-1)[0], torch.tensor([[0.0] * 20 + [torch.nan] * 20])]),
        torch.cat([drawn(3, 8), torch.tensor([[torch.nan, torch.inf, -torch.inf, 0.0]] * 3)], 1),
    ),
    "histogram": (
        lambda x, w, edges: (
            torch.histogram(x, 10),
            torch.histogram(x, 10, range=(-1.0, 1.0), weight=w, density=True),
            torch.histogram(x, edges, density=True),
            torch.histogram(x[:0], 2),
            torch.histogram(x[0], 3),
            torch.histogramdd(x.reshape(5, 5, 2), [3, 4]),
            torch.histogramdd(
                x.reshape(25, 2), [3, 2], [-1.0, 1.0, 0.0, 0.5], w[:25], density=True
            ),
            torch.histogramdd(x[:48].reshape(16, 3), [edges, edges[:3], edges]),
        ),
        drawn(50),
        drawn(50).abs(),
        torch.tensor([-1.0, -0.5, 0.1, 2.0]),
    ),
    "segments": (
        lambda x, lengths, offsets, rows: [
            torch.segment_reduce(x, kind, initial=start, **given)
            for kind in ("sum", "mean", "max", "min", "prod")
            for start in (None, 2.0)
            for given in (
                {"lengths": lengths},
                {"offsets": offsets},
                {"offsets": offsets.clamp(1)},
                {"lengths": rows, "axis": 1, "unsafe": True},
            )
        ],
        drawn(3, 3),
        torch.tensor([1, 0, 2]),
        torch.tensor([0, 1, 1, 3]),
        torch.tensor([[3, 0], [1, 1], [1, 2]]),
    ),
    "fractional_pools": (
        lambda x, n: (
            F.fractional_max_pool2d(
                x[:, :, 0], (2, 3), (4, 3), return_indices=True, _random_samples=n[..., :2]
            ),
            F.fractional_max_pool2d(x[0, :, 0], 2, 1, _random_samples=n[:1, :, :2]),
            F.fractional_max_pool3d(
                x, (2, 3, 2), (2, 3, 3), return_indices=True, _random_samples=n
            ),
        ),
        drawn(2, 3, 5, 9, 8),
        torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0)),
    ),
    "differences": (
        lambda x: [x.diff(n, 1, x[:, :1], x[:, 2:4]) for n in (0, 1, 3)],
        LINES,
    ),
    "along": (lambda x, i: (x.take_along_dim(i, 1), (x * 1j).take_along_dim(i, 1)),
              LINES, torch.tensor([[0, -1, -6], [5, 2, -2]])),
    "split_by_places": (lambda x, i: x.tensor_split(i, 1), LINES, torch.tensor([1, -2])),
    "negative_numbers": (
        lambda x, i: (
            x + i[0].item(),
            x.roll(i[0].item()),
            x[:, : i[0].item()],
            x[0, i[1].item()],
            i[0].item() // 2 * 3 - i[1].item() % 5,
        ),
        LINES,
        torch.tensor([-3, -1]),
    ),
    "distances": (lambda a, b: [torch.dist(a, b, p) for p in (0, 1, 2, 4, torch.inf, -torch.inf)],
                  drawn(3, 4), drawn(4)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", COUNTING)
def test_counts_and_places_agree(name: str) -> None:
    function, *tensors = COUNTING[name]
    check(function, *tensors, near=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_attention_also_gives_the_logarithms_of_its_sums(dtype: Any) -> None:
    q, k = drawn(1, 2, 4, 8).to(dtype), drawn(1, 2, 5, 8).to(dtype)
    mask = torch.zeros(4, 5, dtype=dtype)
    mask[1], mask[2, 3] = -torch.inf, -torch.inf
    attend, near = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, 4e-3
    near = near if dtype is torch.float16 else 1e-5
    check(lambda q, k: attend(q, k, k, scale=0.3), q, k, near=near)
    check(lambda q, k: attend(q, k, k, 0.0, True), k, k, near=near)
    check(lambda q, k, mask: attend(q, k, k, attn_mask=mask), q, k, mask, near=near)


def conditional(x: Any, y: Any) -> Any:
    return torch.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))


def of_two_conditions(x: Any, y: Any) -> Any:
    size = x.shape[0]
    near = torch.cond((size > 4) & (size < 7), lambda x: x + 1, lambda x: x - 1, (x,))
    far = torch.cond((size > 4) | (size < 2), lambda x: x + 1, lambda x: x - 1, (x,))
    return near, far, torch.tensor(torch.sym_not(size > 4)), size > 4


def of_numbers(x: Any, y: Any) -> Any:
    """Loops and branches that carry and give numbers."""
    loop = torch._higher_order_ops.while_loop
    count, x = loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 2, x + i), (-3, x))
    low, three = torch.cond(y.sum() > 0, lambda y: (y + 1, 3), lambda y: (y - 1, 4), (y,))
    return count, x, low, three


def chosen(x: Any, y: Any) -> Any:
    kept = y.int()[0].abs().item()
    torch._check(kept < 10)
    return y.new_ones(torch.sym_ite(kept > 1, kept, kept * 2)) * x.sum()


SIZES: dict[str, Any] = {
    "cond": conditional,
    "conditions": of_two_conditions,
    "numbers": of_numbers,
    "chosen": chosen,
    "truths": lambda x, y: (x * (x.shape[0] > 4), torch.where(torch.tensor(x.shape[0] > 4), x, -x)),
    "powers": lambda x, y: (x * x.shape[0] ** -0.5, x + 2 ** x.shape[0]),
    "rounded": lambda x, y: (
        x + x.shape[0] * 0.7 // 2, x + -x.shape[0] * 0.7 % 2, x + round(x.shape[0] * 0.5)
    ),
    "bits": lambda x, y: (
        x + abs(x.shape[0] - 4) + (x.shape[0] & 1), x + (x.shape[0] >> 1 << 2) + (1 << x.shape[0]),
        x + (x.shape[0] | 9) * (2 * x.shape[0] & -2 | 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_sizes_agree(name: str) -> None:
    shapes = ({0: torch.export.Dim("n", max=64)}, {})
    program = torch.export.export(
        Calls(SIZES[name]), (drawn(5), drawn(3)), dynamic_shapes=(shapes,), strict=False
    )
    module = read_source(program)
    for size in (1, 2, 5, 6, 8):
        given = (drawn(size), drawn(3) * size)
        found = interpret(module, "main", [each.numpy() for each in given])
        for a, b in zip(found, leaves(SIZES[name](*given)), strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without")  # as what is compared with
def test_flexible_attention_agrees() -> None:
    flex = import_module("torch.nn.attention.flex_attention")
    blocks = flex.create_block_mask(
        lambda b, h, i, j: (i >= j) & (i - j < 9), 2, 4, 16, 16, device="cpu"
    )

    def attended(q: Any, k: Any, v: Any, bias: Any) -> Any:
        def biased(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.tanh(score / 5) + bias[h, i, j] + (i - j) * 0.1

        near = flex.flex_attention(q, k, v, block_mask=blocks, scale=0.3)
        return near, flex.flex_attention(q, k[:, :2], v[:, :2], biased, enable_gqa=True)

    check(attended, *(drawn(2, 4, 16, 8) for _ in range(3)), drawn(4, 16, 16))


def test_triangles_that_take_all_memory_are_refused() -> None:
    program = torch.export.export(
        Calls(lambda x: torch.tril_indices(1 << 20, 1 << 20)[:, : x.shape[0]]), (LINES,)
    )
    with pytest.raises(CompileError, match="1048576 x 1048576, expected at most"):
        read_source(program)


def test_what_transforms_of_functions_made_is_refused() -> None:
    gradient = torch.func.grad(lambda x: (x.sin() * x).sum())
    program = torch.export.export(Calls(gradient), (drawn(3),), strict=False)
    with pytest.raises(CompileError, match=r"torch.func made: compute gradients outside"):
        read_source(program)


BOXES = torch.tensor(
    [[1, 0, 1, 4], [2, 2, 9, 12], [-5, -4, 3, 3], [8, 8, 30, 26], [5, 5, 2, 2], [6, 1, 2, 7]]
).float()
REGIONS: dict[str, Any] = {
    "samples_by_size": lambda ops, x, r: (
        ops.roi_align(x, r[:5], (3, 2), 0.7, -1, True),  # torchvision takes no [5] here
        ops.roi_align(x, r, (3, 2), 0.7, 0, False),
    ),
    "samples": lambda ops, x, r: ops.roi_align(x, r, (3, 2), 0.7, 2, True),
    "greatest": lambda ops, x, r: ops.roi_pool(x, r, (2, 3), 0.7),
    "means_of_bins": lambda ops, x, r: ops.ps_roi_pool(x, r, (2, 3), 0.7),
    "samples_of_bins": lambda ops, x, r: (
        ops.ps_roi_align(x, r, (3, 2), 0.7, -1), ops.ps_roi_align(x, r, (2, 3), 0.7, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGIONS)
def test_regions_of_images_agree(name: str) -> None:
    ops = pytest.importorskip("torchvision.ops")
    image = torch.tensor([[0.0], [1], [0], [1], [1], [0]])
    x, regions = drawn(2, 6, 12, 14), torch.cat([image, BOXES], 1)
    check(lambda x, r: REGIONS[name](ops, x, r), x, regions)


def test_convolutions_of_moved_windows_agree() -> None:
    ops = pytest.importorskip("torchvision.ops")

    def convolved(x: Any, offset: Any, mask: Any, w: Any, bias: Any) -> Any:
        near = ops.deform_conv2d(x, offset[:, :18], w, bias, (1, 2), (2, 1), (2, 1), mask)
        return near, ops.deform_conv2d(x, offset, w[:, :2], None, (1, 2), (2, 1), (2, 1))

    mask = torch.rand(2, 9, 7, 4)
    given = (drawn(2, 4, 7, 8), drawn(2, 36, 7, 4) * 2, mask, drawn(6, 4, 3, 3), drawn(6))
    check(convolved, *given)


@pytest.mark.filterwarnings("ignore:.create_unbacked_symint")
def test_an_overlap_just_above_the_threshold_suppresses() -> None:
    """3 of 10, which is above .3 as an f32."""
    ops = pytest.importorskip("torchvision.ops")
    boxes = torch.tensor([[0.0, 0, 10, 1], [0, 0, 3, 1], [0, 0, 2, 1]])
    check(lambda b, s: ops.nms(b, s, 0.3), boxes, torch.tensor([0.9, 0.8, 0.7]))


@pytest.mark.parametrize(
    ("lengths", "said"), [([1, 2, 2], "are not the axis"), ([-1, 3, 1], "lengths below 0")]
)
def test_lengths_of_segments_fit_the_axis(lengths: list[int], said: str) -> None:
    given = (drawn(3, 2), torch.tensor([1, 0, 2]))
    function = Calls(lambda x, n: torch.segment_reduce(x, "sum", lengths=n))
    program = torch.export.export(function, given, strict=False)
    with pytest.raises(InvalidArgument, match=said):
        interpret(read_source(program), "main", [given[0].numpy(), np.array(lengths)])


def test_results_of_torch_s_own_tuples_have_their_names() -> None:
    program = torch.export.export(Calls(lambda x: (x.max(1), x.sort(0))), (LINES,), strict=False)
    names = read_source(program).functions["main"].result_names
    assert names == ["result.0.values", "result.0.indices", "result.1.values", "result.1.indices"]


ROW = torch.tensor([0.0, 1.5, -2.0, torch.inf, -torch.inf, torch.nan, 0.25])
COMPOSED: dict[str, Callable[..., Any]] = {
    "names": lambda x, e, i: (
        x.absolute() + x.negative(), x.arctan2(x + 1), S.expit(x), x.arcsinh(), x.divide(2),
        torch.divide(x, 3, rounding_mode="floor"), x.swapdims(0, 1), x.moveaxis(0, -1),
        S.logsumexp(x, 1), x.matrix_exp() if x.is_complex() else x, S.round(x), S.exp2(x),
    ),
    "stacks": lambda x, e, i: (
        torch.hstack((x, x)), torch.hstack((e, e)), torch.vstack((e, e)), torch.dstack((x, x)),
        torch.column_stack((e, e)), torch.dstack((e, e)), torch.vstack((x, x)), e.ravel(),
        torch.atleast_3d(e), torch.atleast_2d(x), torch.broadcast_tensors(x, x[0]),
    ),
    "splits": lambda x, e, i: (
        x.hsplit(2), x.hsplit([1, 3]), e.hsplit([2]), x.vsplit([1]), x[None].dsplit(2),
        x.tensor_split((1, 2), 1), torch.unsafe_split(x, 2, 1), torch.unsafe_chunk(x, 2, 1),
    ),
    "turns": lambda x, e, i: (
        x.fliplr(), x.flipud(), [x.rot90(k) for k in range(-1, 4)], (x * 1j).mH, x.adjoint(),
        torch.atleast_1d(x[0, 0]), x.sum_to_size(1, 4), x.sum_to_size(3, 1),
    ),
    "elements": lambda x, e, i: (
        e[:3].frac(), x.deg2rad() + x.rad2deg(), i.deg2rad(), x.sinc(), e.heaviside(e * 0 + 3),
        torch.xlogy(e, e.flip(0)), torch.xlogy(i, 2.5), torch.logaddexp(e, e.flip(0)),
        x.float_power(2), torch.float_power(2, i), e.half().logaddexp(e.half()),
    ),
    "ends": lambda x, e, i: (
        e.nan_to_num(), e.nan_to_num(1.0, 2.0, -3.0), e.half().nan_to_num(), i.nan_to_num(),
        e.isposinf(), e.isneginf(), i.isposinf(), torch.isclose(e, e * 1.000001),
        torch.isclose(e, e, equal_nan=True), torch.isclose(i, i.flip(0), 0.5),
    ),
    "places": lambda x, e, i: (
        x.take(i.abs()), x.take(i), torch.isin(i, i[:2]), torch.isin(i, 3, invert=True),
        torch.isin(4, i), torch.where(x > 0), torch.argwhere(x > 0), x.trace(), i.diag().trace(),
        x.diag(1),
        torch.diag_embed(x), torch.diag_embed(x, -1, 0, 1), torch.linalg.diagonal(x),
    ),
    "sums": lambda x, e, i: (
        torch.std_mean(x), torch.std_mean(x, 1), torch.std_mean(x, 0, correction=0, keepdim=True),
        torch.var_mean(x), torch.var_mean(x, 1, False), tuple(x.aminmax()),
        tuple(x.aminmax(dim=1, keepdim=True)),
    ),
    "products": lambda x, e, i: (
        torch.vdot(x[0], x[1]), torch.vdot(x[0] * 1j, x[1] + 2j), torch.inner(x, x[0]),
        torch.inner(x, x[0, 0]), torch.tensordot(x, x, ([1], [1])), torch.kron(x, x[:2]),
        torch.addr(x, x[:, 0], x[0], beta=2, alpha=0.5), torch.kron(x[0], x), torch.matmul(x, x.T),
        torch.linalg.vecdot(x, x[0] * 2), torch.linalg.vecdot(x * 1j, x[:1] + 2j, dim=0).real,
        torch.cross(x, x.flip(0), dim=0), torch.linalg.cross(x.T, x.T.roll(1, 0)),
        F.pairwise_distance(x, x.flip(0)), F.pairwise_distance(x, x[0], 1.0, keepdim=True),
    ),
    "matrices": lambda x, e, i: [
        (torch.linalg.inv(a), a.inverse(), a.det(), *torch.linalg.slogdet(a), *torch.slogdet(a),
         torch.linalg.det(a), torch.linalg.solve(a, x), torch.linalg.cholesky(a),
         torch.linalg.eigvalsh(a), torch.linalg.eigh(a)[0], *torch.linalg.lu_factor(a),
         torch.linalg.svdvals(x), torch.linalg.svd(x)[1], torch.linalg.svd(x)[2].abs())
        for a in [x @ x.T + torch.eye(3)]
    ],
    "signals": lambda x, e, i: (
        [window(n, periodic=periodic) + x[0, 0] for n in (1, 2, 9) for periodic in (True, False)
         for window in (torch.hann_window, torch.hamming_window, torch.blackman_window)],
        torch.fft.fftshift(x), torch.fft.ifftshift(x, 0), torch.fft.fftshift(x * 1j).imag,
        torch.hamming_window(7, False, 0.4, 0.3), torch.hann_window(8),
        [torch.view_as_real(each) for line in [x.repeat(1, 5)] for each in (
            torch.stft(line, 8, 3, 6, torch.hann_window(6), normalized=True, return_complex=True),
            torch.stft(line, 8, 3, 6, torch.hann_window(6), center=False, return_complex=True,
                       align_to_window=True),
            torch.stft(line[0], 8, window=e[:1].sin() + torch.ones(8), center=False,
                       onesided=False, return_complex=True))],
    ),
    "rest": lambda x, e, i: (
        (i > 0).logit(), i.logit(0.1), i.logit(0.75),
        S.ndtr(x), S.xlog1py(x, x.abs()), S.xlog1py(x, 2.0), S.xlog1py(e, e.flip(0)), S.ndtr(e),
        e.nanmean(), torch.stack((e, e * 2)).nanmean(1), torch.nanmean(x, 0, True), x.msort(),
        torch.diagflat(x), torch.diagflat(x[0], 1),
        F.max_unpool1d(x[:, None, :1], i[:1].expand(3, 1, 1), 4),
        F.max_unpool2d(x[None, None, :1, :2], i[::2].expand(1, 1, 1, 2), 2, output_size=(2, 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSED)
def test_ops_that_are_a_few_others_need_no_decomposition(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, places = drawn(3, 4), torch.tensor([3, -1, 0, 7])
    function, file = COMPOSED[name], io.BytesIO()
    program = torch.export.export(Calls(function), (x, ROW, places), strict=False)
    torch.export.save(program, file)
    given, asked = [x.numpy(), ROW.numpy(), places.numpy()], []
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", asked.append)
    for source in (file.getvalue(), program):
        with np.errstate(all="ignore"):
            found = interpret(read_source(source), "main", given)
        for a, b in zip(found, leaves(function(x, ROW, places)), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    assert not asked


@pytest.mark.filterwarnings("ignore:.*return_complex=False")
def test_spectra_as_pairs_of_numbers_are_refused() -> None:
    def spectra(x: Any) -> Any:
        return torch.stft(x, 8, window=torch.ones(8), center=False, return_complex=False)

    program = torch.export.export(Calls(spectra), (drawn(2, 20),), strict=False)
    with pytest.raises(CompileError, match="pairs of numbers: set return_complex=True"):
        read_source(program)


def test_norms_of_the_batch_alone_are_taken() -> None:
    """Those that keep no running statistics, and weights that are standardised by them."""
    x, norm = drawn(3, 4, 5), torch.nn.BatchNorm1d(4, track_running_stats=False).eval()

    def function(x: Any, w: Any, bias: Any) -> Any:
        standard = F.batch_norm(w[None], None, None, bias, bias, training=True)
        none = F.batch_norm(bias[:0], bias[:0], bias[:0])
        return norm(x), F.batch_norm(x, None, None, training=True), standard, none

    with torch.no_grad():
        check(function, x, drawn(6, 4), drawn(6))


def test_indices_below_a_choice_are_read_where_it_takes_them() -> None:
    """Not in front of it, where they may be those of no row at all."""

    def function(x: Any, i: Any, y: Any, j: Any) -> Any:
        wide = (each[:, None, :].expand(-1, 64, -1) for each in (i, j))
        return torch.cat([torch.gather(each, 2, at) for each, at in zip((x, y), wide, strict=True)])

    x, y = drawn(2, 64, 64), drawn(2, 64, 64) + 1
    tensors = x, torch.arange(256).reshape(2, 128) % 64, y, torch.arange(256).reshape(2, 128) % 63
    program = torch.export.export(Calls(function), tensors, strict=False)
    found = load_best(program)(*(each.numpy() for each in tensors))
    np.testing.assert_array_equal(found, function(*tensors).numpy())
