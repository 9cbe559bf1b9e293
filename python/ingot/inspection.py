"""What is in a module file, as text or as JSON: `ingot inspect`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingot.compiler.ir.dims import Dim, substitute, symbols_of
from ingot.compiler.vm.contents import (
    Executable,
    FunctionContents,
    ModuleContents,
    ValueContents,
    Variant,
)
from ingot.compiler.vm.disassemble import disassemble, signature_text
from ingot.compiler.vm.read_module import read_dim, read_module
from ingot.compiler.vm.sections import section_kind, table_sections
from ingot.hal import spec
from ingot.hal.errors import DataLoss, InvalidArgument
from ingot.hal.file_kind import COPY_AGAIN, START_LENGTH, why_no_module
from ingot.hal.printable import printable, size_text
from ingot.hal.whole_file import open_regular
from ingot.inputs import known_sizes
from ingot.machine import judge_variants
from ingot.reports import value_report

__all__ = ["describe_module", "inspect_report", "module_report", "read_file"]

_LONGEST_DIM = 60  # characters of a formula that is shown, in a shape
_LONGEST_FORMULA = 400  # and on a line of its own


def describe_module(
    path: str, *, code: bool, verify: bool, dims: Mapping[str, int] | None = None
) -> str:
    """The signature, sections and sizes of a module file; with `code` its instructions.

    `verify` checks every checksum and every instruction, with the C runtime's own verifier.
    `dims` gives sizes to symbolic dims: the peak memory is then a number too, or a formula of
    the dims that it lacks. InvalidArgument: it names one that the module does not have.
    """
    data, contents = read_file(path, verify)
    lines = [
        f"{printable(path)}: {size_text(len(data))}",
        *_functions(contents),
        *_peaks(contents, dims),
    ]
    lines += _sections(data)
    lines += [*_executables(contents), *_parameters(contents), *_natives(contents)]
    lines += _versions(contents)
    lines += _metadata(contents)
    if code:
        lines += ["", disassemble(contents).rstrip()]
    if verify:
        lines += ["", "verified: every checksum and every instruction is right"]
    return "\n".join(lines)


def read_file(path: str, verify: bool = False) -> tuple[bytes, ModuleContents]:
    """The file of a module and what is in it. DataLoss, Incompatible: it is none. Else raises as
    `open_regular`."""
    with open_regular(path) as file:
        data = file.read()
    try:
        contents = read_module(data, verify=verify)
    except DataLoss as error:
        damaged = f"'{path}': {error}; {COPY_AGAIN}"
        raise DataLoss(why_no_module(data[:START_LENGTH], path) or damaged) from None
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise DataLoss(f"the module file {path} is damaged: {error}") from None
    targets = contents.metadata.get("targets", {}) if isinstance(contents.metadata, dict) else ()
    if not isinstance(targets, dict) or not all(isinstance(x, dict) for x in targets.values()):
        raise DataLoss(f"the module file {path} is damaged: its metadata is of another kind")
    if verify:
        from ingot.runtime.program import load_module

        load_module(data, verify=True).release()
    return data, contents


def inspect_report(
    path: str, *, code: bool, verify: bool, dims: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """What `describe_module` tells, for `reports.to_json`."""
    data, contents = read_file(path, verify)
    fields = module_report(path, data, contents, dims)
    fields["verified"] = verify
    if code:
        fields["code"] = disassemble(contents)
    return fields


def module_report(
    path: str, data: bytes, contents: ModuleContents, dims: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The same without code, of a file that was read."""
    return {
        "module": path,
        "length": len(data),
        "functions": [_function_report(each) for each in contents.functions],
        "peaks": [
            {"function": name, "target": target, "peak": formula}
            | (
                {}
                if peak is None
                else {"peak_length": peak if isinstance(peak, int) else str(peak)}
            )
            for target, name, formula, peak in _peak_rows(contents, dims)
        ],
        "sections": list(_section_rows(data)),
        "executables": [_executable_report(contents, each) for each in contents.executables],
        "parameters": [
            {**value_report(each.key, each.dtype, each.shape), "scope": each.scope}
            for each in contents.parameters
        ],
        "variables": [
            value_report(each.name, each.dtype, each.shape, each.doc) for each in contents.variables
        ],
        "natives": [
            {"name": each.name, "signature": each.signature, "optional": each.optional}
            for each in contents.natives
            if not each.name.startswith("?")
        ],
        "versions": [{"name": name, "number": number} for name, number in contents.versions],
        "metadata": {key: each for key, each in contents.metadata.items() if key != "targets"},
    }


