"""A profile as onnxruntime writes it, of what a trace has recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ingot.runtime.trace import Trace

__all__ = ["write_profile"]

_ENTRY = re.compile(r"^.*_dispatch_\d+_")  # in front of the ops in the name of a kernel
_WHOLE = "model_run"


def write_profile(trace: Trace, path: Path, begin: int) -> None:
    """Slices in microseconds since `begin` (nanoseconds): a run has the category "Session", a
    kernel "Node", with its ops in the place of the name of an operator. OSError: of the file."""
    trace.save(path)
    slices = [each for each in json.loads(path.read_bytes()) if each["ph"] == "X"]
    places: dict[str, int] = {}
    events = [_event(each, begin, places) for each in slices]
    path.write_text(json.dumps(events, indent=1), encoding="utf-8")


def _event(found: dict[str, Any], begin: int, places: dict[str, int]) -> dict[str, Any]:
    made = {"cat": "Session", "pid": found["pid"], "tid": found["tid"],
            "dur": round(found["dur"]), "ts": round(found["ts"] - begin / 1000), "ph": "X",
            "name": found["name"], "args": {}}  # fmt: skip
    kernel = found["args"].get("kernel", "")
    if found["cat"] == "call":
        return made | {"name": _WHOLE}
    if not _ENTRY.match(kernel):
        return made
    place = places.setdefault(kernel + found["name"], len(places))
    told = {"op_name": _ENTRY.sub("", kernel), "node_index": str(place),
            "provider": "CPUExecutionProvider" if found["cat"] == "host" else
            "OpenCLExecutionProvider", "kernel": kernel}  # fmt: skip
    return made | {"cat": "Node", "name": f"{found['name']}_kernel_time", "args": told}
