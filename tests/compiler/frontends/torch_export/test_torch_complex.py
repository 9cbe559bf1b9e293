"""Functions of complex numbers of torch against eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.torch_calls import check, drawn, torch


def spectral(x: Any, weight: Any) -> Any:
    """A layer of a Fourier neural operator."""
    modes = torch.fft.rfft2(x.real)[..., :3, :3]
    return torch.fft.irfft2(torch.einsum("bixy,ioxy->boxy", modes, weight), s=x.shape[-2:])


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, torch.inf, -torch.inf, torch.nan, 1e-20])
COMPLEX: dict[str, Callable[..., Any]] = {
    "spectral": lambda x, w: spectral(x, w),
    "products": lambda x, w: (
        torch.addmm(x[0, 0, :3, :3], w[0, 0], w[1, 1], beta=2, alpha=0.5j),
        torch.nn.functional.linear(w, w[0, 0], w[0, 0, 0]),
        torch.baddbmm(w[0], w[0], w[1]),
        torch.outer(w[0, 0, 0], x[0, 0, 0]),
    ),
    "convolutions": lambda x, w: (
        torch.nn.functional.conv2d(x, w, w[0, 0, 0, :2], padding=1),
        torch.nn.functional.conv_transpose2d(x, w, stride=2),
        torch.nn.functional.conv1d(x[:, :, 0], w[:, :, 0], padding="same"),
    ),
    "elements": lambda x, w: (
        torch.addcmul(x, x, x, value=2),
        torch.addcdiv(x, x, x + 3),
        torch.lerp(x, x * 2, 0.3),
        torch.nn.functional.silu(x),
        torch.logical_and(x, x.flip(-1)),
        torch.diff(x),
        x.sinh() + x.cosh(),
        torch.log2(x) + torch.log10(x),
        torch.exp2(x) + torch.ldexp(x, x),
        torch.logsumexp(x * 30, (1, 3), keepdim=True),
    ),
    "inverse": lambda x, w: [
        getattr(torch.complex(EDGES, EDGES[:, None]), name)()
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh")
    ],
    "made": lambda x, w: (
        torch.eye(3, 4, dtype=x.dtype),
        torch.linspace(1j, 2 - 1j, 7, dtype=x.dtype),
        x.new_ones(2),
        x.new_zeros(2, dtype=torch.float32),
        torch.fill(x, 1 + 2j),
        torch.fill(x, w[0, 0, 0, 0]),
    ),
    "asked": lambda x, w: (
        (x - x[:, :, :1]).any(-1),
        x.all(),
        x.count_nonzero(1),
        (x - x[0, 0, 0]).argwhere(),
    ),
    "moves": lambda x, w: (
        torch.nn.functional.pad(x, (1, 2, 0, 1), value=1.5),
        torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        x.tril() + x.triu(1),
        torch.meshgrid(x[0, 0, 0], w[0, 0, 0], indexing="ij"),
        x.tile(2, 1),
        x.take_along_dim(torch.tensor([[[[1, 0, 2]]]]), -1),
        torch.nn.functional.unfold(x, 2, padding=1),
        torch.pixel_shuffle(torch.pixel_unshuffle(x[..., :4], 2), 2),
        x.index_fill(3, torch.tensor([0, 2]), w[0, 0, 0, 0]),
    ),
    "many": lambda x, w: (
        x.prod(),
        x.prod(2),
        x.prod(3, keepdim=True),
        x[:0].prod(0),
        x.real.prod(1, dtype=torch.complex64),
        x.cumprod(2),
        x.cumprod(-1),
        x[0, 0, 0, 0].prod(),
    ),
    "sizes": lambda x, w: (
        torch.nn.functional.rms_norm(x, [6, 5], x[0, 0], 0.1),
        torch.nn.functional.rms_norm(x[0], x.shape[-1:]),
        torch.linalg.vector_norm(x, 3, dim=(-2, -1)),
        x.norm(),
        torch.nn.functional.normalize(x, dim=1),
        torch.dist(x, x * 1j),
        torch.nn.functional.pairwise_distance(x, x[0, 1] * 2j, 1.0, keepdim=True),
        torch.nn.functional.pairwise_distance(x.real, x, eps=0.5),
        x.isnan() | x.isinf() | x.isfinite(),
        x.var(1),
        x.std(),
        torch.var_mean(x, 2, keepdim=True),
    ),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers_agree(name: str) -> None:
    x, weight = (drawn(*shape, dtype=torch.complex64) for shape in ((1, 2, 6, 5), (2, 2, 3, 3)))
    check(COMPLEX[name], x, weight)
