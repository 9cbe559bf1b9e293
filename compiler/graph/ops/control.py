"""Rows of ops with branches, loops, state and calls: if, case, while, variable.load,
variable.store, call.

The regions of `if`, `case` and `while` may use every value that is defined before the op,
and their blocks see the symbols of the dims outside. A dim that is known only when the op
has run (branches that differ, a carried value that grows) is a fresh symbol; the op lists
the names that it defines in its attribute `symbols`, in the order of results and axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import Block, ListType, Op, ReferenceType, Region, TensorType, walk
from ingot.compiler.ir.attributes import Attributes, Dims, Names
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.hal.spec import DType

__all__ = [
    "CONTROL",
    "Control",
    "FunctionCall",
    "VariableLoad",
    "VariableStore",
    "defined_symbols",
    "fresh_dim_count",
    "with_symbols",
]

CONTROL = frozenset({"if", "case", "while"})
"""Ops whose regions hold tensor code of the graph level."""


def defined_symbols(op: Op) -> tuple[str, ...]:
    """The names of the symbols that the op defines."""
    names: Names = getattr(op.attributes, "symbols", ())
    return names


def with_symbols(op: Op, names: Names) -> Attributes:
    """The attributes of an op that defines symbols, with these names for them."""
    return type(op.attributes).read({**vars(op.attributes), "symbols": names})


def _inner_symbols(regions: Sequence[Region]) -> set[str]:
    """The symbols that ops inside the regions define, which mean nothing outside."""
    return {name for region in regions for op in walk(region) for name in defined_symbols(op)}


Flowing = TensorType | ListType
"""What branches give and loops carry."""
_WHOLE = (ListType, ReferenceType)
"""Those that are of one type in all branches and steps."""


def _yielded(region: Region, what: str) -> tuple[Flowing, ...]:
    block = region.block
    require(
        bool(block.ops) and block.terminator.name == "yield", f"{what} does not end with 'yield'"
    )
    types = [value.type for value in block.terminator.operands]
    flowing = tuple(each for each in types if isinstance(each, Flowing))
    require(len(flowing) == len(types), f"{what} yields what is no tensor and no list")
    return flowing


def _branch_types(regions: Sequence[Region], fresh: Iterator[Dim]) -> Iterator[Flowing]:
    """Result types of branches; takes the next of `fresh` for every dim in which they differ."""
    inner = _inner_symbols(regions)
    for place, region in enumerate(regions):
        require(not region.block.arguments, f"branch {place} must not have arguments")
    branches = [_yielded(region, f"branch {place}") for place, region in enumerate(regions)]
    for place, branch in enumerate(branches):
        require(
            len(branch) == len(branches[0]),
            f"branch {place} yields {len(branch)} values, but branch 0 yields {len(branches[0])}",
        )
    for place, types in enumerate(zip(*branches, strict=True)):
        first = types[0]
        for number, type in enumerate(types):
            require(
                type.dtype is first.dtype and type.rank == first.rank,
                f"result {place} is {first} from branch 0, but {type} from branch {number}: "
                f"branches may differ in dims, not in rank or dtype",
            )
        if any(isinstance(type, _WHOLE) for type in types):
            same = all(type == first for type in types)
            require(same, f"result {place} is of the types {', '.join(map(str, types))}")
            yield first
            continue
        shape: list[Dim] = []
        for dims in zip(*(type.shape for type in types), strict=True):
            known = all(dim == dims[0] for dim in dims) and not symbols_of(dims[0]) & inner
            shape.append(dims[0] if known else next(fresh))
        yield TensorType(first.dtype, tuple(shape))


def fresh_dim_count(regions: Sequence[Region]) -> int:
    """How many dims of the results of branches are known only when one has run."""
    count = 0

    def fresh() -> Iterator[Dim]:
        nonlocal count
        while True:
            count += 1
            yield symbol("fresh")

    list(_branch_types(regions, fresh()))
    return count


@dataclass(frozen=True)
class Control(Attributes):
    """What `if`, `case` and `while` say: the symbols that they define."""

    symbols: Names = ()


class Branches(Control):
    """Of `if` and `case`."""

    def result(self, condition: TensorType, *, regions: Sequence[Region]) -> tuple[Flowing, ...]:
        require(condition.rank == 0, f"the branch is chosen by a value of rank 0, not {condition}")
        require(len(regions) >= 1, "needs at least one branch")
        count = fresh_dim_count(regions)
        require(
            count == len(self.symbols),
            f"{count} dims differ between the branches, but {len(self.symbols)} symbols are given "
            "for them",
        )
        return tuple(_branch_types(regions, iter([symbol(name) for name in self.symbols])))


class While(Control):
    """Carried values, which the second region (the body) maps to their next while the first (the
    condition) yields true; both take them as arguments. A dim that changes from step to step is
    one of `symbols`: inside its value in this step, outside in the end."""

    def result(self, *initial: Flowing, regions: Sequence[Region]) -> tuple[Flowing, ...]:
        condition, body = regions
        carried = _argument_types(body.block)
        require(
            _argument_types(condition.block) == carried,
            "condition and body must take the same arguments",
        )
        decision = _yielded(condition, "the condition")
        require(
            len(decision) == 1 and decision[0].dtype.is_boolean and decision[0].rank == 0,
            f"the condition must yield one i1[], not ({', '.join(map(str, decision))})",
        )
        fresh = {symbol(name) for name in self.symbols}
        missing = [
            name for name in self.symbols if not any(symbol(name) in t.shape for t in carried)
        ]
        require(
            not missing, f"symbol '{missing[0] if missing else ''}' is no dim of a carried value"
        )
        for what, types in (("starts as", initial), ("is yielded as", _yielded(body, "the body"))):
            require(
                len(types) == len(carried),
                f"carries {len(carried)} values, but {len(types)} are given as what it {what[:-3]}",
            )
            bound: dict[Dim, Dim] = {}
            for place, (type, wanted) in enumerate(zip(types, carried, strict=True)):
                fits = type.dtype is wanted.dtype and type.rank == wanted.rank
                if isinstance(type, _WHOLE) or isinstance(wanted, _WHOLE):
                    fits = type == wanted
                for dim, expected in zip(type.shape, wanted.shape, strict=False):
                    if expected in fresh and dim is not None and expected is not None:
                        expected = bound.setdefault(expected, dim)
                    fits = fits and dim == expected
                require(fits, f"carried value {place} is {wanted}, but {what} {type}")
        return carried


def _argument_types(block: Block) -> tuple[Flowing, ...]:
    types = tuple(a.type for a in block.arguments if isinstance(a.type, Flowing))
    require(len(types) == len(block.arguments), "a loop carries tensors and lists only")
    return types


@dataclass(frozen=True)
class VariableLoad(Attributes):
    """The value that the variable `name` of the module has now. Of one that grows it is the first
    rows: those that it has not yet are zeros, and it has them from then on."""

    name: str
    dtype: DType
    shape: Dims

    def result(self) -> TensorType:
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class VariableStore(Attributes):
    """Gives the variable `name` of the module a new value; to one that grows as many rows as have
    been loaded at most, and those behind them stay."""

    name: str

    def result(self, value: TensorType) -> tuple[TensorType, ...]:
        return ()


@dataclass(frozen=True)
class FunctionCall(Attributes):
    """What a function of the module gives, whose results have these `types`. Calls stand in `init`,
    and become the ops of their function when kernels are made."""

    function: str
    types: tuple[TensorType, ...]

    def result(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return self.types


for _row in (
    OpRow(
        "if",
        "control",
        ("predicate: i1",),
        Branches,
        "The results of its first region where the predicate (rank 0) holds, else of the second. "
        "Branches agree in rank and dtype; a dim in which they differ is the next of `symbols`.",
        region_count=2,
        rule_reads_regions=True,
    ),
    OpRow(
        "case",
        "control",
        ("index: integer",),
        Branches,
        "The results of region number `index` (rank 0); an index out of range takes the last. "
        "Dims of the results are as those of `if`.",
        region_count=None,
        rule_reads_regions=True,
    ),
    OpRow("while", "control", ("*initial",), While, region_count=2, rule_reads_regions=True),
    OpRow("variable.load", "control", (), VariableLoad, effect="read"),
    OpRow("variable.store", "control", ("value",), VariableStore, effect="write"),
    OpRow("call", "control", ("*operands",), FunctionCall),
):
    register(_row)
