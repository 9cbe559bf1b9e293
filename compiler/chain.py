"""Programs one after another in one module: `ingot.chain(prepare, "model.onnx", decode)`.

Each stage is any source. Its arguments are results of stages before it, found by name, else by
order; the dims of a stage become what the results that it takes have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.compiler import ir
from ingot.compiler.frontends.distinct_names import distinct_names
from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.symbols import inner_symbols, rename_symbols, substitute_symbols
from ingot.compiler.ir import TensorType, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbol, symbols_of
from ingot.compiler.name_ends import name_ends
from ingot.hal.errors import CompileError, NotFound, Unsupported

__all__ = ["Chain", "chain", "join"]


@dataclass(frozen=True)
class Chain:
    """Sources that `ingot.compile` joins: see `chain`."""

    stages: tuple[Any, ...]
    connect: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def chain(
    *stages: Any,
    connect: Mapping[str, str] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Chain:
    """A source of several: results of each stage are arguments of the next one.

    `stages`: whatever `ingot.compile` takes. An argument takes the result of an earlier stage that
    has its name; where no argument of a stage finds one, all take those of the stage before it,
    in order.
    `connect`: names of results by names of arguments, where they differ.
    `inputs`: names of arguments of later stages that stay arguments of the whole.
    `outputs`: names of results of earlier stages that are results beside those of the last one.

    CompileError, by `ingot.compile`: names, dtypes or dims do not fit; it lists all that do not.
    """
    if not stages:
        raise CompileError("a chain has no stages: pass one source or more")
    return Chain(stages, dict(connect or {}), tuple(inputs), tuple(outputs))


def join(chain: Chain, read: Callable[[Any], ir.Module]) -> ir.Module:
    """The module of a chain; `read` gives one of a stage, which it may change."""
    joined = _Joined(chain)
    for number, source in enumerate(chain.stages, 1):
        what = f"stage {number}{_title(source)}"
        try:
            module = read(source)
        except (CompileError, NotFound, Unsupported) as error:
            raise type(error)(f"{what}: {error}") from None
        joined.append(module, what)
    return joined.finish()


def _title(source: Any) -> str:
    """A name of a stage for messages."""
    if isinstance(source, (str, Path)) and "\n" not in str(source):
        return f" ({Path(source).name[:80]})"
    name = getattr(source, "__name__", None)
    return f" ({name})" if isinstance(name, str) else ""


class _Joined:
    """The function that the stages become parts of."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._module = ir.Module()
        self._block = ir.Block([])
        self._builder = Builder(self._block)
        self._names: list[str] = []  # of arguments
        self._bounds: dict[str, tuple[int, int | None]] = {}  # of symbols of arguments
        self._taken: set[str] = set()  # names of all symbols
        self._made: dict[str, Value] = {}  # results by name, those of later stages first
        self._last: dict[str, Value] = {}  # results of the stage before
        self._producers: dict[str, None] = {}
        self._free: set[str] = set()  # names of `inputs` that were arguments
        self._connects: set[str] = set()  # names of arguments that `connect` has, too

    def append(self, module: ir.Module, what: str) -> None:
        """One more stage. CompileError: it does not fit."""
        if len(module.functions) != 1:
            raise CompileError(
                f"{what} has {len(module.functions)} functions ({', '.join(module.functions)}): "
                "expected exactly one"
            )
        name_ends(module)
        (function,) = module.functions.values()
        given = self._connected(function, what)
        _check_types(function, given, what)
        self._set_dims(function, given, what)
        operands = self._operands(function, given, what)
        self._builder.ops += function.block.ops[:-1]
        self._replace(function.block, operands)
        results = function.block.terminator.operands
        self._last = dict(zip(function.result_names, results, strict=True))
        self._made |= self._last
        self._add_variables(module, what)
        self._producers[str(module.attributes.get("producer", ""))] = None

    def finish(self) -> ir.Module:
        chain, results = self._chain, dict(self._last)
        unknown = [f"argument '{name}'" for name in chain.connect if name not in self._connects]
        unknown += [f"output '{name}'" for name in chain.outputs if name not in self._made]
        unknown += [f"input '{name}'" for name in chain.inputs if name not in self._free]
        if unknown:
            raise CompileError(
                f"the chain has no {', '.join(unknown)}: its results are "
                f"{', '.join(self._made)}; inputs and what connect names are arguments of later "
                "stages"
            )
        for name in chain.outputs:
            results.setdefault(name, self._made[name])
        self._builder.return_(*results.values())
        names = distinct_names(self._names)
        region = ir.Region([self._block])
        self._module.add(ir.Function("main", region, names, list(results), symbols=self._bounds))
        self._module.attributes["producer"] = ", ".join(filter(None, self._producers))
        return self._module

    def _connected(self, function: ir.Function, what: str) -> list[Value | None]:
        """What each argument takes; None for one that stays an argument."""
        names = function.argument_names
        if not self._names and not self._made:
            return [None] * len(names)
        chain = self._chain
        wanted = {name: chain.connect.get(name, name) for name in names}
        rest = [name for name in names if name not in chain.inputs]
        found = {name: self._made[wanted[name]] for name in rest if wanted[name] in self._made}
        named = chain.connect.keys() & set(rest)
        self._connects |= named
        if not found and not named and len(rest) == len(self._last):
            found = dict(zip(rest, self._last.values(), strict=True))
        missing = [name for name in rest if name not in found]
        if missing:
            raise CompileError(
                f"{what} takes {', '.join(map(repr, missing))}, which no stage before it gives; "
                f"the one before gives {', '.join(map(repr, self._last))}: name the result with "
                "connect={'argument': 'result'}, or the argument in inputs=[...] if the caller "
                "gives it"
            )
        self._free.update(name for name in names if name in chain.inputs)
        return [found.get(name) for name in names]

    # ---- dims

    def _set_dims(self, function: ir.Function, given: Sequence[Value | None], what: str) -> None:
        """Put the dims of what it takes for its symbols; others get names of their own."""
        fresh = inner_symbols(function)
        names = {
            name: self._unused(name)
            for name in (*function.symbols, *sorted(fresh))
            if name in self._taken
        }
        rename_symbols(function, names)
        bounds = {names.get(name, name): limits for name, limits in function.symbols.items()}
        known = _solved(function, given, bounds.keys())
        for name, limits in bounds.items():
            if name in known:
                self._limit(known[name], limits, f"{what}: the dim '{name}'")
            else:
                self._bounds[name] = limits
        self._taken |= bounds.keys() | {names.get(name, name) for name in fresh}
        substitute_symbols(function, known)

    def _unused(self, name: str) -> str:
        number = 2
        while f"{name}_{number}" in self._taken:
            number += 1
        return f"{name}_{number}"

    def _limit(self, dim: Dim, limits: tuple[int, int | None], what: str) -> None:
        """The range that a stage asks of a dim. CompileError: it is never in it."""
        low, high = limits
        least, most = dims.bounds(dim, self._bounds)
        if most < low or (high is not None and least > high):
            raise CompileError(f"{what} is {dim}, expected {low} ... {high or ''}")
        if least < low:
            self._builder.append("assert", (), (), {"kind": "le", "a": low, "b": dim})
        if high is not None and most > high:
            self._builder.append("assert", (), (), {"kind": "le", "a": dim, "b": high})

    def _operands(
        self, function: ir.Function, given: Sequence[Value | None], what: str
    ) -> list[Value]:
        """What the arguments become. Dims that are not proven equal are checked by the call."""
        operands: list[Value] = []
        emitter = Emitter(self._builder)
        for argument, name, value in zip(
            function.arguments, function.argument_names, given, strict=True
        ):
            if value is None:
                new = Value(argument.type, self._block, name)
                self._block.arguments.append(new)
                self._names.append(name)
                operands.append(new)
            elif isinstance(argument.type, TensorType):
                with self._builder.at(f"{what}: '{name}'"):
                    operands.append(emitter.agree(value, argument.type.shape))
            else:
                operands.append(value)
        return operands

    @staticmethod
    def _replace(block: ir.Block, operands: Sequence[Value]) -> None:
        values = dict(zip(block.arguments, operands, strict=True))
        for op in ir.walk(block):
            op.operands = [values.get(each, each) for each in op.operands]

    def _add_variables(self, module: ir.Module, what: str) -> None:
        for name, variable in module.variables.items():
            if name in self._module.variables:
                raise CompileError(
                    f"{what} has the variable '{name}', as a stage before it does: stages that "
                    "keep state of one name cannot be joined"
                )
            self._module.variables[name] = variable


