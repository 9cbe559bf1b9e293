"""Special functions of statistics as element-wise ops: gamma functions, Bessel functions of
imaginary arguments, error functions and their inverses, the zeta function.

What has no closed form is a Chebyshev series in a variable in which the function is smooth; the
tables below were fitted with 40 digits, and floats of 32 bits take the first terms alone.
"""

from __future__ import annotations

import math

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.hal.spec import dtype

__all__ = [
    "bessel_i0",
    "bessel_i1",
    "digamma",
    "erfc",
    "erfcx",
    "erfinv",
    "igamma",
    "lgamma",
    "ndtri",
    "polygamma",
    "zeta",
]

_GAMMA = (
    1.413782242024452, 0.4917284800890073, 0.08532454170609606, 0.008214558154673682,
    0.0008879278094690782, 5.676567915188611e-05, 5.264076190531452e-06, 1.961278484873877e-07,
    2.425465919964936e-08, -4.340584399846537e-11, 1.281354224153112e-10, -7.185158744735293e-12,
    9.878862168080628e-13, -8.935248942385424e-14, 9.472673359391568e-15, -9.426686010233666e-16,
    9.59100989075118e-17,
)  # fmt: skip
"""gamma(x) from 2 to 3, in 2 x - 5."""
_I0_NEAR = (
    0.338397637204738, -0.3046826723431984, 0.1716209015222088, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394595, -0.004324309995050576,
    0.001639475616941336, -0.0005763755745385824, 0.0001885028850958416, -5.754195010082104e-05,
    1.64484480707289e-05, -4.416738358458751e-06, 1.117387539120104e-06, -2.670793853940612e-07,
    6.046995022541919e-08, -1.300025009986248e-08, 2.659823724682387e-09, -5.189795601635263e-10,
    9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13,
    7.676185498604936e-14, -1.168533287799345e-14, 1.715391285555133e-15, -2.431279846547955e-16,
    3.330794518822238e-17,
)  # fmt: skip
"""exp(-x) I0(x) for x from 0 to 8, in x / 4 - 1."""
_I1_NEAR = (
    0.1262935932218168, -0.1764165183578341, 0.1026436586898471, -0.05294598120809499,
    0.02472644903062652, -0.0105640848946262, 0.004156422944312888, -0.001513572450631253,
    0.0005122859561685758, -0.0001617608158258967, 4.781565107550054e-05, -1.327316365603944e-05,
    3.470251308137678e-06, -8.568720264695455e-07, 2.003294753552135e-07, -4.445059128796328e-08,
    9.381537386495773e-09, -1.887249751722829e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.17361862988909e-11, -1.983974397764944e-12, 3.223793365945575e-13, -5.042185504727912e-14,
    7.600684294735408e-15, -1.105596947735386e-15, 1.553631957736201e-16, -2.111421214358166e-17,
)  # fmt: skip
"""exp(-x) I1(x) / x, likewise."""
_I0_FAR = (
    0.4022452055070544, 0.003369116478255694, 6.889758346916825e-05, 2.891370520834757e-06,
    2.048918589469064e-07, 2.266668990498178e-08, 3.396232025708387e-09, 4.94060238822497e-10,
    1.188914710784644e-11, -3.149916527963242e-11, -1.321581184044771e-11, -1.794178531506806e-12,
    7.180124451383666e-13, 3.852778382742143e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.811680669352622e-15, 1.772560133056526e-15, -3.425485619677219e-16,
    -2.827623980516584e-16, 3.461222867697461e-17, 4.46562142029676e-17,
)  # fmt: skip
"""exp(-x) sqrt(x) I0(x) from 8 on, in 16 / x - 1."""
_I1_FAR = (
    0.3892881175091401, -0.009761097491361469, -0.0001105889387626237, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.63146884688952e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.897495812350541e-11, 3.252603583015488e-11, 1.412580743661378e-11, 2.03562854414709e-12,
    -7.198551776245908e-13, -4.083551111092197e-13, -2.101541842772664e-14, 4.272440016711951e-14,
    1.04202769841288e-14, -3.814403072437008e-15, -1.880354775510783e-15, 3.308202310920929e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.650305368489359e-17,
)  # fmt: skip
"""exp(-x) sqrt(x) I1(x), likewise."""
_ERFCX = (
    1.177578934567402, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189,
    -0.02665866843530575, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086,
    -6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.18864010492344e-07,
    1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10, -6.318088340886684e-11,
    2.86879501093067e-11, 1.945586854577735e-13, -9.654696748433439e-13, 3.25254814814874e-14,
    3.347811948286806e-14, -1.864562880419313e-15, -1.250795053068865e-15, 7.418235256624044e-17,
    5.068148904796112e-17,
)  # fmt: skip
"""(1 + 2 x) exp(x^2) erfc(x) from 0 on, in (x - 3.75) / (x + 3.75)."""
_Q_NEAR = (
    1.49129894047449, 0.60175630341083, -0.009170559500080926, -0.004962635326766425,
    0.0009153796700079642, -3.889562757083e-06, -2.420259940494409e-05, 3.266571592584233e-06,
    2.775888980373663e-07, -1.302336301364303e-07, 8.104643424791869e-09, 2.862438517693075e-09,
    -5.975090007034137e-10, -1.222297879869563e-11, 1.959596397135697e-11, -2.051040720737084e-12,
    -3.4468604612228e-13, 1.054675167696924e-13, -2.449375549080521e-15, -2.948685683278964e-15,
    4.407386071103586e-16, 3.679429175171005e-17,
)  # fmt: skip
"""erfinv(x) / x for w = -log(1 - x^2) from 0 to 5, in w / 2.5 - 1."""
_Q_MIDDLE = (
    3.963103861334713, 1.893639467017619, 0.005233199180714783, -0.002962735989226349,
    0.001282965081076498, -0.000544544704776332, 0.00022213736261215, -7.999025421130703e-05,
    2.229307888868185e-05, -3.087459192688143e-06, -1.116862206491769e-06, 1.017615363890908e-06,
    -4.007578049571077e-07, 7.968117740559941e-08, 8.845965927361437e-09, -1.359797382687663e-08,
    5.346442297406039e-09, -9.37703740912303e-10, -1.511413075345652e-10, 1.620502155866258e-10,
    -5.451128711765827e-11, 7.600635311458057e-12, 1.842859685214209e-12, -1.459281573368338e-12,
    4.583778187118487e-13, -7.151162138704662e-14, -8.441241546734919e-15, 1.045341621828178e-14,
    -4.242445160416613e-15, 1.042722209612423e-15,
)  # fmt: skip
"""The same for the root of w up to 6, which is mapped to -1 to 1."""
_Q_FAR = (
    16.41000488920105, 10.53847940756214, -0.00903477280454126, 0.002090741900590471,
    -0.0004394364013981432, 6.8563676883068e-05, 1.898163614520966e-06, -8.744473806777485e-06,
    5.627009337794617e-06, -2.794217705264354e-06, 1.244979783180915e-06, -5.225306375343317e-07,
    2.11135153117997e-07, -8.308501941371721e-08, 3.205955321258146e-08, -1.218270686971446e-08,
    4.572352870067679e-09, -1.698327238933185e-09, 6.251971153432623e-10, -2.283424889383684e-10,
    8.280803863491358e-11, -2.983525450274318e-11, 1.068436874027429e-11, -3.804254504441983e-12,
    1.347071727271661e-12, -4.744355764987473e-13, 1.662129611151724e-13, -5.792471360098021e-14,
    2.007995271177708e-14, -6.923621659983432e-15, 2.374339873456932e-15, -8.098028702111253e-16,
    2.747332826885268e-16, -9.277363620635862e-17,
)  # fmt: skip
"""The same from 6 to 27."""
_BERNOULLI = (  # of even order, from B2
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
)  # fmt: skip
_EULER = 0.5772156649015329
_ZETA_LESS_ONE = (  # of 2, 3, ...
    0.6449340668482264, 0.2020569031595943, 0.08232323371113819, 0.03692775514336993,
    0.01734306198444914, 0.008349277381922827, 0.00407735619794434, 0.002008392826082214,
    0.0009945751278180853, 0.0004941886041194646, 0.0002460865533080483,
)  # fmt: skip
_SHIFT = 10  # arguments from which asymptotic series are exact
_STEPS = 100000  # of a series or a continued fraction, at most; order a takes some sqrt(72 a)
_LARGE = 1e6  # orders from which incomplete gamma functions are nearly those of errors


