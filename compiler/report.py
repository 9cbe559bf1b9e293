"""What the compiler made of a program, for people and for programs: `Module.report`.

What depends on symbolic dims is kept as formulas. `sizes` give them numbers, by the names of
the source; dims that are not among them take `GUESS`, within their bounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dim_bounds import Bounds, bounds
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.compiler.ir.renamed_dims import sizes_of_symbols
from ingot.compiler.stream.allocation import Allocation, likely_size, value_at
from ingot.compiler.targets.target import VARIANTS
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.printable import printable, size_text

__all__ = ["DispatchReport", "FunctionReport", "Report", "TargetReport"]

_SHOWN = 10  # dispatches, and values that hold the peak
_FLOPS_PER_BYTE = 2  # as the runtime weighs them: hal/cpu/queue.c
_LONGEST_LAYER = 80  # characters
_LONGEST_LAYERS = 1000  # names of several
_LONGEST_FORMULA = 100
_SLOW = 0.03  # share of the time from which on a step is named


@dataclass(frozen=True)
class DispatchReport:
    """One dispatch, which in a loop stands for one step. `flops` and `bytes` are what the
    runtime is told of its cost."""

    kernel: str
    kind: str  # of the kernel: "contraction", "row", ...
    layer: str  # the source layers that it computes, "" if unknown
    flops: Dim
    bytes: Dim

    def flops_at(self, sizes: Mapping[str, int]) -> int:
        return value_at(self.flops, sizes)

    def bytes_at(self, sizes: Mapping[str, int]) -> int:
        return value_at(self.bytes, sizes)

    def cost(self, sizes: Mapping[str, int]) -> float:
        """For ranking: bytes, with operations counted as such."""
        return self.flops_at(sizes) / _FLOPS_PER_BYTE + self.bytes_at(sizes)


@dataclass(frozen=True)
class FunctionReport:
    """What one call of a function does, and `peak`, the bytes of working memory it needs. That
    of `init`, which runs at load, are the weights as kernels read them."""

    dispatches: tuple[DispatchReport, ...]
    peak: Dim
    allocations: tuple[Allocation, ...]
    symbols: Bounds
    is_init: bool = False

    @property
    def names(self) -> list[str]:
        """The symbols that costs or memory depend on."""
        dims = [dim for each in self.dispatches for dim in (each.flops, each.bytes)]
        dims += [dim for each in self.allocations for dim in (each.offset, each.length)]
        return sorted({name for dim in (self.peak, *dims) for name in symbols_of(dim)})

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """A size for each of `names`."""
        return {name: given.get(name, likely_size(name, self.symbols)) for name in self.names}

    def peak_at(self, sizes: Mapping[str, int]) -> int:
        return value_at(self.peak, sizes)

    def at_peak(self, sizes: Mapping[str, int]) -> list[Allocation]:
        """What lies in memory when the most of it is in use, largest first."""
        ends = [each.offset_at(sizes) + each.length_at(sizes) for each in self.allocations]
        if not ends:
            return []
        time = self.allocations[ends.index(max(ends))].begin
        held = [each for each in self.allocations if each.begin <= time < each.end]
        return sorted(held, key=lambda each: -each.length_at(sizes))


@dataclass(frozen=True)
class TargetReport:
    """What a module holds for one target.

    `object_lengths` are the bytes of kernel code per variant, of which a machine may run
    kernels of others that are the same; `kinds` how many kernels there
    are of each kind. `host` are the kernels that run on the host although the target is
    another device, with the reason of each. `as_floats` are layers that the program multiplies in
    integers, and this target as floats.
    """

    functions: Mapping[str, FunctionReport]
    kinds: Mapping[str, int]
    object_lengths: Mapping[str, int]
    host: Mapping[str, str] = field(default_factory=dict)
    as_floats: Sequence[str] = ()

    @property
    def kernel_count(self) -> int:
        return sum(self.kinds.values())

    @property
    def dispatches(self) -> Mapping[str, int]:
        """Per function, how many dispatches one call queues."""
        return {name: len(each.dispatches) for name, each in self.functions.items()}

    @property
    def peaks(self) -> Mapping[str, str]:
        """Per function, the bytes of working memory as a formula over its symbols."""
        return {name: str(each.peak) for name, each in self.functions.items()}

    def lines(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """The same for people."""
        kinds = Counter(self.kinds).most_common()
        made = ", ".join(f"{count} {kind}" for kind, count in kinds)
        lengths = self.object_lengths.items()
        objects = ", ".join(f"{name} {size_text(length)}" for name, length in lengths)
        count = _count(self.kernel_count, "kernel")
        yield f"{count}: {made} ({objects})" if made else "no kernels"
        for name, function in self.functions.items():
            yield _function_line(name, function, sizes)
        yield from self._cost_lines(sizes)
        yield from self.host_lines()
        if self.as_floats:
            names = printable(", ".join(self.as_floats), _LONGEST_LAYERS)
            yield f"{_count(len(self.as_floats), 'layer')} of codes multiplied as floats: {names}"

    def costs(self, given: Mapping[str, int]) -> list[tuple[float, str, DispatchReport]]:
        """Of every dispatch of a call its share of the cost of all, and its function; the most
        expensive first."""
        called = {name: each for name, each in self.functions.items() if not each.is_init}
        rows = [
            (dispatch.cost(sizes), name, dispatch)
            for name, each in called.items()
            for sizes in [each.sizes(given)]
            for dispatch in each.dispatches
        ]
        total = sum(cost for cost, _, _ in rows) or 1.0
        ranked = sorted(rows, key=lambda row: -row[0])
        return [(cost / total, name, dispatch) for cost, name, dispatch in ranked]

    def _cost_lines(self, given: Mapping[str, int]) -> Iterator[str]:
        costs = self.costs(given)
        if costs:
            yield "the most expensive dispatches, by the cost model:"
        for share, name, each in costs[:_SHOWN]:
            sizes = self.functions[name].sizes(given)
            flops, length = each.flops_at(sizes), size_text(each.bytes_at(sizes))
            layer = printable(each.layer, _LONGEST_LAYER)
            yield f"  {share:6.1%} {flops / 1e6:10.3f} MFLOP {length:>10}  {each.kernel}  {layer}"
        if rest := costs[_SHOWN:]:
            share = sum(share for share, _, _ in rest)
            yield f"  {share:6.1%} in {_count(len(rest), 'other dispatch')}"

    def host_lines(self) -> Iterator[str]:
        """Which kernels run on the host, and why."""
        if self.host:
            yield f"{len(self.host)} of {self.kernel_count} kernels run on the host:"
        for name, reason in self.host.items():
            yield f"  {name}: {printable(reason)}"


def _function_line(name: str, function: FunctionReport, given: Mapping[str, int]) -> str:
    sizes = function.sizes(given)
    peak = size_text(function.peak_at(sizes))
    line = f"{printable(name)}: {_count(len(function.dispatches), 'dispatch')}, {peak} of "
    if function.is_init:
        return f"{line}weights in the form of the kernels"
    at = ", ".join(f"{printable(key)}={size}" for key, size in sizes.items())
    formula = printable(str(function.peak))
    is_shown = symbols_of(function.peak) and len(formula) <= _LONGEST_FORMULA
    return f"{line}working memory" + f" at {at}" * bool(at) + f": {formula} B" * bool(is_shown)


@dataclass(frozen=True)
class Report:
    """What a module holds, and where the time of compiling went. The properties are those of
    the first target."""

    targets: Mapping[str, TargetReport]
    constant_length: int  # bytes
    seconds: Mapping[str, float] = field(default_factory=dict)  # per pass
    renamed: Mapping[str, Dim] = field(default_factory=dict)  # names of dims in the source only
    left_in_float: Sequence[tuple[str, str]] = ()  # layers with quantised weights, and why
    rounded_rows: int = 0  # products whose activations are rounded to 8 bits
    in_bf16: Sequence[str] = ()  # layers whose factors are rounded to bf16
    in_f16: Sequence[str] = ()  # the same of f16
    in_bf16x3: Sequence[str] = ()  # those whose factors may be sums of two bf16
    in_bf16x6: Sequence[str] = ()  # the same of three
    natives: Mapping[str, str] = field(default_factory=dict)  # signatures of native functions
    python_natives: Sequence[str] = ()  # those that are Python functions of this process
    in_integers: Sequence[str] = ()  # layers that multiply bytes

    @property
    def _first(self) -> TargetReport:
        return next(iter(self.targets.values()))

    @property
    def dispatches(self) -> Mapping[str, int]:
        return self._first.dispatches

    @property
    def peaks(self) -> Mapping[str, str]:
        return self._first.peaks

    @property
    def kernel_count(self) -> int:
        return self._first.kernel_count

    @property
    def object_lengths(self) -> Mapping[str, int]:
        return self._first.object_lengths

    def __str__(self) -> str:
        return self.text()

    def text(self, sizes: Mapping[str, int] | None = None) -> str:
        """A page for people, with sizes of dims that are known only at the call."""
        known = self.known_sizes(sizes or {})
        lines: list[str] = []
        for name, target in self.targets.items():
            lines += [f"target {name}", *(f"  {line}" for line in target.lines(known))]
        lines.append(f"{size_text(self.constant_length)} of constants")
        lines += [
            *self._rounded_lines(),
            *self._halves_lines(),
            *self._quantised_lines(),
            *self._native_lines(),
        ]
        return "\n".join([*lines, self._time()])

    def _native_lines(self) -> Iterator[str]:
        """What the application computes."""
        for name, signature in self.natives.items():
            development = " as a Python function, for development" * (name in self.python_natives)
            yield f"native function {printable(name)} {signature}{development}"

    def _rounded_lines(self) -> Iterator[str]:
        """How many products have activations of 8 bits, and how far these are off."""
        if self.rounded_rows:
            count = _count(self.rounded_rows, "product")
            bound = "each off by at most 1/254 of its group's greatest"
            yield f"{count} with activations of 8 bits, {bound}"

    def _halves_lines(self) -> Iterator[str]:
        """Which layers multiply bf16 or f16, and how far their results are off."""
        off = "each result off by less than"
        tiled = [
            name for target in self.targets.values() for name in target.object_lengths
            if name in VARIANTS and VARIANTS[name].target.tiles
        ]  # fmt: skip
        where = f"with {', '.join(tiled)}, f32 elsewhere" if tiled else "f32: no variant has tiles"
        for name, layers, bound in (
            ("bf16", self.in_bf16, f"{off} 1/128 of its terms' magnitudes"),
            ("f16", self.in_f16, f"{off} 1/30 of its terms' magnitudes, mostly 1/1000"),
            ("bf16x3", self.in_bf16x3, f"{off} 2^-14 of its terms' magnitudes ({where})"),
            ("bf16x6", self.in_bf16x6, f"{off} 2^-22 of its terms' magnitudes ({where})"),
        ):
            if layers:
                yield f"{_count(len(layers), 'layer')} of {name}, {bound}:"
                yield f"  {printable(', '.join(layers), _LONGEST_LAYERS)}"

    def _quantised_lines(self) -> Iterator[str]:
        """How many layers multiply bytes, which quantised ones multiply floats, and why."""
        if self.in_integers:
            yield f"{_count(len(self.in_integers), 'layer')} multiplied in integers"
        if self.left_in_float:
            yield f"{_count(len(self.left_in_float), 'quantised layer')} multiplied as floats:"
        for layer, reason in self.left_in_float:
            name = printable(layer or "without a name", _LONGEST_LAYER)
            yield f"  {name}: {printable(reason)}"

    def known_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by symbol. InvalidArgument: there is no dim of some name, or it never has this
        size."""
        if not sizes:
            return {}
        functions = [each for target in self.targets.values() for each in target.functions.values()]
        names = {name for each in functions for name in (*each.names, *each.symbols)}
        for name in sizes:
            if name not in names and name not in self.renamed:
                has = f"its dims are: {', '.join(map(printable, sorted(names)))}"
                has = has if names else "all its dims are fixed"
                raise InvalidArgument(f"the module has no dim {name!r}; {has}")
        try:
            known = sizes_of_symbols(sizes, self.renamed)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        for name, size in known.items():
            for low, high in (each.symbols[name] for each in functions if name in each.symbols):
                if size < low or (high is not None and size > high):
                    most = "" if high is None else f" and at most {high}"
                    raise InvalidArgument(
                        f"the dim {name!r} is at least {low}{most}, which {size} is not"
                    )
        return known

    def _time(self) -> str:
        """The steps that took some of the time, and the rest."""
        total = sum(self.seconds.values())
        slow = {name: each for name, each in self.seconds.items() if each >= total * _SLOW}
        times = sorted(slow.items(), key=lambda pair: -pair[1])
        if (rest := total - sum(slow.values())) > 0:
            times.append((f"{len(self.seconds) - len(slow)} other steps", rest))
        return "time: " + ", ".join(f"{name} {_duration(each)}" for name, each in times)

    def check_memory(self, limit: int, sizes: Mapping[str, int] | None = None) -> None:
        """CompileError: a call of some function may need more than `limit` bytes of working
        memory, at `sizes` of dims and any of the others; the message says what holds them.
        InvalidArgument: the need has no bound without the size of another dim."""
        known = self.known_sizes(sizes or {})
        problems = [
            line
            for target, each in self.targets.items()
            for name, function in each.functions.items()
            if not function.is_init
            for line in _excess(f"{printable(name)} for {target}", function, limit, known)
        ]
        if problems:
            raise CompileError("\n".join(problems))


