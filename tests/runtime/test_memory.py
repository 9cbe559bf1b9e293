"""Memory of models: statistics, sizes of calls, limits, shared working memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.devices import best_variant


@pytest.fixture(scope="module")
def module() -> ingot.Module:
    """exp(x @ w) @ w, whose working memory is the first product."""
    w = np.eye(16, dtype=np.float32)

    def scores(x: Any) -> Any:
        return ops.sum(ops.exp(x @ w) @ w, axis=1)

    return ingot.compile(ingot.trace(scores, ingot.spec("f32[n,16]")), variants=[best_variant()])


def test_statistics_count_what_calls_hold(module: ingot.Module) -> None:
    model = ingot.load(module)
    before = model.statistics()
    assert before.total.current == 0
    y = model(np.zeros((100, 16), np.float32))
    during = model.statistics()
    assert during.results.current == y.numpy().nbytes == 400
    assert during.slabs.current == model.functions["main"].measure((100, 16)).slab >= 6400
    del y
    after = model.statistics()
    assert after.results == type(after.results)(0, 400)
    whole = model.statistics(program=True)
    assert whole.constants.current + whole.weights.current >= 16 * 16 * 4
    assert whole.total.current >= after.total.current + whole.weights.current
    assert model.fork().statistics().total.peak == 0


def test_a_call_is_measured_without_being_made(module: ingot.Module) -> None:
    model = ingot.load(module)
    size = model.main.measure((3, 16))
    assert size.is_exact
    assert size.results == ((3,),)
    assert model.main.measure((6, 16)).slab > size.slab > 0
    assert model.statistics().total.peak == 0
    with pytest.raises(ingot.InvalidArgument, match="dim 1 is 15, expected 16"):
        model.main.measure((3, 15))
    with pytest.raises(ingot.InvalidArgument, match=r"shapes of ranks \[1\] for main"):
        model.main.measure((3,))


def test_what_data_decides_is_not_known() -> None:
    model = ingot.load(
        ingot.compile(ingot.trace(lambda x: ops.nonzero(x)[0], ingot.spec("f32[n]")))
    )
    size = model.main.measure((8,))
    assert size.results == ((None,),)
    assert not size.is_exact or size.slab > 0


def test_a_limit_names_the_layer(module: ingot.Module) -> None:
    held = ingot.load(module).statistics(program=True).total.current
    model = ingot.load(module, memory_limit=held + 20000)
    model(np.zeros((100, 16), np.float32))
    with pytest.raises(ingot.OutOfMemory, match=r"fullest at .*test_memory.*memory_limit is \d+"):
        model(np.zeros((1000, 16), np.float32))
    model(np.zeros((100, 16), np.float32))
    with pytest.raises(ingot.OutOfMemory, match="the program's memory_limit is 1000"):
        ingot.load(module, memory_limit=1000)
    with pytest.raises(ingot.InvalidArgument, match="memory_limit is 0"):
        ingot.load(module, memory_limit=0)


def test_models_that_take_turns_share_working_memory(module: ingot.Module) -> None:
    models = [ingot.load(module, shares_slab=True) for _ in range(2)]
    models.append(models[0].fork())
    x = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    expected = np.exp(x).sum(1)
    for model in models * 2:
        np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-4)
        assert model.statistics().slabs.current == 0
        assert model.statistics().slabs.peak > 0


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_memoryviews_are_the_bytes_of_arrays(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    array = ingot.Array.from_numpy(values)
    view = _view(array)
    assert view.shape == shape
    assert view.tolist() == values.tolist()
    assert view.format == "h"
    if values.size:
        np.asarray(view)[...] = 7
        assert (array.numpy() == 7).all()
    del array
    assert view.nbytes == values.nbytes


def _view(array: ingot.Array) -> memoryview:
    convert: Callable[[Any], memoryview] = memoryview
    return convert(array)
