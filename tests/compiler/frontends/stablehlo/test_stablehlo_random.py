"""Random numbers of StableHLO and jax: bits as XLA makes them on CPUs, numbers by distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.backend import get_backend

import ingot
from ingot.compiler.frontends.stablehlo import import_stablehlo
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best, opencl_device
from tests.support.results import arrays_of
from tests.support.stablehlo_cases import Array, artifact, export
from tests.support.streams import distance, fractions, gaussian


@pytest.fixture
def wide() -> Iterator[None]:
    """Inputs of 64 bits reach XLA as they are."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def by_xla(text: str, *arguments: Array) -> list[Array]:
    client = get_backend("cpu")
    program = client.compile_and_load(text, client.devices()[:1])
    return [np.asarray(each) for each in program.execute([jax.device_put(a) for a in arguments])]


BITS = [
    *("7xui32", "ui32", "3x4xi32", "5x1x3xf32", "0x3xui32", "3x5xui8", "5xf16", "3x3xi4"),
    *("7xui64", "1x1xf64"),
]


def generator(algorithm: str, state: int, types: list[str]) -> str:
    kind = f"tensor<{state}xui64>"
    lines = [
        f'%s{place}, %b{place} = "stablehlo.rng_bit_generator"(%s) '
        f"{{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}} : "
        f"({kind}) -> ({kind}, tensor<{each}>)"
        for place, each in enumerate(types)
    ]
    names = ", ".join(f"%s{place}, %b{place}" for place in range(len(types)))
    results = ", ".join(f"{kind}, tensor<{each}>" for each in types)
    body = "\n".join(lines)
    return f"func.func @main(%s: {kind}) -> ({results}) {{\n{body}\nreturn {names} : {results}\n}}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [("THREE_FRY", 2), ("PHILOX", 3), ("DEFAULT", 2)])
def test_bits_and_states_are_those_of_xla(kind: tuple[str, int], wide: None) -> None:
    text = generator(*kind, BITS)
    module = import_stablehlo(artifact(text))
    for first in (5, 2**64 - 2):  # the second one carries over
        state = np.full(kind[1], first, np.uint64) + np.arange(kind[1], dtype=np.uint64)
        wanted = by_xla(text, state)
        found = interpret(module, "main", [state])
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            what = f"{BITS[place // 2]}, result {place % 2}"
            if "i4" in what and place % 2:
                codes = np.asarray(one).astype(np.int8) & 15
                np.testing.assert_array_equal(codes, other.astype(np.int8) & 15, what)
            else:
                assert (one.shape, one.tobytes()) == (other.shape, other.tobytes()), what


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_compiled_kernels_make_the_same_bits(target: str, wide: None) -> None:
    uri = "cpu" if target == "cpu" else opencl_device()
    if uri is None:
        pytest.skip("no OpenCL device")
    types = ["33x3xui32", "5x9xui64"] if target == "cpu" else ["33x3xui32"]
    texts = {kind: generator(kind, 2, types) for kind in ("THREE_FRY", "PHILOX")}
    sources = {kind: import_stablehlo(artifact(text)) for kind, text in texts.items()}
    model = ingot.load(ingot.compile(sources, target=target), device=str(uri))
    state = np.array([2**63 + 3, 2**64 - 2], np.uint64)
    for kind, text in texts.items():
        for one, other in zip(model.functions[kind](state), by_xla(text, state), strict=True):
            np.testing.assert_array_equal(one.numpy(), other, kind)


