"""The loop level for the verifier: which ops are legal, what their types must be, and what a
kernel may touch.

Compiles verify kernels where the IR is dumped, or INGOT_VERIFY_KERNELS is set, as in all tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ingot.compiler.graph.ops.table import OPS, RuleError, require
from ingot.compiler.ir import (
    Block,
    Function,
    IndexType,
    Level,
    MemoryType,
    Module,
    Op,
    ScalarType,
    Type,
    VectorType,
    verify,
    walk,
)
from ingot.compiler.ir.attributes import Attributes
from ingot.compiler.kernels.check_barriers import check_barriers
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.compiler.kernels.table import (
    LOOP_OPS,
    For,
    LoopRow,
    Offset,
    Ordinal,
    elementwise_types,
    is_elementwise,
)
from ingot.hal.errors import CompileError

__all__ = ["verify_function", "verify_kernel"]


def verify_kernel(kernel: Kernel) -> None:
    """CompileError lists everything that is wrong with the loop IR of a kernel, by op and rule."""
    module = Module()
    module.add(kernel.loops)
    verify(module, _LOOP)
    errors = [f"'@{kernel.name}': op '{op.name}': {each}" for op, each in _misuses(kernel)]
    if errors:
        raise CompileError("the module is no valid loop IR:\n  " + "\n  ".join(errors))
    check_barriers(kernel.loops)


def verify_function(function: Function) -> None:
    """The same for a math function: registers in, one register out, and nothing beside."""
    module = Module()
    module.add(function)
    verify(module, _LOOP)
    allowed = {"loop.if", "loop.any", "loop.fma", "loop.constant", "yield", "return"}
    wrong = [
        f"op '{op.name}' has no place in a function"
        for op in walk(function)
        if not (op.name in allowed or op.name in MATH_FUNCTIONS or is_elementwise(op.name))
    ]
    if len(function.result_types) != 1:
        wrong.append(f"gives {len(function.result_types)} values, expected one")
    if wrong:
        raise CompileError(f"'@{function.name}' is no valid math function: " + "; ".join(wrong))


# Single ops.


def _element(type: Type) -> str:
    return type.dtype.name if isinstance(type, (ScalarType, VectorType)) else ""


def _is_scalar(type: Type, element: str) -> bool:
    return isinstance(type, ScalarType) and type.dtype.name == element


_KINDS: dict[str, Callable[[Type], bool]] = {
    "memory": lambda type: isinstance(type, MemoryType),
    "index": lambda type: isinstance(type, IndexType) or _is_scalar(type, "i64"),
    "indices": lambda type: isinstance(type, IndexType) or _element(type) == "i64",
    "i64 or u8 vector": lambda type: (
        isinstance(type, VectorType) and _element(type) in ("i64", "u8")
    ),
    "i64 vector": lambda type: isinstance(type, VectorType) and _element(type) == "i64",
    "i1": lambda type: _is_scalar(type, "i1"),
    "mask": lambda type: _element(type) == "i1",
    "scalar": lambda type: isinstance(type, (ScalarType, IndexType)),
    "vector": lambda type: isinstance(type, VectorType),
    "value": lambda type: isinstance(type, (ScalarType, VectorType, IndexType)),
}


def _check_operands(row: LoopRow, op: Op) -> None:
    least = sum(1 for _, is_free, _ in row.kinds if not is_free)
    is_open = bool(row.kinds) and row.kinds[-1][2]
    count = len(op.operands)
    if count < least or (count > len(row.kinds) and not is_open):
        raise RuleError(f"takes the operands ({', '.join(row.operands)}), got {count}")
    for place, value in enumerate(op.operands):
        kind = row.kinds[min(place, len(row.kinds) - 1)][0]
        require(_KINDS[kind](value.type), f"operand {place} is {value.type}, expected: {kind}")


def _check_attributes(wanted: type[Attributes], op: Op) -> None:
    require(isinstance(op.attributes, wanted), f"has {type(op.attributes).__name__}")


def _check_loop_op(op: Op) -> None:
    row = LOOP_OPS[op.name]
    _check_attributes(row.attributes, op)
    _check_operands(row, op)
    require(
        len(op.regions) == row.region_count,
        f"takes {row.region_count} regions, got {len(op.regions)}",
    )
    for region in op.regions:
        require(len(region.blocks) == 1, "takes regions of one block")
    _check_results(op, row.rule(op))


def _check_elementwise(op: Op) -> None:
    for place, value in enumerate(op.operands):
        require(_KINDS["value"](value.type), f"operand {place} is {value.type}")
    _check_attributes(OPS[op.name].attributes, op)
    _check_results(op, elementwise_types(op))


def _check_results(op: Op, wanted: tuple[Type, ...]) -> None:
    given = tuple(result.type for result in op.results)
    if given != wanted:
        texts = (", ".join(map(str, each)) or "none" for each in (given, wanted))
        raise RuleError("has the results ({}), but the op table says ({})".format(*texts))
    for each in wanted:
        if isinstance(each, VectorType):
            whole = each.lanes > 1 and each.lanes & (each.lanes - 1) == 0
            require(whole, f"gives {each}: a vector has 2, 4, 8, ... lanes")


_LOOP = Level(
    "loop",
    {
        **dict.fromkeys(LOOP_OPS, _check_loop_op),
        **dict.fromkeys(filter(is_elementwise, OPS), _check_elementwise),
    },
)


# Whole kernels.


def _misuses(kernel: Kernel) -> Iterator[tuple[Op, str]]:
    """What ops ask for that the kernel has not, or must not do."""
    if kernel.loops.arguments:
        yield kernel.loops.block.ops[0], "the kernel takes arguments: its operands are bindings"
    if kernel.loops.block.terminator.name != "return":
        yield kernel.loops.block.terminator, "a kernel ends in a return"
    if kernel.scratch_length > MOST_SCRATCH:
        what = f"the kernel has {kernel.scratch_length} bytes of scratch, more than {MOST_SCRATCH}"
        yield kernel.loops.block.ops[0], what
    yield from _shapeless(kernel.loops.block, False)
    for op in walk(kernel.loops):
        if op.name == "return" and op is not kernel.loops.block.terminator:
            yield op, "stands in a region"
        if op.name == "return" and op.operands:
            yield op, "gives values: only functions do, a kernel stores its results"
        yield from ((op, each) for each in _misuse(kernel, op))


def _shapeless(block: Block, is_shaped: bool) -> Iterator[tuple[Op, str]]:
    """Products of tiles without a shape, and shapes of tiles that have one."""
    for op in block.ops:
        if op.name == "loop.shape_tiles":
            if is_shaped:
                yield op, "stands more than once in front of the same ops"
            is_shaped = True
        if op.name in ("loop.dot_tiles", "loop.dot_parts", "loop.multiply_tile") and not is_shaped:
            yield op, "has no loop.shape_tiles in front of it"
        for region in op.regions:
            yield from _shapeless(region.block, is_shaped)


def _misuse(kernel: Kernel, op: Op) -> Iterator[str]:
    match op.name:
        case "loop.dim":
            yield from _bounded(
                "ordinal", Ordinal.of(op).ordinal, len(kernel.constants), "constants"
            )
        case "loop.binding":
            ordinal, count = Ordinal.of(op).ordinal, len(kernel.bindings)
            yield from _bounded("ordinal", ordinal, count, "bindings")
        case "loop.scratch":
            length, what = kernel.scratch_length, "bytes of scratch memory"
            yield from _bounded("offset", Offset.of(op).offset, length, what)
        case "loop.local":
            length, what = kernel.local_length, "bytes of local memory"
            yield from _bounded("offset", Offset.of(op).offset, length, what)
        case "loop.store":
            yield from _misuse_of_store(kernel, op)
        case "loop.poll" | "loop.for":
            polls = op.name == "loop.poll" or For.of(op).poll
            if polls and kernel.local_size != (1, 1, 1):
                yield "polls, but would end one item of a group before the others"


def _misuse_of_store(kernel: Kernel, op: Op) -> Iterator[str]:
    memory = op.operands[0].owner
    if isinstance(memory, Op) and memory.name == "loop.binding":
        ordinal = Ordinal.of(memory).ordinal
        if not kernel.written >> ordinal & 1:
            yield f"stores into binding {ordinal}, which is an operand"


def _bounded(name: str, value: int, limit: int, what: str) -> Iterator[str]:
    if not 0 <= value < limit:
        yield f"its {name} is {value}, but the kernel has {limit} {what}"
    elif name == "offset" and value % 64:
        yield f"its offset is {value}, no multiple of 64"
