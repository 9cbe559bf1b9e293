"""Programs of torch.export that `tests/models/torch_export/make_programs.py` saved, without torch:
each result against what eager torch gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import walk
from ingot.compiler.read_source import read_source
from tests.support.devices import load_best

FOLDER = Path(__file__).parents[3] / "models" / "torch_export"
SAVED = np.load(FOLDER / "programs.npz")
PROGRAMS = [name.removesuffix(":program") for name in SAVED if name.endswith(":program")]


DRAWN = ["draws", "draws.core"]


def arrays(program: str, kind: str) -> dict[str, Any]:
    """The inputs or the expected results of a program by name."""
    start = f"{program.removesuffix('.core')}:{kind}:"
    return {name.removeprefix(start): SAVED[name] for name in SAVED if name.startswith(start)}


def check(name: str, found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    near = 4e-3 if expected.dtype == np.float16 else 2e-5
    np.testing.assert_allclose(found, expected, near, near, err_msg=name)


def inputs_of(function: Any, program: str) -> list[Any]:
    given = arrays(program, "input")
    return [given[name.removeprefix("tensors_")] for name in function.argument_names]


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name not in DRAWN])
def test_results_are_those_of_eager_torch(program: str) -> None:
    module = read_source(SAVED[f"{program}:program"].tobytes())
    function = module.functions["main"]
    found = interpret(module, "main", inputs_of(function, program))
    expected = arrays(program, "expected")
    assert function.result_names == list(expected)
    for name, array in zip(function.result_names, found, strict=True):
        check(name, array, expected[name])


@pytest.mark.parametrize("program", DRAWN)
def test_random_numbers_have_their_distributions(program: str) -> None:
    module = read_source(SAVED[f"{program}:program"].tobytes())
    state: dict[str, Any] = {}
    first, second = (
        dict(zip(module.functions["main"].result_names, found, strict=True))
        for found in (
            interpret(module, "main", inputs_of(module.functions["main"], program), state=state)
            for _ in range(2)
        )
    )
    for name, expected in arrays(program, "expected").items():
        found = first[name]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert not np.array_equal(found, second[name])
        assert found.mean() == pytest.approx(expected.mean(), abs=0.3)
        assert found.std() == pytest.approx(expected.std(), rel=0.1)
    assert sorted(first["order"]) == list(range(100))
    assert set(first["integers"]) == set(range(3, 9))
    assert set(first["hits"].flat) == {0, 1}


@pytest.mark.parametrize("program", ["layers.core", pytest.param("block", marks=pytest.mark.slow)])
def test_models_run(program: str) -> None:
    model = load_best(SAVED[f"{program}:program"].tobytes())
    results = model.main(**arrays(program, "input"))
    expected = arrays(program, "expected")
    for found, (name, array) in zip(results, expected.items(), strict=True):
        check(name, found, array)


@pytest.mark.parametrize("program", ["block", "block.core"])
def test_dims_are_the_program_s_and_buffers_that_are_written_are_state(program: str) -> None:
    module = read_source(SAVED[f"{program}:program"].tobytes())
    function = module.functions["main"]
    assert sorted(function.symbols.values()) == [(0, 16), (0, 64)]  # from 2 on: what torch assumes
    assert list(module.variables) == ["cache", "calls"]
    given, state = arrays(program, "input"), {}
    for length in (3, 2):
        x = given["x"][:1, :length]
        place = given["position"][:length]
        y, cached, size = interpret(module, "main", [x, place], state=state)
        assert (y.shape, size) == ((1, length, 8), length)
    assert state["calls"] == 2
    assert state["cache"].sum() == pytest.approx(cached, rel=1e-5)
    assert np.count_nonzero(state["cache"].any((0, 1, 3))) == 3


def test_external_weights_have_the_names_of_the_torch_module() -> None:
    data = SAVED["layers:program"].tobytes()
    module = read_source(data, parameters="external", parameter_names={"head.bias": "b"})
    keys = [op.attributes.key for op in walk(module) if op.name == "parameter"]
    assert sorted(keys) == [
        "b", "head.weight", "stem.0.weight", "stem.1.bias", "stem.1.running_mean",
        "stem.1.running_var", "stem.1.weight",
    ]  # fmt: skip


def test_a_file_is_read_by_its_path() -> None:
    module = read_source(FOLDER / "layers.pt2")
    assert module.functions["main"].argument_names == ["image"]
    assert module.functions["main"].result_names == ["result.0", "result.1"]
