"""From a source program to a module: the list of passes, and the levels in their order.

A pass is a named function from IR module to IR module. The levels above the kernels are
one list; then kernels are made per variant and built, and the stream and vm levels follow,
which need to know the kernels.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ingot.compiler import ir
from ingot.compiler.check_program import check_program
from ingot.compiler.debug_info import DebugTarget, debug_info
from ingot.compiler.dispatch.close_comparators import close_comparators
from ingot.compiler.dispatch.collect_checks import collect_checks
from ingot.compiler.dispatch.find_views import find_views
from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.dispatch.level import DISPATCH
from ingot.compiler.dispatch.outline import outline
from ingot.compiler.dispatch.place_lists import place_lists
from ingot.compiler.dispatch.place_scalars import place_scalars
from ingot.compiler.dispatch.share_numbers import share_numbers
from ingot.compiler.dispatch.share_shapes import share_shapes
from ingot.compiler.dispatch.share_widths import share_widths
from ingot.compiler.dispatch.specialize import specialize as add_specialized
from ingot.compiler.dispatch.speculate_steps import speculate_steps
from ingot.compiler.driver import Driver, Pass
from ingot.compiler.frontends.attributes import ADAPTERS
from ingot.compiler.frontends.natives import Native, OwnOps, python_functions
from ingot.compiler.graph.control.settle_branches import settle_branches
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.expand_nonzero import expand_nonzero
from ingot.compiler.graph.forms.keep_planes import keep_planes
from ingot.compiler.graph.forms.multiply_codes import IN_INTEGERS, LEFT_IN_FLOAT
from ingot.compiler.graph.forms.pack_weights import (
    IN_HALVES,
    IN_PARTS,
    PARTS,
    products_in_words,
)
from ingot.compiler.graph.forms.round_rows import (
    ROUNDED,
    expand_scaled,
    precision_of,
    set_precision,
)
from ingot.compiler.graph.forms.separate_scopes import separate_scopes
from ingot.compiler.graph.forms.weight_functions import expand_calls
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.renamed_dims import renamed_dims
from ingot.compiler.ir.verifier import verify
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.kernels.own import given_kernels
from ingot.compiler.kernels.trial import Trial, plan_trial
from ingot.compiler.module import Module
from ingot.compiler.name_ends import name_ends
from ingot.compiler.own_kernels import Kernel as OwnKernel
from ingot.compiler.own_kernels import checked_kernels
from ingot.compiler.rare_collections import rare_collections
from ingot.compiler.read_source import copy_module, read_sketch, read_source, read_sources
from ingot.compiler.report import Report, TargetReport
from ingot.compiler.report_target import report_target
from ingot.compiler.state import State, apply_state
from ingot.compiler.stream import convert as stream_convert
from ingot.compiler.stream.allocation import Allocation
from ingot.compiler.stream.data import ProgramData
from ingot.compiler.stream.level import STREAM
from ingot.compiler.stream.plan_memory import plan_memory
from ingot.compiler.targets.target import Building, Target, building_objects, choose_targets
from ingot.compiler.vm import convert as vm_convert
from ingot.compiler.vm.build_module import ExecutableCode, TargetCode, build_module
from ingot.hal.errors import CompileError, Error
from ingot.hal.freed_memory import return_freed_memory
from ingot.hal.header import constants, read
from ingot.hal.options import checked_options

__all__ = ["DISPATCH_PASSES", "QUEUE_PASSES", "Choice", "compile", "compile_changed"]

DISPATCH_PASSES: tuple[Pass, ...] = (
    close_comparators,
    settle_branches,
    place_lists,
    expand_nonzero,
    collect_checks,
    place_scalars,
    find_views,
    form_dispatches,
    share_numbers,
    outline,
    expand_calls,
    share_shapes,
)

LANE_PASSES: tuple[Pass, ...] = (share_widths,)
"""What comes behind them for targets without work items, whose tiles do not depend on widths."""

PLANE_PASSES: tuple[Pass, ...] = (keep_planes, eliminate_dead_code)
"""What comes before DISPATCH_PASSES for these."""

QUEUE_PASSES: tuple[Pass, ...] = (expand_scaled, speculate_steps)
"""What comes before DISPATCH_PASSES for devices whose queue runs behind the host."""


@checked_options(CompileError)
@rare_collections()
def compile(
    source: Any,
    *,
    outputs: str | Sequence[str] | None = None,
    state: State | Mapping[str, str] | str | None = None,
    target: str | Sequence[str] = "cpu",
    variants: str | Sequence[str] | None = None,
    fallback: bool = True,
    parameters: str = "embedded",
    parameter_names: Mapping[str, str] | None = None,
    scope: str | Mapping[str, str] = "",
    specialize: Mapping[str, Sequence[int]] | None = None,
    capacity: int | None = None,
    cache: str = "f32",
    weights: str | None = None,
    verify: bool = False,
    lora: Any = None,
    sequences: int | None = None,
    cache_tokens: int | None = None,
    precision: str = "f32",
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    natives: Mapping[str, Native | str] | None = None,
    kernels: Mapping[str, OwnKernel | Sequence[OwnKernel]] | None = None,
    version: int = 0,
    requires: Mapping[str, int] | None = None,
    debug: bool = False,
    dump_ir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Module:
    """The module of a source program. CompileError: it cannot be compiled, for all reasons listed.

    `source`: path or bytes of an .onnx, .pt2 or .tflite file or StableHLO artifact, path of a .gguf
    file or Hugging Face folder, onnx.ModelProto, torch.nn.Module, torch.export.ExportedProgram,
    jax.export.Exported, a program, or a dict of functions by name. `outputs`: values of an ONNX
    graph to give. `state`: arguments and results that stay (`state.py`). `target`: "cpu", "opencl"
    or both. `variants`: of the CPU, or platforms, else this machine's. `fallback`: C beside kernels
    of a device. `parameters`: "embedded" in the module, or "external": given to ingot.load, by
    `parameter_names` or theirs. `scope`: of these, or by sources; each has own files. `specialize`:
    values of symbolic dims with own kernels, as {"s": [1, 128]}. Of language models, `capacity`:
    positions, else 4096 at most; `cache`: "f32" or "f16"; `weights`: "int8" or "int4" codes;
    `verify`: for drafts; `lora`: room for adapters, a rank or paths; `sequences`: texts in a cache
    of `cache_tokens`. `precision`: "int8" rounds what meets weights in groups; "bf16", "f16" all.
    `natives`, `kernels`: of your own ops, by "domain.name". `version`: the module's; `requires`:
    the least of modules that it calls. `example_inputs`, `dynamic_shapes`: of torch.export.
    `debug`: for `ingot explore`. `dump_ir`: folder for IR after each pass. `progress`: told steps.
    """
    choice, driver = Choice(target, variants, fallback), Driver.of(progress, dump_ir)
    outputs = [outputs] if isinstance(outputs, str) else outputs
    own, versions = OwnOps(natives or {}, checked_kernels(kernels)), _versions(version, requires)
    reading = _exporting(source, example_inputs, dynamic_shapes) | {"own_ops": own, "lora": lora}
    reading |= {"parameters": parameters, "parameter_names": parameter_names, "scope": scope}
    reading |= {"outputs": outputs, "capacity": capacity, "weights": weights, "verify": verify}
    reading |= {"sequences": sequences, "cache_tokens": cache_tokens, "cache": cache}
    options, passes = _recorded(parameters, outputs, specialize, precision), _passes(specialize)
    with building_objects(debug or dump_ir is not None or _verifies_kernels()) as building:
        if dump_ir is None and state is None:
            _begin(source, reading, precision, choice, passes, building, driver)
        module = _read(source, state, reading, driver, choice, precision)
        return _finish(module, choice, passes, driver, options, building, debug, own, versions)


@dataclass(frozen=True)
class Choice:
    """What a program is to be compiled for; see `choose_targets`, of which it raises what it does
    for any program."""

    target: str | Sequence[str] = "cpu"
    variants: str | Sequence[str] | None = None
    fallback: bool = True

    def __post_init__(self) -> None:
        self._targets()

    def _targets(self, products: Collection[str] = ()) -> tuple[Target, ...]:
        return choose_targets(self.target, self.variants, self.fallback, products)

    def targets(self, module: ir.Module) -> tuple[Target, ...]:
        """Those of a program at graph level."""
        return self._targets(products_in_words(module))

    def note_precision(self, module: ir.Module, precision: str) -> None:
        """Note it in a program that was read, and whether a variant multiplies tiles of such.
        InvalidArgument: there is no such precision."""
        kinds = {"bf16": "bf16", **dict.fromkeys(PARTS, "parts")}
        targets = self._targets({kinds[precision]}) if precision in kinds else ()
        tiles = any(variant.target.tiles for each in targets for variant in each.variants)
        set_precision(module, precision, tiles)


def _exporting(
    source: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any
) -> dict[str, Any]:
    """How a torch.nn.Module is exported, for `read_source`."""
    if example_inputs is None and dynamic_shapes is None:
        return {}
    if isinstance(source, Mapping):
        raise CompileError("a dict of sources takes exported programs, not example_inputs")
    return {"example_inputs": example_inputs, "dynamic_shapes": dynamic_shapes}


def _versions(own: int, requires: Mapping[str, int] | None) -> dict[str, int]:
    """The module's version by "", and the least of others. CompileError: one is no version."""
    versions = {**({"": own} if own else {}), **(requires or {})}
    for name, number in versions.items():
        what = f"requires[{str(name)[:80]!r}]" if name else "version"
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise CompileError(f"{what} is {number!r}, expected a whole number below 2^32")
        is_name = isinstance(name, str) and len(name) < 256
        if not is_name or (not name and requires and "" in requires):
            raise CompileError(f"{what}: write the name of a module, as ingot.load has it")
    return versions


