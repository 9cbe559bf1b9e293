"""Tables that are looked up and multiplied lie in one layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.forms.pack_weights import pack_weights
from ingot.compiler.graph.forms.share_tables import share_tables
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.verifier import verify
from ingot.hal.spec import dtype
from tests.support.devices import best_variant, load_best

ROWS = 9003  # 11 in the last panel


def table_of(columns: int, type: str) -> Any:
    return np.random.default_rng(0).normal(0, 1, (ROWS, columns)).astype(type)


def program(table: Any, mode: str, is_external: bool = False, is_kept: bool = False) -> Module:
    """Rows at ids, and their products with all rows."""
    block = Block([TensorType(dtype("i64"), (symbol("s"),))])
    b = Builder(block)
    if is_external:
        kind = dtype(str(table.dtype).replace("float", "f"))
        weight = b.value("parameter", scope="", key="w", dtype=kind, shape=table.shape)
    else:
        weight = b.constant(table)
    x = b.value("take", weight, *block.arguments, axis=0, mode=mode)
    numbers = b.value("convert", weight, dtype=dtype("f32")) if table.dtype != "f4" else weight
    rows = b.value("convert", x, dtype=dtype("f32")) if table.dtype != "f4" else x
    y = b.value("dot_general", rows, numbers, lhs_contract=(1,), rhs_contract=(1,))
    b.return_(rows, y, *([weight] if is_kept else []))
    module = Module()
    names = ["x", "y", "w"][: 2 + is_kept]
    module.add(Function("main", Region([block]), ["ids"], names))
    module.functions["main"].symbols["s"] = (1, 100)
    return module


def ops_of(module: Module) -> list[str]:
    return [op.name for op in module.functions["main"].block.ops]


@pytest.mark.parametrize(("columns", "type"), [(32, "f4"), (67, "f2")])
@pytest.mark.parametrize(
    ("mode", "ids"),
    [("check", [0, 16, ROWS - 1]), ("wrap_check", [-1, -ROWS, 31]), ("clamp", [-5, ROWS + 7])],
)
def test_lookups_give_the_rows(columns: int, type: str, mode: str, ids: list[int]) -> None:
    table = table_of(columns, type)
    module = share_tables(pack_weights(program(table, mode)))
    verify(module, GRAPH)
    assert ops_of(module).count("gather") == 1
    x, _ = interpret(module, "main", [np.array(ids)])
    taken = np.array(ids).clip(0, ROWS - 1) if mode == "clamp" else ids
    np.testing.assert_array_equal(x, table[taken])
    if mode != "clamp":
        with pytest.raises(ingot.Error, match=f"{ROWS} is out of range"):
            interpret(module, "main", [np.array([ROWS])])


def test_tables_with_other_uses_and_small_ones_stay() -> None:
    kept = share_tables(pack_weights(program(table_of(32, "f4"), "check", is_kept=True)))
    assert "gather" not in ops_of(kept)
    small = share_tables(pack_weights(program(table_of(8, "f4"), "check")))
    assert "gather" not in ops_of(small)


@pytest.mark.parametrize("is_external", [False, True])
def test_the_weight_is_there_once(is_external: bool, tmp_path: Any) -> None:
    table = table_of(32, "f4")
    source = program(table, "check", is_external)
    if is_external:
        model = ingot.load(
            ingot.compile(source, variants=[best_variant()]), parameters={"w": table}
        )
        model.save_weights(tmp_path / "packed")
        length = (tmp_path / "packed").stat().st_size
    else:
        length = len(bytes(ingot.compile(source)))
        model = load_best(source)
    assert length < 1.05 * table.nbytes
    x, y = model(np.array([0, 17, ROWS - 1]))
    np.testing.assert_array_equal(x, table[[0, 17, ROWS - 1]])
    np.testing.assert_allclose(y, table[[0, 17, ROWS - 1]] @ table.T, rtol=1e-4, atol=1e-4)
