"""Functions of torch by theme, and the tensors that they take by name: what `make_programs.py`
exports, and what is compared with eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
import torchvision
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - it registers ops
from torchao.quantization import quant_primitives as affine

__all__ = ["CASES", "Program", "pool"]


def pool() -> dict[str, Any]:
    """The tensors by name."""
    torch.manual_seed(0)
    return {
        "x": torch.randn(2, 4, 6, 5),
        "m": torch.randn(3, 8),
        "n": torch.randn(8, 5),
        "p": torch.rand(3, 8) + 0.1,
        "i": torch.randint(-9, 9, (3, 8)),
        "j": torch.randint(1, 5, (3, 8)),
        "u": torch.randint(0, 3, (2, 3)),
        "b": torch.rand(3, 8) > 0.5,
        "h": torch.randn(3, 8).half(),
        "q": torch.randn(2, 4, 3, 8),
        "k": torch.randn(2, 2, 5, 8),
        "g": torch.rand(2, 3, 2, 2) * 3 - 1.5,
        "c": torch.randn(6, 4, dtype=torch.complex64),
        "s": torch.randn(2, 30),
    }


Case = Callable[[Any], Any]

CASES: dict[str, dict[str, Case]] = {
    "elementwise": {
        "add": lambda t: t.m + t.i,
        "alpha": lambda t: torch.add(t.m, t.p, alpha=2),
        "rsub": lambda t: 1 - t.i,
        "int_div": lambda t: t.i / t.j,
        "floor_div": lambda t: t.i // t.j,
        "float_floor_div": lambda t: torch.div(t.m, t.p, rounding_mode="floor"),
        "trunc_div": lambda t: torch.div(t.i, t.j, rounding_mode="trunc"),
        "remainder": lambda t: t.i % 4 + t.i % -4,
        "fmod": lambda t: torch.fmod(t.m, 0.7),
        "pow": lambda t: t.p**2.5 + t.m**2 + t.m**3 + t.p**-0.5,
        "int_pow": lambda t: t.i**2,
        "scalar_pow": lambda t: 2**t.m,
        "half": lambda t: t.h * 0.1 + t.h,
        "promote": lambda t: t.h + t.m,
        "compare": lambda t: (t.i > t.m) | (t.i == 3) & (t.m <= 0.5),
        "logical": lambda t: torch.logical_xor(t.i, t.b) & ~t.b,
        "bits": lambda t: (t.i & 3) ^ (t.j << 2) | (t.i >> 1),
        "where": lambda t: torch.where(t.b, t.m, 0.0),
        "masked_fill": lambda t: t.m.masked_fill(t.b, float("-inf")),
        "clamp": lambda t: t.m.clamp(-0.5, 0.25) + t.m.clamp(min=t.p) + t.i.clamp_max(2),
        "maximum": lambda t: torch.maximum(t.m, t.p) - torch.minimum(t.m, t.p),
        "unary": lambda t: t.m.abs().sqrt() + t.m.exp() + t.m.sin() * t.m.cos() + t.m.tanh(),
        "unary2": lambda t: t.p.log() + t.p.rsqrt() + t.m.erf() + t.m.sigmoid() + t.m.neg(),
        "unary3": lambda t: t.m.floor() + t.m.ceil() + t.m.round() + t.m.trunc() + t.m.sign(),
        "unary4": lambda t: t.p.log2() + t.p.log10() + t.p.log1p() + t.m.expm1() + t.m.square(),
        "unary5": lambda t: t.m.atan() + t.p.reciprocal() + t.m.sinh() + t.m.isnan() + t.i.floor(),
        "atan2": lambda t: torch.atan2(t.m, t.p),
        "lerp": lambda t: torch.lerp(t.m, t.p, 0.3),
        "addcmul": lambda t: torch.addcmul(t.m, t.p, t.m, value=0.5),
        "to": lambda t: t.m.to(torch.int32) + t.i.to(torch.float64) + t.m.half().float(),
        "finite": lambda t: torch.isfinite(t.m / (t.i * t.b)) | torch.isinf(t.m / 0),
        "relu": lambda t: F.relu(t.m) + F.relu6(t.m) + F.hardtanh(t.m) + F.leaky_relu(t.m),
        "elu": lambda t: F.elu(t.m) + F.selu(t.m) + F.celu(t.m, 0.5),
        "gelu": lambda t: F.gelu(t.m) + F.gelu(t.m, approximate="tanh") + F.silu(t.m),
        "soft": lambda t: F.softplus(t.m) + F.mish(t.m) + F.softsign(t.m) + F.logsigmoid(t.m),
        "hard": lambda t: F.hardsigmoid(t.m) + F.hardswish(t.m) + F.hardshrink(t.m),
        "glu": lambda t: F.glu(t.m, 1),
        "half_gelu": lambda t: F.gelu(t.h) + F.silu(t.h),
    },
    "shapes": {
        "view": lambda t: t.x.reshape(2, -1).view(8, 30) + 1,
        "permute": lambda t: t.x.permute(0, 2, 3, 1).contiguous(),
        "transpose": lambda t: t.x.transpose(1, -1) + t.m[0, 0],
        "expand": lambda t: t.m[:, None].expand(-1, 4, -1) + t.m.unsqueeze(1),
        "squeeze": lambda t: t.x[:, :1].squeeze(1) + t.x[0, 0].unsqueeze(0),
        "flatten": lambda t: t.x.flatten(1, 2),
        "unflatten": lambda t: t.m.unflatten(1, (2, 4)),
        "cat": lambda t: torch.cat([t.m, t.i], 1),
        "stack": lambda t: torch.stack([t.m, t.p], -1),
        "split": lambda t: t.m.split([3, 5], 1)[1] + t.m.split(5, 1)[0],
        "chunk": lambda t: t.m.chunk(3, 1)[2],
        "unbind": lambda t: t.x.unbind(1)[2] + t.x.select(1, -1),
        "slice": lambda t: t.x[:, 1:-1, ::2, 3:100],
        "repeat": lambda t: t.m.repeat(2, 1, 3),
        "repeat_interleave": lambda t: t.m.repeat_interleave(2, 1),
        "roll": lambda t: torch.roll(t.m, (1, -3), (0, 1)) + torch.roll(t.m, 5),
        "flip": lambda t: t.x.flip(1, 3),
        "pad": lambda t: F.pad(t.m, (1, 2, 0, 1), value=3.0),
        "reflect": lambda t: F.pad(t.x, (1, 2, 2, 1), mode="reflect"),
        "replicate": lambda t: F.pad(t.x, (1, 2, 2, 1), mode="replicate"),
        "circular": lambda t: F.pad(t.x, (1, 2, 2, 1), mode="circular"),
        "pixel_shuffle": lambda t: F.pixel_shuffle(t.x, 2),
        "pixel_unshuffle": lambda t: F.pixel_unshuffle(t.x[:, :, :, :4], 2),
        "arange": lambda t: torch.arange(2, 17, 3) + torch.arange(5),
        "float_arange": lambda t: torch.arange(0.0, 1.0, 0.125),
        "linspace": lambda t: torch.linspace(-1, 2, 7),
        "full": lambda t: torch.full((2, 3), 7) + torch.zeros_like(t.u) + torch.ones(3) * 2,
        "eye": lambda t: torch.eye(4) + torch.full_like(torch.eye(4), 0.5),
        "triangles": lambda t: t.m.tril(1) - t.m.triu(-1),
        "diagonal": lambda t: t.x.diagonal(1, 2, 3),
        "meshgrid": lambda t: torch.meshgrid(t.m[0], t.n[:, 0], indexing="xy")[1],
        "unfold": lambda t: t.m.unfold(1, 3, 2),
        "movedim": lambda t: t.x.movedim(1, -1),
        "copy": lambda t: _written(t.m.clone()),
        "write_view": lambda t: _view_written(t.x.clone()),
    },
    "indexed": {
        "embedding": lambda t: F.embedding(t.u, t.n),
        "gather": lambda t: t.m.gather(1, t.u),
        "take_along": lambda t: torch.take_along_dim(t.m, t.u.t()[:, :1], 1),
        "index_select": lambda t: t.x.index_select(2, t.u[0]),
        "index": lambda t: t.x[:, t.u[0], :, t.u[1]],
        "index_adjacent": lambda t: t.x[:, t.u, t.u],
        "index_one": lambda t: t.m[:, t.u],
        "index_put": lambda t: t.m.index_put((t.u[0], t.u[1]), torch.tensor(5.0)),
        "accumulate": lambda t: t.m.index_put((t.u[0], t.u[1]), t.n[:3, 0], accumulate=True),
        "mask_put": lambda t: t.m.index_put((t.b,), torch.tensor(1.0)),
        "scatter": lambda t: t.m.scatter(1, t.u, t.n[:2, :3]),
        "scatter_value": lambda t: t.m.scatter(1, t.u, 2.0),
        "scatter_add": lambda t: t.m.scatter_add(1, t.u, t.n[:2, :3]),
        "scatter_reduce": lambda t: t.m.scatter_reduce(1, t.u, t.n[:2, :3], "amax"),
        "index_copy": lambda t: t.m.index_copy(1, torch.tensor([3, 0]), t.p[:, :2]),
        "index_add": lambda t: t.m.index_add(0, torch.tensor([1, 1]), t.p[:2]),
        "select_scatter": lambda t: t.m.select_scatter(t.p[0], 0, -1),
        "slice_scatter": lambda t: t.m.slice_scatter(t.p[:, :4], 1, 0, 8, 2),
        "one_hot": lambda t: F.one_hot(t.u, 4),
        "topk": lambda t: torch.topk(t.m, 3)[0] + torch.topk(t.m, 3, largest=False)[1],
        "sort": lambda t: t.m.sort(1, descending=True)[0] + t.m.sort(0)[1],
        "argsort": lambda t: t.m.argsort(-1),
        "nonzero": lambda t: t.b.nonzero(),
        "histogram": lambda t: torch.histc(t.m, 5, -1, 1.5) + torch.histc(t.p, 5),
        "masked_select": lambda t: t.m[t.b],
    },
    "reductions": {
        "sum": lambda t: t.x.sum((1, 3)) + t.x.sum() + t.i.sum(),
        "mean": lambda t: t.x.mean((2, 3), keepdim=True) + t.h.mean(),
        "prod": lambda t: t.p.prod(1) + t.j.prod(),
        "extremes": lambda t: t.m.amax(1) - t.m.amin(1) + t.m.max() - t.i.min(),
        "max_dim": lambda t: t.m.max(1)[0] + t.m.max(1)[1] + t.m.min(1, keepdim=True)[0][:, 0],
        "argmax": lambda t: t.m.argmax(1) + t.m.argmin() + t.m.argmax(1, keepdim=True)[:, 0],
        "any_all": lambda t: t.b.any(1) ^ t.b.all(0)[:3] | (t.i > 0).any(),
        "var": lambda t: t.m.var(1) + t.m.std(1, unbiased=False) + t.m.var(),
        "var_mean": lambda t: sum(torch.var_mean(t.x, (0, 2), correction=0)),
        "cumsum": lambda t: t.m.cumsum(1) + t.i.cumsum(0) + t.p.cumprod(1),
        "norm": lambda t: t.m.norm(dim=1) + torch.linalg.vector_norm(t.m, 1, 1),
        "logsumexp": lambda t: t.m.logsumexp(1),
        "softmax": lambda t: t.x.softmax(1) + t.x.log_softmax(-1),
        "half_softmax": lambda t: t.h.softmax(-1),
        "layer_norm": lambda t: F.layer_norm(t.m, (8,), t.n[:, 0], t.n[:, 1]),
        "layer_norm_plain": lambda t: F.layer_norm(t.x, (6, 5)),
        "rms_norm": lambda t: F.rms_norm(t.m, (8,), t.n[:, 0], 1e-5) + F.rms_norm(t.m, (8,)),
        "group_norm": lambda t: F.group_norm(t.x, 2, t.m[0, :4], t.m[1, :4]),
        "instance_norm": lambda t: F.instance_norm(t.x),
        "batch_norm": lambda t: F.batch_norm(t.x, t.m[0, :4], t.p[0, :4], t.m[1, :4], t.m[2, :4]),
        "count": lambda t: torch.count_nonzero(t.b, 1),
        "cosine": lambda t: F.cosine_similarity(t.m, t.p),
    },
    "contractions": {
        "matmul": lambda t: t.m @ t.n,
        "batched": lambda t: t.q @ t.q.transpose(-1, -2),
        "vector": lambda t: t.m @ t.n[:, 0] + t.m[0, :3],
        "addmm": lambda t: torch.addmm(t.n[0], t.m, t.n, beta=0.5, alpha=2.0),
        "bmm": lambda t: torch.bmm(t.q[0], t.q[1].transpose(1, 2)),
        "baddbmm": lambda t: torch.baddbmm(t.m[:, :3], t.q[0], t.q[1].transpose(1, 2)),
        "linear": lambda t: F.linear(t.m, t.n.t(), t.n[0]),
        "outer": lambda t: torch.outer(t.m[0], t.n[0]),
        "grouped": lambda t: torch._grouped_mm(
            t.q[0, 0].bfloat16(), t.q.flatten(0, 1).mT.bfloat16().repeat(1, 1, 8)[:3],
            torch.tensor([1, 1, 3], dtype=torch.int32)).float(),
        "einsum": lambda t: torch.einsum("bhqd,bhkd->bhqk", t.q, t.q),
        "einsum_sum": lambda t: torch.einsum("ij,jk->i", t.m, t.n),
        "conv2d": lambda t: F.conv2d(t.x, t.q[:, :2, :, :3].reshape(4, 1, 3, 3), t.m[0, :4], 2, 1,
                                     groups=4),
        "conv_same": lambda t: F.conv2d(t.x, t.x[:, :, :2, :3], padding="same"),
        "conv1d": lambda t: F.conv1d(t.x[0], t.x[0, :3, :5, :2].reshape(3, 5, 2).repeat(1, 2, 1)[
            :, :6], dilation=2),
        "conv_transpose": lambda t: F.conv_transpose2d(
            t.x, t.x[0][:, None, :3, :2], stride=2, padding=1, output_padding=1),
        "max_pool": lambda t: F.max_pool2d(t.x, 3, 2, 1, ceil_mode=True),
        "max_pool_places": lambda t: F.max_pool2d(t.x, 2, return_indices=True)[1],
        "avg_pool": lambda t: F.avg_pool2d(t.x, 3, 2, 1, ceil_mode=True),
        "avg_pool_inside": lambda t: F.avg_pool2d(t.x, 3, 2, 1, count_include_pad=False),
        "adaptive": lambda t: F.adaptive_avg_pool2d(t.x, (4, 1)),
        "adaptive_even": lambda t: F.adaptive_avg_pool2d(t.x, (3, 5)),
        "attention": lambda t: F.scaled_dot_product_attention(t.q, t.q, t.q, is_causal=True),
        "attention_masked": lambda t: F.scaled_dot_product_attention(t.q, t.q, t.q, t.b[:, :3]),
        "attention_added": lambda t: F.scaled_dot_product_attention(t.q, t.q, t.q, t.m[:, :3]),
        "attention_grouped": lambda t: F.scaled_dot_product_attention(
            t.q, t.k, t.k, enable_gqa=True, scale=0.3),
        "nearest": lambda t: F.interpolate(t.x, scale_factor=2),
        "nearest_exact": lambda t: F.interpolate(t.x, (7, 9), mode="nearest-exact"),
        "bilinear": lambda t: F.interpolate(t.x, (9, 4), mode="bilinear"),
        "bilinear_aligned": lambda t: F.interpolate(t.x, (9, 4), mode="bilinear",
                                                    align_corners=True),
        "bicubic": lambda t: F.interpolate(t.x, scale_factor=1.5, mode="bicubic"),
    },
    "selections": {
        "sample": lambda t: F.grid_sample(t.x, t.g, align_corners=False),
        "sample_nearest": lambda t: F.grid_sample(t.x, t.g, "nearest", "border", True),
        "sample_cubic": lambda t: F.grid_sample(t.x, t.g, "bicubic", "border", False),
        "sample_reflected": lambda t: F.grid_sample(t.x, t.g, "bicubic", "reflection", False),
        "affine_grid": lambda t: F.affine_grid(t.q[0, :2, :2, :3], (2, 1, 3, 4), False),
        "bags": lambda t: F.embedding_bag(t.u[0], t.m, torch.tensor([0, 2, 2]), mode="sum"),
        "bags_mean": lambda t: F.embedding_bag(t.u, t.m, padding_idx=1),
        "bags_max": lambda t: F.embedding_bag(t.u[0], t.m, torch.tensor([0, 2, 2]), mode="max"),
        "bags_weighted": lambda t: F.embedding_bag(
            t.u, t.m, per_sample_weights=t.p[:2, :3], mode="sum"),
        "fold": lambda t: F.fold(t.x.reshape(2, 12, 10)[:, :, :9], (4, 4), 2),
        "masked_scatter": lambda t: t.m.masked_scatter(t.b, t.n),
        "as_strided": lambda t: torch.as_strided(t.m, (3, 2), (2, 1), 3) + 1,
        "cdist": lambda t: torch.cdist(t.m, t.p) + torch.cdist(t.m, t.p, 1),
        "pdist": lambda t: F.pdist(t.m) + F.pdist(t.m, 3),
        "roi_align": lambda t: torchvision.ops.roi_align(
            t.x, torch.tensor([[0, 1.0, 1, 4, 5], [1, 2, 2, 9, 9]]), (3, 2), 0.8, 2, True),
        "nms": lambda t: torchvision.ops.nms(
            torch.cat([t.p.T[:, :2], t.p.T[:, :2] + 1], 1), t.p[2], 0.5),
    },
    "complex": {
        "fft": lambda t: torch.fft.fft(t.c) + torch.fft.ifft(t.c, dim=0),
        "fft_real": lambda t: torch.fft.rfft2(t.x).abs() + torch.fft.rfft(t.s[:, :9]).real.sum(),
        "fft_inverse": lambda t: torch.fft.irfft(t.c, 7, norm="ortho"),
        "rotary": lambda t: torch.view_as_real(
            torch.view_as_complex(t.s.view(10, 3, 2)) * t.c[0, :3]),
        "polar": lambda t: torch.polar(t.c.abs(), t.c.angle()) + torch.complex(t.m, t.p).sum(),
        "functions": lambda t: t.c.exp() + t.c.sqrt() / (t.c + 3) - t.c**2 + t.c.log() * 2 + 1,
        "products": lambda t: t.c @ t.c.mT.conj() + (t.c @ t.c[:4, :1]),
        "moved": lambda t: torch.cat([t.c, t.c.flip(0)], 1).mean(0)[1:].roll(2),
        "compared": lambda t: torch.where(t.c == t.c.conj(), 1, t.c.real.to(torch.complex64)),
        "written": lambda t: _rows_written(t.c.clone()),
    },
    "quantised": {
        "tensor": lambda t: _both(t.m, "per_tensor", 0.03, 7, -128, 127, torch.int8),
        "by_tensors": lambda t: _both(
            t.m, "per_tensor", t.p[0, 0], torch.tensor(100), 0, 255, torch.uint8),
        "channels": lambda t: _both(t.m, "per_channel", t.p[0], t.j[0], 1, -128, 127, torch.int8),
        "groups": lambda t: _both(t.m, "per_channel_group", t.p[:, :2], torch.ones_like(
            t.p[:, :2]), -8, 7, torch.int8, 4),
        "dynamic": lambda t: _chosen(t.m, "choose_qparams.tensor", 0, 255, 1e-5, torch.uint8),
        "symmetric": lambda t: _chosen(
            t.m, "choose_qparams_symmetric.tensor", -127, 127, 1e-5, torch.int8),
        "tokens": lambda t: _chosen(t.m, "choose_qparams_per_token_asymmetric", torch.int8),
        "blocks": lambda t: _in_blocks(t.m, "SYMMETRIC"),
        "blocks_asymmetric": lambda t: _in_blocks(t.m, "ASYMMETRIC"),
        "product": lambda t: torch._int_mm(t.i.to(torch.int8), t.i.T.to(torch.int8)),
    },
}  # fmt: skip


def _written(x: Any) -> Any:
    """In-place writes into a whole tensor and rows of it."""
    x.add_(1)
    x[1] = 0.5
    x[:, 2:4] *= 2
    x.masked_fill_(x > 2, 9)
    return x


def _rows_written(x: Any) -> Any:
    x[0] = x[1] * 2
    return x.mul_(2)


def _view_written(x: Any) -> Any:
    """Writes through views of views; earlier views see them."""
    rows = x.view(8, 30)
    first = rows[0]
    x[:, 0, 1:3].mul_(3)
    rows[7].zero_()
    return x.sum(0) + first[0] + rows.transpose(0, 1)[3, 7]


def _both(x: Any, kind: str, *given: Any) -> Any:
    """Quantised, and dequantised."""
    ops = torch.ops.quantized_decomposed
    codes = getattr(ops, f"quantize_{kind}")(x, *given)
    more = (torch.float32,) if kind.endswith(("group", "token")) else ()
    return getattr(ops, f"dequantize_{kind}")(codes, *given, *more) + codes


def _chosen(x: Any, choose: str, *given: Any) -> Any:
    """Quantised with scales that depend on the data."""
    name, _, overload = choose.partition(".")
    op = getattr(torch.ops.quantized_decomposed, name)
    scale, zero = getattr(op, overload or "default")(x, *given)
    low, high = (0, 255) if given[-1] is torch.uint8 else (-128, 127)
    kind = "per_token" if "token" in name else "per_tensor"
    return _both(x, kind, scale, zero, low, high, given[-1])


def _in_blocks(x: Any, mapping: str) -> Any:
    size, kind = (1, 4), torch.int8
    scale, zero = affine.choose_qparams_affine(x, affine.MappingType[mapping], size, kind, -8, 7)
    codes = affine.quantize_affine(x, size, scale, zero, kind, -8, 7)
    return affine.dequantize_affine(codes, size, scale, zero, kind, -8, 7) + codes


class Program(torch.nn.Module):
    """All functions of a theme; takes the tensors of `pool` and gives a dict by function."""

    def __init__(self, cases: dict[str, Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, tensors: dict[str, Any]) -> dict[str, Any]:
        t = _Tensors(tensors)
        return {name: case(t) for name, case in self.cases.items()}


class _Tensors:
    def __init__(self, tensors: dict[str, Any]) -> None:
        self.__dict__.update(tensors)