def _function_report(function: FunctionContents) -> dict[str, Any]:
    arguments, results = (
        [_value_report(each) for each in values]
        for values in (function.arguments, function.results)
    )
    return {
        "name": function.name,
        "target": function.target,
        "exported": function.exported,
        "init": function.init,
        "arguments": arguments,
        "results": results,
        "code_length": len(function.code.words),
        "doc": function.doc,
    }


def _value_report(value: ValueContents) -> dict[str, Any]:
    shape = ["?" if dim is None else dim for dim in value.shape]
    dims = ["*"] if value.any_rank else shape
    return value_report(value.name, value.dtype, dims, value.doc, value.kind)


def _executable_report(contents: ModuleContents, executable: Executable) -> dict[str, Any]:
    host = _targets(contents).get(executable.target, {}).get("host", {})
    return {
        "name": executable.name,
        "target": executable.target,
        "kernels": [{"kernel": each.name, "layer": each.layer} for each in executable.entries],
        "variants": [
            {"name": each.name, "format": each.format, "length": len(each.object), "here": here}
            for each, here in _judged(executable)
        ],
        "host": [{"kernel": name, "reason": reason} for name, reason in host.items()],
    }


def _functions(contents: ModuleContents) -> Iterator[str]:
    yield "\nfunctions"
    for function in contents.functions:
        kind = "  (init)" if function.init else ""
        size = size_text(len(function.code.words))
        signature = printable(signature_text(function, _short))
        yield f"  {signature}  for {function.target}, {size} of code{kind}"
        for line in function.doc.splitlines():
            yield f"    {printable(line)}"


def _short(dim: Dim, longest: int = _LONGEST_DIM) -> str:
    """The dim for people: where it would fill lines, what it depends on."""
    formula = str(dim)
    if len(formula) <= longest:
        return formula
    return f"<a formula of {', '.join(sorted(symbols_of(dim)))}>"


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts layer.2 before layer.10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _targets(contents: ModuleContents) -> dict[str, dict[str, Any]]:
    """What the compiler wrote down of each target."""
    found: dict[str, dict[str, Any]] = contents.metadata.get("targets", {})
    return found


def _peaks(contents: ModuleContents, dims: Mapping[str, int] | None) -> Iterator[str]:
    """Working memory per function: what lies in its slab, without arguments and results."""
    rows = list(_peak_rows(contents, dims))
    several = len({target for target, *_ in rows}) > 1
    if rows:
        yield "\npeak of working memory, in bytes"
    for target, name, formula, peak in rows:
        where = f" for {target}" if several else ""
        is_new = peak is not None and str(peak) != formula
        number = f" = {_short(peak, _LONGEST_FORMULA)}" if is_new and peak is not None else ""
        yield (f"  {printable(name)}{where}: {_short(read_dim(formula), _LONGEST_FORMULA)}{number}")


def _peak_rows(
    contents: ModuleContents, dims: Mapping[str, int] | None
) -> Iterator[tuple[str, str, str, Dim | None]]:
    """Target, function and formula, and what that comes to at `dims`."""
    peaks = {target: each.get("peaks", {}) for target, each in _targets(contents).items()}
    if dims is not None:
        dims = known_sizes(dims, contents.metadata)
        _check_dims(
            contents, [formula for each in peaks.values() for formula in each.values()], dims
        )
    for target, formulas in peaks.items():
        for name, formula in formulas.items():
            yield target, name, formula, None if dims is None else _peak_at(name, formula, dims)


