"""Graphs of torch.compile: ATen ops in memory, whose arguments are tensors and sizes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.torch.importer import import_torch
from ingot.compiler.ir import Module
from ingot.hal.errors import CompileError

__all__ = ["argument_names", "import_graph"]


def argument_names(graph: Any) -> list[str]:
    """The names of the arguments of a torch.fx.GraphModule, in order."""
    return [node.name for node in graph.graph.nodes if node.op == "placeholder"]


def import_graph(graph: Any, weights: Sequence[str]) -> Module:
    """The graph-level module of a torch.fx.GraphModule whose nodes note their values; arguments
    that are called in `weights` become external weights of their names.

    CompileError: ops that cannot be compiled, which it lists, or what torch cannot serialize.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    data = io.BytesIO()
    try:
        program = _exported(torch, graph)
        with unset_fake_temporarily():
            torch.export.save(program, data)
    except Exception as error:
        raise CompileError(
            f"torch cannot serialize a graph of torch.compile ({type(error).__name__}: {error})"
        ) from error
    return import_torch(data.getvalue(), weights=weights)


def _exported(torch: Any, graph: Any) -> Any:
    """The graph as a program whose arguments are all the user's."""
    from torch.export import graph_signature as sign
    from torch.utils._pytree import tree_flatten

    constants = _lift_constants(torch, graph)
    for node in graph.graph.nodes:
        _name_layers(node)
    arguments, inputs = [], []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            argument = _described(torch, sign, node)
            name = node.meta.get("lifted")
            kind = sign.InputKind.CONSTANT_TENSOR if name else sign.InputKind.USER_INPUT
            inputs.append(sign.InputSpec(kind, argument, name))
            arguments += [] if name else [argument]
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    results = [_described(torch, sign, each) for each in output.args[0]]
    outputs = [sign.OutputSpec(sign.OutputKind.USER_OUTPUT, each, None) for each in results]
    _, in_spec = tree_flatten((tuple(arguments), {}))
    _, out_spec = tree_flatten(tuple(results))
    call = torch.export.ModuleCallSignature(arguments, results, in_spec, out_spec)
    return torch.export.ExportedProgram(
        root=graph,
        graph=graph.graph,
        graph_signature=sign.ExportGraphSignature(inputs, outputs),
        state_dict={},
        range_constraints=_ranges(graph),
        module_call_graph=[torch.export.ModuleCallEntry("", call)],
        constants=constants,
    )


def _described(torch: Any, sign: Any, node: Any) -> Any:
    value = node.meta["val"] if hasattr(node, "meta") else node
    if isinstance(value, torch.Tensor):
        return sign.TensorArgument(node.name)
    if isinstance(value, torch.SymInt):
        return sign.SymIntArgument(node.name)
    return sign.ConstantArgument(getattr(node, "name", ""), value)


def _name_layers(node: Any) -> None:
    """The layers that a node stands in as torch.export notes them: by paths and names of types."""
    stack = node.meta.get("nn_module_stack") or {}
    node.meta["nn_module_stack"] = {
        key: (path.removeprefix("L['self']").lstrip("."), getattr(type, "__qualname__", str(type)))
        for key, (path, type) in stack.items()
    }


def _lift_constants(torch: Any, graph: Any) -> dict[str, Any]:
    """Tensors that the graph holds as arguments in front of the others."""
    nodes = list(graph.graph.nodes)
    constants: dict[str, Any] = {}
    for node in nodes:
        value = getattr(graph, node.target, None) if node.op == "get_attr" else None
        if not isinstance(value, torch.Tensor):
            continue
        with graph.graph.inserting_before(nodes[0]):
            argument = graph.graph.placeholder(node.name)
        mode = next(each.meta["val"].fake_mode for each in nodes if hasattr(
            each.meta.get("val"), "fake_mode"))  # fmt: skip
        argument.meta = {"val": mode.from_tensor(value, static_shapes=True), "lifted": node.target}
        node.replace_all_uses_with(argument)
        graph.graph.erase_node(node)
        constants[node.target] = value
    graph.recompile()
    return constants


def _ranges(graph: Any) -> dict[Any, Any]:
    """What torch knows of the symbols in the sizes of arguments."""
    found: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        sizes = [*value.shape] if hasattr(value, "shape") else [value]
        for symbolic in (size.node for size in sizes if hasattr(size, "node")):
            for symbol in symbolic.expr.free_symbols:
                found[symbol] = symbolic.shape_env.var_to_range[symbol]
    return found
