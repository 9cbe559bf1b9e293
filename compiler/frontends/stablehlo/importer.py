"""Import a StableHLO program: read, scan, lower each public function, name its ends.

All functions are inlined into the public ones. The import of a function starts again when
it learns that two symbolic dims are one (see `symbols.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.inlining import check_calls
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.stablehlo import (  # noqa: F401 - these fill the table
    lowerings,
    tuples,
)
from ingot.compiler.frontends.stablehlo.called import followed_function
from ingot.compiler.frontends.stablehlo.lowering import (
    LOWERINGS,
    Context,
    Lowered,
    Result,
    well_formed,
)
from ingot.compiler.frontends.stablehlo.lowerings.complex import is_complex, lower_complex
from ingot.compiler.frontends.stablehlo.lowerings.quantized import is_quantized, lower_quantized
from ingot.compiler.frontends.stablehlo.reading.bytecode import read_artifact
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceBlock,
    SourceFunction,
    SourceOp,
    SourceProgram,
    TensorType,
)
from ingot.compiler.frontends.stablehlo.scan import scan
from ingot.compiler.frontends.stablehlo.signature import (
    argument_names,
    exported_paths,
    result_names,
    symbol_prefixes,
)
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Block, Function, Module, Region, Value, dims
from ingot.compiler.ir import TensorType as GraphTensorType
from ingot.compiler.ir.dims import Dim
from ingot.compiler.ir.renamed_dims import FunctionAttributes
from ingot.hal.errors import CompileError, DataLoss, NotFound
from ingot.hal.spec import dtype

__all__ = ["import_stablehlo"]


def import_stablehlo(
    source: bytes | bytearray | memoryview | str | Path | Any,
    survey: Survey | None = None,
    is_shown: bool = False,
) -> Module:
    """The graph IR of a portable artifact (bytes or a path) or of a jax.export.Exported.

    Every public function is exported, with the names of its arguments and results. Raises
    CompileError that lists all ops that cannot be lowered, DataLoss for a corrupted artifact. A
    `survey` gets the ops before that. With `is_shown` what ops outside of regions give are results
    too, behind the others, but for what is complex or known at import. Their names are where the op
    stands, its number in `main` or, after a dot, in what the op before calls; that of the result
    after a colon; and the location.
    """
    data, paths = _data(source)
    program = read_artifact(data)
    scan(program, survey)
    module = Module(attributes={"producer": f"StableHLO {program.version}"})
    reducers = _called_computations(program)
    for function in program.functions.values():
        if function.public and function.name not in reducers:
            module.add(_import_function(program, function, paths, is_shown))
    if not module.functions:
        raise CompileError("the StableHLO program has no public function to compile")
    add_position(module)
    return module


def _called_computations(program: SourceProgram) -> set[str]:
    """The functions that custom calls name, which are no entries though jax makes them public."""
    ops = (op for function in program.functions.values() for op in function.body.walk())
    with well_formed("a custom call"):
        return {str(name) for op in ops for name in op.attributes.get("called_computations", ())}


def _data(source: Any) -> tuple[Any, list[str]]:
    """The bytes of a source, and the argument paths of a jax export."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return source, []
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            raise NotFound(f"there is no file '{path}'; give the path of a StableHLO artifact")
        data = path.read_bytes()  # not mapped: a file that is cut meanwhile would kill the process
        if not data:
            raise DataLoss(f"the StableHLO artifact '{path}' is empty; export the model again")
        return data, []
    if hasattr(source, "mlir_module_serialized"):
        return source.mlir_module_serialized, exported_paths(source)
    raise CompileError(
        f"cannot import {type(source).__name__}: expected bytes or a path of a StableHLO "
        "artifact, or a jax.export.Exported"
    )


def _import_function(
    program: SourceProgram, function: SourceFunction, paths: Sequence[str], is_shown: bool
) -> Function:
    names = argument_names(program, function, paths)
    symbols = Symbols()
    while True:
        symbols.start()
        try:
            return _build(program, function, names, symbols, is_shown)
        except Restart:
            continue


def _called(block: SourceBlock) -> Iterator[str]:
    return (name for op in block.walk() if (name := followed_function(op)) is not None)


def _body(program: SourceProgram, name: str) -> tuple[int, Iterator[str]]:
    function = program.functions.get(name)
    return (0, iter(())) if function is None else (len(function.body.ops), _called(function.body))