def _series(table: tuple[float, ...], x: Array) -> Array:
    """A Chebyshev series, by Clenshaw's rule."""
    if x.dtype.bits < 64:
        table = tuple(each for each in table if abs(each) > 1e-9)
    last, now = x.scope.like(0, x), x.scope.like(table[-1], x)
    for each in table[-2:0:-1]:
        last, now = now, now * x * 2 - last + each
    return now * x - last + table[0]


def _sin_pi(x: Array) -> Array:
    """|sin(pi x)|, exact at whole numbers."""
    part = (x - x.each("round_even")).abs()
    return (part * math.pi).each("sin")


def lgamma(x: Array) -> Array:
    """log |gamma(x)|: the logarithm of a product up to 12, Stirling's series from there on, and
    reflection below 1/2."""
    scope = x.scope
    is_low = x < 0.5
    z = scope.where(is_low, 1 - x, x)
    found = scope.where(z < 12, _gamma(scope.where(z < 12, z, 1)).each("log"), _stirling(z))
    reflected = scope.like(math.log(math.pi), x) - _sin_pi(x).each("log") - found
    found = scope.where(is_low, reflected, found)
    return scope.where(x.abs().equals(math.inf), math.inf, found)


def _gamma(x: Array) -> Array:
    """From 1/2 to 12, by the table and the recurrence."""
    scope = x.scope
    over, under = scope.like(1, x), scope.like(1, x)
    for _ in range(9):
        is_high = x >= 3
        x = scope.where(is_high, x - 1, x)
        over = scope.where(is_high, over * x, over)
    for _ in range(2):
        is_low = x < 2
        under = scope.where(is_low, under * x, under)
        x = scope.where(is_low, x + 1, x)
    return over * _series(_GAMMA, x * 2 - 5) / under