def _check_types(function: ir.Function, given: Sequence[Value | None], what: str) -> None:
    """CompileError that lists the arguments that cannot be what they are given."""
    problems: list[str] = []
    for argument, name, value in zip(
        function.arguments, function.argument_names, given, strict=True
    ):
        if value is not None:
            problems += _misfits(argument.type, value.type, f"'{name}' of {what}")
    if problems:
        raise CompileError("\n  ".join(["the stages do not fit:", *problems]))


def _misfits(wanted: ir.Type, got: ir.Type, what: str) -> Iterator[str]:
    told = f"{what} is {wanted}, but it is given {got}"
    if not isinstance(wanted, TensorType) or not isinstance(got, TensorType):
        if wanted != got:
            yield told
        return
    if wanted.dtype is not got.dtype:
        yield f"{told}: convert it to {wanted.dtype} in a stage between them"
    elif wanted.rank != got.rank:
        yield f"{told}: the ranks differ"
    else:
        for axis, (a, b) in enumerate(zip(wanted.shape, got.shape, strict=True)):
            if isinstance(a, int) and isinstance(b, int) and a != b:
                yield f"{told}: dim {axis} is {b}, expected {a}"


def _solved(function: ir.Function, given: Sequence[Value | None], names: Any) -> dict[str, Dim]:
    """The symbols of the function that follow from what it takes. Dims that are one symbol tell
    most; of others one unknown symbol is solved for, and the call checks the rest."""
    pairs: list[tuple[Dim, Dim]] = []
    for argument, value in zip(function.arguments, given, strict=True):
        if value is not None and isinstance(argument.type, TensorType):
            pairs += zip(argument.type.shape, tensor_type(value).shape, strict=True)
    known: dict[str, Dim] = {}
    for name in names:
        known.update((name, got) for wanted, got in pairs[::-1] if wanted == symbol(name))
    progress = True
    while progress:
        progress = False
        for wanted, got in pairs:
            unknown = (symbols_of(wanted) & set(names)) - known.keys()
            linear = dims.linear_in(wanted, next(iter(unknown))) if len(unknown) == 1 else None
            if linear is not None:
                rest = dims.substitute(linear[1], known)
                known[next(iter(unknown))] = dims.floordiv(got - rest, linear[0])
                progress = True
    return known
