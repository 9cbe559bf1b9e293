"""The distributions of what torch draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from tests.support.torch_calls import Calls, torch


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