def _stirling(x: Array) -> Array:
    return (x.each("log") - 1) * (x - 0.5) - 0.5 + math.log(2 * math.pi) / 2 + _stirling_tail(x)


def _stirling_tail(x: Array) -> Array:
    """1 / (12 x) and what follows."""
    tail, square = x.scope.like(0, x), 1 / (x * x)
    for order, number in reversed(list(enumerate(_BERNOULLI[:7], 1))):
        tail = tail * square + number / (2 * order * (2 * order - 1))
    return tail / x


def digamma(x: Array) -> Array:
    """The derivative of log gamma(x); not a number at negative whole numbers."""
    scope = x.scope
    is_low = x < 0.5
    z = scope.where(is_low, 1 - x, x)
    less = scope.like(0, z)
    for place in range(_SHIFT):
        less = less + 1 / (z + place)
    z = z + _SHIFT
    square = 1 / (z * z)
    tail = scope.like(0, z)
    for order, number in reversed(list(enumerate(_BERNOULLI[:7], 1))):
        tail = (tail + number / (2 * order)) * square
    found = z.each("log") - 0.5 / z - tail - less
    part = x - x.each("round_even")
    found = scope.where(is_low, found - math.pi / (part * math.pi).each("tan"), found)
    pole = part.equals(0) & is_low
    at_zero = scope.where(x.equals(0), -1 / x, math.nan)
    return scope.where(pole, at_zero, found)


