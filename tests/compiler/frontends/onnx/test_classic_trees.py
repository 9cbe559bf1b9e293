"""Tree ensembles of `ai.onnx.ml`, drawn, against onnxruntime."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.frontends.onnx.lowerings.classic.forest import Forest, Leaves
from ingot.compiler.frontends.onnx.lowerings.classic.forest_layout import lay_out
from ingot.compiler.frontends.onnx.lowerings.classic.forest_walk import plan_phases
from ingot.hal.errors import CompileError
from tests.support.devices import load_best
from tests.support.onnx_classic import classic_model, classic_node, read_classic
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
X = make_value("x", ["n", 3])
KINDS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


def grown(rng: np.random.Generator, modes: list[str], trees: int, depth: int) -> dict[str, Any]:
    """The nodes of random trees, with thresholds among those of `values`."""
    rows: list[tuple[Any, ...]] = []

    def grow(tree: int, number: int, left: int) -> int:
        """The number that is free after the node and what is below it."""
        if left == 0 or (number and rng.random() < 0.2):
            rows.append((tree, number, "LEAF", 0, 0.0, 0, 0, 0))
            return number + 1
        place = len(rows)
        rows.append(())
        second = grow(tree, number + 1, left - 1)
        end = grow(tree, second, left - 1)
        test = (str(rng.choice(modes)), int(rng.integers(3)), float(rng.integers(-2, 3)) / 2)
        rows[place] = (tree, number, *test, number + 1, second, int(rng.integers(2)))
        return end

    for tree in range(trees):
        grow(tree, 0, depth)
    columns = [list(each) for each in zip(*rows, strict=True)]
    names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    return {f"nodes_{name}": column for name, column in zip(names, columns, strict=True)}


def leaves_of(
    nodes: dict[str, Any], side: str, weights: Array, targets: list[int]
) -> dict[str, Any]:
    """Weights of the leaves in turn, for each of the targets."""
    where = [i for i, mode in enumerate(nodes["nodes_modes"]) if mode == "LEAF"] * len(targets)
    each = len(where) // len(targets)
    return {
        f"{side}_treeids": [nodes["nodes_treeids"][i] for i in where],
        f"{side}_nodeids": [nodes["nodes_nodeids"][i] for i in where],
        f"{side}_ids": [target for target in targets for _ in range(each)],
        f"{side}_weights": [float(w) for w in np.resize(weights, len(where))],
    }


def samples(seed: int = 0, element: Any = np.float32) -> Array:
    """Rows with many values that are thresholds, zeros of both signs, infinities and NaN."""
    values = [-1, -0.5, 0.0, -0.0, 0.5, 1, np.inf, -np.inf, np.nan, 0.25]
    return np.random.default_rng(seed).choice(values, (60, 3)).astype(element)


@pytest.mark.parametrize("modes", [*([mode] for mode in MODES), MODES])
def test_every_mode_of_a_node_with_missing_values(modes: list[str]) -> None:
    rng = np.random.default_rng(len(modes[0]))
    nodes = grown(rng, modes, 4, 4)
    leaves = leaves_of(nodes, "target", rng.standard_normal(64).astype(np.float32), [0])
    made = classic_node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **nodes, **leaves)
    read_classic([made], [X], opset=3).check(x=samples())


def test_rows_of_as_many_features_as_the_call_brings() -> None:
    nodes = grown(np.random.default_rng(5), MODES[:1], 3, 3)
    leaves = leaves_of(nodes, "target", np.arange(64.0) / 7, [0])
    node = classic_node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **nodes, **leaves)
    model = read_classic([node], [make_value("x", ["n", "features"])], opset=3)
    x = samples()
    model.check(x=x)
    model.check(x=np.pad(x, ((0, 0), (0, 2))))
    loaded = load_best(model.proto)
    np.testing.assert_allclose(loaded(x), model.results(x=x)["y"], rtol=1e-6)
    with pytest.raises(ingot.InvalidArgument, match="features"):
        loaded(x[:, :1])


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_every_aggregate_and_transform_of_regressors(aggregate: str) -> None:
    rng = np.random.default_rng(1)
    nodes = grown(rng, MODES[:1], 3, 10 if aggregate == "SUM" else 3)
    made = []
    for kind in KINDS:
        for targets in ([0], [0, 1], [0, 0]):  # of one target the first weight counts
            weights = rng.uniform(0.01, 0.3, 64)
            leaves = leaves_of(nodes, "target", weights, targets)
            base = {"base_values": [0.1] * (targets[-1] + 1)} if kind != "SOFTMAX" else {}
            made.append(
                classic_node(
                    "TreeEnsembleRegressor", ["x"], [f"y_{kind}_{targets}"],
                    n_targets=targets[-1] + 1, aggregate_function=aggregate, post_transform=kind,
                    **base, **nodes, **leaves,
                )
            )  # fmt: skip
    read_classic(made, [X], opset=3).check(5e-6, x=samples())


def test_leaves_that_all_tell_the_first_of_several_targets_are_warned_of() -> None:
    nodes = grown(np.random.default_rng(1), MODES[:1], 3, 2)
    leaves = leaves_of(nodes, "target", np.ones(16), [0])
    made = classic_node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=2, **nodes, **leaves)
    with pytest.warns(UserWarning, match="add to target 0 of 2.* one model for each output"):
        read_classic([made], [X], opset=3).check(x=samples())


@pytest.mark.parametrize("kind", KINDS[:4])
def test_classifiers_of_two_classes_and_more(kind: str) -> None:
    rng = np.random.default_rng(2)
    nodes = grown(rng, MODES[:2], 3, 3)
    made = []
    for number, (targets, classes) in enumerate([([0], 2), ([0, 1, 2], 3)]):
        for low in (0.01, -1.0):
            leaves = leaves_of(nodes, "class", rng.uniform(low, 0.4, 96), targets)
            name = f"{number}_{low}"
            made.append(
                classic_node(
                    "TreeEnsembleClassifier", ["x"], [f"label_{name}", f"score_{name}"],
                    classlabels_int64s=[7, 3, 5][:classes], post_transform=kind, **nodes, **leaves,
                )
            )  # fmt: skip
    read_classic(made, [X], opset=3).check(5e-6, x=samples())


def test_thresholds_of_f64() -> None:
    nodes = grown(np.random.default_rng(3), MODES, 3, 3)
    values = nodes.pop("nodes_values")
    leaves = leaves_of(nodes, "target", np.arange(1.0, 30), [0])
    wide = {"nodes_values_as_tensor": numpy_helper.from_array(np.array(values) + 1e-12)}
    weights = np.array(leaves.pop("target_weights"))
    wide["target_weights_as_tensor"] = numpy_helper.from_array(weights)
    made = [
        classic_node("TreeEnsembleRegressor", ["x"], ["y"], **nodes, **leaves, **wide, n_targets=1)
    ]
    inputs = [make_value("x", ["n", 3], TensorProto.DOUBLE)]
    read_classic(made, inputs, opset=3).check(x=samples(element=np.float64))


@pytest.mark.parametrize(("element", "end"), [(np.float32, [np.nan]), (np.float64, [])])
def test_an_ensemble_of_opset_5(element: Any, end: list[float]) -> None:
    """Two trees: sets of members, the last with a NaN behind it or none, and one test; the second
    root is a leaf on both sides."""
    nan = np.nan

    def tensor(values: list[Any], element: Any = element) -> Any:
        return numpy_helper.from_array(np.array(values, element))

    made = classic_node(
        "TreeEnsemble", ["x"], ["y"], n_targets=2, aggregate_function=1, post_transform=0,
        nodes_modes=tensor([6, 0, 6, 2], np.uint8), nodes_featureids=[0, 1, 2, 1],
        nodes_splits=tensor([nan, 0.5, nan, 0.25]), membership_values=tensor(
            [1.0, 0.0, -1.0, nan, 1.0, *end]
        ),
        nodes_truenodeids=[1, 0, 1, 4], nodes_falsenodeids=[2, 1, 2, 3],
        nodes_trueleafs=[0, 1, 1, 1], nodes_falseleafs=[0, 1, 1, 1], tree_roots=[0, 3],
        leaf_targetids=[0, 1, 0, 1, 0], leaf_weights=tensor([1.0, 2.0, 3.0, 4.0, 5.0]),
    )  # fmt: skip
    inputs = [make_value("x", ["n", 3], numpy_helper.from_array(np.zeros(1, element)).data_type)]
    # onnxruntime cuts numbers off before it looks for them among members
    x = np.random.default_rng(0).integers(-2, 3, (60, 3)).astype(element)
    read_classic([made], inputs, opset=5).check(x=x)


def test_trees_that_are_none_are_refused() -> None:
    nodes = grown(np.random.default_rng(0), MODES, 1, 2)
    leaves = leaves_of(nodes, "target", np.arange(8.0), [0])
    for name, place, value, message in [
        ("nodes_truenodeids", 0, 99, "names a node that does not exist"),
        ("nodes_truenodeids", 0, 0, "lead in a circle"),
        ("nodes_featureids", 0, 3, "reads feature 3 of"),
        ("nodes_modes", 0, "BRANCH_LIKE", "node mode 'BRANCH_LIKE' is not known"),
        ("target_ids", 0, 2, "leaves have targets"),
    ]:
        attributes = {**nodes, **leaves}
        attributes[name] = list(attributes[name])
        attributes[name][place] = value
        made = classic_node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **attributes)
        with pytest.raises(CompileError, match=message):
            import_onnx(classic_model([made], [X], opset=3))


def test_a_node_with_several_parents_is_led_to() -> None:
    """Nodes 2 and 3 of a tree share the child 4; leaves are 0 and 1."""
    forest = Forest(
        features=np.array([0, 0, 0, 1, 0]),
        thresholds=np.array([0, 0, 0.5, 0.25, 0.75], np.float32),
        children=np.array([0, 0, 1, 1, 3, 4, 4, 1, 0, 1]),
        nan_first=np.zeros(5, np.bool_),
        roots=np.array([2]),
        leaves=Leaves(2, np.arange(2), np.zeros(2, np.int64), np.ones(2, np.float32)),
    )
    layout = lay_out(forest, 2)
    draw = np.random.default_rng(0)
    for row in draw.random((50, 2)).astype(np.float32):
        at = 2
        while at >= 2:
            at = forest.children[2 * at + int(row[forest.features[at]] > forest.thresholds[at])]
        wide, place = [*row, 0.0], layout.roots[0]
        for _ in range(layout.depths.max()):
            goes_on = not wide[layout.features[place]] <= layout.thresholds[place]
            place = layout.first[place] + goes_on
        assert layout.leaf_of[place] == at


def test_a_forest_takes_memory_in_proportion_to_its_nodes() -> None:
    """Each node leads to the next one and the one behind that."""
    count = 2000
    following = np.arange(count)[:, None] + [3, 4]
    following[-2:] = [[count + 1, 1], [0, 1]]
    forest = Forest(
        features=np.zeros(count + 2, np.int64),
        thresholds=np.zeros(count + 2, np.float32),
        children=np.append([0, 0, 1, 1], following),
        nan_first=np.zeros(count + 2, np.bool_),
        roots=np.array([2]),
        leaves=Leaves(2, np.arange(2), np.zeros(2, np.int64), np.ones(2, np.float32)),
    )
    tracemalloc.start()
    layout = lay_out(forest, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert layout.depths.tolist() == [2 * count - 1]  # a step to each node, and one to its place
    assert peak < 1 << 23


@pytest.mark.parametrize(
    ("depths", "phases"),
    [
        ([], []),
        ([0, 0], []),
        ([3, 3], [(2, 3)]),
        ([9, 4, 4, 1, 0], [(4, 1), (3, 3), (1, 5)]),
    ],
)
def test_trees_that_are_at_their_leaves_are_left_out(
    depths: list[int], phases: list[tuple[int, int]]
) -> None:
    assert plan_phases(np.array(depths, np.int64)) == phases


def test_phases_are_few_and_reach_every_leaf() -> None:
    depths = np.sort(np.random.default_rng(0).geometric(0.02, 500))[::-1]
    phases = plan_phases(depths)
    assert len(phases) <= 4
    assert sum(steps for _, steps in phases) == depths.max()
    done = 0
    for trees, steps in phases:
        assert (depths[trees:] <= done).all()
        done += steps
    assert sum(trees * steps for trees, steps in phases) < 1.7 * depths.sum()


@pytest.mark.parametrize("modes", [MODES[:1], MODES[4:5]])  # those of equality share leaves
@pytest.mark.parametrize("per_class", [True, False])
def test_trees_of_unequal_depths_that_tell_one_class_each(
    modes: list[str], per_class: bool
) -> None:
    rng = np.random.default_rng(4)
    parts = [grown(rng, modes, 3, depth) for depth in (0, 1, 5, 2)]
    for number, part in enumerate(parts):
        part["nodes_treeids"] = [3 * number + tree for tree in part["nodes_treeids"]]
    nodes = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    leaves = leaves_of(nodes, "class", rng.uniform(-1, 1, 96), [0])
    trees = leaves["class_treeids"]
    leaves["class_ids"] = [tree % 3 if per_class else tree % 5 // 2 for tree in trees]
    made = classic_node(
        "TreeEnsembleClassifier", ["x"], ["label", "score"],
        classlabels_int64s=[7, 3, 5], post_transform="SOFTMAX", **nodes, **leaves,
    )  # fmt: skip
    case = read_classic([made], [X], opset=3)
    for count in (60, 1, 7):
        case.check(5e-6, x=samples()[:count])
