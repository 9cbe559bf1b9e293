"""Walks a graph of torch.export in order and lowers each node.

What cannot be lowered is noted, and stands for itself as an argument of the type that the program
notes, so that one error lists all that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.complex_numbers import join, take_apart
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.natives import find_native
from ingot.compiler.frontends.own_ops import ADVICE, OwnLowering, find_own, lower_own
from ingot.compiler.frontends.problems import Problem
from ingot.compiler.frontends.survey import Survey, Use
from ingot.compiler.frontends.symbols import Names
from ingot.compiler.frontends.torch.archive import element_type
from ingot.compiler.frontends.torch.complex_values import (
    COMPLEX,
    ComplexValue,
    lower_complex,
    real_type,
)
from ingot.compiler.frontends.torch.lowering import (
    ALIASES,
    CONVERSIONS,
    LOWERINGS,
    PARTS,
    REFUSED,
    VIEWS,
    Context,
    Graph,
    Layout,
    functional_op,
)
from ingot.compiler.frontends.torch.names import layer_of, line_of
from ingot.compiler.frontends.torch.tensors import PartTensors, Tensors, View
from ingot.compiler.frontends.torch.types import Types, single_symbol
from ingot.compiler.frontends.torch.views import put_back
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, TensorType, Value
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["Walk"]

_PREFIX = "torch.ops."
_DECOMPOSED = ("aten.", "export.", "torch._functorch.")  # ops that torch may make others of
_MAY_COPY = ("reshape", "ravel", "reshape_as", "flatten", "contiguous", "_reshape_alias")
_MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class Walk:
    def __init__(self, main: Block, types: Types, amounts: Amounts, survey: Survey | None) -> None:
        self._main = main
        self._types = types
        self._amounts = amounts
        self._survey = survey
        self.problems: list[Problem] = []
        self._names = Names()

    def lower(self, graph: Any, tensors: Tensors, builder: Builder) -> list[Any]:
        """Lower all nodes; what the graph's outputs are."""
        for node in graph["nodes"]:
            with builder.at(layer_of(node)):
                self._lower(node, graph, tensors, builder)
        return [self.argument(each, tensors, builder) for each in graph["outputs"]]

    def _lower(self, node: Any, graph: Any, tensors: Tensors, builder: Builder) -> None:
        if str(node["target"]).endswith("higher_order.with_effects"):
            tensors.set(_output_names(node["outputs"][0])[0], None)
            node = _without_token(node)
        outputs = [name for each in node["outputs"] for name in _output_names(each)]
        declared = [self._declared(name, graph) for name in outputs]
        before = len(self.problems)
        try:
            results = self._apply(node, graph, declared, tensors, builder)
            if len(results) < len(outputs):
                raise UnsupportedNode(f"it gives {len(results)} results, expected {len(outputs)}")
        except (UnsupportedNode, CompileError) as error:
            self._report(node, graph, str(error))
            results = [self._stand_in(each) for each in declared]
        except _MALFORMED as error:
            text = f"its arguments are not what the op takes ({type(error).__name__}: {error})"
            self._report(node, graph, text)
            results = [self._stand_in(each) for each in declared]
        for name, noted, result in zip(outputs, declared, results, strict=False):
            if result is None and noted is not None:
                tensors.make(name, _refuse(name))
                continue
            tensors.set(name, result)
            if isinstance(result, Value) and not result.name:
                result.name = name
        self._note_use(node, graph, before)

    def _apply(
        self,
        node: Any,
        graph: Any,
        declared: Sequence[TensorType | None],
        tensors: Tensors,
        builder: Builder,
    ) -> list[Any]:
        target = str(node["target"]).removeprefix(_PREFIX)
        if target in PARTS:
            return self._run_part(node, tensors, builder)
        name, writes = _functional(target)
        arguments, keywords = self._arguments(node, target, tensors, builder)
        if writes:
            declared = [arguments[0].type]
        context = self._context(builder, declared, node, graph)

        def lower(*given: Any) -> list[Any]:
            made = _lowered(context, name, [*given, *arguments[len(given) :]], keywords)
            results = list(made) if isinstance(made, (list, tuple)) else [made]
            types = self._learned(node, graph, declared, results)
            return [_fitted(context, *pair) for pair in zip(results, types, strict=True)]

        results = lower()
        source = _tensor_name(node["inputs"][0]["arg"]) if node["inputs"] else None
        outputs = [each for out in node["outputs"] for each in _output_names(out)]
        if writes and source is not None:
            tensors.write(source, results[0])
            for output in outputs:
                same = View(source, tensors.version(source), lambda: tensors.get(source), _same)
                tensors.view(output, same)
        elif source is not None and (name in VIEWS or _keeps_dtype(name, node, graph)):
            base = source
            may_copy, is_writable = self._sharing(name, source, keywords, graph)
            for place, output in enumerate(outputs):

                def again(place: int = place) -> Any:
                    if may_copy:
                        raise CompileError(
                            f"whether a write is seen through {name} depends on memory: compile "
                            "what run_decompositions() of the program gives"
                        )
                    return lower(tensors.get(base))[place]

                def back(value: Any, place: int = place) -> Any:
                    whole = tensors.get(base)
                    return put_back(context, name, whole, value, place, arguments[1:], keywords)

                version = tensors.version(base)
                tensors.view(output, View(base, version, again, back if is_writable else None))
        return results

    def _sharing(self, name: str, source: str, keywords: Any, graph: Any) -> tuple[bool, bool]:
        """Of a view whether it may be a copy, and whether a write into it can be followed."""
        if name.split(".")[1] not in _MAY_COPY:
            return False, VIEWS.get(name, True)
        is_view = not keywords and self._is_dense(source, graph)
        return not is_view, is_view

    def _is_dense(self, name: str, graph: Any) -> bool:
        """Whether a tensor lies row by row, so that torch copies none of its elements."""
        meta = graph["tensor_values"][name]
        length: Dim = 1
        sizes, (strides, _) = self._types.tensor(meta).shape, self._types.layout(meta)
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            if size != 1 and stride != length:
                return False
            length = length * size
        return True

    def _run_part(self, node: Any, tensors: Tensors, builder: Builder) -> list[Any]:
        """A part of the program that gradients or dtypes, which it has noted, concern."""
        given = [each["arg"] for each in node["inputs"]]
        places = [place for place, each in enumerate(given) if "as_graph" in each]
        if not places:
            raise UnsupportedNode("it has no graph: export the model again")
        graph = given[places[0]]["as_graph"]["graph"]
        shared: dict[str, str] = {}
        part = PartTensors(tensors, shared)
        for inside, outside in zip(graph["inputs"], given[places[0] + 1 :], strict=True):
            name, source = _tensor_name(inside), _tensor_name(outside)
            if name is not None and source is not None:
                shared[name] = source
            else:
                _define(inside, self.argument(outside, tensors, builder), part)
        results = self.lower(graph, part, builder)
        outputs = [name for each in node["outputs"] for name in _output_names(each)]
        for output, source in zip(outputs, map(_tensor_name, graph["outputs"]), strict=False):
            if source is not None:
                part.give(source, output)
        return results

    def _arguments(
        self, node: Any, target: str, tensors: Tensors, builder: Builder
    ) -> tuple[list[Any], dict[str, Any]]:
        """Those by place and those by name; to a native function only tensors come by place."""
        arguments, keywords = [], {}
        is_native = find_native(*_own_name(target)) is not None
        for each in node["inputs"]:
            value = self.argument(each["arg"], tensors, builder)
            by_name = is_native and not isinstance(value, (Value, ComplexValue))
            if by_name or each.get("kind") == 2:
                keywords[str(each["name"])] = value
            else:
                arguments.append(value)
        return arguments, keywords

    def _context(
        self, builder: Builder, declared: Sequence[TensorType | None], node: Any, graph: Any
    ) -> Context:
        outputs = [each for out in node["outputs"] for each in _output_names(out)]
        hint = outputs[0] if outputs else "size"
        sizes = [dim for type in declared if type is not None for dim in type.shape]
        known = (self._noted_size(name, graph) for name in outputs)
        sizes += [dim for dim in known if dim is not None]
        for dim in sizes:
            name = single_symbol(dim)
            if name is not None and self._types.is_unbacked(name) and name not in self._names.taken:
                hint = name

        def layout(place: int) -> Layout:
            name = _tensor_name(node["inputs"][place]["arg"])
            return self._types.layout(graph["tensor_values"][name])

        def limits(name: str) -> tuple[int | None, int | None]:
            low, high = self._types.limits(name)
            return None if self._types.may_be_negative(name) else low, high

        return Context(builder, self._amounts, declared, self._names.fresh, limits, hint, layout)

    def _learned(
        self, node: Any, graph: Any, declared: Sequence[TensorType | None], results: list[Any]
    ) -> list[TensorType | None]:
        """The declared types of the results of a node, with sizes that were learnt of these."""
        names = [name for each in node["outputs"] for name in _output_names(each)]
        types = [*declared, *[None] * len(results)][: len(results)]
        for name, type, made in zip(names, types, results, strict=False):
            size = self._noted_size(name, graph)
            if size is not None:
                self._learn(size, made)
            if type is not None and isinstance(made, (Value, ComplexValue)):
                for dim, own in zip(type.shape, made.typed(TensorType).shape, strict=False):
                    self._learn(dim, own)
        return [type and self._types.learnt(type) for type in types]

    def _noted_size(self, name: str, graph: Any) -> Dim | None:
        """What the program notes of a result that is a size; None where it says nothing that can
        be read, such as which of two sizes it is."""
        noted = (graph.get("sym_int_values") or {}).get(name)
        if noted is None:
            return None
        try:
            return self._types.dim(noted)
        except ValueError:
            return None

    def _learn(self, declared: Any, made: Any) -> None:
        """A symbol that torch made for a size, and that no op defines, stands for what was made."""
        name = single_symbol(declared)
        if name is None or not self._types.is_unbacked(name) or name in self._names.taken:
            return
        if isinstance(made, (int, Expr)) and made != declared:
            self._names.taken.add(name)
            self._types.define(name, made)

    def _declared(self, name: str, graph: Any) -> TensorType | None:
        meta = graph["tensor_values"].get(name)
        return None if meta is None else self._types.tensor(meta)

    def _stand_in(self, type: TensorType | None) -> Any:
        """An argument in the place of what could not be made; the program is not compiled."""
        if type is None:
            return 1
        if type.dtype.is_complex:
            part = self._stand_in(real_type(type))
            return ComplexValue(part, part)
        value = Value(type, self._main)
        self._main.arguments.append(value)
        return value

    # ---- arguments

    def argument(self, argument: Any, tensors: Tensors, builder: Builder) -> Any:
        """What an argument of a node, or an output of a graph, is."""
        ((tag, entry),) = argument.items()
        if tag == "as_tensor":
            return tensors.get(entry["name"])
        if tag in ("as_tensors", "as_nested_tensors"):
            return [tensors.get(each["name"]) for each in entry]
        if tag == "as_optional_tensors":
            return [self.argument(each, tensors, builder) for each in entry]
        if tag in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return _symbolic(entry, tensors)
        if tag in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [_symbolic(each, tensors) for each in entry]
        if tag == "as_float":
            return float(entry)
        if tag == "as_floats":
            return [float(each) for each in entry]
        if tag == "as_complex":
            return complex(float(entry["real"]), float(entry["imag"]))
        if tag == "as_scalar_type":
            return element_type(entry)
        if tag == "as_none":
            return None
        if tag == "as_graph":
            return self._graph(entry["graph"])
        if tag in ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings"):
            return entry
        if tag in ("as_memory_format", "as_layout", "as_device"):
            return None
        raise UnsupportedNode(f"an argument is {tag.removeprefix('as_')}, which is not supported")

    def _graph(self, graph: Any) -> Graph:
        def lower(builder: Builder, given: Sequence[Any]) -> list[Any]:
            tensors = Tensors()
            for each, value in zip(graph["inputs"], given, strict=True):
                _define(each, value, tensors)
            results = self.lower(graph, tensors, builder)
            if any(tensors.version(name) for name in map(_tensor_name, graph["inputs"]) if name):
                raise UnsupportedNode(
                    "its branch or step writes into what it is given: return the new value"
                )
            return results

        return Graph(lower)

    def as_tensor(self, value: Any, builder: Builder) -> Value:
        """A result of the function: a number becomes a tensor of rank 0."""
        if isinstance(value, Value):
            return value
        if isinstance(value, ComplexValue):
            return join(builder, value.parts)
        if isinstance(value, (bool, tuple)):
            return self._amounts.truth_value(builder, value)
        if isinstance(value, (int, Expr)):
            return builder.number(value, dtype("i64"))
        if isinstance(value, float):
            return builder.constant(value, "f64")
        raise CompileError(f"a result of the program is {str(value)[:80]}: return tensors")

    # ---- what is wrong

    def _report(self, node: Any, graph: Any, message: str) -> None:
        layer, line = layer_of(node), line_of(node)
        target = str(node["target"]).removeprefix(_PREFIX)
        types = ", ".join(self._operand_types(node, graph))
        place = f" ({line})" if line else ""
        text = f"'{layer}': {target}({types}): {message}{place}"
        self.problems.append(Problem(text, (target, message), layer))

    def _note_use(self, node: Any, graph: Any, before: int) -> None:
        if self._survey is None or str(node["target"]).startswith("_operator."):
            return
        new = self.problems[before:]
        target = str(node["target"]).removeprefix(_PREFIX)
        types = tuple(self._operand_types(node, graph))
        problem = new[-1].text if new else ""
        self._survey.uses.append(Use(target, types, layer_of(node), problem))

    def _operand_types(self, node: Any, graph: Any) -> list[str]:
        names = [_tensor_name(each.get("arg")) for each in node["inputs"]]
        known = graph["tensor_values"]
        types: list[str] = []
        for name in filter(None, names):
            try:
                types.append(str(self._types.tensor(known[name])))
            except (CompileError, *_MALFORMED):
                types.append("unknown type")
        return types


