"""The ops of torch._prims, of which torch's references are made, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

from ingot.compiler.frontends.torch.complex_values import COMPLEX
from ingot.compiler.frontends.torch.lowering import ALIASES, LOWERINGS
from tests.support.torch_calls import check, drawn, torch

prims = torch.ops.prims
CPU = {"device": torch.device("cpu"), "requires_grad": False}


def written(x: Any) -> Any:
    y = x.clone()
    return prims.copy_to(y[1], x[0] * 2) + 1, y


CASES: dict[str, Any] = {
    "shapes": lambda x: [
        prims.broadcast_in_dim(x[:, :1], (2, 6, 3), (1, 2)),
        prims.broadcast_in_dim(x.sum(), (3,), ()),
        prims.collapse(x.view(3, 2, 4), 0, 1),
        prims.split_dim(x, 0, 2),
        prims.squeeze(x[:1, None], [0, 1]),
        prims.transpose(x, [1, 0]),
        prims.rev(x, [1]),
    ],
    "arithmetic": lambda x: [
        prims.div(x, x + 5),
        prims.div((x * 9).int(), torch.full_like(x, -4).int()),
        prims.cbrt(x),
        prims.erf_inv(x / 4),
        prims.where(x > 0, prims.pow(x.abs(), x), prims.neg(x)),
    ],
    "made": lambda x: [
        prims.iota(5, start=3, step=-2, dtype=torch.int32, **CPU),
        prims.iota(0, start=3, step=2, dtype=torch.int64, **CPU),
        prims.full([2, 3], 4, dtype=torch.float32, **CPU) + x[0, 0],
    ],
    "reductions": lambda x: [
        prims.sum(x, [0]),
        prims.prod(x, [1]),
        prims.amax(x, [0, 1]),
        prims.var(x, [1], 0.0),
        prims.svd(x, full_matrices=False)[1],
    ],
    "transforms": lambda x: [
        torch.view_as_real(prims.fft_r2c(x, dim=[1], onesided=True)),
        torch.view_as_real(prims.fft_c2c(torch.complex(x, -x), dim=[0], forward=False)),
        prims.fft_c2r(torch.complex(x, -x), dim=[1], last_dim_size=7),
    ],
    "writes": written,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The following operations contain")
@pytest.mark.parametrize("name", CASES)
def test_prims_agree(name: str) -> None:
    check(CASES[name], drawn(6, 4))


def test_every_alias_is_of_an_op_that_is_taken() -> None:
    known = {*LOWERINGS, *COMPLEX}
    assert [name for name, other in ALIASES.items() if other not in known] == []