def _check_dims(contents: ModuleContents, peaks: Sequence[str], dims: Mapping[str, int]) -> None:
    if not peaks:
        raise InvalidArgument("--dim: the module does not say how much memory its functions need")
    values = [value for each in contents.functions for value in (*each.arguments, *each.results)]
    shapes = [dim for value in values for dim in value.shape if dim is not None]
    known = shapes + [read_dim(each) for each in peaks]
    names = sorted({name for dim in known for name in symbols_of(dim)})
    for name in dims:
        if name not in names:
            has = f"its dims are: {', '.join(names)}" if names else "all its dims are fixed"
            raise InvalidArgument(f"--dim: the module has no dim {name!r}; {has}")


def _peak_at(name: str, formula: str, dims: Mapping[str, int]) -> Dim:
    """What the formula of function `name` comes to: a number, or a formula of the other dims."""
    try:
        return substitute(read_dim(formula), dims)
    except ZeroDivisionError:
        raise InvalidArgument(f"--dim: {name} divides by zero at these sizes") from None


def _sections(data: bytes) -> Iterator[str]:
    yield "\nsections"
    for row in _section_rows(data):
        place = f"in {row['in']}" if "in" in row else f"at {row['offset']:#x}"
        yield f"  {row['name']:<17} {size_text(row['length']):>10}  {place}"


def _section_rows(data: bytes) -> Iterator[dict[str, Any]]:
    layout = spec.layout()
    names = {
        value: name.removeprefix("INGOT_SECTION_").lower()
        for name, value in layout.constants.items()
        if name.startswith("INGOT_SECTION_")
    }
    header = layout.unpack("ingot_layout_header_t", data[: layout.size("ingot_layout_header_t")])
    start = layout.size("ingot_layout_header_t")
    end = start + header[0]["section_count"] * layout.size("ingot_layout_section_t")
    for row in layout.unpack("ingot_layout_section_t", data[start:end]):
        name = names.get(row["kind"], f"unknown kind {row['kind']}")
        yield {"name": name, "offset": row["offset"], "length": row["length"]}
        if row["kind"] == section_kind("COMPRESSED_TABLES"):
            piece = data[row["offset"] : row["offset"] + row["length"]]
            for kind, table in table_sections(piece):
                yield {"name": names.get(kind, f"kind {kind}"), "length": len(table), "in": name}


def _executables(contents: ModuleContents) -> Iterator[str]:
    if contents.executables:
        yield "\nexecutables"
    for executable in contents.executables:
        count = len(executable.entries)
        yield f"  {executable.name} for {executable.target}: {count} kernels"
        for variant, here in _judged(executable):
            size = size_text(len(variant.object))
            yield f"    {variant.name} ({variant.format}): {size}{here and ', '}{here}"
        host = _targets(contents).get(executable.target, {}).get("host", {})
        if host:
            yield f"    {len(host)} of them run on the host:"
        for name, reason in host.items():
            yield f"      {name}: {printable(reason)}"


def _judged(executable: Executable) -> Iterator[tuple[Variant, str]]:
    """Its variants, and what this machine makes of each."""
    return zip(executable.variants, judge_variants(executable.variants), strict=True)


def _parameters(contents: ModuleContents) -> Iterator[str]:
    if contents.parameters:
        yield "\nparameters, to be given at load"
    for each in sorted(contents.parameters, key=lambda each: _natural(each.key)):
        scope = f"{each.scope}/" if each.scope else ""
        yield f"  {printable(scope + each.key)}: {each.dtype}[{','.join(map(str, each.shape))}]"


def _natives(contents: ModuleContents) -> Iterator[str]:
    if contents.natives:
        yield "\nnative functions, to be given at load"
    for each in contents.natives:
        if not each.name.startswith("?"):
            yield f"  {printable(each.name)} {each.signature}{', or not' * each.optional}"


def _versions(contents: ModuleContents) -> Iterator[str]:
    if contents.versions:
        yield "\nversions"
    for name, number in contents.versions:
        yield f"  {printable(name)}: {number} or later" if name else f"  its own: {number}"


def _metadata(contents: ModuleContents) -> Iterator[str]:
    shown = {key: value for key, value in contents.metadata.items() if key != "targets"}
    if shown:
        yield "\nmetadata"
    for key, value in shown.items():
        yield f"  {key}: {printable(value) if isinstance(value, str) else json.dumps(value)}"
