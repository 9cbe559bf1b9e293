"""Schur forms A = Z T Z^H by the double-shift QR algorithm, and eigenvectors from them.

A sweep chases a bulge down the last block of each matrix that is larger than 2x2; matrices of a
batch whose block starts or ends elsewhere take no reflector there. Real matrices keep 2x2 blocks
for their conjugate pairs, with equal numbers on the diagonal, as in LAPACK.
"""

from __future__ import annotations

from ingot.compiler.frontends.matrices.arrays import I64, Array
from ingot.compiler.frontends.matrices.reflectors import (
    hessenberg,
    outer,
    product,
    projected,
    reflector,
    scaled,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["Schur", "eigenvectors", "schur"]

_SWEEPS_PER_ROW = 30


@dataclass(frozen=True)
class Schur:
    """T and Z^H, [b, n, n], the diagonal of T with the pairs of its blocks resolved, [b, n], and
    i64[b]: 1 where nothing was found."""

    form: Array
    vectors: Array
    values: Array
    info: Array


def schur(x: Array) -> Schur:
    """The form of square matrices."""
    scope, (batch, size, _) = x.scope, x.shape
    x, scale = scaled(x)
    if size in (0, 1):
        unit = scope.identity(batch, size, x)
        return Schur(x * scale.unsqueeze(2), unit, x.diagonal().as_complex() * scale, _info(x))
    packed, taus = hessenberg(x)
    rows, columns = scope.count((1, size, 1), 1), scope.count((1, 1, size), 2)
    form = scope.where(rows <= columns + 1, packed, 0)
    unit = scope.identity(batch, size - 1, x)
    adjoint = product(packed.cut(1, 1, size), taus, unit, adjoint=True)
    corner = scope.identity(batch, size, x)
    vectors = scope.where(rows.equals(0) | columns.equals(0), corner, _moved(adjoint))
    wide = size + 1
    form, vectors, left = _iterate(form.padded(wide, wide), vectors.padded(wide, size), size)
    form, vectors = _split(form, vectors, size)
    form, vectors = form.cut(1, 0, size).cut(2, 0, size), vectors.cut(1, 0, size)
    values = form.diagonal() if x.is_complex else _values(form)
    info = scope.where(left, 1, _info(x))
    return Schur(form * scale.unsqueeze(2), vectors, values * scale, info)


def _info(x: Array) -> Array:
    """i64[b]: 1 where something is not finite."""
    return (~x.is_finite().reduce("and", 2).reduce("and", 1)).convert(I64)


def _moved(x: Array) -> Array:
    """[b, n - 1, n - 1] with a row and a column of zeros in front."""
    zero = x.scope.full(0, x.dtype).value
    return x.each("pad", zero, low=(0, 1, 1), high=(0, 0, 0))


def _below(form: Array) -> Array:
    """[b, n + 1, n + 1] -> [b, n]: what stands below the diagonal."""
    return form.diagonal(down=1)


def _iterate(form: Array, vectors: Array, size: Dim) -> tuple[Array, Array, Array]:
    """Sweeps until no block is larger than 2x2; i1[b]: where some still are."""
    scope, batch = form.scope, form.shape[0]
    norm = form.square().sum(2).sum(1).sqrt().unsqueeze(1)
    places = scope.count((1, size), 1)
    rows, columns = scope.count((1, size + 1, 1), 1), scope.count((1, 1, size + 1), 2)
    finite = norm.is_finite()

    def deflate(form: Array) -> tuple[Array, Array, Array]:
        """Without what is small below the diagonal; where blocks of three or more start and end,
        which is not before they start where there are none."""
        below, diagonal = _below(form).size(), form.diagonal().size()
        near = diagonal.cut(1, 0, size) + diagonal.cut(1, 1, size + 1)
        small = below <= (near * form.epsilon).greater_of(norm * form.epsilon**2)
        wide = small.convert(I64).padded(size + 1).unsqueeze(1).equals(1)
        form = scope.where(rows.equals(columns + 1) & wide, 0, form)
        live = ~small & finite
        following = live.convert(I64).cut(1, 1, size).padded(size).equals(1)
        last = scope.where(live & following, places + 2, 0).max(1).unsqueeze(1)
        ends = ~live & (places < last - 1)
        return form, scope.where(ends, places + 1, 0).max(1).unsqueeze(1), last

    def goes_on(count: Array, *carried: Array) -> Array:
        return (count < _SWEEPS_PER_ROW * size) & (carried[3].max(1).max(0) > 0)

    def sweep(
        count: Array, tried: Array, form: Array, first: Array, last: Array, z: Array
    ) -> list[Array]:
        start = _first_column(form, first, last, tried)
        form, z = _chase(form, z, start, first, last)
        form, first, following = deflate(form)
        tried = scope.where(following.equals(last), tried + 1, 0)
        return [count + 1, tried, form, first, following, z]

    form, first, last = deflate(form)
    none = scope.full(0, I64, (batch, 1))
    state = [scope.index(0), none, form, first, last, vectors]
    _, _, form, _, last, vectors = scope.repeat(state, goes_on, sweep)
    return form, vectors, (last > 0).reshape(batch)


def _element(form: Array, row: Array, column: Array) -> Array:
    """An element of each matrix, [b, 1] and [b, 1] -> [b, 1]."""
    batch, size, _ = form.shape
    return form.reshape(batch, size * size).rows(row * size + column)


def _first_column(form: Array, first: Array, last: Array, tried: Array) -> Array:
    """[b, 3]: the first column of (T - s)(T - t) for the eigenvalues s, t of the last 2x2 of a
    block, or after ten sweeps in vain for others."""
    scope = form.scope
    before = last - 1
    a, b = _element(form, before, before), _element(form, before, last)
    c, d = _element(form, last, before), _element(form, last, last)
    trace, determinant = a + d, a * d - b * c
    other = c.size() + _element(form, before, (before - 1).greater_of(0)).size()
    stuck = tried.each("rem", scope.full(10, I64, tried.shape).value).equals(9)
    trace = scope.where(stuck, other * 1.5, trace)
    determinant = scope.where(stuck, other.square(), determinant)
    second = first + 1
    h = _element(form, first, first)
    below = _element(form, second, first)
    x = h * h + _element(form, first, second) * below - trace * h + determinant
    y = below * (h + _element(form, second, second) - trace)
    return scope.concatenate([x, y, below * _element(form, second + 1, second)], 1)


def _chase(
    form: Array, vectors: Array, start: Array, first: Array, last: Array
) -> tuple[Array, Array]:
    """A sweep: reflectors of three rows, from the first row of each block to its last but one."""
    scope = form.scope
    active = last > 0
    size = form.shape[1]
    lowest = scope.where(active, first, size).reduce("min", 1).reduce("min", 0)
    count = scope.where(active, last, 0).max(1).max(0) - lowest
    rows, columns = scope.count((1, 3, 1), 1), scope.count((1, 1, size), 2)
    zero = scope.index(0)

    def step(index: Array, form: Array, vectors: Array) -> list[Array]:
        here = lowest + index
        block = form.window(1, here, 3)
        column = block.at((here - 1).greater_of(0), 2)
        begins = first.equals(here)
        column = scope.where(begins, start, column)
        column = scope.where((here + scope.count((1, 3), 1)) <= last, column, 0)
        used = active & (first <= here) & (last > here)
        v, tau, beta = reflector(column, zero)
        v, tau = scope.where(used, v, 0), scope.where(used, tau, 0)

        def reflected(x: Array) -> Array:
            return x - outer(v * tau.conj(), projected(v, x))

        block = reflected(block)
        made = (used & ~begins).unsqueeze(2) & columns.equals(here - 1)
        block = scope.where(made, scope.where(rows.equals(0), beta.unsqueeze(2), 0), block)
        form = form.put(1, here, block)
        right = form.window(2, here, 3)
        right = right - outer((right * v.unsqueeze(1)).sum(2), v.conj() * tau)
        form = form.put(2, here, right)
        return [form, vectors.put(1, here, reflected(vectors.window(1, here, 3)))]

    form, vectors = scope.loop(count, [form, vectors], step)
    return form, vectors


def _split(form: Array, vectors: Array, size: Dim) -> tuple[Array, Array]:
    """2x2 blocks as triangles, or of real matrices with a conjugate pair with equal numbers on the
    diagonal. `form` has a row and a column more than the matrices."""
    scope = form.scope
    rows, wide = scope.count((1, 2, 1), 1), scope.count((1, 1, form.shape[2]), 2)

    def step(here: Array, form: Array, vectors: Array) -> list[Array]:
        block = form.window(1, here, 2)
        corner = block.window(2, here, 2)
        cosine, sine, is_pair = _rotation(corner)

        stays = scope.concatenate([cosine.conj(), cosine], 1)
        comes = scope.concatenate([sine.conj(), -sine], 1)
        form = form.put(1, here, block * stays + block.reverse(1) * comes)
        right = form.window(2, here, 2)
        form = form.put(2, here, right * stays.H + right.reverse(2) * comes.H)
        block = form.window(1, here, 2)
        corner = block.window(2, here, 2)
        below = corner.cut(1, 1, 2).cut(2, 0, 1)
        clear = rows.equals(1) & wide.equals(here) & ~is_pair
        block = scope.where(clear, 0, block)
        if not form.is_complex:
            mean = corner.diagonal().sum(1).unsqueeze(1).unsqueeze(2) * 0.5
            equal = is_pair & wide.equals(here + rows) & ~below.equals(0)
            block = scope.where(equal, mean, block)
        form = form.put(1, here, block)
        pair = vectors.window(1, here, 2)
        return [form, vectors.put(1, here, pair * stays + pair.reverse(1) * comes)]

    form, vectors = scope.loop(size - 1, [form, vectors], step)
    return form, vectors


def _rotation(corner: Array) -> tuple[Array, Array, Array]:
    """[b, 2, 2] -> cos and sin, [b, 1, 1], of a rotation that makes it a triangle; or of a real one
    whose eigenvalues are a pair, that makes its diagonal equal, and i1: that is so."""
    scope = corner.scope
    a, b = corner.cut(1, 0, 1).cut(2, 0, 1), corner.cut(1, 0, 1).cut(2, 1, 2)
    c, d = corner.cut(1, 1, 2).cut(2, 0, 1), corner.cut(1, 1, 2).cut(2, 1, 2)
    p = (a - d) * 0.5
    none = c.size().equals(0)
    square = p * p + b * c
    if corner.is_complex:
        root = square.sqrt()
        plus, minus = p + root, p - root
        z = scope.where(plus.size() >= minus.size(), plus, minus)
        is_pair = scope.full(False, none.dtype, none.shape)
    else:
        is_pair = square < 0
        root = scope.where(is_pair, 0, square).sqrt()
        z = scope.where(p >= 0, p + root, p - root)
    length = (z.square() + c.square()).sqrt()
    length = scope.where(none, 1, length)
    cosine, sine = z / length, c / length
    if not corner.is_complex:
        sigma = b + c
        tau = (sigma.square() + (a - d).square()).sqrt()
        safe = scope.where(tau.equals(0), 1, tau)
        even = ((sigma.abs() / safe + 1) * 0.5).sqrt()
        odd = -(p / (safe * even)) * scope.where(sigma < 0, scope.full(-1, p.dtype), 1)
        cosine = scope.where(is_pair, scope.where(tau.equals(0), 1, even), cosine)
        sine = scope.where(is_pair, scope.where(tau.equals(0), 0, odd), sine)
    return scope.where(none, 1, cosine), scope.where(none, 0, sine), is_pair & ~none


def _values(form: Array) -> Array:
    """The eigenvalues of a real form, complex."""
    scope = form.scope
    below, above = form.diagonal(down=1), form.diagonal(right=1)
    part = below.abs().sqrt() * above.abs().sqrt()
    zero = scope.full(0, form.dtype, (form.shape[0], 1))
    imaginary = scope.concatenate([part, zero], 1) - scope.concatenate([zero, part], 1)
    return scope.joined(form.diagonal(), imaginary)


def eigenvectors(x: Schur, *, left: bool = False) -> Array:
    """Right or left eigenvectors as columns, complex, of length 1, whose greatest number is real;
    those of a real matrix are real or come in conjugate pairs."""
    scope, (batch, size, _) = x.form.scope, x.form.shape
    form, vectors, is_real = x.form, x.vectors, not x.form.is_complex
    if size == 0:
        return vectors.as_complex()
    if is_real:
        form, vectors = form.as_complex(), vectors.as_complex()
        wide = size + 1
        form, vectors = _split(form.padded(wide, wide), vectors.padded(wide, size), size)
        form, vectors = form.cut(1, 0, size).cut(2, 0, size), vectors.cut(1, 0, size)
    if left:
        solved = _solved(form.H.reverse(1, 2), x.values.conj().reverse(1)).reverse(1, 2)
    else:
        solved = _solved(form, x.values)
    found = vectors.H @ solved
    size_of = found.square()
    length = size_of.sum(1).sqrt().unsqueeze(1)
    best = (
        found.T.reshape(batch * size, size)
        .rows(size_of.arg_max(1).reshape(batch * size, 1))
        .reshape(batch, 1, size)
    )
    found = found * (best.conj() / (best.abs() * length))
    if not is_real:
        return found
    imaginary = x.values.imaginary.unsqueeze(1)
    real, other = found.split()
    mirrored = [
        part.each("pad", scope.full(0, part.dtype).value, low=(0, 0, 1), high=(0, 0, -1))
        for part in (real, -other)
    ]
    second = imaginary < 0
    other = scope.where(imaginary.equals(0), 0, scope.where(second, mirrored[1], other))
    return scope.joined(scope.where(second, mirrored[0], real), other)


def _solved(form: Array, values: Array) -> Array:
    """The eigenvectors of triangular matrices as columns, with 1 on the diagonal or less."""
    scope, (batch, size, _) = form.scope, form.shape
    columns = scope.count((1, size), 1)
    greatest = form.size().max(2).max(1).unsqueeze(1)
    least = scope.where(greatest.equals(0), 1, greatest) * form.epsilon

    def step(index: Array, found: Array) -> list[Array]:
        here = scope.index(size - 1) - index
        row = scope.where(columns > here, form.at(here, 1), 0)
        total = (row.unsqueeze(1) @ found).reshape(batch, size)
        gap = values.at(here, 1).unsqueeze(1) - values
        gap = scope.where(gap.size() < least, least, gap)
        number = scope.where(
            columns > here, -total / gap, scope.where(columns.equals(here), scope.like(1, total), 0)
        )
        great = number.size()
        shrink = scope.where(great > 1 / form.epsilon, 1 / great, 1)
        found = found.put(1, here, number.unsqueeze(1))
        return [found * shrink.unsqueeze(1)]

    (found,) = scope.loop(size, [scope.zeros(form)], step)
    return found
