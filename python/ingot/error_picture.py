"""A picture of errors over the layers, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from ingot.bisecting import Bisection
from ingot.hal.errors import InvalidArgument

__all__ = ["draw_errors", "write_picture"]

_LEAST, _GREATEST = -9, 2  # powers of ten on the axis; what is beyond stands at its end
_LEFT, _TOP, _HEIGHT, _BOTTOM, _WIDTH = 64, 44, 300, 28, 900
_STYLE = """\
text{font:12px system-ui,sans-serif;fill:#444}.title{font-weight:600;font-size:14px;fill:#111}\
.grid{stroke:#ddd}.whole{fill:none;stroke:#8aa4c8;stroke-width:1.5}.own{fill:#2a5db0}\
.wrong{fill:#c62828}.back{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#bbb}.title{fill:#eee}.grid{stroke:#3a3a3a}\
.whole{stroke:#56709a}.own{fill:#7fb0ff}.wrong{fill:#ff6b5e}.back{fill:#16181c}}"""


def draw_errors(found: Bisection, title: str) -> str:
    """The picture: a dot for what each layer makes wrong itself, red where that is too much, and
    a line for the error since the arguments. Names of layers are shown as text when pointed at."""
    height = _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}">',
        f'<style>{_STYLE}</style><rect class="back" width="100%" height="100%"/>',
        f'<text class="title" x="{_LEFT}" y="18">{_text(title)}</text>',
        f'<text x="{_LEFT}" y="35">relative error of each layer: dots its own, the line with '
        f"those before it; against {_text(found.against)}</text>",
        *_grid(),
        f'<text x="{_LEFT}" y="{height - 8}">{_text(found.summary)}</text>',
    ]
    step = _WIDTH / max(len(found.layers), 1)
    points = [
        f"{_LEFT + (place + 0.5) * step:.1f},{_height_of(layer.whole):.1f}"
        for place, layer in enumerate(found.layers)
        if layer.whole is not None
    ]
    parts.append(f'<polyline class="whole" points="{" ".join(points)}"/>')
    for place, layer in enumerate(found.layers):
        if layer.own is not None:
            kind, radius = ("wrong", 5) if layer.is_wrong else ("own", 3)
            x, y = _LEFT + (place + 0.5) * step, _height_of(layer.own)
            tip = f"{layer.layer} {layer.type}: {layer.own:.2g}"
            parts.append(
                f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
                f"<title>{_text(tip)}</title></circle>"
            )
    return "\n".join([*parts, "</svg>", ""])


def write_picture(folder: str, found: Bisection, title: str) -> None:
    """Writes `errors.svg` to the folder. InvalidArgument: it cannot be written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "errors.svg").write_text(draw_errors(found, title), encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot write the picture to '{folder}': {error.strerror}") from None


def _grid() -> Iterator[str]:
    for power in range(_LEAST, _GREATEST + 1):
        y = _height_of(10.0**power)
        label = "0" if power == _LEAST else f"1e{power}"
        yield f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _height_of(error: float) -> float:
    power = math.log10(error) if 0 < error < math.inf else _LEAST if error == 0 else _GREATEST
    share = (min(max(power, _LEAST), _GREATEST) - _LEAST) / (_GREATEST - _LEAST)
    return _TOP + _HEIGHT * (1 - share)


def _text(text: str) -> str:
    """Text of a source as XML may have it."""
    return escape("".join(each if each.isprintable() else "?" for each in text))
