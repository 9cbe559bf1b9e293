"""Which variables a program's arguments and results become: their types, capacities, lengths.

A `Link` says that an argument of a function reads a variable and a result writes it. This
file compares the links of all functions and decides the type of every variable; how the
functions then load and store them is `make_stateful.py`.

A dim that grows from call to call makes a variable a cache: along that axis it has room for
`capacity` elements, or, if there is none, is as long as it has to be; that axis is the variable's
first then. A second variable counts how many elements are there. Caches whose dims are
one symbol in some function share their count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Function, Module, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, symbol
from ingot.hal.errors import CompileError

__all__ = ["Cache", "Link", "StatePlan", "Use", "plan_state"]


@dataclass(frozen=True)
class Link:
    """`argument` of a function reads `variable` and `result` writes it; one may be missing."""

    variable: str
    argument: str | None
    result: str | None


@dataclass(frozen=True)
class Cache:
    """Along `axis` a variable holds as many elements as the variable `length` says. It stands in
    front in one that `grows`."""

    axis: int
    length: str
    grows: bool


@dataclass(frozen=True, eq=False)
class Use:
    """One variable in one function: the argument, and the place of the result, if any."""

    variable: str
    function: Function
    argument: Value | None
    result: int | None

    def returned(self) -> Value | None:
        """The result that becomes the variable's next value."""
        if self.result is None:
            return None
        return self.function.block.terminator.operands[self.result]

    def describe(self, value: Value | None) -> str:
        """Which argument or result of which function `value` of this use is, with its type."""
        function = self.function
        if value is not None and value is self.argument:
            name, kind = function.argument_names[function.arguments.index(value)], "argument"
        else:
            assert self.result is not None
            name, kind = function.result_names[self.result], "result"
        return f"{kind} '{name}' of '{function.name}' ({value.type if value else ''})"

    def types(self) -> Iterator[tuple[Value, TensorType]]:
        """The argument and the result, with their types. CompileError: one is no tensor."""
        for value in (self.argument, self.returned()):
            if value is not None:
                if not isinstance(value.type, TensorType):
                    raise CompileError(f"{self.describe(value)} cannot be state: only tensors can")
                yield value, value.type


@dataclass(frozen=True)
class StatePlan:
    """The types of all variables, and which of them are caches; `uses` by function name."""

    types: Mapping[str, TensorType]
    caches: Mapping[str, Cache]
    uses: Mapping[str, Sequence[Use]]


def plan_state(
    module: Module, links: Mapping[str, Sequence[Link]], capacity: int | None
) -> StatePlan:
    """What the variables must be for the links of every function. CompileError: impossible."""
    uses: dict[str, list[Use]] = {}
    by_variable: dict[str, list[Use]] = {}
    for name, each in links.items():
        function = module.functions[name]
        uses[name] = [_use(function, link) for link in each]
        for use in uses[name]:
            by_variable.setdefault(use.variable, []).append(use)
    axes = {name: _growing_axis(each) for name, each in by_variable.items()}
    types = {name: _type(each, axes[name], capacity) for name, each in by_variable.items()}
    lengths = _lengths(uses, axes, set(by_variable))
    caches = {
        name: Cache(axis, lengths[name], capacity is None)
        for name, axis in axes.items()
        if axis is not None
    }
    return StatePlan(types, caches, uses)


def _use(function: Function, link: Link) -> Use:
    names = function.argument_names
    argument = None if link.argument is None else function.arguments[names.index(link.argument)]
    result = None if link.result is None else function.result_names.index(link.result)
    return Use(link.variable, function, argument, result)


def _growing_axis(uses: Sequence[Use]) -> int | None:
    """The one axis along which the variable's dims are symbolic, or None."""
    found: dict[int, str] = {}
    for use in uses:
        for value, type in use.types():
            symbolic = [axis for axis, dim in enumerate(type.shape) if isinstance(dim, Expr)]
            found.update({axis: use.describe(value) for axis in symbolic})
            if len(found) > 1:
                dims = ", ".join(f"{axis} ('{type.shape[axis]}')" for axis in symbolic)
                raise CompileError(
                    f"{use.describe(value)} cannot become state: its dims {dims} are not known "
                    "before the call, and a variable has static dims but for one along which it "
                    "grows; fix the others with dims=, such as dims={'batch': 1}"
                )
    return next(iter(found), None)


def _type(uses: Sequence[Use], axis: int | None, capacity: int | None) -> TensorType:
    """The variable's type: what all uses agree on, and the capacity."""
    wanted: TensorType | None = None
    first = ""
    for use in uses:
        for value, type in use.types():
            if axis is not None:
                _check_capacity(uses, use, value, type, axis, capacity)
                room = symbol("rows") if capacity is None else capacity
                dims = tuple(room if at == axis else dim for at, dim in enumerate(type.shape))
                type = TensorType(type.dtype, dims)
            if wanted is None:
                wanted, first = type, use.describe(value)
            elif type != wanted:
                raise CompileError(
                    f"the variable '{use.variable}' cannot be both {first} and "
                    f"{use.describe(value)}: its dtype and dims must agree"
                )
    assert wanted is not None
    if axis is None or capacity is not None:
        return wanted
    dims = wanted.shape
    return TensorType(wanted.dtype, (dims[axis], *dims[:axis], *dims[axis + 1 :]))


def _check_capacity(
    uses: Sequence[Use], use: Use, value: Value, type: TensorType, axis: int, capacity: int | None
) -> None:
    dim = type.shape[axis] if axis < type.rank else 0
    if capacity is None and not any(_changes(each, axis) for each in uses):
        raise CompileError(
            f"{use.describe(value)} has the dim {axis} ('{dim}'), which no call makes longer: fix "
            "it with dims=, or give the most it may become with capacity="
        )
    if capacity is not None and isinstance(dim, int) and dim > capacity:
        raise CompileError(
            f"{use.describe(value)} holds {dim} elements along axis {axis}, more than the "
            f"capacity {capacity}; give a larger capacity="
        )


def _changes(use: Use, axis: int) -> bool:
    """Whether the result has another length than the argument, or there is no argument."""
    dims = [type.shape[axis : axis + 1] for _, type in use.types()]
    return use.result is not None and (use.argument is None or dims[0] != dims[1])


def _lengths(
    uses: Mapping[str, Sequence[Use]], axes: Mapping[str, int | None], taken: set[str]
) -> dict[str, str]:
    """Per cache the name of the variable that holds its length."""
    groups: dict[str, set[str]] = {name: {name} for name, axis in axes.items() if axis is not None}
    names: dict[str, str] = {}
    for each in uses.values():
        by_dim: dict[Dim, str] = {}
        for use in each:
            axis = axes[use.variable]
            if axis is None or use.argument is None:
                continue
            dim = tensor_type(use.argument).shape[axis]
            names.setdefault(use.variable, str(dim))
            other = by_dim.setdefault(dim, use.variable)
            joined = groups[use.variable] | groups[other]
            for name in joined:
                groups[name] = joined
    lengths: dict[str, str] = {}
    for name, group in groups.items():
        if name in lengths:
            continue
        length = next((names[each] for each in axes if each in group and each in names), name)
        length = length if length.isidentifier() else f"{name}.length"
        while length in taken:
            length += "_"
        taken.add(length)
        lengths.update(dict.fromkeys(group, length))
    return lengths
