"""Lowerings of ops that stand for others: calls, composites, custom calls, chlo ops.

Functions are inlined: each call sees its own sizes. A composite or custom call with a known
name becomes a graph op; another composite is replaced by its decomposition.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.own_ops import (
    ADVICE,
    OwnLowering,
    find_own,
    lower_own,
    split_name,
)
from ingot.compiler.frontends.stablehlo.called import UNARY_NAMES, count_of_top_k, unary_name
from ingot.compiler.frontends.stablehlo.lowering import (
    Context,
    Lowered,
    Result,
    ints,
    lowering,
)
from ingot.compiler.frontends.stablehlo.lowerings.elementwise import ordered_bits
from ingot.compiler.frontends.stablehlo.lowerings.lapack import call_lapack, is_lapack
from ingot.compiler.frontends.stablehlo.lowerings.random import check_generator, rng_bit_generator
from ingot.compiler.frontends.stablehlo.lowerings.sparse import (
    SPARSE_PRODUCT,
    check_sparse_product,
    sparse_product,
)
from ingot.compiler.frontends.stablehlo.lowerings.window import (
    check_dynamic_reduce_window,
    dynamic_reduce_window,
)
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram, TensorType
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__: list[str] = []

_IDENTITIES = frozenset(
    {
        *("LayoutConstraint", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"),
        "annotate_device_placement",
    }
)
_PYTHON = "xla_ffi_python_"  # and a device, and "callback"

_WINDOW = "stablehlo.dynamic_reduce_window"
_TOP_K = "ApproxTopK"
_RANDOM = "stablehlo.dynamic_rng_bit_generator"

_DIVIDENDS = (-13, -12, -7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 12, 13)


@lowering("call")
def call(context: Context, op: SourceOp) -> list[Lowered]:
    arguments = [context.lowered(op, place) for place in range(len(op.operands))]
    return _floor_division(context, op, arguments) or context.inline(
        str(op.attributes["callee"]), op, arguments
    )


def _floor_division(
    context: Context, op: SourceOp, arguments: list[Lowered]
) -> list[Lowered] | None:
    """Quotient and remainder in dims, if the function called is the divmod of jax.

    It rounds down by a select on the remainder, which does not fold where the dividend may be
    negative; so the function is recognised by what it gives for integers.
    """
    if len(arguments) < 2 or len(op.results) != 2:
        return None
    dividend, divisor = (context.known(each) or () for each in arguments[-2:])
    if len(divisor) != 1 or len(dividend) != 1:
        return None
    if not isinstance(divisor[0], int) or divisor[0] < 1:
        return None
    if dims.prove_le(0, dividend[0], context.symbols.bounds):
        return None
    element = tensor_type(context.value(arguments[-2])).dtype
    aside = replace(context, builder=Builder([]))
    for sample in _DIVIDENDS:
        number = Lowered(aside.builder.constant(sample, element))
        numbers = [*arguments[:-2], number, arguments[-1]]
        results = aside.inline(str(op.attributes["callee"]), op, numbers)
        expected = [(part,) for part in divmod(sample, divisor[0])]
        if [aside.known(result) for result in results] != expected:
            return None
    quotient, rest = dims.floordiv(dividend[0], divisor[0]), dims.modulo(dividend[0], divisor[0])
    return [Lowered(context.builder.number(each, element)) for each in (quotient, rest)]


@lowering("composite")
def composite(context: Context, op: SourceOp) -> list[Value] | list[Lowered]:
    name = unary_name(op)
    if name is not None:
        return [context.builder.op(name, context.operand(op, 0))]
    count = count_of_top_k(op)
    if count is not None:
        return _top_k(context, op, count, len(op.operands[0].tensor.shape) - 1)
    arguments = [context.lowered(op, place) for place in range(len(op.operands))]
    return context.inline(str(op.attributes["decomposition"]), op, arguments)


def _top_k(
    context: Context, op: SourceOp, count: int, axis: int, largest: bool = True
) -> list[Value]:
    """The greatest or least elements in the total order of their bits, which tells -0 from 0 and
    NaN from -NaN: floats are taken as integers in that order, and back."""
    x = context.operand(op, 0)
    type = tensor_type(x)
    index_type = op.results[1].tensor
    integer = dtype(f"i{type.dtype.bits}") if type.dtype.is_float else None
    if integer is not None:
        x = ordered_bits(context, context.builder.op("bitcast", x, dtype=integer))
    index = dtype(index_type.element)
    values, indices = context.builder.op(
        "top_k", x, k=count, axis=axis, largest=largest, dtype=index
    )
    if integer is not None:
        values = context.builder.op("bitcast", ordered_bits(context, values), dtype=type.dtype)
    return [values, indices]


@lowering(*(name for name in UNARY_NAMES if name.startswith("chlo.")))
def chlo_unary(context: Context, op: SourceOp) -> Value:
    return context.builder.op(UNARY_NAMES[op.full_name], context.operand(op, 0))  # type: ignore[no-any-return]


def _check_approximate_top_k(op: SourceOp, program: SourceProgram) -> str | None:
    """Of a call that jax writes the second operand counts the elements of the first."""
    axis = op.attributes["mhlo.backend_config"]["reduction_dim"]
    places = op.operands[1].producer
    if places is None or places.attributes.get("iota_dimension") != axis:
        return f"the custom call '{_TOP_K}' of places that are not those of its operand"
    return None if _prefers_greater(op, program) is not None else f"the order of '{_TOP_K}'"


def _prefers_greater(op: SourceOp, program: SourceProgram) -> bool | None:
    """Whether the function that compares two elements puts the greater one first."""
    comparator = program.functions[str(op.attributes["called_computations"][0])].body.ops
    direction = comparator[0].attributes.get("comparison_direction")
    return {"GT": True, "LT": False}.get(str(direction))


def _approximate_top_k(context: Context, op: SourceOp) -> list[Value]:
    """The exact ones, as many as are asked for, or as the approximation would leave."""
    axis = int(op.attributes["mhlo.backend_config"]["reduction_dim"])
    count, greater = op.results[0].tensor.shape[axis], _prefers_greater(op, context.program)
    assert count is not None
    return _top_k(context, op, count, axis, bool(greater))


def _check_custom_call(op: SourceOp, program: SourceProgram) -> str | None:
    target = op.attributes.get("call_target_name")
    if target == _WINDOW:
        return check_dynamic_reduce_window(op, program)
    if target == _RANDOM:
        return check_generator(op, program)
    if target == _TOP_K:
        return _check_approximate_top_k(op, program)
    if target == "shape_assertion" or target in UNARY_NAMES or target in _IDENTITIES:
        return None
    if is_lapack(target):
        return None
    if str(target).endswith(SPARSE_PRODUCT):
        return check_sparse_product(op)
    if find_own(*split_name(str(target))) is not None:
        return None
    if str(target).startswith(_PYTHON):
        return (
            "it calls Python, as jax.debug.print, jax.pure_callback and io_callback do: leave it "
            "out, or call a function of the application with jax.ffi.ffi_call and natives="
        )
    return f"the custom call '{target}': {ADVICE}"


@lowering("custom_call", check=_check_custom_call)
def custom_call(context: Context, op: SourceOp) -> Result:
    target = str(op.attributes["call_target_name"])
    if target in UNARY_NAMES:
        return [context.builder.op(UNARY_NAMES[target], context.operand(op, 0))]
    if target in _IDENTITIES:
        return [context.lowered(op, 0)]
    if target == _WINDOW:
        return dynamic_reduce_window(context, op)
    if target == _RANDOM:
        return rng_bit_generator(context, op)
    if target == _TOP_K:
        return _approximate_top_k(context, op)
    if is_lapack(target):
        return call_lapack(context, op)
    if target.endswith(SPARSE_PRODUCT):
        return [sparse_product(context, op)]
    own = find_own(*split_name(target))
    if own is not None:
        return _call_own(context, op, own)
    _assert(context, op)
    return []


def _call_own(context: Context, op: SourceOp, own: OwnLowering) -> list[Value]:
    """The user's function on what `backend_config` says and on the operands, without those that jax
    adds where the shape of a result is symbolic."""
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))
    if not isinstance(config, dict):
        config = {"backend_config": config} if config else {}
    shapes = ints(op.attributes.get("indices_of_shape_operands", ()))
    operands = [x for place, x in enumerate(context.operands(op)) if place not in shapes]
    try:
        found = lower_own(own, context.builder, context.symbols.fresh, operands, config)
    except (CompileError, UnsupportedNode) as error:
        raise CompileError(f"{context.describe(op)}: {error}") from None
    expected = [str(result.type) for result in op.results]
    types = [tensor_type(value) for value in found]
    fits = [
        isinstance(result.type, TensorType)
        and result.type.element == type.dtype.name
        and len(result.type.shape) == type.rank
        for result, type in zip(op.results, types, strict=False)
    ]
    if len(types) != len(expected) or not all(fits):
        raise CompileError(
            f"{context.describe(op)}: its lowering gives {', '.join(map(str, types))}, but the "
            f"program takes {', '.join(expected)}"
        )
    return found


def _assert(context: Context, op: SourceOp) -> None:
    """What holds for all that follows: a fact of the symbols, or a check of the call."""
    truth = context.amounts.truth(context.operand(op, 0))
    message = op.attributes.get("error_message")
    if truth is None:
        holds = context.builder.value("convert", context.operand(op, 0), dtype=dtype("i64"))
        what = f"the assertion '{message}'" if message else "the assertion"
        attributes = {"symbols": (context.symbols.fresh("holds"),), "low": 1, "high": 1}
        context.builder.append("size", (holds,), (), {**attributes, "what": what})
        return
    what = f"{context.describe(op)} ({message})" if message else context.describe(op)
    for atom in context.symbols.assume(truth, what):
        less, more = dims.signs(atom.difference)
        kind = "equal" if atom.direction == "eq" else "le"
        context.builder.append("assert", (), (), {"kind": kind, "a": less, "b": more})