def _functional(target: str) -> tuple[str, bool]:
    """The op in the table of an op, and whether it writes its result into its first argument."""
    if _find_own(target) is not None:
        return target, False
    target = ALIASES.get(target, target)
    if target in LOWERINGS or target in COMPLEX:
        return target, False
    name = functional_op(target)
    name = ALIASES.get(name, name)
    if name in LOWERINGS or name in COMPLEX:
        return name, True
    reason = REFUSED.get(target)
    if reason is None and target.startswith(_DECOMPOSED):
        reason = (
            "the op is not supported; save what the exported program's run_decompositions() gives, "
            "or rewrite the layer with other ops"
        )
    raise UnsupportedNode(
        reason or f"the op is not supported; {ADVICE}, or rewrite the layer with other ops"
    )


def _without_token(node: Any) -> Any:
    """The op for which a node keeps an order by tokens: its first argument and result."""
    op = node["inputs"][1]["arg"]["as_operator"]
    outputs = [each for each in node["outputs"][1:] if "as_none" not in each]
    return {**node, "target": op, "inputs": node["inputs"][2:], "outputs": outputs}


def _find_own(target: str) -> OwnLowering | None:
    """The user's function for torch.ops.<domain>.<name>.<overload>."""
    return find_own(*_own_name(target))


