"""How much calls of templates can make: known before they begin, since nothing ends them.

A weight says what a value takes where it is walked through, however often parts of it are the same
object: lists that hold another one twice, forty deep, have 2^40 parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["MOST_PARTS", "Weigher", "Weight", "bound"]

MOST_PARTS = 1 << 18
_MOST_INTEGER = 1 << 15  # bits; what divides longer ones takes their square
_SLOW = 8  # a character there takes as long, or as much memory, as so many elsewhere
_SLOW_FILTERS = {"pprint", "title", "urlize", "wordcount", "wordwrap"}
_ESCAPING = {"e", "escape", "forceescape", "urlencode", "xmlattr"}
_LONGEST_ESCAPE = 12  # of urlencode, for four bytes
_MOST_INDENT = 64
_MOST_SHOWN = 1 << 20


class Weight(NamedTuple):
    """Values inside of one, and itself; characters of its text; how deep they lie."""

    parts: int
    length: int
    depth: int


class Weigher:
    """Weighs values. Those that are given to a template are weighed once."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._known: dict[int, Weight] = {}
        self._weigh(given, self._known)

    def __call__(self, value: Any) -> Weight:
        """RuntimeError: it is larger than any template needs."""
        found = self._weigh(value, {})
        if found.parts > MOST_PARTS:
            raise RuntimeError("its lists have too many parts")
        return found

    def _weigh(self, value: Any, seen: dict[int, Weight]) -> Weight:
        if isinstance(value, (str, bytes)):
            return Weight(1, len(value) + 2, 1)
        if isinstance(value, int):
            if value.bit_length() > _MOST_INTEGER:
                raise RuntimeError("its integers are too long")
            return Weight(1, value.bit_length() // 3 + 2, 1)
        inner = _inner(value)
        if inner is None:
            return Weight(1, 64, 1)
        known = self._known.get(id(value)) or seen.get(id(value))
        if known is None:
            seen[id(value)] = Weight(1, 8, 1)  # what holds itself is shown as three dots
            parts, length, depth = 1, 2, 0
            for each in inner:
                part = self._weigh(each, seen)
                parts, length = parts + part.parts, length + part.length + 2
                depth = max(depth, part.depth)
                if parts > MOST_PARTS:
                    break
            known = seen[id(value)] = Weight(parts, length, depth + 1)
        return known


def _inner(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return (each for pair in value.items() for each in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    try:  # past what a value, as one that is not defined, says to names that it has not
        attributes: dict[str, Any] = object.__getattribute__(value, "_Namespace__attrs")
    except AttributeError:
        return None
    return list(attributes.values())


def bound(name: str, given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """At least how long a text the method or filter makes, or how much it takes otherwise; 0 where
    that is no more than what it gets."""
    rule = _RULES.get(name)
    weights = [weigh(each) for each in (*given, *options.values())]
    if rule is not None:
        return rule(given, options, weigh)
    length = sum(each.length for each in weights)
    if name in _SLOW_FILTERS:
        return length * _SLOW
    return length * _LONGEST_ESCAPE if name in _ESCAPING else 0


def _text(value: Any, weigh: Weigher) -> Any:
    """What a filter takes for a text."""
    if isinstance(value, (str, bytes)):
        return value
    if weigh(value).length > _MOST_SHOWN:
        raise RuntimeError("its texts are longer than what is shown of lists")
    return str(value)


def _argument(given: Sequence[Any], options: Mapping[str, Any], at: int, name: str) -> Any:
    return given[at] if len(given) > at else options.get(name)


def _replace(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    text = _text(given[0], weigh)
    old, new = (_argument(given, options, at, name) for at, name in ((1, "old"), (2, "new")))
    count = text.count(old) if isinstance(old, type(text)) else len(text)
    return len(text) + int(count) * weigh(new).length


def _join(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """Of a list, with what is between its items."""
    items, between = weigh(given[0]), _argument(given, options, 1, "d")
    count = len(given[0]) if hasattr(given[0], "__len__") else items.parts
    return items.length + count * (0 if between is None else weigh(between).length)


def _indent(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    text, width = _text(given[0], weigh), _argument(given, options, 1, "width")
    each = width if isinstance(width, int) else 4 if width is None else weigh(width).length
    return len(text) + (len(text.splitlines()) + 1) * max(each, 0)


def _expandtabs(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    size = _argument(given, options, 1, "tabsize")
    tabs = given[0].count("\t" if isinstance(given[0], str) else b"\t")
    return int(len(given[0]) + tabs * (size if isinstance(size, int) else 8))


def _translate(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    table = given[1] if len(given) > 1 and isinstance(given[1], Mapping) else {}
    return int(len(given[0]) * max((weigh(each).length for each in table.values()), default=1))


def _split(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    between = _argument(given, options, 1, "sep")
    is_given = isinstance(between, type(given[0])) and between
    return _SLOW * (given[0].count(between) if is_given else len(given[0]) // 2)


def _list(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    return _SLOW * len(given[0]) if isinstance(given[0], (str, bytes)) else 0


def _pieces(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """Of lists in a list, each with some that are filled in."""
    counts = [each for each in (*given[1:], *options.values()) if isinstance(each, int)]
    return _list(given, options, weigh) + _SLOW**2 * max(counts, default=0)


def _format(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """Of fields of the widths that stand in the form, each with any of the values."""
    form = _text(given[0], weigh)
    values = [weigh(each).length for each in (*given[1:], *options.values())]
    widths = sum(map(int, re.findall(r"\d+", form)))
    fields = form.count("%") + form.count("{")
    return int(len(form) + widths + max(values, default=0) * fields)


def _tojson(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """Of JSON whose characters may be escapes, with every value on a line of its own."""
    value, indent = weigh(given[0]), _argument(given, options, 2, "indent")
    step = indent if isinstance(indent, int) else weigh(indent or "").length
    between = _argument(given, options, 3, "separators")
    if max(step, 0 if between is None else weigh(between).length) > _MOST_INDENT:
        raise RuntimeError("its texts are longer than JSON is indented")
    return value.length * 6 + value.parts * (value.depth * max(step, 0) + _MOST_INDENT)


def _striptags(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    """Each tag is taken out by a copy of all."""
    text = _text(given[0], weigh)
    return int(text.count("<")) * len(text) // 256


def _string(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    return weigh(given[0]).length if given else 0


def _sum(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    start = _argument(given, options, 2, "start")
    if start is not None and not isinstance(start, (int, float)):
        raise RuntimeError("its sums are of numbers alone")
    return 0


def _round(given: Sequence[Any], options: Mapping[str, Any], weigh: Weigher) -> int:
    digits = _argument(given, options, 1, "precision")
    return 0 if not isinstance(digits, int) or abs(digits) < 1000 else 1 << 30


_Rule = Callable[[Sequence[Any], Mapping[str, Any], Weigher], int]
_RULES: dict[str, _Rule] = {
    "batch": _pieces,
    "expandtabs": _expandtabs,
    "format": _format,
    "format_map": _format,
    "indent": _indent,
    "join": _join,
    "list": _list,
    "replace": _replace,
    "round": _round,
    "rsplit": _split,
    "slice": _pieces,
    "sort": _list,
    "split": _split,
    "splitlines": _split,
    "strftime_now": lambda given, options, weigh: 32 * _string(given, options, weigh),
    "string": _string,
    "striptags": _striptags,
    "sum": _sum,
    "tojson": _tojson,
    "translate": _translate,
    "unique": _list,
}
