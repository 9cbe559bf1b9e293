"""What commands say, as JSON: `--json`. docs/reports.md describes it, docs/schemas has schemas.

A document is one object, whose "schema" names its kind and version. Keys may be added to it;
what one means never changes within a version. Lengths are bytes, times nanoseconds. A dim is
an integer, or a formula as text. Text comes from source programs: it is data, in ASCII with
escapes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ingot.hal.spec import DType

if TYPE_CHECKING:
    from ingot.bisecting import Bisection
    from ingot.checking import CheckReport
    from ingot.compiler.coverage import Coverage
    from ingot.compiler.report import Report, TargetReport
    from ingot.hal.device import Device
    from ingot.hal.file_cache import Cache
    from ingot.quantizing.report import QuantizationReport
    from ingot.runtime.function import Function
    from ingot.runtime.model import Model
    from ingot.timing import Profiled, Times

__all__ = [
    "bench_report",
    "bisect_report",
    "cache_report",
    "check_report",
    "compile_report",
    "coverage_report",
    "devices_report",
    "quantize_report",
    "to_json",
    "value_report",
]


def to_json(kind: str, fields: Mapping[str, Any]) -> str:
    """The document of a kind, as text."""
    return json.dumps({"schema": f"ingot.{kind}/1", **fields}, indent=1, allow_nan=False)


def value_report(
    name: str, dtype: DType, shape: Iterable[Any], doc: str = "", kind: str = "tensor"
) -> dict[str, Any]:
    """An argument, result, variable or parameter. Of all but tensors dtype and shape are those of
    the elements, as in `runtime.signature.Value`."""
    dims = [dim if isinstance(dim, int) else str(dim) for dim in shape]
    value = {"name": name, "kind": kind, "dtype": dtype.name, "shape": dims}
    return {**value, "doc": doc} if doc else value


def compile_report(
    output: str, length: int, seconds: float, report: Report, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """What `ingot compile` made. `sizes` of dims are those at which costs and memory are told."""
    known = report.known_sizes(sizes)
    return {
        "module": output,
        "length": length,
        "constant_length": report.constant_length,
        "time": _nanoseconds(seconds),
        "steps": {name: _nanoseconds(each) for name, each in report.seconds.items()},
        "targets": {name: _target(each, known) for name, each in report.targets.items()},
        "left_in_float": [
            {"layer": layer, "reason": reason} for layer, reason in report.left_in_float
        ],
        "in_integers": list(report.in_integers),
        "rounded_rows": report.rounded_rows,
        "in_bf16": list(report.in_bf16),
        "in_f16": list(report.in_f16),
        "in_bf16x3": list(report.in_bf16x3),
        "in_bf16x6": list(report.in_bf16x6),
    }


def _target(target: TargetReport, given: Mapping[str, int]) -> dict[str, Any]:
    sizes = {name: each.sizes(given) for name, each in target.functions.items()}
    return {
        "kernels": dict(target.kinds),
        "variants": dict(target.object_lengths),
        "host": [{"kernel": name, "reason": reason} for name, reason in target.host.items()],
        "as_floats": list(target.as_floats),
        "functions": {
            name: {
                "init": each.is_init,
                "dispatches": len(each.dispatches),
                "peak": str(each.peak),
                "sizes": sizes[name],
                "peak_length": each.peak_at(sizes[name]),
                "memory": [
                    {
                        "made_by": held.made_by,
                        "layer": held.layer,
                        "type": held.type,
                        "offset": held.offset_at(sizes[name]),
                        "length": held.length_at(sizes[name]),
                        "begin": held.begin,
                        "end": held.end,
                    }
                    for held in each.allocations
                ],
            }
            for name, each in target.functions.items()
        },
        "dispatches": [
            {
                "function": name,
                "kernel": each.kernel,
                "kind": each.kind,
                "layer": each.layer,
                "flops": each.flops_at(sizes[name]),
                "length": each.bytes_at(sizes[name]),
                "share": share,
            }
            for share, name, each in target.costs(given)
        ],
    }


def bench_report(
    path: str,
    model: Model,
    function: Function,
    dims: Mapping[str, int],
    times: Times,
    profile: Sequence[Profiled] | None,
) -> dict[str, Any]:
    """What `ingot bench` measured; `dims` are the sizes of the inputs."""
    signature = function.signature
    fields: dict[str, Any] = {
        "module": path,
        "device": model.device,
        "function": {
            "name": signature.name,
            "arguments": [
                value_report(each.name, each.dtype, each.shape, each.doc, each.kind)
                for each in signature.arguments
            ],
            "results": [
                value_report(each.name, each.dtype, each.shape, each.doc, each.kind)
                for each in signature.results
            ],
        },
        "dims": dict(dims),
        "calls": times.count,
        "median": _nanoseconds(times.median),
        "minimum": _nanoseconds(times.minimum),
        "memory": asdict(model.statistics(program=True)),
    }
    if profile is not None:
        fields["kernels"] = [
            {
                "kernel": each.kernel,
                "layer": each.layer,
                "time": each.time,
                "length": each.length,
            }
            for each in profile
        ]
    return fields


def check_report(path: str, device: str, report: CheckReport) -> dict[str, Any]:
    """What `ingot check` compared."""
    return {
        "model": path,
        "device": device,
        "agrees": not report.problem,
        "problem": report.problem,
        "dispatches": report.compared,
        "uncompared": report.uncompared,
        "case": report.case,
        "differences": [
            {
                "layer": each.dispatch.layer,
                "kernel": each.dispatch.entry.name,
                "type": str(each.result.type),
                "index": list(each.index),
                "got": str(each.got),
                "expected": str(each.expected),
                "error": _finite(each.size),
                "allowed": _finite(each.allowed),
            }
            for each in report.differences
        ],
        "results": [
            {"name": each.name, "error": _finite(each.error), "allowed": each.allowed}
            for each in report.results
        ],
    }


def bisect_report(path: str, device: str, found: Bisection) -> dict[str, Any]:
    """The errors of all layers."""
    return {
        "model": path,
        "device": device,
        "against": found.against,
        "agrees": found.first_wrong is None,
        "summary": found.summary,
        "case": found.case,
        "layers": [
            {
                "layer": each.layer,
                "type": each.type,
                "own": _finite(each.own),
                "whole": _finite(each.whole),
                "is_wrong": each.is_wrong,
            }
            for each in found.layers
        ],
    }


def coverage_report(found: Mapping[str, Coverage]) -> dict[str, Any]:
    """What each target takes of the ops of models, by path."""
    return {
        "models": [
            {
                "model": path,
                "ops": [
                    {
                        "op": row.op,
                        "operands": list(row.patterns),
                        "count": row.count,
                        "targets": dict(row.takes),
                        "layers": list(row.layers),
                        "reasons": list(row.reasons),
                    }
                    for row in each.rows
                ],
                "problems": list(each.problems),
                "host": {
                    target: [{"kernel": name, "reason": reason} for name, reason in kernels.items()]
                    for target, kernels in each.hosted.items()
                },
            }
            for path, each in found.items()
        ]
    }


def quantize_report(output: str, seconds: float, report: QuantizationReport) -> dict[str, Any]:
    """What `ingot quantize` did."""
    return {
        "module": output,
        "time": _nanoseconds(seconds),
        "length": {"before": report.length_before, "after": report.length_after},
        "call": _pair(report.time_before, report.time_after),
        "samples": report.samples,
        "results": [
            {"name": each.name, "error": _finite(each.error), "cosine": _finite(each.cosine)}
            for each in report.results
        ],
        "layers": [
            {
                "layer": each.name,
                "kind": each.kind,
                "shape": list(each.shape),
                "scheme": each.scheme,
                "bits": each.bits,
                "length": {"before": each.length_before, "after": each.length_after},
                "error": _finite(each.error),
                "cosine": _finite(each.cosine),
                "is_measured": each.is_measured,
                "predicted": _pair(each.predicted_before, each.predicted_after),
                "time": _pair(each.time_before, each.time_after),
                "reason": each.reason,
            }
            for each in report.layers
        ],
    }


def _pair(before: float | None, after: float | None) -> dict[str, int | None]:
    """Times that may not be known."""
    times = {"before": before, "after": after}
    return {name: None if each is None else _nanoseconds(each) for name, each in times.items()}


def cache_report(cache: Cache) -> dict[str, Any]:
    """What is kept of compiled kernels."""
    files = cache.files()
    return {
        "folder": None if cache.folder is None else str(cache.folder),
        "files": len(files),
        "length": sum(file.length for file in files),
    }


def devices_report(devices: Iterable[Device]) -> dict[str, Any]:
    """The devices of this machine."""
    from ingot.machine import variants_of

    rows = [
        {"uri": each.uri, "description": each.description, "variants": variants_of(each)}
        for each in devices
    ]
    return {"devices": rows}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _finite(number: float | None) -> float | None:
    """JSON has no infinity, and no NaN."""
    return float(number) if number is not None and math.isfinite(number) else None