def _excess(
    what: str, function: FunctionReport, limit: int, given: Mapping[str, int]
) -> Iterator[str]:
    known = {**function.symbols, **{name: (size, size) for name, size in given.items()}}
    names = symbols_of(function.peak)
    most = bounds(function.peak, known)[1]
    if math.isinf(most):
        open_dims = sorted(name for name in names if known.get(name, (0, None))[1] is None)
        advice = f"give {', '.join(map(printable, open_dims))} a size" if open_dims else ""
        raise InvalidArgument(
            f"the working memory of {what} has no greatest size: {advice or 'give its dims sizes'}"
        )
    if most <= limit:
        return
    ends = {name: known[name][1] for name in function.sizes(given) if name in known}
    sizes = function.sizes({name: end for name, end in ends.items() if end is not None} | {**given})
    at = ", ".join(f"{printable(name)}={sizes[name]}" for name in sorted(names))
    held = function.at_peak(sizes)
    yield (
        f"{what} needs {size_text(int(most))} of working memory{f' at {at}' * bool(at)}, more than "
        f"the {size_text(limit)} allowed; the most is in use while these hold it:"
    )
    for each in held[:_SHOWN]:
        layer = printable(each.layer or "without a name", _LONGEST_LAYER)
        length = size_text(each.length_at(sizes))
        yield f"  {length:>10}  {printable(each.type)}, made by {each.made_by} of layer '{layer}'"
    if rest := held[_SHOWN:]:
        length = size_text(sum(each.length_at(sizes) for each in rest))
        yield f"  {length:>10}  in {len(rest)} more"
    if (gap := function.peak_at(sizes) - sum(each.length_at(sizes) for each in held)) > 0:
        yield f"  {size_text(gap):>10}  between them, too small for what came later"


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"