def _recorded(
    parameters: str,
    outputs: Sequence[str] | None,
    specialize: Mapping[str, Sequence[int]] | None,
    precision: str,
) -> dict[str, Any]:
    """The options that stand in the module."""
    options: dict[str, Any] = {"parameters": parameters}
    if precision != "f32":
        options["precision"] = precision
    if outputs is not None:
        options["outputs"] = list(outputs)
    if specialize:
        options["specialize"] = {name: list(values) for name, values in specialize.items()}
    return options


def _passes(values: Mapping[str, Sequence[int]] | None) -> tuple[Pass, ...]:
    """Those of the dispatch level, at last one that adds kernels for these values, if any."""

    def specialize(module: ir.Module) -> ir.Module:
        return add_specialized(module, values or {})

    return (separate_scopes, *DISPATCH_PASSES, *((specialize,) if values else ()))


@rare_collections()
def compile_changed(
    source: Any,
    change: Pass,
    *,
    target: str = "cpu",
    parameters: str = "embedded",
    own: OwnOps = OwnOps({}, {}),  # noqa: B008  frozen
    progress: Callable[[str], None] | None = None,
) -> Module:
    """As `compile` for this machine, with the pass `change` behind DISPATCH_PASSES, which may
    show more of the program than its results. Raises as `compile`, and what `change` raises."""
    driver = Driver.of(progress)
    choice, passes = Choice(target), (*DISPATCH_PASSES, change)
    module = _read(source, None, {"parameters": parameters, "own_ops": own}, driver, choice)
    with building_objects(_verifies_kernels()) as building:
        options = {"parameters": parameters}
        return _finish(module, choice, passes, driver, options, building, own=own)


