"""The debug section of a module: what was made of a program, for tools that show it.

It is one JSON object, compressed by zlib; the runtime skips it, and `ingot strip` takes it out.

    {"schema": "ingot.debug/1", "texts": [text, ...], "targets": {target: {
       "kernels": {kernel: {"kind", "constants", "workload", "variants": {variant: {
          "schedule": [name, [field, text], ...], "loops": place in texts, "source": the same,
          "tile", "local_size", "local_length", "scratch_length"}}}},
       "functions": {function: {"symbols": {name: [least, greatest or null]}, "peak",
          "commands": [command, ...], "results_from": {name: [source, ...]},
          "weights": [weight, ...], "memory": [range, ...]}}}}}

A command has the number `id`, an `op`, a `layer`, `operands` with a `type` and the sources
`from`, and `results` with a `type` and a `place`; a dispatch its `kernel`, `operations`, `flops`,
`bytes`, those `untouched` where results take the memory of operands, `workload`, and its
`alternatives` with the sizes for which they are there; control flow the commands of its `bodies`.
A source is the number of a command, or one of "argument", "weight" and "state" with a name. A
range of `memory` is an `Allocation`. Dims are integers, or formulas as text. Texts are shared,
since many kernels are alike; that of a kernel without code is empty.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ingot.compiler.dispatch.ops import SLOT_OPS, Slot
from ingot.compiler.graph.init_functions import is_init
from ingot.compiler.ir import Block, Function, Op, Value, to_text, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import described
from ingot.compiler.report import FunctionReport, TargetReport
from ingot.compiler.report_target import kernel_kind
from ingot.compiler.stream.homes import byte_length
from ingot.compiler.stream.ops import (
    Dispatch,
    GlobalBytes,
    ParameterOrdinal,
    Placed,
    PlannedNative,
    SharedBytes,
    VariableOrdinal,
)
from ingot.compiler.targets.target import Target, kernel_source
from ingot.compiler.vm.build_module import TargetCode
from ingot.hal.errors import CompileError

__all__ = ["DebugTarget", "debug_info"]

Source = int | tuple[str, str]

_WORK = {"stream.dispatch", "stream.native", "stream.copy", "update", "scalar.write"}
_WORK |= {"variable.store", *SLOT_OPS}
_CONTROL = ("if", "case", "while")


@dataclass(frozen=True)
class DebugTarget:
    """What was made for a target; `kernels` are per entry one for each of its variants."""

    target: Target
    code: TargetCode
    kernels: Mapping[str, Sequence[Kernel]]
    report: TargetReport


def debug_info(targets: Sequence[DebugTarget]) -> bytes:
    """The debug section."""
    texts: dict[str, int] = {}
    made = {
        each.target.name: {
            "kernels": {name: _kernel(name, each, texts) for name in each.kernels},
            "functions": {
                name: _function(function, each.report.functions[name], list(each.kernels))
                for name, function in each.code.planned.functions.items()
            },
        }
        for each in targets
    }
    document = {"schema": "ingot.debug/1", "texts": list(texts), "targets": made}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)


def _kernel(name: str, made: DebugTarget, texts: dict[str, int]) -> dict[str, Any]:
    column = made.kernels[name]
    variants = {
        variant.name: _variant(variant, kernel, texts)
        for variant, kernel in zip(made.target.variants, column, strict=True)
    }
    return {
        "kind": kernel_kind(column[0]),
        "constants": _plain(column[0].constants),
        "workload": _plain(column[0].workload),
        "variants": variants,
    }


def _variant(variant: Any, kernel: Kernel, texts: dict[str, int]) -> dict[str, Any]:
    try:
        source = kernel_source(variant, kernel)
    except CompileError:  # which the report of the target says
        source = ""
    loops = to_text(described(kernel))
    record = kernel.schedule
    names = [each.name for each in fields(record)] if is_dataclass(record) else []
    return {
        "schedule": [
            type(record).__name__,
            *([name, str(getattr(record, name))] for name in names),
        ],
        "loops": texts.setdefault(loops, len(texts)),
        "source": texts.setdefault(source, len(texts)),
        "tile": list(kernel.tile),
        "local_size": list(kernel.local_size),
        "local_length": kernel.local_length,
        "scratch_length": kernel.scratch_length,
    }


def _function(function: Function, report: FunctionReport, kernels: Sequence[str]) -> dict[str, Any]:
    walked = _Commands(function, kernels)
    return {
        "symbols": {name: list(ends) for name, ends in report.symbols.items()},
        "peak": _plain(report.peak),
        "commands": walked.block(function.block),
        "results_from": walked.results(),
        "weights": list(walked.weights.values()),
        "memory": [
            {
                "command": each.maker,
                "made_by": each.made_by,
                "layer": each.layer,
                "type": each.type,
                "offset": _plain(each.offset),
                "length": _plain(each.length),
                "begin": each.begin,
                "end": each.end,
            }
            for each in report.allocations
        ],
    }


class _Commands:
    """The work of a function at the stream level, and who makes what it reads. Numbers and views,
    which are no work, pass on where their operands come from."""

    def __init__(self, function: Function, kernels: Sequence[str]) -> None:
        self.function = function
        self.kernels = kernels  # in the order of their numbers
        self.ids = {op: place for place, op in enumerate(walk(function))}
        names = function.argument_names
        self.sources: dict[Value, tuple[Source, ...]] = {
            value: (("argument", name),)
            for value, name in zip(function.arguments, names, strict=False)
        }
        self.writers: dict[tuple[str, Any], Source] = {}  # the last of a slot or variable
        self.weights: dict[tuple[str, Any], dict[str, Any]] = {}
        self.makers: dict[int, list[Source]] = {}  # of results, which copies make too
        self.depth = 0  # of bodies, which may not run

    def block(self, block: Block) -> list[dict[str, Any]]:
        return [command for op in block.ops for command in self._op(op)]

    def results(self) -> dict[str, list[Source]]:
        if is_init(self.function.name):
            return {}
        operands = self.function.block.terminator.operands
        pairs = zip(self.function.result_names, operands, strict=False)
        return {
            name: self.makers.get(place) or list(self.sources.get(value, ()))
            for place, (name, value) in enumerate(pairs)
        }

    def _op(self, op: Op) -> Iterator[dict[str, Any]]:
        if op.name in _CONTROL:
            yield self._control(op)
        elif op.name in _WORK:
            yield self._work(op)
        else:
            found = self._origin(op) or self._from(op.operands)
            self.sources.update(dict.fromkeys(op.results, found))

    def _origin(self, op: Op) -> tuple[Source, ...]:
        """What is there before a call."""
        if op.name == "variable.load":
            name = VariableOrdinal.of(op).name
            return (self.writers.get(("variable", name), ("state", name)),)
        match op.attributes:
            case SharedBytes(offset=number) | ParameterOrdinal(number) | GlobalBytes(index=number):
                kind, name = op.name.removeprefix("stream."), op.result.name or op.location
            case _:
                return ()
        key = (kind, number)
        self.weights.setdefault(
            key,
            {
                "kind": kind,
                "key": key[1],
                "name": name,
                "type": str(op.result.type),
                "length": _plain(byte_length(op.result)),
            },
        )
        return (("weight", name),)

    def _from(self, values: Sequence[Value]) -> tuple[Source, ...]:
        return tuple(dict.fromkeys(each for v in values for each in self.sources.get(v, ())))

    def _work(self, op: Op) -> dict[str, Any]:
        command = self._record(op)
        found = op.attributes
        place: tuple[str, Any] | None = None
        if isinstance(found, Slot):
            place = "slot", found.slot
        elif isinstance(found, VariableOrdinal):
            place = "variable", found.name
        if place is not None:
            if place in self.writers:
                command["operands"].append({"type": place[0], "from": [self.writers[place]]})
            self.writers[place] = command["id"]
        if isinstance(found, Dispatch):
            command |= self._dispatch(found)
        if isinstance(found, PlannedNative):
            command |= {"operations": found.name}
            filled = range(found.slot, found.slot + found.slots)
            self.writers.update((("slot", slot), command["id"]) for slot in filled)
        self.sources.update(dict.fromkeys(op.results, (command["id"],)))
        for made in command["results"]:
            if made["place"] is not None and made["place"][0] == "result":
                self._make(made["place"][1], command)
        return command

    def _make(self, result: int, command: Mapping[str, Any]) -> None:
        """Notes who writes a result; what always runs takes the place of those that it reads."""
        read = [source for each in command["operands"] for source in each["from"]]
        before = self.makers.get(result, [])
        kept = before if self.depth else [each for each in before if each not in read]
        self.makers[result] = [*kept, command["id"]]

    def _dispatch(self, found: Dispatch) -> dict[str, Any]:
        call, first = found.call, found.call.kernel - self.kernels.index(found.entry)
        return {
            "kernel": found.entry,
            "operations": found.operations,
            "flops": _plain(call.flops),
            "bytes": _plain(call.bytes),
            "untouched": _plain(found.untouched),
            "workload": _plain(call.workload),
            "alternatives": [
                {
                    "sizes": [[_plain(guard.dim), guard.value] for guard in each.guards],
                    "kernel": self.kernels[each.call.kernel - first],
                }
                for each in found.alternatives
            ],
        }

    def _control(self, op: Op) -> dict[str, Any]:
        command, bodies = self._record(op), []
        self.depth += 1
        for region in op.regions:
            given = op.operands[len(op.operands) - len(region.block.arguments) :]
            for value, first in zip(region.block.arguments, given, strict=True):
                self.sources[value] = self.sources.get(first, ())
            bodies.append(self.block(region.block))
        self.depth -= 1
        ends = [region.block.terminator.operands for region in op.regions]
        if op.name == "while":
            ends = [op.operands, *ends[1:]]  # of a loop without a step
        for place, result in enumerate(op.results):
            self.sources[result] = self._from([each[place] for each in ends if place < len(each)])
        return {**command, "bodies": bodies}

    def _record(self, op: Op) -> dict[str, Any]:
        found = op.attributes
        places = found.places if isinstance(found, Placed) else [None] * len(op.results)
        return {
            "id": self.ids[op],
            "op": op.name.removeprefix("stream."),
            "layer": op.location,
            "operands": [
                {"type": str(each.type), "from": list(self.sources.get(each, ()))}
                for each in op.operands
            ],
            "results": [
                {"type": str(result.type), "place": place and _plain(vars(place).values())}
                for result, place in zip(op.results, places, strict=False)
            ],
        }


def _plain(value: Any) -> Any:
    """Attributes as JSON has them: dims that are no numbers as text."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (int, str)) else str(value)
