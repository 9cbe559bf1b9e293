"""Between which arguments and results an ONNX graph is compiled: its own, or to values that the
caller chooses and from what these need."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from difflib import get_close_matches

import onnx

from ingot.compiler.frontends.onnx.check import live_nodes
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError

__all__ = ["Ends", "choose", "choose_ends"]

_SHOWN = 20  # names in a message


@dataclass(frozen=True)
class Ends:
    """What becomes arguments, and what results."""

    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]


def choose_ends(graph: onnx.GraphProto, names: Sequence[str] | None) -> Ends:
    """All inputs and outputs of the graph; with `names`, which may be those of any values that
    its layers make, these as results in their order, and the inputs that they need.
    CompileError: there is no such value."""
    # before IR version 4 every initializer was listed as an input too
    weights = {tensor.name for tensor in graph.initializer}
    inputs = tuple(value for value in graph.input if value.name not in weights)
    if names is None:
        return Ends(inputs, tuple(graph.output))
    made = {name: onnx.ValueInfoProto(name=name) for node in graph.node for name in node.output}
    made |= {value.name: value for value in graph.value_info if value.name in made}
    made |= {value.name: value for value in graph.output}
    _check_names(names, made, [value.name for value in graph.output])
    needed = {name for reads in live_nodes(graph.node, names).values() for name in reads}
    needed.update(names)
    return Ends(
        tuple(value for value in inputs if value.name in needed),
        tuple(made[name] for name in names),
    )


def _check_names(names: Sequence[str], made: Collection[str], outputs: Sequence[str]) -> None:
    if not names:
        raise CompileError("outputs is empty: name the results that you want, or leave it out")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise CompileError(f"outputs names '{name}' twice")
        if not name or name not in made:
            known = ", ".join(outputs[:_SHOWN]) + (", ..." if len(outputs) > _SHOWN else "")
            near = [each for each in get_close_matches(str(name), made) if each not in outputs]
            like = f"; values inside of it with such a name: {', '.join(near)}" if near else ""
            raise CompileError(f"the graph has no output '{name}'; its outputs are: {known}{like}")


def choose(names: Sequence[str]) -> str:
    """How a user asks for these results."""
    return f"outputs={json.dumps(list(names))}, or --outputs {','.join(names)},"
