"""Graphs of torch.compile: ATen ops in memory, whose arguments are tensors and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.torch.graph_writer import GraphWriter, ranges_of
from ingot.compiler.frontends.torch.importer import import_torch
from ingot.compiler.frontends.torch.live import LiveArchive
from ingot.compiler.ir import Module
from ingot.hal.errors import CompileError

__all__ = ["argument_names", "import_graph"]


def argument_names(graph: Any) -> list[str]:
    """The names of the arguments of a torch.fx.GraphModule, in order."""
    return [node.name for node in graph.graph.nodes if node.op == "placeholder"]


def import_graph(graph: Any, weights: Sequence[str]) -> Module:
    """The graph-level module of a torch.fx.GraphModule whose nodes note their values; arguments
    that are called in `weights` become external weights of their names.

    CompileError: ops that cannot be compiled, which it lists, or what is not known of the graph.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    writer = GraphWriter(torch)
    with unset_fake_temporarily():
        try:
            written = writer.graph(graph)
            inputs = [{"user_input": {"arg": each}} for each in written["inputs"]]
            inputs += [
                {"tensor_constant": {"arg": {"name": name}, "tensor_constant_name": name}}
                for name in writer.constants
            ]
            outputs = [{"user_output": {"arg": each}} for each in written["outputs"]]
            module = {
                "graph": written,
                "signature": {"input_specs": inputs, "output_specs": outputs},
            }
            program = {"graph_module": module, "range_constraints": ranges_of(_ranges(graph))}
            archive = LiveArchive(torch, writer, program, {}, writer.constants)
        except Exception as error:
            raise CompileError(
                f"a graph of torch.compile cannot be read ({type(error).__name__}: {error})"
            ) from error
        return import_torch(archive, weights=weights)


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