def _trigamma(x: Array) -> Array:
    scope = x.scope
    is_low = x < 0.5
    found = zeta(scope.like(2, x), scope.where(is_low, 1 - x, x))
    ratio = math.pi / _sin_pi(x)
    return scope.where(is_low, ratio * ratio - found, found)


def polygamma(order: int, x: Array) -> Array:
    """The derivative of that order of digamma."""
    if order == 0:
        return digamma(x)
    if order == 1:
        return _trigamma(x)
    sign = 1 if order % 2 else -1
    found = zeta(x.scope.like(order + 1, x), x)
    return found * (sign * float(math.factorial(order)))


def zeta(x: Array, q: Array) -> Array:
    """Hurwitz' zeta function, sum (q + n)^-x, by the formula of Euler and Maclaurin."""
    scope = x.scope
    x, q = (each.broadcast_to(scope.common_shape(x.shape, q.shape)) for each in (x, q))
    missing = scope.where(q < 0, -q, 0).each("ceil").each("min", scope.like(1e4, q).value)
    rounds = missing
    for _ in q.shape:
        rounds = rounds.max(0)

    def term(index: Array, total: Array) -> list[Array]:
        at = q + index.convert(q.dtype)
        return [scope.where(at < 0, total + at.each("pow", (-x).value), total)]

    (total,) = scope.loop(rounds.convert(dtype("i64")), [scope.like(0, q)], term)
    start = q + missing
    for place in range(_SHIFT):
        total = total + (start + place).each("pow", (-x).value)
    a = start + _SHIFT
    power = a.each("pow", (-x).value)
    total = total + a.each("pow", (1 - x).value) / (x - 1) + power * 0.5
    part = power * x / a
    for order, number in enumerate(_BERNOULLI, 1):
        total = total + part * (number / math.factorial(2 * order))
        part = part * (x + (2 * order - 1)) * (x + 2 * order) / (a * a)
    pole = (q <= 0) & q.each("floor").equals(q)
    total = scope.where(pole, math.inf, total)
    total = scope.where(x.equals(1), math.inf, total)
    no_power = (q < 0) & ~x.each("floor").equals(x) & ~pole
    return scope.where((x < 1) | no_power, math.nan, total)


def _bessel(x: Array, near: tuple[float, ...], far: tuple[float, ...], *, scaled: bool) -> Array:
    """By the tables of a function of |x|, which is times exp(-|x|) where it is `scaled`."""
    scope, size = x.scope, x.abs()
    beyond = scope.where(size < 8, 8, size)
    low = _series(near, scope.where(size < 8, size, 8) / 4 - 1)
    high = _series(far, 16 / beyond - 1) / beyond.sqrt()
    if near is _I1_NEAR:
        low, high = low * x, scope.where(x < 0, -high, high)
    found = scope.where(size < 8, low, high)
    if scaled:
        return found
    half = (size * 0.5).each("exp")  # exp itself overflows before the product does
    return found * half * half


def bessel_i0(x: Array, *, scaled: bool = False) -> Array:
    """The modified Bessel function of order 0, or that times exp(-|x|)."""
    return _bessel(x, _I0_NEAR, _I0_FAR, scaled=scaled)


def bessel_i1(x: Array, *, scaled: bool = False) -> Array:
    """The modified Bessel function of order 1, or that times exp(-|x|)."""
    return _bessel(x, _I1_NEAR, _I1_FAR, scaled=scaled)


def erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x)."""
    scope, size = x.scope, x.abs()
    known = scope.where(size.equals(math.inf), 1e30, size)
    found = _series(_ERFCX, (known - 3.75) / (known + 3.75)) / (known * 2 + 1)
    return scope.where(x < 0, (x * x).each("exp") * 2 - found, found)


def erfc(x: Array) -> Array:
    """1 - erf(x), which keeps its digits where it is small."""
    scope = x.scope
    size = scope.where(x > 0.5, x, 0.5)
    small = erfcx(size) * (-(size * size)).each("exp")
    return scope.where(x > 0.5, small, 1 - x.each("erf"))


def _quantile(w: Array) -> Array:
    """erfinv(x) / x for w = -log(1 - x^2)."""
    scope = w.scope
    near = _series(_Q_NEAR, scope.where(w < 5, w, 5) / 2.5 - 1)
    root, first = w.sqrt(), math.sqrt(5)
    middle = scope.where(root < 6, scope.where(w < 5, first, root), 6)
    middle = _series(_Q_MIDDLE, (middle * 2 - (first + 6)) / (6 - first))
    far = scope.where(root < 6, 6, root)
    far = _series(_Q_FAR, (far * 2 - 33) / 21)
    return scope.where(w < 5, near, scope.where(root < 6, middle, far))


def erfinv(x: Array) -> Array:
    """y with erf(y) = x."""
    scope = x.scope
    size = x.abs()
    known = scope.where(size < 1, x, 0)
    w = -(known.each("log1p") + (-known).each("log1p"))
    found = known * _quantile(scope.where(w > 0, w, 0))
    end = scope.where(x > 0, scope.like(math.inf, x), -math.inf)
    return scope.where(size < 1, found, scope.where(size.equals(1), end, math.nan))


def ndtri(p: Array) -> Array:
    """The quantiles of the normal distribution."""
    scope = p.scope
    inside = (p > 0) & (p < 1)
    known = scope.where(inside, p, 0.5)
    w = -(known.each("log") + (-known).each("log1p") + math.log(4))
    found = (known * 2 - 1) * _quantile(scope.where(w > 0, w, 0)) * math.sqrt(2)
    end = scope.where(p.equals(0), scope.like(-math.inf, p), math.inf)
    found = scope.where(inside, found, end)
    return scope.where((p >= 0) & (p <= 1), found, math.nan)


def igamma(a: Array, x: Array, *, upper: bool) -> Array:
    """The regularised incomplete gamma function P(a, x), or Q(a, x) = 1 - P (`upper`), in f64."""
    scope, given, wide = a.scope, a.dtype, dtype("f64")
    shape = scope.common_shape(a.shape, x.shape)
    a, x = (each.broadcast_to(shape).convert(wide) for each in (a, x))
    by_series = (x <= 1) | (x <= a)
    inside = (x > 0) & (a > 0) & ~x.equals(math.inf) & (a < _LARGE)
    lower = scope.where(inside & by_series, _power_series(scope, a, x, inside & by_series), 0)
    above = scope.where(inside & ~by_series, _fraction(scope, a, x, inside & ~by_series), 0)
    high = scope.where(a < 12, 12, a)
    part = _excess(x, high)
    scale = a * x.each("log") - x - lgamma(scope.where(a < 12, a, 1))
    stirling = (high / (2 * math.pi)).each("log") * 0.5 - high * part - _stirling_tail(high)
    scale = scope.where(a < 12, scale, stirling).each("exp")
    lower, above = lower * scale, above * scale
    far = _of_errors(scope.where(a < _LARGE, _LARGE, a), x)
    lower = scope.where(a < _LARGE, lower, far)
    above = scope.where(a < _LARGE, above, far)
    if upper:
        is_small = (a < 0.1) & (x <= 1)
        found = scope.where(by_series, 1 - lower, above)
        pair = (scope.where(is_small, each, 0.1) for each in (a, x))
        found = scope.where(is_small, _of_small_order(*pair), found)
    else:
        found = scope.where(by_series, lower, 1 - above)
    one, none = scope.like(1, x), scope.like(0, x)
    at_zero, at_end = (one, none) if upper else (none, one)
    found = scope.where(x.equals(0) | a.equals(math.inf), at_zero, found)
    found = scope.where((a.equals(0) & (x > 0)) | x.equals(math.inf), at_end, found)
    wrong = (a < 0) | (x < 0) | (a.equals(0) & x.equals(0))
    wrong = wrong | (a.equals(math.inf) & x.equals(math.inf))
    wrong = wrong | ~a.equals(a) | ~x.equals(x)
    return scope.where(wrong, math.nan, found).convert(given)


def _of_small_order(a: Array, x: Array) -> Array:
    """Q(a, x) for a up to 0.1 and x up to 1, which is about a: 1 - P has no digits of it."""
    tail = a.scope.like(0, a)
    for order, number in reversed(list(enumerate(_ZETA_LESS_ONE, 2))):
        tail = number / order - a * tail
    log_gamma = a * (1 - _EULER) + a * a * tail - a.each("log1p")  # of 1 + a
    exponent = a * x.each("log") - log_gamma
    total, term = a.scope.like(0, a), a.scope.like(1, a)
    for count in range(1, 19):
        term = term * x / -count
        total = total + term / (a + count)
    return -exponent.each("expm1") - a * exponent.each("exp") * total


def _excess(x: Array, a: Array) -> Array:
    """u - log(1 + u) for x = a (1 + u)."""
    scope, u = x.scope, (x - a) / a
    tail = scope.like(0, u)
    for order in range(10, 1, -1):
        tail = 1 / order - u * tail
    far = u - scope.where(u < -0.5, (x / a).each("log"), u.each("log1p"))
    return scope.where(u.abs() < 0.01, u * u * tail, far)


def _of_errors(a: Array, x: Array) -> Array:
    """P(a, x) up to a and Q(a, x) above, by Temme's expansion for large a."""
    scope = a.scope
    size = (_excess(x, a) * 2).sqrt()
    size = scope.where(size < 1, size, 1)  # from where the results are 0
    eta = scope.where(x < a, -size, size)
    series = ((eta / 2835 + 1 / 864) * eta - 2 / 135) * eta * eta + eta / 12 - 1 / 3
    series = series - (eta / 288 + 1 / 540) / a
    rest = (-a * size * size * 0.5).each("exp") * series / (a * (2 * math.pi)).sqrt()
    return erfc(size * (a * 0.5).sqrt()) * 0.5 + scope.where(x <= a, -rest, rest)