def read_program(
    source: Any,
    *,
    state: State | Mapping[str, str] | str | None = None,
    progress: Callable[[str], None] | None = None,
    **reading: Any,
) -> ir.Module:
    """The graph-level program that `compile` would make a module of, for passes of one's own; what
    they make of it can be compiled. `reading`: what `read_source` takes. Raises as `compile`."""
    return _import(source, state, reading, Driver.of(progress))


def _read(
    source: Any,
    state: State | Mapping[str, str] | str | None,
    reading: Mapping[str, Any],
    driver: Driver,
    choice: Choice,
    precision: str = "f32",
) -> ir.Module:
    """The program at graph level, in the form that all targets share."""
    module = _import(source, state, reading, driver)
    choice.note_precision(module, precision)
    return driver.passes(module, GRAPH_PASSES)


def _import(
    source: Any,
    state: State | Mapping[str, str] | str | None,
    reading: Mapping[str, Any],
    driver: Driver,
) -> ir.Module:
    """The program as it was read. `reading`: what `read_source` takes."""
    read = read_sources if isinstance(source, Mapping) else read_source
    module = driver.step("import", lambda: read(source, **reading))
    if module is source:
        module = copy_module(module)
    name_ends(module)
    if state is not None:
        module = driver.step("make_stateful", lambda: apply_state(module, state))
    check_program(module)
    driver.step("verify", lambda: verify(module, GRAPH))
    return cast(ir.Module, module)