def _own_name(target: str) -> tuple[str, str]:
    domain, _, name = target.rpartition(".")[0].partition(".")
    return domain, name


def _lowered(c: Context, name: str, arguments: Sequence[Any], keywords: Any) -> Any:
    """What the op gives; complex numbers have lowerings of their own."""
    own = _find_own(name)
    if own is not None:
        return _call_own(c, own, arguments, keywords)
    given = [part for each in arguments for part in (each if isinstance(each, list) else [each])]
    gives = any(each is not None and each.dtype.is_complex for each in c.declared)
    if gives or name not in LOWERINGS or any(isinstance(each, ComplexValue) for each in given):
        return lower_complex(c, name, arguments, keywords)
    return LOWERINGS[name](c, *arguments, **keywords)


def _call_own(c: Context, own: OwnLowering, arguments: Sequence[Any], keywords: Any) -> list[Any]:
    """The user's function, for which complex tensors are whole ones."""

    def whole(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [whole(each) for each in x]
        return join(c.builder, x.parts) if isinstance(x, ComplexValue) else x

    named = {name: whole(each) for name, each in keywords.items()}
    made = lower_own(own, c.builder, c.fresh, whole(arguments), named)
    return [
        ComplexValue(*take_apart(c.builder, each)) if type_of(each).dtype.is_complex else each
        for each in made
    ]


def _refuse(name: str) -> Callable[[], Any]:
    def read() -> Any:
        raise UnsupportedNode(f"it reads '{name}', which only gradients need")

    return read


def _output_names(output: Any) -> list[str]:
    ((tag, entry),) = output.items()
    if tag == "as_tensors":
        return [str(each["name"]) for each in entry]
    if tag in ("as_sym_ints", "as_optional_tensors"):
        return [name for each in entry for name in _output_names({"as_sym_int": each})]
    if isinstance(entry, dict):
        return [str(entry.get("name", entry.get("as_name", "")))]
    return [""]


def _tensor_name(argument: Any) -> str | None:
    entry = argument.get("as_tensor") if isinstance(argument, dict) else None
    return str(entry["name"]) if isinstance(entry, dict) else None


def _define(argument: Any, value: Any, tensors: Tensors) -> None:
    """The argument of a graph has this value."""
    ((_, entry),) = argument.items()
    name = entry.get("name", entry.get("as_name")) if isinstance(entry, dict) else None
    if name is not None:
        tensors.set(name, value)


def _symbolic(entry: Any, tensors: Tensors) -> Any:
    ((tag, value),) = entry.items()
    return tensors.get(value) if tag == "as_name" else value


def _keeps_dtype(name: str, node: Any, graph: Any) -> bool:
    """Whether it is a conversion that gives its argument itself, and is not asked for a copy."""
    if not name.startswith(CONVERSIONS):
        return False
    ends = [node["inputs"][0]["arg"], node["outputs"][0]]
    dtypes = [graph["tensor_values"].get(_tensor_name(each), {}).get("dtype") for each in ends]
    is_copy = any(each["arg"].get("as_bool") for each in node["inputs"])
    return dtypes[0] == dtypes[1] and not is_copy


def _same(value: Any) -> Any:
    return value


def _fitted(context: Context, result: Any, declared: TensorType | None) -> Any:
    """A result as the program notes it: dims that torch knows, and the dtype."""
    if isinstance(result, ComplexValue) and declared is not None:
        parts = (_fitted(context, each, real_type(declared)) for each in result.parts)
        return ComplexValue(*parts)
    if not isinstance(result, Value) or declared is None:
        return result
    converted = context.convert(result, declared.dtype)
    shape: list[Dim] = list(declared.shape)
    return context.agreed(converted, shape)