def _build(
    program: SourceProgram,
    function: SourceFunction,
    names: Sequence[str],
    symbols: Symbols,
    is_shown: bool,
) -> Function:
    prefixes = symbol_prefixes(names)
    rest, types = iter(prefixes), []
    for argument in function.arguments:
        for leaf in tuples.leaf_types(argument.type):
            types.append(_argument_type(leaf, next(rest), symbols))
    block = Block(types)
    for value, name in zip(block.arguments, names, strict=True):
        value.name = name
    made = iter(block.arguments)
    arguments = [tuples.gathered(each.type, made) for each in function.arguments]
    check_calls(_called(function.body), lambda name: _body(program, name))
    context = Context(program, Builder(block), Amounts(symbols), _lower_ops)
    context.values.update(zip(function.arguments, arguments, strict=True))
    shown: dict[str, Value] = {}
    if is_shown:
        context.listener = partial(_show, _places(program), shown)
    results = [context.value(each) for each in tuples.leaves(_lower_ops(context, function.body))]
    context.builder.return_(*results, *shown.values())
    used: set[str] = set().union(
        *(dims.symbols_of(dim) for value in block.arguments for dim in tensor_type(value).shape)
    )
    return Function(
        function.name,
        Region([block]),
        list(names),
        [*result_names(function), *shown],
        symbols={name: symbols.bounds.get(name, (0, None)) for name in sorted(used)},
        attributes=FunctionAttributes(symbols.renamed()),
    )


def _places(program: SourceProgram) -> dict[SourceOp, int]:
    """Which op of its function each is; those in regions are left out."""
    bodies = (function.body.ops for function in program.functions.values())
    return {op: place for ops in bodies for place, op in enumerate(ops)}


def _show(
    places: Mapping[SourceOp, int],
    shown: dict[str, Value],
    context: Context,
    op: SourceOp,
    results: Sequence[Lowered],
) -> None:
    """Notes what an op of `main`, or of a function that is called, gives."""
    path = (*context.calls, op)
    if all(each in places for each in path):
        place = ".".join(str(places[each]) for each in path)
        for number, each in enumerate(results):
            if each.value is not None:
                shown[f"{place}:{number} {context.location(op)}"] = each.value


def _argument_type(type: Any, prefix: str, symbols: Symbols) -> GraphTensorType:
    """The type of an argument; a dynamic dim is a symbol of its own or what is known of it."""
    assert isinstance(type, TensorType)
    shape: list[Dim] = []
    for axis, dim in enumerate(type.shape):
        size = dim if dim is not None else symbols.argument(f"{prefix}_{axis}")
        limit = type.bounds[axis] if axis < len(type.bounds) else None
        if limit is not None:
            symbols.limit(size, 0, limit)
        shape.append(size)
    return GraphTensorType(dtype(type.element), tuple(shape))


def _lower_ops(context: Context, block: SourceBlock) -> list[Lowered]:
    """Lower all ops of a function or region; what its `return` gives."""
    for op in block.ops:
        if op.name == "return":
            return [context.lowered(op, place) for place in range(len(op.operands))]
        what = context.describe(op)
        with context.builder.at(context.location(op)), well_formed(what):
            result: Result
            if is_complex(op):
                result = lower_complex(context, op)
            elif is_quantized(op):
                result = lower_quantized(context, op)
            else:
                result = LOWERINGS[op.full_name].lower(context, op)
        results = [result] if isinstance(result, (Value, Lowered)) else list(result)
        if len(results) != len(op.results):
            raise context.error(op, f"expected {len(op.results)} results, got {len(results)}")
        all_lowered = [Lowered(each) if isinstance(each, Value) else each for each in results]
        for value, lowered in zip(op.results, all_lowered, strict=True):
            _check_type(context, op, value.type, lowered)
            _fold_size(context, lowered)
            context.values[value] = lowered
        if context.listener is not None:
            context.listener(context, op, all_lowered)
    raise CompileError("a function or region has no return; the artifact is not valid")


def _fold_size(context: Context, lowered: Lowered) -> None:
    """Make a size that was computed one op, however many it took."""
    value = lowered.value
    if value is None or not isinstance(value.type, GraphTensorType) or value.type.shape:
        return
    known = context.amounts.dims(value)
    if known is not None and isinstance(known[0], dims.Expr):
        lowered.value = context.builder.number(known[0], value.type.dtype)


def _check_type(context: Context, op: SourceOp, wanted: Any, lowered: Lowered) -> None:
    """Hold what was built against the type that the source declares."""
    if lowered.value is None or not isinstance(lowered.value.type, GraphTensorType):
        return
    if context.lifted is not None:
        return  # the artifact declares one element of it
    found = lowered.value.type
    assert isinstance(wanted, TensorType)
    if found.dtype.name != wanted.element or found.rank != len(wanted.shape):
        raise context.error(op, f"the artifact declares the result {wanted}, but it is {found}")
    shape = tuple(
        dim if declared is None else declared
        for declared, dim in zip(wanted.shape, found.shape, strict=True)
    )
    lowered.value = context.agree(op, lowered.value, shape)