@pytest.mark.parametrize(
    ("algorithm", "state", "type", "problem"),
    [
        ("THREE_FRY", 3, "4xui32", r"the state of THREE_FRY is u64\[3\], expected u64\[2\]"),
        ("PHILOX", 1, "4xui32", r"the state of PHILOX is u64\[1\], expected u64\[2\] or u64\[3\]"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    algorithm: str, state: int, type: str, problem: str
) -> None:
    with pytest.raises(ingot.CompileError, match=problem):
        import_stablehlo(artifact(generator(algorithm, state, [type])))


def dynamic(kind: str, draw: Callable[[Any, int], Any]) -> tuple[Any, Any, Array]:
    """What draws as many numbers as its second argument is long, its export, and a key."""
    (count,) = jax.export.symbolic_shape("n")
    data = np.asarray(jax.random.key_data(jax.random.key(7, impl=kind)))

    def program(data: Any, x: Any) -> Any:
        return draw(jax.random.wrap_key_data(data, impl=kind), x.shape[0])

    lengths = jax.ShapeDtypeStruct((count,), "float32")
    return program, jax.export.export(jax.jit(program))(data, lengths), data


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_as_many_bits_are_drawn_as_the_call_says(kind: str) -> None:
    def draw(key: Any, n: int) -> Any:
        return jax.random.bits(key, (n, 3), "uint8"), jax.random.uniform(key, (2, n))

    program, exported, data = dynamic(kind, draw)
    module = import_stablehlo(exported)
    for length in (1, 4, 7):
        x = np.zeros(length, np.float32)
        results = interpret(module, "main", [data, x])
        for one, other in zip(results, jax.jit(program)(data, x), strict=True):
            np.testing.assert_array_equal(one, np.asarray(other))


def test_bits_whose_order_depends_on_a_size_of_the_call_are_refused() -> None:
    def draw(key: Any, n: int) -> Any:
        algorithm = jax.lax.RandomAlgorithm.RNG_THREE_FRY
        return jax.lax.rng_bit_generator(jax.random.key_data(key), (n, 3), algorithm=algorithm)

    with pytest.raises(ingot.CompileError, match=r"as the dims of .* are even or odd: use PHILOX"):
        import_stablehlo(dynamic("rbg", draw)[1])


RNG = """
func.func @main(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f64>, %d: tensor<f64>,
    %e: tensor<i8>, %f: tensor<i8>, %g: tensor<i64>, %h: tensor<i64>, %n: tensor<2xi64>)
    -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf64>, tensor<?x?xf64>, tensor<?x?xi8>,
        tensor<?x?xi64>) {
  %0 = stablehlo.rng %a, %b, %n, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
  %1 = stablehlo.rng %a, %b, %n, distribution = NORMAL
    : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
  %2 = stablehlo.rng %c, %d, %n, distribution = UNIFORM
    : (tensor<f64>, tensor<f64>, tensor<2xi64>) -> tensor<?x?xf64>
  %3 = stablehlo.rng %c, %d, %n, distribution = NORMAL
    : (tensor<f64>, tensor<f64>, tensor<2xi64>) -> tensor<?x?xf64>
  %4 = stablehlo.rng %e, %f, %n, distribution = UNIFORM
    : (tensor<i8>, tensor<i8>, tensor<2xi64>) -> tensor<?x?xi8>
  %5 = stablehlo.rng %g, %h, %n, distribution = UNIFORM
    : (tensor<i64>, tensor<i64>, tensor<2xi64>) -> tensor<?x?xi64>
  return %0, %1, %2, %3, %4, %5 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf64>,
    tensor<?x?xf64>, tensor<?x?xi8>, tensor<?x?xi64>
}"""


def test_rng_draws_what_it_is_asked_for_anew_at_each_call(wide: None) -> None:
    model = load_best(artifact(RNG))
    assert [each.name for each in model.variables] == ["random.position"]
    ends = [*map(np.float32, (-1, 3)), *map(np.float64, (-2, 0.5))]
    ends += [*map(np.int8, (-100, 100)), *map(np.int64, (-(2**63), 2**63 - 1))]
    arguments = [*ends, np.array([300, 200])]
    first, second = (arrays_of(model(*arguments)) for _ in range(2))
    np.testing.assert_array_equal(first[0].ravel(), fractions(0, 0, 60_000) * 4 - 1)
    np.testing.assert_array_equal(second[0].ravel(), fractions(6, 0, 60_000) * 4 - 1)
    for one, other in zip(first, second, strict=True):
        assert one.shape == (300, 200)
        assert not np.array_equal(one, other)
        assert abs(np.corrcoef(one.ravel().astype(float), other.ravel().astype(float))[0, 1]) < 0.02
    uniform, normal, wide_uniform, wide_normal, bytes, longs = first
    assert uniform.min() >= -1
    assert uniform.max() < 3
    assert distance(uniform, lambda x: (x + 1) / 4) < 1.6
    assert distance(normal, lambda x: gaussian((x + 1) / 3)) < 1.6
    assert distance(wide_uniform, lambda x: (x + 2) / 2.5) < 1.6
    assert distance(wide_normal, lambda x: gaussian((x + 2) / 0.5)) < 1.6
    assert (bytes.min(), bytes.max()) == (-100, 99)
    counts = np.bincount(bytes.ravel().astype(int) + 100)
    assert abs(((counts - 300) ** 2 / 300).sum() - 199) < 3 * np.sqrt(2 * 199)
    assert distance(longs, lambda x: x / 2.0**64 + 0.5) < 1.6
    model.reset()
    for one, other in zip(arrays_of(model(*arguments)), first, strict=True):
        np.testing.assert_array_equal(one, other)


def exact(key: Any) -> list[Any]:
    """Programs of jax.random whose results are integers, or floats made without rounding."""
    random, line = jax.random, jnp.arange(12.0).reshape(4, 3)
    keys = random.split(key, 4)
    return [
        *(random.bits(key, (5, 3), each) for each in ("uint8", "uint16", "uint32")),
        *(random.uniform(key, (7,), each) for each in ("float16", "float32")),
        *(random.bernoulli(key, 0.3, (9,)), random.randint(key, (11,), -5, 100, "int8")),
        *(random.permutation(key, line), random.choice(key, 10, (4,), replace=False)),
        *(random.categorical(key, line), random.key_data(random.fold_in(key, 5))),
        jax.vmap(lambda each: random.bits(each, (3,)))(keys),
        jax.lax.scan(lambda k, _: (random.split(k)[0], random.bits(k, (2,))), key, None, 3)[1],
    ]


def rounded(key: Any) -> list[Any]:
    """Programs whose results are rounded by functions, which XLA computes otherwise."""
    random = jax.random
    return [
        *(random.normal(key, (5,), each) for each in ("float32", "bfloat16", "complex64")),
        *(random.gumbel(key, (5,)), random.cauchy(key, (5,)), random.gamma(key, 0.3)),
        *(random.truncated_normal(key, -1.0, 2.0, (5,)), random.poisson(key, 3.0)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_programs_of_jax_random_give_what_jax_gives(kind: str) -> None:
    functions: list[tuple[Callable[[Any], list[Any]], float]] = [(exact, 0.0)]
    functions += [(rounded, 3e-6)] if kind == "threefry2x32" else []
    for function, tolerance in functions:

        def program(data: Any, function: Any = function) -> list[Any]:
            return function(jax.random.wrap_key_data(data, impl=kind))  # type: ignore[no-any-return]

        data = np.asarray(jax.random.key_data(jax.random.key(7, impl=kind)))
        module = import_stablehlo(export(program, data))
        found = interpret(module, "main", [data])
        for place, (one, other) in enumerate(zip(found, jax.jit(program)(data), strict=True)):
            a, b = (
                np.asarray(each, complex if function is rounded else np.float64)
                for each in (one, other)
            )
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, tolerance, tolerance * 0.1, err_msg=str(place))


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys_are_arguments_and_results(kind: str) -> None:
    """As the words that they hold."""

    def draw(key: Any) -> Any:
        first, second = jax.random.split(key)
        return jax.random.uniform(first, (3,)), jax.random.fold_in(second, 7)

    key = jax.random.key(3, impl=kind)
    module = import_stablehlo(jax.export.export(jax.jit(draw))(key))
    found = interpret(module, "main", [np.asarray(jax.random.key_data(key))])
    numbers, following = draw(key)
    np.testing.assert_array_equal(found[0], numbers)
    np.testing.assert_array_equal(found[1], jax.random.key_data(following))
