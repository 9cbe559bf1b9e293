"""Structural checks of an ONNX model before anything is lowered, and the order of its nodes.

What a valid file guarantees is checked once, here, with messages that name the culprit: opset
imports, unique names, no undefined name, no cycle. What an op means is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from ingot.compiler.frontends.onnx.registry import MICROSOFT
from ingot.hal.errors import CompileError

__all__ = [
    "DEFAULT_DOMAIN",
    "captured_names",
    "check_graph",
    "live_nodes",
    "normalize_domain",
    "opset_versions",
    "order_nodes",
]

DEFAULT_DOMAIN = ""


def normalize_domain(domain: str) -> str:
    """The domain's short name: "ai.onnx" is the default domain ""."""
    return DEFAULT_DOMAIN if domain == "ai.onnx" else domain


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto], name: str) -> dict[str, int]:
    """The opset version per domain. CompileError for versions that are not supported. Tools leave
    out that of `com.microsoft`, which has one."""
    versions = {MICROSOFT: 1}
    versions |= {normalize_domain(entry.domain): int(entry.version) for entry in imports}
    version = versions.get(DEFAULT_DOMAIN)
    newest = onnx.defs.onnx_opset_version()
    if version is not None and not 1 <= version <= newest:
        raise CompileError(
            f"{name} uses opset {version}; supported are 1 to {newest} with onnx "
            f"{onnx.__version__}: convert the model with onnx.version_converter or update onnx"
        )
    return versions


def check_graph(graph: onnx.GraphProto) -> None:
    """CompileError for names that are defined twice or not at all, and unusable inputs."""
    defined: dict[str, str] = {}
    initializers = {tensor.name for tensor in graph.initializer}
    if len(initializers) != len(graph.initializer):
        raise CompileError(
            f"two initializers are named {_twice(t.name for t in graph.initializer)}"
        )
    for value in graph.input:
        if value.name in defined:
            raise CompileError(f"two graph inputs are named '{value.name}'")
        defined[value.name] = "a graph input"
    defined |= dict.fromkeys(initializers, "an initializer")
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in defined:
                raise CompileError(
                    f"{describe(node, index)} defines '{name}', which is {defined[name]} already: "
                    "every name may be defined once"
                )
            defined[name] = f"a result of {describe(node, index)}"
    for index, node in enumerate(graph.node):
        for name in _reads(node):
            if name not in defined:
                raise CompileError(f"{describe(node, index)} reads '{name}', which nothing defines")
    for value in graph.output:
        if value.name not in defined:
            raise CompileError(f"the graph output '{value.name}' is defined by nothing")
    if not graph.output:
        raise CompileError("the graph has no outputs")
    if len({value.name for value in graph.output}) != len(graph.output):
        raise CompileError(f"two graph outputs are named {_twice(v.name for v in graph.output)}")


def captured_names(node: onnx.NodeProto) -> list[str]:
    """The names that the bodies of the node (branches, loops) need from outside, once each."""
    names: dict[str, None] = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names.update(dict.fromkeys(_free_names(attribute.g)))
    return list(names)


def _free_names(graph: onnx.GraphProto) -> list[str]:
    defined = {value.name for value in (*graph.input, *graph.initializer)}
    defined.update(name for node in graph.node for name in node.output)
    results = [value.name for value in graph.output]
    read = [name for _, names in sorted(live_nodes(graph.node, results).items()) for name in names]
    return [name for name in [*read, *results] if name not in defined]


def _reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, itself and in its bodies."""
    return [*filter(None, node.input), *captured_names(node)]


def live_nodes(nodes: Sequence[onnx.NodeProto], wanted: Iterable[str]) -> dict[int, list[str]]:
    """What each node reads that the names in `wanted` need, by its place."""
    producer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    live: dict[int, list[str]] = {}
    waiting = list(wanted)
    while waiting:
        at = producer.get(waiting.pop())
        if at is not None and at not in live:
            live[at] = _reads(nodes[at])
            waiting += live[at]
    return live


def order_nodes(nodes: Sequence[onnx.NodeProto]) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes with their places, each after the nodes it needs. CompileError for a cycle."""
    producer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waiting: dict[int, set[int]] = {}
    readers: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        needed = {producer[name] for name in _reads(node) if name in producer}
        waiting[at] = needed
        for before in needed:
            readers.setdefault(before, []).append(at)
    ready = [at for at in reversed(range(len(nodes))) if not waiting[at]]
    order: list[int] = []
    while ready:
        at = ready.pop()
        order.append(at)
        for reader in reversed(readers.get(at, [])):
            waiting[reader].discard(at)
            if not waiting[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        raise CompileError(_describe_cycle(nodes, {at: w for at, w in waiting.items() if w}))
    return [(at, nodes[at]) for at in order]


def describe(node: onnx.NodeProto, index: int) -> str:
    """The node in a message: op type and name, or place if it has no name."""
    return f"{node.op_type} '{node.name}'" if node.name else f"node {index} ({node.op_type})"


def _describe_cycle(nodes: Sequence[onnx.NodeProto], waiting: dict[int, set[int]]) -> str:
    at = next(iter(waiting))
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = next(before for before in waiting[at] if before in waiting)
    cycle = [*path[path.index(at) :], at]
    steps = " reads ".join(describe(nodes[each], each) for each in cycle)
    return f"the graph has a cycle: {steps}"


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"'{name}'"
        seen.add(name)
    raise AssertionError("the caller found a name twice")
