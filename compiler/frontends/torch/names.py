"""Names of results and of layers, as the user's Python has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingot.compiler.frontends.distinct_names import distinct_names

__all__ = ["layer_of", "line_of", "result_names"]

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)[^\n]*(?:\n\s*([^\n]*))?')
_OWN = re.compile(r"[/\\](torch|torchvision|torchaudio)[/\\]|<eval_with_key>")


def result_names(program: Any, count: int) -> list[str]:
    """The keys of dicts and fields of dataclasses that the module returns, "result.0" and so on
    for items of tuples; "result" for a single tensor."""
    names: list[str] = []
    try:
        calls = program["graph_module"]["module_call_graph"]
        signature = next(each["signature"] for each in calls if each["fqn"] == "")
        _, spec = json.loads(signature["out_spec"])
        names = [path.lstrip(".") for path in _leaves(spec, "", 0)]
    except (LookupError, TypeError, ValueError, StopIteration, RecursionError):
        names = []
    if len(names) != count:
        names = [str(place) for place in range(count)] if count > 1 else [""] * count
    named = [f"result.{name}" if name[:1].isdigit() else name or "result" for name in names]
    return distinct_names(named)


def _leaves(spec: Any, path: str, depth: int) -> Iterator[str]:
    """The paths of what is no container, in order."""
    children = spec["children_spec"]
    if depth > 50:
        raise ValueError("too deep")
    if spec["type"] is None:
        yield path
        return
    keys: list[Any] = list(range(len(children)))
    context = json.loads(spec["context"]) if isinstance(spec.get("context"), str) else None
    found = context
    if isinstance(context, list) and len(context) == 2 and isinstance(context[0], list):
        found = context[0]  # of a dataclass: the fields, and those that are None
    if (
        isinstance(found, list)
        and len(found) == len(children)
        and len(set(map(str, found))) == len(found)
    ):
        keys = [re.sub(r"[^\w.]", "_", str(key)) for key in found]
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{path}.{key}", depth + 1)


def layer_of(node: Any) -> str:
    """Where a node stands in the torch module: "encoder.layers.0.linear1/linear"."""
    name = str(node.get("name") or node.get("target", "").rpartition("::")[2])
    metadata = node.get("metadata") or {}
    stack = str(metadata.get("nn_module_stack") or "")
    entry = stack.rpartition(";")[2].split(",")
    path = entry[1] if len(entry) > 1 else ""
    path = re.sub(r"@\d+$", "", path)
    return f"{path}/{name}" if path else name


def line_of(node: Any) -> str:
    """The user's line that made a node: "model.py:12: y = f(x)"; "" if it is not noted."""
    trace = str((node.get("metadata") or {}).get("stack_trace") or "")
    frames = _FRAME.findall(trace)
    own = [each for each in frames if not _OWN.search(each[0])] or frames
    if not own:
        return ""
    path, line, code = own[-1]
    return f"{PurePath(path).name}:{line}" + (f": {code.strip()}" if code else "")
