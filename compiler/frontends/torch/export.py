"""What is in memory, an exported program or a module, as the archive that torch.export saves."""

from __future__ import annotations

import inspect
import io
import operator
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from ingot.compiler.frontends.torch.archive import Archive
from ingot.compiler.frontends.torch.complex_values import COMPLEX
from ingot.compiler.frontends.torch.graph_writer import OF_TORCH_QUANTISED
from ingot.compiler.frontends.torch.live import program_archive
from ingot.compiler.frontends.torch.lowering import (
    ALIASES,
    COMPOSED,
    CONVERSIONS,
    LOWERINGS,
    PARTS,
    VIEWS,
    functional_op,
)
from ingot.hal.errors import CompileError

__all__ = ["exported_archives", "kept_decompositions", "plain_attention"]

_FLEX = "flex_attention"
_ALIASES = re.compile(r"\([a-z*]( ?-> ?\*)?\)")  # in a schema: results that are views


def exported_archives(
    source: Any, example_inputs: Sequence[Any] | None = None, dynamic_shapes: Any = None
) -> Iterator[tuple[Archive, dict[str, str]]]:
    """The archive of the program, which is exported first if it is a module, and the names of
    `torch.export.Dim` by the symbols of the program, which torch does not keep.

    A program of ops that all have a lowering is taken as it was exported. Else, and next if it has
    more than such ops and cannot be compiled, in-place writes become functional, and torch
    decomposes the ops that have none where it can. CompileError: torch cannot export or save it.
    """
    import torch

    names: dict[str, str] = {}
    if isinstance(source, torch.nn.Module):
        forward = inspect.signature(source.forward)
        source = _exported(torch, source, example_inputs, dynamic_shapes)
        names = _dim_names(torch, source, forward, dynamic_shapes)
    elif example_inputs is not None or dynamic_shapes is not None:
        raise CompileError(
            "example_inputs and dynamic_shapes are for a torch.nn.Module: an exported program "
            "has its own"
        )
    source = _with_plain_attention(source)
    program, examples = source, source.example_inputs
    program.example_inputs = None  # of which torch makes guards that it then cannot run
    try:
        if _is_known(torch, program):  # to decompose it takes torch as long as the export
            yield _archive(torch, program), names
            if all(_is_sure(torch, node) for node in program.graph.nodes):
                return
        with suppress(Exception):  # torch cannot decompose all that it exports
            table = kept_decompositions(torch.export.default_decompositions())
            source = program.run_decompositions(table)
        yield _archive(torch, source), names
    finally:
        program.example_inputs = examples


def _with_plain_attention(program: Any) -> Any:
    """The program with `plain_attention`."""
    if not any(str(node.target) == _FLEX for node in program.graph.nodes):
        return program
    plain = copy(program)
    plain._graph_module = deepcopy(program.graph_module)
    plain_attention(plain.graph_module)
    return plain


def plain_attention(module: Any) -> None:
    """Make what flex_attention computes, which torch neither saves nor decomposes, functions that
    it traces when it decomposes the graph of the module."""
    for node in [each for each in module.graph.nodes if str(each.target) == _FLEX]:
        attention = sys.modules["torch._higher_order_ops.flex_attention"].math_attention
        query, key, value, score, mask, scale, options, *others = node.args
        functions = (score, mask[-1])
        graphs = [getattr(module, each.target) for each in functions]
        node.target = partial(_attention, attention, *graphs, scale, options)
        node.target.__name__ = "attention"  # which a graph asks of what it calls
        node.args = (query, key, value, *(others or ((), ())))
        for each in functions:
            if not each.users:
                module.graph.erase_node(each)
    module.recompile()


def _attention(
    function: Any, score: Any, mask: Any, scale: float, options: Any, query: Any, key: Any,
    value: Any, *others: Any,
) -> Any:  # fmt: skip
    return function(query, key, value, score, (mask,), scale, options, *others)


def _archive(torch: Any, program: Any) -> Archive:
    with suppress(Exception):
        return program_archive(torch, program)
    data = io.BytesIO()
    try:
        torch.export.save(program, data)
    except Exception as error:
        raise CompileError(
            f"torch cannot save the exported program ({type(error).__name__}: {error}): save it "
            "with torch.export.save to see why"
        ) from error
    return Archive(data.getvalue())


def kept_decompositions(table: Any) -> Any:
    """A table of decompositions without those of ops that have a lowering of their own."""
    for op in list(table.keys()):
        if _is_whole(str(op)) and not _writes_or_aliases(op):
            table.pop(op)
    return table


def _is_known(torch: Any, program: Any) -> bool:
    """Whether each op of the program has a lowering and writes only into what the program made, in
    a way that can be followed, and all weights are plain tensors."""
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    tensors = {**program.state_dict, **program.constants}.values()
    nodes = list(program.graph.nodes)
    if not all(type(each) in plain for each in tensors):
        return False
    if not all(_is_known_node(torch, node) for node in nodes):
        return False
    written = {_origin(torch, node) for node in nodes if functional_op(str(node.target))}
    if any(node.op == "get_attr" for node in nodes):  # in graphs is not looked for shared memory
        return not written
    return all(map(_is_made, written)) and not any(
        _origin(torch, source) in written
        for node in nodes
        for source in _shared_unseen(torch, node)
    )


def _is_sure(torch: Any, node: Any) -> bool:
    """Whether it needs no more than a lowering: it writes nothing, is not composed of others, and
    has no graph and no complex numbers, with which some ops cannot be compiled."""
    value = node.meta.get("val")
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    is_writing = bool(functional_op(str(node.target)))
    return not (is_complex or is_writing or node.op == "get_attr" or _name(node) in COMPOSED)


