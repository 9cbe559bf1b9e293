"""The report of a quantisation as one HTML page, without scripts.

Names are from models: they stand in it as escaped text only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

from ingot.hal.printable import size_text
from ingot.quantizing.report import LayerReport, QuantizationReport

__all__ = ["make_page"]

_WIDTH, _HEIGHT, _LEFT, _TOP = 1200, 170, 64, 10
_LEAST, _GREATEST = -5, 0  # powers of ten on the axis of errors

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Ingot: a quantised model</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def make_page(report: QuantizationReport, title: str) -> str:
    """The page, which opens from the disk and loads nothing."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    parts = [f"<h1>{_text(title)}</h1>", *_cards(report)]
    parts += _errors(report.layers)
    parts += _times(report.layers)
    parts += _table(report.layers)
    return _PAGE.format(style=style, body="\n".join(parts))


def _text(text: str) -> str:
    """Text of a source as HTML may have it."""
    return escape("".join(each if each.isprintable() else "?" for each in text))


def _cards(report: QuantizationReport) -> Iterator[str]:
    cards = [("layers quantised", f"{report.quantized} of {len(report.layers)}", "")]
    before, after = report.length_before, report.length_after
    note = "" if before is None else f"{after / before:.2f} of {size_text(before)}"
    cards.append(("module", size_text(after), note))
    if report.time_before and report.time_after:
        note = f"{report.time_before / report.time_after:.2f} times as fast as float"
        cards.append(("a call on this machine", _milliseconds(report.time_after), note))
    for each in report.results:
        note = f"cosine {each.cosine:.6f}, of {report.basis}"
        cards.append((f"error of '{each.name}'", f"{each.error:.2g}", note))
    yield '<div class="cards">'
    for label, number, note in cards:
        yield (
            f'<div class="card"><span>{_text(label)}</span><b>{_text(number)}</b>'
            f"<span>{_text(note)}</span></div>"
        )
    yield "</div>"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _errors(layers: Sequence[LayerReport]) -> Iterator[str]:
    """A dot for each layer; a ring where it stayed float."""
    yield "<h2>Relative error of each layer</h2>"
    yield from _chart_begin()
    for power in range(_LEAST, _GREATEST + 1):
        y = _height(10.0**power)
        yield from _grid_line(y, f"1e{power}")
    step = _step(layers)
    for place, each in enumerate(layers):
        if each.error is not None:
            x, y = _LEFT + (place + 0.5) * step, _height(each.error)
            kind = "after" if each.is_quantized else "float"
            yield (
                f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
                f"<title>{_text(_tip(each))}</title></circle>"
            )
    yield "</svg>"


def _times(layers: Sequence[LayerReport]) -> Iterator[str]:
    """Two bars for each layer."""
    greatest = max((each.time_before or 0.0 for each in layers), default=0.0)
    greatest = max(greatest, max((each.time_after or 0.0 for each in layers), default=0.0))
    if not greatest:
        return
    yield (
        '<h2>Time of each layer, microseconds<span class="key before"></span>float'
        '<span class="key after"></span>quantised</h2>'
    )
    yield from _chart_begin()
    for part in (0.25, 0.5, 0.75, 1.0):
        yield from _grid_line(_TOP + _HEIGHT * (1 - part), f"{greatest * part * 1e6:.3g}")
    step = _step(layers)
    for place, each in enumerate(layers):
        for side, (kind, time) in enumerate(
            (("before", each.time_before), ("after", each.time_after))
        ):
            height = _HEIGHT * (time or 0.0) / greatest
            x = _LEFT + (place + 0.1 + 0.4 * side) * step
            yield (
                f'<rect class="{kind}" x="{x:.1f}" y="{_TOP + _HEIGHT - height:.1f}" '
                f'width="{0.4 * step:.1f}" height="{height:.1f}">'
                f"<title>{_text(_tip(each))}</title></rect>"
            )
    yield "</svg>"


def _chart_begin() -> Iterator[str]:
    yield f'<svg viewBox="0 0 {_LEFT + _WIDTH + 12} {_TOP + _HEIGHT + 12}">'


def _grid_line(y: float, label: str) -> Iterator[str]:
    yield f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _step(layers: Sequence[LayerReport]) -> float:
    return min(_WIDTH / max(len(layers), 1), 60.0)


def _height(error: float) -> float:
    power = math.log10(error) if error > 0 else _LEAST
    share = (min(max(power, _LEAST), _GREATEST) - _LEAST) / (_GREATEST - _LEAST)
    return _TOP + _HEIGHT * (1 - share)


def _tip(each: LayerReport) -> str:
    """What is said of a layer that is pointed at."""
    error = "-" if each.error is None else f"{each.error:.2g}"
    times = _pair(each.time_before, each.time_after)
    return f"{each.name}: {each.scheme}, error {error}, {times} us"


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _pair(before: float | None, after: float | None) -> str:
    return f"{_microseconds(before)} → {_microseconds(after)}"


def _shape(each: LayerReport) -> str:
    return " x ".join(map(str, each.shape))


def _error(each: LayerReport) -> str:
    return "-" if each.error is None else f"{each.error:.2e}"


_COLUMNS: tuple[tuple[str, str, Callable[[LayerReport], str]], ...] = (
    ("kind", "text", lambda each: each.kind),
    ("weight", "text", _shape),
    ("became", "text", lambda each: each.scheme),
    ("bits", "", lambda each: f"{each.bits:.2f}"),
    ("bytes", "", lambda each: f"{size_text(each.length_before)} → {size_text(each.length_after)}"),
    ("error", "", _error),
    ("cosine", "", lambda each: "-" if each.cosine is None else f"{each.cosine:.5f}"),
    ("predicted us", "", lambda each: _pair(each.predicted_before, each.predicted_after)),
    ("measured us", "", lambda each: _pair(each.time_before, each.time_after)),
)


def _table(layers: Sequence[LayerReport]) -> Iterator[str]:
    known = {each.is_measured for each in layers if each.error is not None}
    basis = "what the layer gives on calibration data" if True in known else "its weight"
    if len(known) == 2:
        basis += ", and of its weight where data shows none"
    yield "<h2>Layers</h2>"
    yield (
        f'<p class="note">Errors are those of {basis}: the l2 norm of the difference, relative to '
        "that of the float one. Times of a layer are those of the kernels that compute it, perhaps "
        "with others; predicted ones are by a roofline.</p>"
    )
    heads = "".join(f'<th class="{kind}">{name}</th>' for name, kind, _ in _COLUMNS)
    yield f'<div class="scroll"><table><tr><th class="text">layer</th>{heads}</tr>'
    for each in layers:
        reason = f'<div class="reason">{_text(each.reason)}</div>' if each.reason else ""
        cells = "".join(
            f'<td class="{kind}">{_text(show(each))}</td>' for _, kind, show in _COLUMNS
        )
        yield f'<tr><td class="name">{_text(each.name)}{reason}</td>{cells}</tr>'
    yield "</table></div>"
