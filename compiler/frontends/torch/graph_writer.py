"""Graphs of torch.fx in memory, as the JSON of torch.export's archives has them.

torch.export.save could write them, but sorts deep copies, makes objects that check themselves, and
notes what is not read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from ingot.compiler.frontends.torch.archive import CODES

__all__ = ["OF_TORCH_QUANTISED", "GraphWriter", "ranges_of"]

OF_TORCH_QUANTISED = (
    "quantise the model with prepare_pt2e and convert_pt2e or with quantize_ of torchao, or take "
    "what prepare_qat made, behind model.apply(torch.ao.quantization.disable_observer)"
)
"""What to do in place of modules of torch.ao.nn.quantized."""

_KEYWORD = 2  # the kind of an argument
_VARIABLE = re.compile(r"^[LG]\['\w+'\]\.?")  # in which torch.compile finds the module
_KINDS = {bool: "bool", int: "int", float: "float", str: "string"}


class GraphWriter:
    """Any exception means that a graph has what is not known here."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._dtypes = {getattr(torch, name): code for name, code in CODES.items()}
        self._sizes: dict[Any, dict[str, Any]] = {}
        self._first: dict[str, str] = {}  # of several nodes that read one result
        self.constants: dict[str, Any] = {}  # tensors that a graph holds, by its names of them

    def graph(self, module: Any) -> dict[str, Any]:
        """The graph of a torch.fx.GraphModule."""
        graph: dict[str, Any] = {"inputs": [], "nodes": [], "outputs": []}
        graph.update(tensor_values={}, sym_int_values={})
        for node in module.graph.nodes:
            if node.op == "placeholder":
                graph["inputs"].append(self._placeholder(node, graph))
            elif node.op == "output":
                results = node.args[0]
                results = results if isinstance(results, (list, tuple)) else [results]
                graph["outputs"] = [self.argument(each) for each in results]
            elif node.op == "call_function" and node.target is not operator.getitem:
                graph["nodes"].append(self._node(node, graph))
        return graph

    def argument(self, argument: Any) -> dict[str, Any]:
        """What a node reads, or a result of the graph."""
        torch = self._torch
        if isinstance(argument, torch.fx.Node):
            return self._read(argument)
        if isinstance(argument, (list, tuple)):
            if argument and all(type(each) is int for each in argument):
                return {"as_ints": list(argument)}
            return {"as_optional_tensors": [self.argument(each) for each in argument]}
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise TypeError("a size that no node gives")
        if isinstance(argument, torch._ops.OpOverload):
            return {"as_operator": f"torch.ops.{argument}"}
        if isinstance(argument, complex):
            return {"as_complex": {"real": argument.real, "imag": argument.imag}}
        if isinstance(argument, torch.dtype):
            return {"as_scalar_type": self._code(argument)}
        if isinstance(argument, (torch.memory_format, torch.layout, torch.device)):
            return {"as_device": None}
        return {"as_none" if argument is None else f"as_{_KINDS[type(argument)]}": argument}

    def meta(self, tensor: Any) -> dict[str, Any]:
        """The dtype of a tensor and where its elements lie."""
        return {
            "dtype": self._code(tensor.dtype),
            "sizes": [self._size(size) for size in tensor.shape],
            "strides": [self._size(stride) for stride in tensor.stride()],
            "storage_offset": self._size(tensor.storage_offset()),
        }

    def _code(self, dtype: Any) -> int:
        if dtype not in self._dtypes:
            advice = OF_TORCH_QUANTISED if str(dtype).startswith("torch.q") else "use another"
            raise TypeError(f"{dtype} has no counterpart: {advice}")
        return self._dtypes[dtype]

    def _placeholder(self, node: Any, graph: dict[str, Any]) -> dict[str, Any]:
        torch, value = self._torch, node.meta["val"]
        if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._defined(node.name, value, graph)
        return self.argument(value)  # the number for which the program was made

    def _node(self, node: Any, graph: dict[str, Any]) -> dict[str, Any]:
        module = node.target.__module__.replace("torch._ops", "torch.ops")
        schema = getattr(node.target, "_schema", None)
        names = [each.name for each in schema.arguments] if schema is not None else []
        names += [""] * (len(node.args) - len(names))
        inputs = [
            {"name": name, "arg": self.argument(each), "kind": 1}
            for name, each in zip(names, node.args, strict=False)
        ]
        inputs += [
            {"name": name, "arg": self.argument(each), "kind": _KEYWORD}
            for name, each in node.kwargs.items()
        ]
        return {
            "name": node.name,
            "target": f"{module}.{node.target.__name__}",
            "inputs": inputs,
            "outputs": self._outputs(node, graph),
            "metadata": _metadata(node),
        }

    def _outputs(self, node: Any, graph: dict[str, Any]) -> list[Any]:
        """Several have the names of the nodes that read them."""
        value = node.meta.get("val")
        if not isinstance(value, (list, tuple)):
            return [] if value is None else [self._defined(node.name, value, graph)]
        readers: dict[int, str] = {}
        for user in node.users:
            if user.target is not operator.getitem:
                raise TypeError("several results are read as one")
            self._first[user.name] = readers.setdefault(user.args[1], user.name)
        return [
            self._defined(readers.get(place, f"{node.name}_unused_{place}"), each, graph)
            for place, each in enumerate(value)
        ]

    def _defined(self, name: str, value: Any, graph: dict[str, Any]) -> dict[str, Any]:
        torch = self._torch
        if isinstance(value, torch.Tensor):
            graph["tensor_values"][name] = self.meta(value)
            return {"as_tensor": {"name": name}}
        if value is None:
            return {"as_none": True}
        kind = _symbolic(torch, value)
        if kind == "sym_int":
            graph["sym_int_values"][name] = self._size(value)
        return {f"as_{kind}": {"as_name": name}}

    def _read(self, node: Any) -> dict[str, Any]:
        torch = self._torch
        if node.op == "get_attr":
            held = operator.attrgetter(node.target)(node.graph.owning_module)
            if isinstance(held, torch.fx.GraphModule):
                return {"as_graph": {"name": node.target, "graph": self.graph(held)}}
            self.constants[node.target] = held
            return {"as_tensor": {"name": node.target}}
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return {"as_tensor": {"name": self._first.get(node.name, node.name)}}
        if value is None:  # a token
            return {"as_none": True}
        return {f"as_{_symbolic(torch, value)}": {"as_name": node.name}}

    def _size(self, size: Any) -> dict[str, Any]:
        if isinstance(size, int):
            return {"as_int": size}
        expression = size.node.expr
        if expression not in self._sizes:
            from sympy import srepr

            self._sizes[expression] = (
                {"as_int": int(expression)}
                if expression.is_Integer
                else {"as_expr": {"expr_str": srepr(expression)}}
            )
        return self._sizes[expression]


def _symbolic(torch: Any, value: Any) -> str:
    if isinstance(value, (torch.SymBool, bool)):
        return "sym_bool"
    return "sym_float" if isinstance(value, (torch.SymFloat, float)) else "sym_int"


def _metadata(node: Any) -> dict[str, str]:
    """The line of Python that made the node, and the innermost layer where it stands."""
    found = {"stack_trace": node.meta.get("stack_trace") or ""}
    stack = node.meta.get("nn_module_stack")
    if stack:
        key, (path, _) = list(stack.items())[-1]
        path = _VARIABLE.sub("", path)
        found["nn_module_stack"] = f"{key},{path},"
    return found


def ranges_of(ranges: Mapping[Any, Any]) -> dict[str, Any]:
    """The least and the greatest number of each symbol, by its name."""
    return {
        str(symbol): {"min_val": _whole(limits.lower), "max_val": _whole(limits.upper)}
        for symbol, limits in ranges.items()
    }


def _whole(number: Any) -> int | None:
    """None: no limit."""
    return int(number) if isinstance(number, int) or number.is_Integer else None
