"""Functions that torch's core opset does not have - linear algebra, special functions, distinct
elements - against eager torch, real and complex."""

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
from ingot.hal.spec import dtype as dtype_of
from tests.support.devices import load_best

pytest.importorskip("torch.export")  # a folder that is called torch is none
torch = import_module("torch")
F = torch.nn.functional
L = torch.linalg
S = torch.special


class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def leaves(results: Any) -> list[Any]:
    found = torch.utils._pytree.tree_leaves(results)
    return [torch.as_tensor(each).resolve_conj().numpy() for each in found]


def check(function: Callable[..., Any], *tensors: Any, near: float = 1e-4) -> None:
    program = torch.export.export(Calls(function), tensors, strict=False)
    with np.errstate(all="ignore"):
        found = interpret(read_source(program), "main", [each.numpy() for each in tensors])
    for a, b in zip(found, leaves(function(*tensors)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, near, near)


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=dtype)


def rebuilt(values: Any, vectors: Any) -> Any:
    return vectors @ torch.diag_embed(values.to(vectors.dtype)) @ L.inv(vectors)


SQUARE: dict[str, Any] = {
    "inv": lambda a, b: (L.inv(a), torch.inverse(a)),
    "inv_ex": lambda a, b: (L.inv_ex(a), L.inv_ex(a[..., :0, :0])),
    "solve": lambda a, b: (L.solve(a, b), L.solve(a, b.mT, left=False), L.solve(a, a[..., 0])),
    "det": lambda a, b: (L.det(a), L.slogdet(a)),
    "lu_solve": lambda a, b: L.lu_solve(*L.lu_factor(a), b),
    "lu_solve_adjoint": lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True),
    "lu_solve_right": lambda a, b: L.lu_solve(*L.lu_factor(a), b.mT, left=False),
    "solve_triangular": lambda a, b: L.solve_triangular(a, b, upper=True),
    "unit_triangle": lambda a, b: L.solve_triangular(
        a, b.mT, upper=False, left=False, unitriangular=True
    ),
    "eig": lambda a, b: rebuilt(*L.eig(a)),
    "eigvals": lambda a, b: L.eigvals(a).abs().sort(-1)[0],
    "matrix_exp": lambda a, b: L.matrix_exp(a * 2),
    "matrix_power": lambda a, b: L.matrix_power(a, -3),
    "cond": lambda a, b: L.cond(a),
}
TALL: dict[str, Any] = {
    "lu": lambda a: (L.lu(a), torch.lu_unpack(*L.lu_factor(a))),
    "qr": lambda a: (L.qr(a), L.qr(a, "complete"), L.qr(a, "r").R),
    "reflectors": lambda a: (torch.geqrf(a), L.householder_product(*torch.geqrf(a))),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a, transpose=True),
    "svd": lambda a: (lambda u, s, vh: (s, (u * s[..., None, :]) @ vh))(*L.svd(a, False)),
    "svdvals": lambda a: (L.svdvals(a), L.matrix_norm(a, "nuc"), L.matrix_norm(a, 2)),
    "pinv": lambda a: (L.pinv(a), L.matrix_rank(a)),
    "cross": lambda a: L.cross(a, a.flip(-2)),
}
DEFINITE: dict[str, Any] = {
    "cholesky": lambda a, b: (L.cholesky(a), L.cholesky(a, upper=True), L.cholesky_ex(a)),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, L.cholesky(a)),
    "cholesky_inverse": lambda a, b: torch.cholesky_inverse(L.cholesky(a)),
    "eigh": lambda a, b: (L.eigvalsh(a), rebuilt(*L.eigh(a, UPLO="U"))),
    "pinv": lambda a, b: L.pinv(a, hermitian=True),
    "roots": lambda a, b: (L.matrix_sqrth(a), L.polar(a), L.polar(b)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices_agree(name: str, dtype: Any) -> None:
    check(SQUARE[name], drawn(2, 1, 4, 4, dtype=dtype), drawn(2, 4, 2, dtype=dtype), near=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", TALL)
def test_tall_matrices_agree(name: str, dtype: Any) -> None:
    check(TALL[name], drawn(2, 5, 3, dtype=dtype), near=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", DEFINITE)
def test_definite_matrices_agree(name: str, dtype: Any) -> None:
    a = drawn(2, 4, 4, dtype=dtype)
    check(DEFINITE[name], a @ a.mH + torch.eye(4), drawn(2, 4, 2, dtype=dtype), near=1e-3)


WHOLE = torch.arange(-4.0, 5.0)
REAL = torch.cat([drawn(60) * 4, torch.tensor([0.5, 20.0, -20.0])])
POSITIVE = torch.cat([REAL.abs() + 1e-3, torch.tensor([1.0, 2.0])])
UNIT = torch.cat([torch.linspace(-1, 1, 41), torch.tensor([1 - 1e-6, 1.5])])
SPECIAL: dict[str, tuple[Any, ...]] = {
    "lgamma": (torch.lgamma, torch.cat([REAL, WHOLE])),
    "digamma": (lambda x: (S.digamma(x), S.digamma(x[:3].long().abs() + 1)), REAL),
    "digamma_poles": (torch.digamma, WHOLE),
    "polygamma": (lambda x: (S.polygamma(1, x), torch.polygamma(0, x)), REAL[:60]),
    "higher_polygamma": (lambda x: (S.polygamma(2, x), S.polygamma(3, x)), POSITIVE[5:] + 0.5),
    "multigammaln": (lambda x: S.multigammaln(x + 2, 3), POSITIVE),
    "zeta": (lambda x: S.zeta(x + 1.1, x * 3), POSITIVE),
    "negative_zeta": (lambda x: S.zeta(torch.full_like(x, 3.0), x), REAL),
    "i0": (lambda x: (torch.i0(x), S.i0e(x), S.i1(x), S.i1e(x)), REAL),
    "erf": (lambda x: (torch.erfc(x), S.erfcx(x / 3), S.ndtr(x), S.log_ndtr(x)), REAL),
    "erfinv": (torch.erfinv, UNIT),
    "ndtri": (S.ndtri, torch.cat([UNIT, torch.tensor([1e-30])])),
    "gammainc": (lambda a: (S.gammainc(a, a.flip(0)), S.gammaincc(a, a.flip(0))), POSITIVE),
    "entr": (lambda x: (S.entr(x), S.xlog1py(x, x), torch.xlogy(x, x), torch.sinc(x)), POSITIVE),
    "half": (lambda x: (torch.lgamma(x.half()), torch.erfc(x.half())), POSITIVE),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_agree(name: str) -> None:
    function, *tensors = SPECIAL[name]
    check(function, *tensors, near={"half": 4e-3, "polygamma": 1e-4}.get(name, 2e-5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_incomplete_gamma_functions_of_large_orders_agree(dtype: Any) -> None:
    a = torch.tensor([11, 13.0, 1e4, 1e5, 1.0e6, 1e7, 1e8, 1e12], dtype=torch.float64)
    a, away = a[:, None], torch.tensor([-4.0, -0.2, 0, 1e-3, 1.5, 5], dtype=torch.float64)
    a, x = (each.to(dtype) for each in (a.expand(-1, 6), (a + away * a.sqrt()).clamp(0.1)))
    near = 1e-5 if dtype is torch.float32 else 1e-9  # torch itself is off by 2e-10
    for function in (S.gammainc, S.gammaincc):
        expected = function(a.double(), x.double()).to(dtype)
        program = torch.export.export(Calls(function), (a, x), strict=False)
        with np.errstate(all="ignore"):
            (found,) = interpret(read_source(program), "main", [a.numpy(), x.numpy()])
        np.testing.assert_allclose(found, expected.numpy(), near, 0)
    far = torch.tensor([1e-10, 1e-30, 0.5, 1e30, 0], dtype=dtype)
    check(S.gammainc, torch.tensor([12, 1e7, 3e38, 1e8, 2e6], dtype=dtype), far, near=1e-12)


def test_small_values_of_incomplete_gamma_functions_keep_their_digits() -> None:
    a = torch.tensor([1e-30, 1e-30, 1e-10, 1e-10, 1e-3], dtype=torch.float64)
    x = torch.tensor([1e-30, 1.0, 0.05, 1.0, 0.3], dtype=torch.float64)
    program = torch.export.export(Calls(S.gammaincc), (a, x), strict=False)
    (found,) = interpret(read_source(program), "main", [a.numpy(), x.numpy()])
    expected = [6.850033712491985e-29, 2.193839343955203e-31, 2.467898488282848e-10,
                2.1938393441796778e-11, 0.000905838088306647]  # fmt: skip
    np.testing.assert_allclose(found, expected, 1e-13, 0)


ENDS_AND_MIDDLE = [0, 1e-8, 0.49, 1.99, 2.01, 24.9, 25.1, 1e4, torch.inf, -torch.inf, torch.nan]
AROUND = torch.cat([torch.linspace(-30, 60, 61), torch.tensor(ENDS_AND_MIDDLE)]).double()


@pytest.mark.parametrize(
    "name",
    ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "airy_ai",
     "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
     "spherical_bessel_j0", "modified_bessel_i0", "modified_bessel_i1"],
)  # fmt: skip
def test_functions_of_bessel_and_airy_agree(name: str) -> None:
    function = getattr(S, name)
    program = torch.export.export(Calls(function), (AROUND,), strict=False)
    with np.errstate(all="ignore"):
        (found,) = interpret(read_source(program), "main", [AROUND.numpy()])
    np.testing.assert_allclose(found, function(AROUND).numpy(), 1e-8, 1e-6)  # as torch's are


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_orthogonal_polynomials_agree(dtype: Any) -> None:
    names = [f"{start}chebyshev_polynomial_{kind}" for start in ("", "shifted_") for kind in "tuvw"]
    names += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"]
    functions = [getattr(S, name) for name in [*names, "legendre_polynomial_p"]]
    points = torch.tensor([-2.5, -1, -0.7, 0, 0.3, 1, 1.7, torch.nan], dtype=dtype)
    degrees = torch.tensor([-1, 0, 1, 2, 2.7, 3, 5, 6, 7, 8, 9, 12], dtype=dtype)
    x, n = points.repeat_interleave(len(degrees)), degrees.repeat(len(points))
    near = 1e-9 if dtype is torch.float64 else 2e-4
    check(lambda x, n: [each(x, n) for each in functions], x, n, near=near)
    check(lambda x: [each(x, 5) for each in functions], points, near=near)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_exponentials_of_matrices_of_16_bits_are_computed_in_f32(name: str) -> None:
    x = drawn(2, 3, 3).to(torch.float16 if name == "f16" else torch.bfloat16)
    program = torch.export.export(Calls(L.matrix_exp), (x,), strict=False)
    given = x.float().numpy().astype(dtype_of(name).numpy)
    (found,) = interpret(read_source(program), "main", [given])
    expected = L.matrix_exp(x.float()).numpy()
    np.testing.assert_allclose(found.astype(np.float32), expected, 4e-3, 1e-3)


def test_pseudo_inverses_without_a_least_value_leave_out_rounding_errors() -> None:
    flat = torch.ones(2, 3, 2) * torch.tensor([1.0, 2.0])
    for atol in (0.0, -1.0, 0.5, torch.tensor(0.0), torch.tensor([0.0, 20.0])):
        check(lambda x, atol=atol: L.pinv(x, atol=atol), flat)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_right_sides_for_all_matrices_are_no_vectors() -> None:
    a, b = drawn(3, 3, 3), drawn(3, 3)
    a = a @ a.mT + torch.eye(3)
    check(lambda a, b: L.solve_triangular(a, b, upper=True), a, b)
    check(lambda a, b: L.lu_solve(*L.lu_factor(a), b), a, b)
    check(lambda a, b: torch.cholesky_solve(b, L.cholesky(a)), a, b)
    check(lambda a, b: torch.triangular_solve(b, a)[0], a, b)
    check(lambda a, b: L.solve(a, b), a, b)  # of which b has a vector for each matrix


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
        ),
        torch.tensor(2.5),
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


ENDS = [0.0, -0.0, 1.0, -1.5, 1e-42, 3e38, torch.inf, -torch.inf, torch.nan]


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


def test_what_transforms_of_functions_made_is_refused() -> None:
    gradient = torch.func.grad(lambda x: (x.sin() * x).sum())
    program = torch.export.export(Calls(gradient), (drawn(3),), strict=False)
    with pytest.raises(CompileError, match=r"torch.func made: compute gradients outside"):
        read_source(program)


def test_matrices_without_elements_and_half_ones() -> None:
    check(lambda a: L.cholesky_ex(a), torch.zeros(2, 0, 0))
    check(lambda a: L.pinv(a, hermitian=True), drawn(2, 5, 5), near=1e-3)
    check(lambda a: (torch.fft.irfft(a), torch.fft.irfftn(a)), drawn(3, 4, 5))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_bits_of_floats_agree(dtype: Any) -> None:
    x = torch.tensor(ENDS, dtype=dtype)
    wide, other = x.repeat_interleave(len(ENDS)), x.repeat(len(ENDS))
    check(torch.nextafter, wide, other, near=0)
    check(torch.hypot, wide, other, near=1e-6)
    check(lambda a: (torch.frexp(a), torch.signbit(a)), x, near=0)


def test_drawn_numbers_have_their_distributions() -> None:
    def draw(x: Any, weights: Any) -> Any:
        return (
            torch.empty_like(x).exponential_(2.0),
            torch.empty_like(x).geometric_(0.25),
            torch.empty_like(x).log_normal_(0.0, 0.5),
            torch.empty_like(x).cauchy_(3.0, 2.0),
            torch.multinomial(weights, 5000, replacement=True),
            torch.multinomial(weights.expand(5000, 4), 1),
            torch.multinomial(weights[:, :3], 3),
        )

    x, weights = torch.zeros(5000), torch.tensor([[1.0, 2.0, 5.0, 0.0]])
    program = torch.export.export(Calls(draw), (x, weights), strict=False)
    state: dict[str, Any] = {}
    given = [x.numpy(), weights.numpy()]
    found = interpret(read_source(program), "main", given, state=state)
    waited, trials, sizes, spread, chosen, single, order = found
    assert waited.mean() == pytest.approx(0.5, rel=0.1)
    assert trials.mean() == pytest.approx(4, rel=0.1)
    assert trials.min() == 1
    assert np.median(sizes) == pytest.approx(1, rel=0.1)
    assert np.median(spread) == pytest.approx(3, rel=0.1)
    for each in (chosen, single):
        shares = np.bincount(each.ravel(), minlength=4) / 5000
        np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8, 0], atol=0.03)
    assert sorted(order[0]) == [0, 1, 2]


def test_draws_have_the_parameters_of_each_element() -> None:
    def draw(rates: Any, trials: Any, chances: Any) -> Any:
        return (
            torch.poisson(rates),
            torch.binomial(trials, chances),
            torch.normal(rates, chances),
            torch.normal(rates, 2.0),
            torch.normal(1.0, rates),
            torch.bernoulli(chances),
            torch.normal(2.0, 3.0, (3000,)),
        )

    tensors = [
        torch.tensor(each).expand(3000, 4).contiguous()
        for each in ([0.0, 0.5, 5.0, 40.0], [50.0] * 4, [0.0, 0.1, 0.7, 1.0])
    ]
    rates, trials, chances = (each[0].numpy() for each in tensors)
    program = torch.export.export(Calls(draw), tuple(tensors), strict=False)
    with np.errstate(all="ignore"):
        given = [each.numpy() for each in tensors]
        found = interpret(read_source(program), "main", given, state={})
    spread = np.sqrt(trials * chances * (1 - chances))
    expected = [
        (rates, rates**0.5), (trials * chances, spread), (rates, chances), (rates, 2),
        (1, rates), (chances, np.sqrt(chances * (1 - chances))), (2, 3),
    ]  # fmt: skip
    for array, (mean, deviation) in zip(found, expected, strict=True):
        np.testing.assert_allclose(array.std(0), deviation, 0.1)
        np.testing.assert_allclose(array.mean(0), mean, 1e-6, 0.1 * np.max(deviation))


def test_counts_of_large_means_have_their_parameters() -> None:
    def draw(rates: Any, trials: Any, chances: Any) -> Any:
        return torch.poisson(rates), torch.binomial(trials, chances)

    ends = ([3e5, 4e6], [1e8, 1e7], [0.7, 0.02])
    tensors = [torch.tensor(each).double().expand(3000, 2).contiguous() for each in ends]
    program = torch.export.export(Calls(draw), tuple(tensors), strict=False)
    found = interpret(read_source(program), "main", [each.numpy() for each in tensors], state={})
    rates, trials, chances = (each[0].numpy() for each in tensors)
    spreads = np.sqrt(rates), np.sqrt(trials * chances * (1 - chances))
    for array, mean, spread in zip(found, (rates, trials * chances), spreads, strict=True):
        np.testing.assert_allclose(array.std(0), spread, 0.1)
        assert (np.abs(array.mean(0) - mean) < 0.1 * spread).all()


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
        torch.linalg.vector_norm(x, 3, dim=(-2, -1)),
        x.norm(),
        torch.nn.functional.normalize(x, dim=1),
        torch.dist(x, x * 1j),
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
