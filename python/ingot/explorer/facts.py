"""What a module file says of itself, as one JSON object: the data of the explorer's page.

It is `ingot inspect --json`, with the code of every function, the graph text of every kernel, and
what the debug section says (`compiler/debug_info.py`). A module without one still has bytecode,
from which the dispatches are taken in their order.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any

from ingot.compiler.vm.contents import FunctionContents, ModuleContents
from ingot.compiler.vm.disassemble import function_code
from ingot.hal.errors import DataLoss
from ingot.inspection import module_report

__all__ = ["module_facts", "read_debug"]

_DISPATCH = re.compile(r"dispatch @([^,]+)")
_NO_DEBUG = (
    "the module has no debug section: compile it with --debug (debug=True) to see what each "
    "dispatch reads and costs, its loop IR and source, and the plan of memory"
)
_NO_DOCUMENT = (
    "the debug section of the module is none that this Ingot reads: compile it again, or take the "
    "section out with `ingot strip`"
)
_GREATEST_LENGTH = 1 << 28  # of its text; that of the largest model of the tests has 5 MB
_NO_REGIONS = "the module was stripped: the graph of its kernels is not in it"


def module_facts(
    path: str, data: bytes, contents: ModuleContents, dims: Mapping[str, int]
) -> dict[str, Any]:
    """All that the page shows of a module. InvalidArgument: it has no dim of a name in `dims`.
    DataLoss: its debug section is damaged."""
    debug = read_debug(contents)
    targets = debug.get("targets", {})
    facts = {
        **module_report(path, data, contents, dims or None),
        "name": os.path.basename(path),
        "sizes": dict(dims),
        "texts": debug.get("texts", []),
        "missing": [_NO_DEBUG] * (not debug) + [_NO_REGIONS] * (not _has_regions(contents)),
    }
    for function, row in zip(contents.functions, facts["functions"], strict=True):
        code = function_code(contents, function)
        row["code"] = list(code.items())
        row["layers"] = [[each.word, each.layer, each.op] for each in function.code.locations]
        known = _part(targets, function.target, "functions", function.name)
        row |= {**known, **row} if known else _from_code(function, code)
    for executable, row in zip(contents.executables, facts["executables"], strict=True):
        known = _part(targets, executable.target, "kernels")
        for entry, kernel in zip(executable.entries, row["kernels"], strict=True):
            kernel |= {"region": entry.region, "bindings": entry.binding_count}
            kernel |= {**_part(known, entry.name), **kernel}
    return facts


def _part(tree: Any, *names: str) -> dict[str, Any]:
    """What stands in a document under these names, nothing if one is missing. DataLoss: it is
    no object."""
    for name in names:
        tree = tree.get(name, {}) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        raise DataLoss(_NO_DOCUMENT)
    return tree


def read_debug(contents: ModuleContents) -> dict[str, Any]:
    """The debug section of a module, {} without one. DataLoss: it is none that is read here."""
    if not contents.debug:
        return {}
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(contents.debug, _GREATEST_LENGTH)
        document = json.loads(text, parse_constant=_refuse) if inflater.eof else None
    except (RecursionError, ValueError, zlib.error):
        document = None
    if not isinstance(document, dict) or document.get("schema") != "ingot.debug/1":
        raise DataLoss(_NO_DOCUMENT)
    return document


def _refuse(text: str) -> Any:
    """Of NaN and infinities, which are no JSON."""
    raise ValueError(text)


def _has_regions(contents: ModuleContents) -> bool:
    entries = [each for executable in contents.executables for each in executable.entries]
    return not entries or any(each.region for each in entries)


def _from_code(function: FunctionContents, code: Mapping[int, str]) -> dict[str, Any]:
    """What the bytecode tells of a function: its dispatches, in the order of the code."""
    layers = sorted(function.code.locations, key=lambda each: each.word)
    commands: list[dict[str, Any]] = []
    place = -1
    for word, text in code.items():
        while place + 1 < len(layers) and layers[place + 1].word <= word:
            place += 1
        if found := _DISPATCH.match(text):
            layer = layers[place].layer if place >= 0 else ""
            operations = layers[place].op if place >= 0 else ""
            commands.append(
                {
                    "id": word,
                    "op": "dispatch",
                    "kernel": found[1],
                    "layer": layer,
                    "operations": operations,
                    "operands": [{"type": "", "from": [commands[-1]["id"]]}] if commands else [],
                    "results": [],
                }
            )
    return {"commands": commands, "results_from": {}, "memory": [], "weights": [], "symbols": {}}