def _begin(
    source: Any,
    reading: Mapping[str, Any],
    precision: str,
    choice: Choice,
    passes: Sequence[Pass],
    building: Callable[[Target], Building],
    driver: Driver,
) -> None:
    """Let C compilers begin with the kernels of a language model, which a part of it has, too."""
    module = read_sketch(source, **reading)
    if module is None:
        return
    driver = replace(driver, prefix="sketch.")
    choice.note_precision(module, precision)
    with suppress(Error):  # what is wrong the whole tells, too
        module = driver.passes(module, GRAPH_PASSES)
        targets = [each for each in choice.targets(module) if not each.runs_behind]
        module = driver.passes(module, (*PLANE_PASSES, *passes, *LANE_PASSES) if targets else ())
        for target in targets:
            build = building(target)
            build.begin_all(driver.step("lower_kernels", partial(build.lower, module)))


def _finish(
    module: ir.Module,
    choice: Choice,
    passes: Sequence[Pass],
    driver: Driver,
    options: dict[str, Any],
    building: Callable[[Target], Building],
    debug: bool = False,
    own: OwnOps = OwnOps({}, {}),  # noqa: B008  frozen
    versions: Mapping[str, int] | None = None,
) -> Module:
    """The levels below, for each target, and the file."""
    return_freed_memory()  # of weights that passes have looked at
    data, targets = ProgramData(), choice.targets(module)
    made: list[DebugTarget] = []
    for target in targets:
        driver.prefix = f"{target.name}." if len(targets) > 1 else ""
        first_kernel = sum(len(each.kernels) for each in made)
        source = module if target is targets[-1] else copy_module(module)
        lowered = driver.passes(
            source,
            (*QUEUE_PASSES, *passes)
            if target.runs_behind
            else (*PLANE_PASSES, *passes, *LANE_PASSES),
        )
        with given_kernels(own.kernels):
            build = building(target)
            made.append(_lower_target(lowered, target, build, data, first_kernel, driver))
    driver.prefix = ""
    reports = {each.target.name: each.report for each in made}
    renamed = renamed_dims(module.functions.values())
    metadata = _metadata(module, reports, renamed, options)
    section = driver.step("debug_info", lambda: debug_info(made)) if debug else b""
    codes = [each.code for each in made]
    file = driver.step(
        "write_module", lambda: build_module(codes, data, metadata, section, versions or {})
    )
    length = data.pool.finish().length
    named = {name: each for name, each in data.natives.items() if not name.startswith("?")}
    functions = python_functions(own.natives)
    python = {name: each for name, each in functions.items() if name in named}
    report = Report(
        reports, length, dict(driver.seconds), renamed, **_arithmetic(module),
        natives=named, python_natives=tuple(python),
    )  # fmt: skip
    return Module(file, report, python)


def _metadata(
    module: ir.Module,
    reports: Mapping[str, TargetReport],
    renamed: Mapping[str, Any],
    options: dict[str, Any],
) -> dict[str, Any]:
    """What the file says of how it was made. `reports`: by target."""
    metadata: dict[str, Any] = {
        "version": _version(),
        "producer": str(module.attributes.get("producer", "")),
        "options": options,
        "targets": {
            name: {
                "variants": list(report.object_lengths),
                "peaks": dict(report.peaks),
                "host": dict(report.host),
            }
            for name, report in reports.items()
        },
    }
    if renamed:
        metadata["dims"] = {name: str(dim) for name, dim in renamed.items()}
    if ADAPTERS in module.attributes:
        metadata["lora"] = module.attributes[ADAPTERS]
    return metadata


