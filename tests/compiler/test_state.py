"""Several sources in one module, and arguments and results that become state: what it means.

The programs run through the interpreter; `tests/end_to_end/test_state.py` runs them compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.ops import Constant
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Module, walk
from ingot.compiler.ir.verifier import verify
from ingot.compiler.read_source import read_sources
from ingot.compiler.state import State, apply_state, carried, named, past_present
from ingot.hal.errors import CompileError, InvalidArgument, OutOfRange

HEAD = 'module {producer="a test"} {\n'
COUNTER = (
    HEAD
    + """
  func @main(%n: f32[] "n", %x: f32[] "x") -> (f32[] "total") {
    %t = add(%n, %x) : f32[]
    return(%t)
  }
}
"""
)
KEEP = (
    HEAD
    + """
  func @main(%h: f32[n,2] "h") -> (f32[n,2] "next") symbols {n in [1, none]} {
    %y = add(%h, %h) : f32[n,2]
    return(%y)
  }
}
"""
)
APPEND = (
    HEAD
    + """
  func @main(%k: f32[b,p,2] "past.0.key", %v: f32[b,p,2] "past.0.value", %x: f32[b,s,2] "x")
      -> (f32[b,p+s,2] "present.0.key", f32[b,p+s,2] "present.0.value", f32[b,2] "y")
      symbols {b in [1, none], p in [0, none], s in [1, none]} {
    %k1 = concatenate(%k, %x) {axis=1} : f32[b,p+s,2]
    %x2 = add(%x, %x) : f32[b,s,2]
    %v1 = concatenate(%v, %x2) {axis=1} : f32[b,p+s,2]
    %m = mul(%k1, %v1) : f32[b,p+s,2]
    %y = reduce(%m) {axes=[1], kind="add"} : f32[b,2]
    return(%k1, %v1, %y)
  }
}
"""
)
PREFILL = (
    HEAD
    + """
  func @main(%x: f32[1,s,2] "x") -> (f32[1,s,2] "present.0.key", f32[1,s,2] "present.0.value")
      symbols {s in [1, none]} {
    %x2 = add(%x, %x) : f32[1,s,2]
    return(%x, %x2)
  }
}
"""
)


def stateful(sources: Mapping[str, Any] | str, state: Any) -> Module:
    """The verified module of the sources with this state."""
    named_sources = {"main": sources} if isinstance(sources, str) else sources
    module = apply_state(read_sources(named_sources), state)
    verify(module, GRAPH)
    return module


def cache(**options: Any) -> State:
    return past_present(**{"capacity": 5, "dims": {"b": 1}, **options})


def rows(count: int, start: int = 1) -> np.ndarray[Any, Any]:
    """f32[1, count, 2]"""
    return np.arange(start, start + 2 * count, dtype=np.float32).reshape(1, count, 2)


def test_an_argument_and_a_result_become_a_variable_that_leaves_the_signature() -> None:
    module = stateful(COUNTER, {"total": "n"})
    main = module.functions["main"]
    assert (main.argument_names, main.result_names) == (["x"], [])
    state: dict[str, Any] = {}
    for number in (1, 2, 3):
        interpret(module, "main", [np.float32(number)], state=state)
    assert state["n"] == 6


def test_state_starts_from_given_values() -> None:
    module = stateful(COUNTER, named({"total": "n"}, initial={"n": np.float32(40)}))
    state: dict[str, Any] = {}
    interpret(module, "main", [np.float32(2)], state=state)
    assert state["n"] == 42


def test_two_arguments_may_swap() -> None:
    text = HEAD + (
        '  func @main(%a: f32[] "a", %b: f32[] "b") -> (f32[] "x", f32[] "y") {\n'
        "    return(%b, %a)\n  }\n}\n"
    )
    initial = {"a": np.float32(1), "b": np.float32(2)}
    module = stateful(text, named({"x": "a", "y": "b"}, initial=initial))
    state: dict[str, Any] = {}
    interpret(module, "main", [], state=state)
    assert (state["a"], state["b"]) == (2, 1)


@pytest.mark.parametrize("passes", [False, True], ids=["as_imported", "after_the_passes"])
def test_a_cache_is_a_capacity_and_a_length_and_is_appended_to(passes: bool) -> None:
    module = stateful(APPEND, cache())
    variables = {name: str(each.type) for name, each in module.variables.items()}
    assert variables == {"past.0.key": "f32[1,5,2]", "past.0.value": "f32[1,5,2]", "p": "i64[]"}
    names = [op.name for op in walk(module)]
    assert "concatenate" not in names
    assert names.count("dynamic_update_slice") == 2
    if passes:
        module = run_graph_passes(module)
    state: dict[str, Any] = {}
    seen = np.zeros((1, 0, 2), np.float32)
    for count in (2, 1, 2):
        x = rows(count, seen.size)
        (y,) = interpret(module, "main", [x], state=state)
        seen = np.concatenate([seen, x], axis=1)
        np.testing.assert_array_equal(y, (2 * seen * seen).sum(1))
        assert state["p"] == seen.shape[1]
        np.testing.assert_array_equal(state["past.0.key"][:, : seen.shape[1]], seen)


@pytest.mark.parametrize("passes", [False, True], ids=["as_imported", "after_the_passes"])
def test_beyond_the_capacity_is_out_of_range_and_the_state_stays(passes: bool) -> None:
    module = stateful(APPEND, cache())
    if passes:
        module = run_graph_passes(module)
    state: dict[str, Any] = {}
    interpret(module, "main", [rows(4)], state=state)
    before = dict(state)
    with pytest.raises(OutOfRange, match=r"length of the state 'p' \(capacity 5\).* is 4"):
        interpret(module, "main", [rows(2)], state=state)
    assert all(state[name] is before[name] for name in before)


def test_functions_share_state_and_one_without_the_argument_begins_anew() -> None:
    module = stateful({"prefill": PREFILL, "decode": APPEND}, cache())
    state: dict[str, Any] = {}
    for count in (3, 2):
        interpret(module, "prefill", [rows(count)], state=state)
        assert state["p"] == count
    (y,) = interpret(module, "decode", [rows(1, 9)], state=state)
    seen = np.concatenate([rows(2), rows(1, 9)], axis=1)
    np.testing.assert_array_equal(y, (2 * seen * seen).sum(1))
    with pytest.raises(InvalidArgument, match="dim 's' is 6, expected 1"):
        interpret(module, "prefill", [rows(6)], state=state)
    assert state["p"] == 3


def test_a_cache_may_start_with_given_elements() -> None:
    initial = {"past.0.key": rows(2), "past.0.value": rows(2)}
    module = stateful(APPEND, cache(initial=initial))
    state: dict[str, Any] = {}
    (y,) = interpret(module, "main", [rows(1)], state=state)
    assert state["p"] == 3
    np.testing.assert_array_equal(y, (rows(2) ** 2).sum(1) + (2 * rows(1) ** 2).sum(1))


def test_what_is_no_append_is_written_whole() -> None:
    text = APPEND.replace("concatenate(%k, %x)", "concatenate(%x, %k)")
    module = stateful(text, cache())
    state: dict[str, Any] = {}
    for number in (1, 3):
        interpret(module, "main", [rows(1, number)], state=state)
    np.testing.assert_array_equal(
        state["past.0.key"][:, :2], np.concatenate([rows(1, 3), rows(1)], axis=1)
    )


MASKED = APPEND.replace(
    '%x: f32[b,s,2] "x")', '%x: f32[b,s,2] "x", %mask: f32[b,TOTAL,2] "mask")'
).replace(
    "%m = mul(%k1, %v1) : f32[b,p+s,2]",
    "%w = mul(%k1, %v1) : f32[b,p+s,2]\n    %m = mul(%w, %mask) : f32[b,p+s,2]",
)


def test_an_argument_that_tells_the_total_length_is_compared_with_the_state() -> None:
    module = stateful(MASKED.replace("TOTAL", "p+s"), cache())
    state: dict[str, Any] = {}
    interpret(module, "main", [rows(2), np.ones((1, 2, 2), np.float32)], state=state)
    mask = np.zeros((1, 3, 2), np.float32)
    (y,) = interpret(module, "main", [rows(1), mask], state=state)
    np.testing.assert_array_equal(y, [[0, 0]])
    mask = np.zeros((1, 5, 2), np.float32)
    for transformed in (module, run_graph_passes(module)):
        with pytest.raises(OutOfRange, match="is 3, expected 4"):
            interpret(transformed, "main", [rows(1), mask], state=dict(state))


def test_results_with_other_names_are_paired_by_shape_and_order() -> None:
    renamed = APPEND.replace('"present.0.key"', '"cat_7"').replace('"present.0.value"', '"cat_8"')
    # The result that is no state comes first, as logits do.
    renamed = renamed.replace(', f32[b,2] "y")', ")").replace("-> (", '-> (f32[b,2] "y", ')
    renamed = renamed.replace("return(%k1, %v1, %y)", "return(%y, %k1, %v1)")
    for program in (APPEND, renamed):
        state: dict[str, Any] = {}
        module = stateful(program, cache())
        interpret(module, "main", [rows(2)], state=state)
        (y,) = interpret(module, "main", [rows(1, 3)], state=state)
        both = np.concatenate([rows(2), rows(1, 3)], 1)
        np.testing.assert_array_equal(y, (both * both * 2).sum(1))


def test_what_cannot_be_paired_is_listed_with_types() -> None:
    wrong = APPEND.replace('"present.0.key"', '"cat_7"').replace('"present.0.value"', '"cat_8"')
    wrong = wrong.replace("return(%k1, %v1, %y)", "return(%y, %y, %y)")
    wrong = wrong.replace('f32[b,p+s,2] "cat', 'f32[b,2] "cat')
    with pytest.raises(CompileError, match=r"no result writes it.*gives cat_7: f32\[1,2\]"):
        stateful(wrong, cache())


REFUSED = {
    "nothing is found": (COUNTER, past_present(), "no state to be found"),
    "a name is wrong": (COUNTER, {"total": "m"}, "'total' is written but no argument reads"),
    "a result is missing": (COUNTER, {"sum": "n"}, "'n' is read but no result writes it"),
    "dtypes differ": (
        COUNTER.replace(
            "return(%t)", "%i = convert(%t) {dtype=i32} : i32[]\n    return(%i)"
        ).replace('(f32[] "total")', '(i32[] "total")'),
        {"total": "n"},
        "cannot be both argument 'n'",
    ),
    "nothing grows": (KEEP, {"next": "h"}, "which no call makes longer: fix it with dims="),
    "a start of what grows": (
        APPEND,
        past_present(dims={"b": 1}, initial={"past.0.key": np.ones((1, 3, 2), np.float32)}),
        "'past.0.key' grows, and cannot start from initial=",
    ),
    "several dims are open": (APPEND, past_present(capacity=8), "fix the others with dims="),
    "no such dim": (
        APPEND,
        past_present(capacity=8, dims={"batch": 1}),
        "no dim is called 'batch'",
    ),
    "an initial value of another shape": (
        COUNTER,
        named({"total": "n"}, initial={"n": np.zeros(2, np.float32)}),
        "initial value of 'n' is",
    ),
    "an initial value of no state": (
        COUNTER,
        named({"total": "n"}, initial={"m": np.float32(0)}),
        "names 'm', which is no state",
    ),
    "more elements than fit": (
        APPEND,
        past_present(capacity=2, dims={"b": 1}, initial={"past.0.key": rows(3)}),
        "does not fit",
    ),
    "unequal growth": (
        APPEND.replace("concatenate(%v, %x2) {axis=1} : f32[b,p+s,2]", "add(%v, %v) : f32[b,p,2]")
        .replace('f32[b,p+s,2] "present.0.value"', 'f32[b,p,2] "present.0.value"')
        .replace("mul(%k1, %v1) : f32[b,p+s,2]", "mul(%k, %v1) : f32[b,p,2]"),
        cache(),
        "must grow alike",
    ),
    "no state at all": (COUNTER, 7, "state= is a int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_state_is_refused(case: str) -> None:
    source, state, message = REFUSED[case]
    with pytest.raises(CompileError, match=message):
        stateful(source, state)


def test_options_are_positive_integers() -> None:
    with pytest.raises(CompileError, match="capacity is 0, expected a positive integer"):
        past_present(capacity=0)


def test_sources_need_names_and_one_function_each() -> None:
    with pytest.raises(CompileError, match="'init' cannot name a function"):
        read_sources({"init": COUNTER})
    with pytest.raises(CompileError, match="dict of sources is empty"):
        read_sources({})
    with pytest.raises(CompileError, match=r"'f': cannot compile a source of type int"):
        read_sources({"f": 3})


def test_weights_of_several_functions_are_made_once() -> None:
    random = np.random.default_rng(0)
    numbers = random.standard_normal((96, 200)).astype(np.float32)

    def program() -> Module:
        from ingot.compiler.graph.builder import Builder
        from ingot.compiler.ir import Block, Function, Region, TensorType
        from ingot.compiler.ir.dims import symbol
        from ingot.hal.spec import dtype

        block = Block([TensorType(dtype("f32"), (symbol("n"), 96))])
        builder = Builder(block)
        weight = builder.constant(numbers.copy())
        dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
        x = block.arguments[0]
        builder.return_(builder.op("dot_general", x, weight, **dims, dtype=dtype("f32")))
        region = Region([block])
        return Module({"main": Function("main", region, ["x"], ["y"], symbols={"n": (0, None)})})

    module = run_graph_passes(read_sources({"f": program(), "g": program()}))
    constants = {
        Constant.of(op).value.array.ctypes.data
        for op in walk(module)
        if op.name == "constant" and Constant.of(op).value.array.nbytes > 1000
    }
    assert len(constants) == 1
    results = module.functions["init"].result_types if "init" in module.functions else [None]
    assert len(results) == 1
    x = random.standard_normal((3, 96)).astype(np.float32)
    for name in ("f", "g"):
        (y,) = interpret(module, name, [x])
        np.testing.assert_allclose(y, x @ numbers, rtol=1e-4, atol=1e-4)


def test_jax_functions_carry_their_state_by_the_path_of_a_pytree() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    from jax import export

    def decode(cache: Any, x: Any) -> Any:
        new = {
            name: jnp.concatenate([old, x * factor], 1)
            for factor, (name, old) in enumerate(cache.items(), 1)
        }
        return new, jnp.einsum("hnd,hnd->hd", new["k"], new["v"])

    def prefill(x: Any) -> Any:
        return {"k": x, "v": x * 2}, x.sum(1)

    n, s = export.symbolic_shape("n, s")
    old = {name: jax.ShapeDtypeStruct((2, n, 3), np.float32) for name in ("k", "v")}
    one = jax.ShapeDtypeStruct((2, 1, 3), np.float32)
    some = jax.ShapeDtypeStruct((2, s, 3), np.float32)
    sources = {
        "prefill": export.export(jax.jit(prefill))(some),
        "decode": export.export(jax.jit(decode))(old, one),
    }
    module = stateful(sources, carried("cache", capacity=8))
    assert {name: str(each.type) for name, each in module.variables.items()}.items() >= {
        "cache.k": "f32[2,8,3]",
        "cache.v": "f32[2,8,3]",
    }.items()
    assert module.functions["decode"].argument_names == ["x"]
    assert [op.name for op in walk(module)].count("dynamic_update_slice") == 4
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 3, 3)).astype(np.float32)
    state: dict[str, Any] = {}
    (y,) = interpret(module, "prefill", [x], state=state)
    expected, _ = prefill(x)
    for _ in range(3):
        x = random.standard_normal((2, 1, 3)).astype(np.float32)
        expected, wanted = decode(expected, x)
        (y,) = interpret(module, "decode", [x], state=state)
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidArgument):
        interpret(module, "decode", [x[:, :0]], state=state)


PEEK = (
    HEAD
    + """
  func @main(%k: f32[1,q,2] "past.0.key", %v: f32[1,r,2] "past.0.value") -> (f32[1,2] "y")
      symbols {q in [0, none], r in [0, none]} {
    %a = reduce(%k) {axes=[1], kind="add"} : f32[1,2]
    %b = reduce(%v) {axes=[1], kind="add"} : f32[1,2]
    %y = sub(%b, %a) : f32[1,2]
    return(%y)
  }
}
"""
)


def test_a_function_may_only_read_whatever_its_symbols_are_called() -> None:
    module = stateful({"append": APPEND, "peek": PEEK}, cache())
    assert module.functions["peek"].argument_names == []
    state: dict[str, Any] = {}
    for count in (2, 1):
        interpret(module, "append", [rows(count)], state=state)
    (y,) = interpret(run_graph_passes(module), "peek", [], state=state)
    np.testing.assert_array_equal(y, rows(2).sum(1) + rows(1).sum(1))
    assert state["p"] == 3


def test_a_length_that_nothing_would_compare_is_refused() -> None:
    text = PEEK.replace(
        '(%k: f32[1,q,2] "past.0.key"', '(%m: f32[q] "m", %k: f32[1,q,2] "past.0.key"'
    )
    with pytest.raises(CompileError, match="nothing would compare the length"):
        stateful({"append": APPEND, "peek": text}, cache())


def test_a_function_must_return_all_caches_of_one_length() -> None:
    text = PREFILL.replace(', f32[1,s,2] "present.0.value"', "").replace("(%x, %x2)", "(%x)")
    with pytest.raises(CompileError, match="'prefill' changes the length of caches but not"):
        stateful({"prefill": text, "decode": APPEND}, cache())


def test_a_prefill_of_a_fixed_count_sets_the_length() -> None:
    text = PREFILL.replace("[1,s,2]", "[1,3,2]").replace("symbols {s in [1, none]} ", "")
    module = stateful({"prefill": text, "decode": APPEND}, cache())
    state: dict[str, Any] = {}
    interpret(module, "prefill", [rows(3)], state=state)
    assert state["p"] == 3
    with pytest.raises(CompileError, match="holds 3 elements along axis 1, more than the capacity"):
        stateful({"prefill": text, "decode": APPEND}, cache(capacity=2))
