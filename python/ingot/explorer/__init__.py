"""A page that shows what a module is and does, as one file: `ingot explore`.

`facts.py` says all that the module, its debug section and a trace know, `times.py` reads the
trace, and `page/` shows it: HTML, a style and scripts, which become one file with the libraries
that draw. docs/design/0012-explorer.md says why it is made like this.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.explorer.facts import module_facts
from ingot.explorer.times import add_times
from ingot.hal.errors import InvalidArgument
from ingot.hal.options import checked_options
from ingot.hal.whole_file import write_whole
from ingot.inputs import known_sizes
from ingot.inspection import read_file

__all__ = ["explore", "make_page"]

_FOLDER = Path(__file__).parent
_LIBRARIES = (
    *("dispatch", "selection", "timer", "color", "interpolate", "ease", "transition", "drag"),
    *("zoom", "hierarchy"),
)  # of d3, after what each needs
_SCRIPTS = (
    *("base", "formula", "model", "layout", "graph", "code", "detail"),
    *("table", "memory", "weights", "about", "compare", "main"),
)


@checked_options(InvalidArgument)
def explore(
    module: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    trace: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> None:
    """Write a page that shows the module in the file `module`, which opens in a browser from
    the disk and needs no network.

    `trace`: a timeline of calls of it, such as `model.trace(x).save(path)` writes, whose times
    are shown. `against`: another module, to be shown beside it. `dims`: sizes with which the page
    begins. What a module says of itself it says if it was compiled with `debug=True`.

    NotFound, DataLoss, Incompatible: a file is no module. InvalidArgument: the trace is of
    another module, or it has no dim of some name. OSError: the page cannot be written.
    """
    models = [_facts(os.fspath(module), dims or {})]
    if trace is not None:
        add_times(os.fspath(trace), models[0])
    if against is not None:
        models.append(_facts(os.fspath(against), {}))
    page = make_page(models).encode()
    write_whole(output, lambda file: file.write(page))


def _facts(path: str, dims: Mapping[str, int]) -> dict[str, Any]:
    data, contents = read_file(path)
    sizes = known_sizes(dims, contents.metadata)
    return module_facts(path, data, contents, sizes)


def make_page(models: Sequence[Mapping[str, Any]]) -> str:
    """The page of these facts. What is from a module stands in it as base64 only, so that no name
    in it is read as HTML; scripts show it as text."""
    packed = zlib.compress(json.dumps({"models": models}, separators=(",", ":")).encode(), 9)
    libraries = [_read(f"libraries/d3-{name}.min.js") for name in _LIBRARIES]
    scripts = "\n".join(_read(f"page/{name}.js") for name in _SCRIPTS)
    parts = {
        "STYLE": _read("page/page.css"),
        "LICENCE": _read("libraries/LICENSE"),
        "LIBRARIES": "\n".join(libraries),
        "SCRIPT": f'(function () {{\n"use strict";\n{scripts}\n}})();',
        "DATA": base64.b64encode(packed).decode(),
    }
    page = _read("page/page.html")
    for name, text in parts.items():
        page = page.replace(f"@{name}@", text, 1)
    return page


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