def _arithmetic(module: ir.Module) -> dict[str, Any]:
    """What a report says of the numbers that layers multiply."""
    found = module.attributes.get
    return {
        "left_in_float": found(LEFT_IN_FLOAT, ()),
        "rounded_rows": found(ROUNDED, 0),
        **({f"in_{precision_of(module)}": found(IN_HALVES)} if found(IN_HALVES) else {}),
        **{f"in_{name}": found(layers, ()) for name, layers in IN_PARTS.items()},
        "in_integers": found(IN_INTEGERS, ()),
    }


def _verifies_kernels() -> bool:
    """Tests ask for it in all compiles."""
    return bool(os.environ.get("INGOT_VERIFY_KERNELS"))


def _verify_kernels(kernels: Mapping[str, Sequence[Kernel]]) -> None:
    """CompileError: a kernel breaks a rule of loop IR."""
    for variants in kernels.values():
        for kernel in variants:
            verify_kernel(kernel)


def _lower_target(
    module: ir.Module,
    target: Target,
    building: Building,
    data: ProgramData,
    first_kernel: int,
    driver: Driver,
) -> DebugTarget:
    """Kernels, objects, stream and vm level of a module at dispatch level."""
    driver.step("verify", lambda: verify(module, DISPATCH))
    # compilers of kernels run beside what follows
    kernels = driver.step("lower_kernels", lambda: building.lower(module))
    if driver.dump.folder is not None or _verifies_kernels():
        driver.step("verify_kernels", lambda: _verify_kernels(kernels))
    driver.dump_kernels(kernels, [variant.name for variant in target.variants])
    groups = driver.step("group_kernels", lambda: building.group(kernels))
    kernels = {name: kernels[name] for group in groups for name in group.entries}
    finish = driver.step(
        "begin_kernels", lambda: building.objects(groups, _trials(module, target, kernels))
    )
    gc.collect(1)  # what the levels above have left of late, while compilers run
    code, planned, allocations = _lower_streams(module, kernels, data, first_kernel, driver)
    objects = driver.step("build_kernels", lambda: finish(driver.share))
    first = {name: each[0] for name, each in kernels.items()}
    executables = [
        ExecutableCode(
            target.executable if place == 0 else f"{target.executable}_{place + 1}",
            group.entries,
            tuple(group.columns),
            data,
        )
        for place, (group, data) in enumerate(zip(groups, objects.data, strict=True))
    ]
    made = TargetCode(target.name, module, planned, code, first, target.variants, executables)
    return DebugTarget(target, made, kernels, report_target(made, allocations, objects.host))


def _lower_streams(
    module: ir.Module,
    kernels: Mapping[str, Sequence[Kernel]],
    data: ProgramData,
    first_kernel: int,
    driver: Driver,
) -> tuple[ir.Module, ir.Module, dict[str, Sequence[Allocation]]]:
    """The program at vm level, at stream level, and where its tensors lie."""
    first = {name: each[0] for name, each in kernels.items()}
    stream = driver.step(
        "stream.convert", lambda: stream_convert.convert(module, first, data, first_kernel)
    )
    allocations: dict[str, Sequence[Allocation]] = {}
    planned = driver.step(
        "plan_memory", lambda: plan_memory(stream, listener=allocations.__setitem__)
    )
    driver.step("verify", lambda: verify(planned, STREAM))
    return driver.step("vm.convert", lambda: vm_convert.convert(planned)), planned, allocations


def _trials(
    module: ir.Module, target: Target, kernels: Mapping[str, Sequence[Kernel]]
) -> dict[str, Trial]:
    """Runs of kernels for devices whose drivers are to be tested."""
    if not target.is_tried:
        return {}
    planned = {name: plan_trial(module.functions[name], each[0]) for name, each in kernels.items()}
    return {name: trial for name, trial in planned.items() if trial is not None}


def _version() -> str:
    value = constants(read("ingot.h"))["INGOT_VERSION"]
    return value.decode() if isinstance(value, bytes) else str(value)