def _name(node: Any) -> str:
    """Of the op in the table."""
    name = str(node.target)
    return ALIASES.get(name, name)


def _is_known_node(torch: Any, node: Any) -> bool:
    if node.op == "get_attr":
        graph = operator.attrgetter(node.target)(node.graph.owning_module)
        return isinstance(graph, torch.fx.GraphModule) and not any(
            functional_op(str(each.target)) or not _is_known_node(torch, each)
            for each in graph.graph.nodes
        )
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if isinstance(node.target, torch._ops.OpOverload):
        written = functional_op(str(node.target))
        if written:
            return ALIASES.get(written, written) in LOWERINGS
        is_taken = _name(node) in LOWERINGS or _name(node) in COMPLEX
        return is_taken and not node.target._schema.is_mutable
    name = f"{node.target.__module__}.{getattr(node.target, '__name__', '')}"
    name = name.removeprefix("torch.ops.")
    return name == "_operator.getitem" or name in LOWERINGS or name in PARTS


def _is_whole(name: str) -> bool:
    """Whether torch is not to decompose an op."""
    return name in LOWERINGS and name not in COMPOSED


def _origin(torch: Any, node: Any) -> Any:
    """The node that made the memory in which its result may lie."""
    while isinstance(node, torch.fx.Node) and node.args and (
        node.target is operator.getitem
        or functional_op(str(node.target))
        or _may_be_view(torch, node)
    ):  # fmt: skip
        node = node.args[0]
    return node


def _may_be_view(torch: Any, node: Any) -> bool:
    op = node.target
    is_told = isinstance(op, torch._ops.OpOverload) and bool(_ALIASES.search(str(op._schema)))
    return is_told or _name(node) in VIEWS or str(op).startswith(CONVERSIONS)


def _is_made(node: Any) -> bool:
    """Whether an op of the graph made this memory, and no composed one, which may be a view."""
    return getattr(node, "op", "") == "call_function" and _name(node) not in COMPOSED


def _shared_unseen(torch: Any, node: Any) -> list[Any]:
    """Of what it may be a view that the walk takes for a copy: a composed op of any operand."""
    if node.op != "call_function":
        return []
    if _name(node) in COMPOSED:
        return list(node.all_input_nodes)
    is_seen = _name(node) in VIEWS or str(node.target).startswith(CONVERSIONS)
    return [] if is_seen or not _may_be_view(torch, node) else [node]


def _exported(torch: Any, module: Any, example_inputs: Any, dynamic_shapes: Any) -> Any:
    if example_inputs is None:
        raise CompileError(
            "a torch.nn.Module needs example inputs to be exported: "
            "ingot.compile(module, example_inputs=(x,))"
        )
    inputs = tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else None
    if inputs is None:
        raise CompileError(
            f"example_inputs is a {type(example_inputs).__name__}, expected the tuple of arguments"
        )
    try:
        return torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise CompileError(_refusal(torch, error)) from error


_MORE = re.compile(r"\s*For more information[^\n]*|\n(\s*\n|Caused by)(?s:.*)")
"""Where what torch says of an error goes on with how to debug torch."""


def _refusal(torch: Any, error: Exception) -> str:
    """The cause that torch gives, with the user's line of Python, and what to do."""
    text = _MORE.sub("", str(error).strip()).strip()
    own = __file__, os.path.dirname(torch.__file__), sysconfig.get_path("stdlib"), "<"
    stack = traceback.extract_tb(error.__traceback__)
    frames = [each for each in stack if not each.filename.startswith(own)]
    where = ""
    if frames:
        last = frames[-1]
        where = f" ({Path(last.filename).name}:{last.lineno}: {last.line})"
    if "DataDependent" in type(error).__name__:
        text = f"the program depends on numbers that only a call knows: {text}"
        where += (
            '; torch.compile(model, backend="ingot") takes such models, and torch.cond and '
            "torch.where are branches that can be exported"
        )
    if re.search("PackedParams|quantized nyi", text):  # of torch.ao.nn.quantized
        where += f"; {OF_TORCH_QUANTISED}"
    return f"torch.export.export refuses the module ({type(error).__name__}): {text}{where}"


def _dim_names(torch: Any, program: Any, forward: Any, shapes: Any) -> dict[str, str]:
    """The symbols that dims with a name became; none where `shapes` leaves out containers."""
    if isinstance(shapes, dict):  # in the order of the arguments
        shapes = [shapes[name] for name in forward.parameters if name in shapes]
    specs = torch.utils._pytree.tree_leaves(shapes, is_leaf=_is_shape)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [nodes.get(name) for name in program.graph_signature.user_inputs]
    if len(specs) != len(inputs):
        return {}
    names: dict[str, str] = {}
    for node, spec in zip(inputs, specs, strict=True):
        sizes = getattr(getattr(node, "meta", {}).get("val"), "shape", ())
        pairs = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        for axis, dim in pairs:
            symbol = str(sizes[axis]) if axis < len(sizes) else ""
            if re.fullmatch(r"s\d+", symbol) and type(dim).__name__ == "Dim":
                names.setdefault(symbol, str(dim.__name__))
    return names


def _is_shape(tree: Any) -> bool:
    """Whether it is what dynamic_shapes has for one tensor."""
    if isinstance(tree, dict):
        return all(isinstance(key, int) for key in tree)
    if not isinstance(tree, (list, tuple)):
        return True
    return (
        bool(tree)
        and all(each is None or type(each) is int or "Dim" in type(each).__name__ for each in tree)
        and any(each is not None for each in tree)
    )


def _writes_or_aliases(op: Any) -> bool:
    """Whether its schema has a (a!) or (a), which cannot be kept whole."""
    schema = str(getattr(op, "_schema", ""))
    return "!" in schema or _ALIASES.search(schema) is not None