def _any(x: Array) -> Array:
    for _ in x.shape:
        x = x.reduce("or", 0)
    return x


def _power_series(scope: Scope, a: Array, x: Array, used: Array) -> Array:
    """sum x^n / (a (a + 1) ... (a + n))."""

    def goes_on(count: Array, term: Array, total: Array) -> Array:
        left = used & (term > total * a.epsilon)
        return _any(left) & (count < _STEPS)

    def step(count: Array, term: Array, total: Array) -> list[Array]:
        count = count + 1
        term = term * x / (a + count.convert(a.dtype))
        return [count, term, total + term]

    first = 1 / a
    return scope.repeat([scope.index(0), first, first], goes_on, step)[2]


def _fraction(scope: Scope, a: Array, x: Array, used: Array) -> Array:
    """The continued fraction of Q without its factor, by Lentz' rule."""
    least = float(2.0 ** (-100 if a.dtype.bits < 64 else -900))

    def safe(number: Array) -> Array:
        return scope.where(number.abs() < least, least, number)

    def goes_on(count: Array, b: Array, c: Array, d: Array, h: Array, change: Array) -> Array:
        return _any(used & ((change - 1).abs() > a.epsilon)) & (count < _STEPS)

    def step(count: Array, b: Array, c: Array, d: Array, h: Array, _: Array) -> list[Array]:
        count = count + 1
        number = count.convert(a.dtype)
        factor = -number * (number - a)
        b = b + 2
        d = 1 / safe(factor * d + b)
        c = safe(factor / c + b)
        return [count, b, c, d, h * d * c, d * c]

    b = x - a + 1
    d = 1 / safe(b)
    far, two = scope.like(1 / least, x), scope.like(2, x)
    return scope.repeat([scope.index(0), b, far, d, d, two], goes_on, step)[4]
