"""Find everything in a program that cannot be lowered, before anything is built.

One error lists all of it: op, layer, types, reason, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.frontends.problems import Problem, list_problems
from ingot.compiler.frontends.stablehlo.called import followed_function
from ingot.compiler.frontends.stablehlo.lowering import LOWERINGS, well_formed
from ingot.compiler.frontends.stablehlo.lowerings.complex import complex_problem, is_complex
from ingot.compiler.frontends.stablehlo.lowerings.control import CONTROL_OPS
from ingot.compiler.frontends.stablehlo.lowerings.rare import REFUSED
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceBlock,
    SourceFunction,
    SourceOp,
    SourceProgram,
    SourceType,
    TensorType,
)
from ingot.compiler.frontends.stablehlo.tuples import TUPLE_OPS, elements_of
from ingot.compiler.frontends.survey import Survey, Use
from ingot.hal.errors import CompileError
from ingot.hal.spec import DTYPES

__all__ = ["scan"]

_HELP = "rewrite these layers with other ops"


def scan(program: SourceProgram, survey: Survey | None = None) -> None:
    """Raise one CompileError that lists every op that cannot be lowered; else nothing. A `survey`
    gets every op, also then."""
    missing: list[Problem] = []
    for function in _reached(program):
        if survey is not None:
            survey.uses += _uses(function, program)
        for argument in function.arguments:
            problem = _type_problem(argument.type, tuples=True)
            if problem:
                name = argument.location or "without name"
                missing.append(Problem(f"argument {name} of '{function.name}': {problem}"))
        missing.extend(
            Problem(f"{_describe(op)}: {problem}", (op.full_name, problem), _place(op))
            for op, problem in _problems(function.body, program)
        )
    lines = list_problems(missing)
    if lines:
        count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
        raise CompileError("\n  ".join([f"cannot compile the program: {count}", *lines, _HELP]))


def _uses(function: SourceFunction, program: SourceProgram) -> Iterator[Use]:
    problems = {id(op): problem for op, problem in _problems(function.body, program)}
    for op in function.body.walk():
        if op.name != "return":
            types = tuple(str(value.type) for value in op.operands)
            yield Use(op.full_name, types, _place(op), problems.get(id(op), ""))


def _reached(program: SourceProgram) -> list[SourceFunction]:
    """The public functions and all that they call."""
    names = [name for name, function in program.functions.items() if function.public]
    for name in names:  # grows while it runs
        for op in program.functions[name].body.walk():
            callee = followed_function(op)
            if callee in program.functions and callee not in names:
                names.append(callee)
    return [program.functions[name] for name in names]


def _problems(block: SourceBlock, program: SourceProgram) -> Iterator[tuple[SourceOp, str]]:
    for op in block.ops:
        if op.name == "return":
            continue
        if op.name in CONTROL_OPS:
            for inner in (each for region in op.regions for each in region):
                yield from _problems(inner, program)
        row = LOWERINGS.get(op.full_name)
        types = [value.type for value in (*op.operands, *op.results)]
        problems = (_type_problem(type, op.name in TUPLE_OPS) for type in types)
        bad_type = next((problem for problem in problems if problem), None)
        callee = followed_function(op)
        if is_complex(op) and not bad_type and not op.undecoded:
            with well_formed(_describe(op)):
                reason = complex_problem(op, program)
            if reason:
                yield op, reason
        elif row is None:
            yield op, REFUSED.get(op.full_name, "this op is not supported")
        elif op.undecoded:
            yield op, f"version {op.version} of this op is newer than this reader"
        elif bad_type:
            yield op, bad_type
        elif callee is not None and callee not in program.functions:
            yield op, f"the function '{callee}' that it stands for has no body in the artifact"
        elif row.check is not None:
            with well_formed(_describe(op)):
                reason = row.check(op, program)
            if reason:
                yield op, reason


def _type_problem(type: SourceType, tuples: bool = False) -> str | None:
    elements = elements_of(type) if tuples else None
    if elements is not None:
        problems = (_type_problem(each, tuples) for each in elements)
        return next((problem for problem in problems if problem), None)
    if not isinstance(type, TensorType):
        return f"values of type {type} are not supported"
    if type.element not in DTYPES:
        return f"the dtype {type.element} is not supported; convert to a supported one"
    return None


def _place(op: SourceOp) -> str:
    return op.location.rstrip(":")


def _describe(op: SourceOp) -> str:
    name = op.full_name
    if op.name == "composite":
        name = f"composite '{op.attributes.get('name')}'"
    place = f" at '{_place(op)}'" if op.location else ""
    operands = ", ".join(str(value.type) for value in op.operands)
    results = ", ".join(str(value.type) for value in op.results)
    return f"{name}{place} ({operands}) -> ({results})"
