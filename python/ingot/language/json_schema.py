"""Grammars of JSON that a schema describes (JSON Schema, as far as it is listed here)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from ingot.hal.errors import InvalidArgument
from ingot.language.grammar import Grammar, Row, Rules, characters, literal, outside

__all__ = ["grammar_of_schema"]

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_KEYS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
}
_ANY = ("type", "enum", "const", "anyOf", "oneOf", "$ref")
_NOTES = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format",
    "$schema", "$id", "$comment", "$defs", "definitions", "discriminator",
)  # fmt: skip
"""Keys that describe and demand nothing."""
_ESCAPED = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))  # characters that are never plain
_MOST_DIGITS, _MOST_SPACES, _MOST_DEPTH = 15, 20, 64


def grammar_of_schema(schema: Mapping[str, Any] | bool) -> Grammar:
    """The grammar of what fits a schema. Properties come in the order of the schema, and no others
    where `additionalProperties` does not say so. InvalidArgument: the schema demands what no
    grammar of ours does, and which key."""
    made = _Schema(schema)
    return Grammar(made.rules, made.rules.new([made.of(schema, "#", 0)]))


class _Schema:
    def __init__(self, whole: Any) -> None:
        self.whole, self.rules = whole, Rules()
        self.named: dict[str, int] = {}  # rules by what $ref says
        r = self.rules
        line = (*literal("\n"), *r.repeated(r.one_of(literal(" "), literal("\t")), 0, _MOST_SPACES))
        self.space = r.one_of((), literal(" "), line)
        digits = r.one_of(*characters([(0x30, 0x39)]))
        self.digits = digits
        first = characters([(0x31, 0x39)])[0]
        self.integer = (
            *r.repeated(literal("-"), 0, 1),
            *r.one_of(literal("0"), (*first, *r.repeated(digits, 0, _MOST_DIGITS - 1))),
        )
        escaped = r.one_of(*(literal(each) for each in '"\\/bfnrt'), self._code())
        plain = characters(outside(_ESCAPED))
        self.letter = r.one_of(*plain, (*literal("\\"), *escaped))
        self.plain = r.repeated(r.one_of(*plain), 0, None)
        self.string = (*literal('"'), *r.repeated(self.letter, 0, None), *literal('"'))
        self.any = self._any()

    def _code(self) -> Row:
        hexadecimal = self.rules.one_of(*characters([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]))
        return (*literal("u"), *hexadecimal * 4)

    def _number(self) -> Row:
        r = self.rules
        some = r.repeated(self.digits, 1, _MOST_DIGITS)
        part = (*literal("."), *some)
        sign = r.repeated(r.one_of(literal("+"), literal("-")), 0, 1)
        power = (*r.one_of(literal("e"), literal("E")), *sign, *r.repeated(self.digits, 1, 3))
        return (*self.integer, *r.repeated(part, 0, 1), *r.repeated(power, 0, 1))

    def _any(self) -> Row:
        """Any value."""
        number = self.rules.new()
        value: Row = (("rule", number),)
        rows = [self.string, self._number(), literal("true"), literal("false"), literal("null")]
        rows += [self._listed("[", value, "]", 0, None)]
        rows += [self._listed("{", self._member(self.string, value), "}", 0, None)]
        self.rules.rules[number] = rows
        return value

    def of(self, schema: Any, where: str, depth: int) -> Row:
        """What fits a schema that stands there."""
        if schema is True or schema == {}:
            return self.any
        if schema is False:
            return (("rule", self.rules.new()),)  # of nothing
        if not isinstance(schema, Mapping):
            raise InvalidArgument(f"{where} is {schema!r:.40}, expected a schema")
        if depth > _MOST_DEPTH:
            raise InvalidArgument(f"the schema is more than {_MOST_DEPTH} levels deep")
        if "$ref" in schema:
            self._check(schema, where, ("$ref",))
            return self._referred(schema["$ref"], where, depth)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                self._check(schema, where, (key,))
                parts = self._list(schema[key], f"{where}/{key}")
                places = enumerate(parts)
                rows = [self.of(each, f"{where}/{key}/{n}", depth + 1) for n, each in places]
                return self.rules.one_of(*rows)
        if "const" in schema or "enum" in schema:
            return self._one_constant(schema, where)
        kinds = self._kinds(schema, where)
        self._check(schema, where, ("type", *(key for k in kinds for key in _KEYS.get(k, ()))))
        return self.rules.one_of(*(self._typed(kind, schema, where, depth) for kind in kinds))

    def _kinds(self, schema: Mapping[str, Any], where: str) -> Sequence[str]:
        """The types that a schema asks for, or those that its other keys are about, or all."""
        own = next(([kind] for kind, keys in _KEYS.items() if {*keys} & {*schema}), _TYPES)
        given = schema.get("type", own)
        kinds = [given] if isinstance(given, str) else self._list(given, f"{where}/type")
        if any(kind not in _TYPES for kind in kinds):
            expected = ", ".join(_TYPES)
            raise InvalidArgument(f"{where}/type is {kinds!r:.60}, expected of {expected}")
        return kinds

    def _one_constant(self, schema: Mapping[str, Any], where: str) -> Row:
        """One of the values of `const` and `enum` that are of the types of the schema."""
        self._check(schema, where, ("const", "enum", "type"))
        kinds = {*self._kinds(schema, where)}
        rows = [
            {self._constant(each): None for each in values if kinds & _types_of(each)}
            for values in (
                self._list(schema["enum"], f"{where}/enum") if "enum" in schema else None,
                [schema["const"]] if "const" in schema else None,
            )
            if values is not None
        ]
        found = [row for row in rows[0] if row in rows[-1]]
        if not found:
            raise InvalidArgument(f"{where} allows no value: no constant there fits the others")
        return self.rules.one_of(*found)

    def _typed(self, kind: str, schema: Mapping[str, Any], where: str, depth: int) -> Row:
        if kind == "object":
            return self._object(schema, where, depth)
        if kind == "array":
            return self._array(schema, where, depth)
        if kind == "string":
            counts = self._counts(schema, where, "Length")
            return (*literal('"'), *self.rules.repeated(self.letter, *counts), *literal('"'))
        if kind == "boolean":
            return self.rules.one_of(literal("true"), literal("false"))
        return {"integer": self.integer, "null": literal("null")}.get(kind) or self._number()

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> Row:
        own, others = schema.get("properties", {}), schema.get("additionalProperties")
        needed = self._list(schema.get("required", []), f"{where}/required", 0)
        if not isinstance(own, Mapping) or not all(isinstance(name, str) for name in own):
            raise InvalidArgument(f"{where}/properties is {own!r:.40}, expected schemas by name")
        missing = [name for name in needed if not isinstance(name, str) or name not in own]
        if missing:
            raise InvalidArgument(f"{where}/required has {missing[0]!r:.40}, which is no property")
        if others is None and not own:
            others = True
        more = None
        if others is not None and others is not False:
            value = self.of(others, f"{where}/additionalProperties", depth + 1)
            more = self._member(self._other_name(own), value)
            if not own:
                return self._listed("{", more, "}", 0, None)
        first: Row = ()  # what may follow where nothing stands yet, and behind something
        behind: Row = ()
        if more is not None:
            behind = self.rules.repeated((*self._comma(), *more), 0, None)
            first = self.rules.one_of((), (*more, *behind))
        for name in reversed(list(own)):
            value = self.of(own[name], f"{where}/properties/{name}", depth + 1)
            member = self._member(self._constant(name), value)
            with_first, with_comma = (*member, *behind), (*self._comma(), *member, *behind)
            if name in needed:
                first, behind = with_first, with_comma
            else:
                first = self.rules.one_of(with_first, first)
                behind = self.rules.one_of(with_comma, behind)
            first, behind = ((("rule", self.rules.new([row])),) for row in (first, behind))
        return (*literal("{"), *self.space, *first, *self.space, *literal("}"))

    def _other_name(self, own: Collection[str]) -> Row:
        """A string that is none of these; its letters are plain, so that it is none of them in
        another spelling either."""
        if not own:
            return self.string
        root = self.rules.new()
        following: dict[int, dict[str, int]] = {root: {}}
        ends = set[int]()
        for name in own:
            place = root
            for letter in name:
                if letter not in following[place]:
                    following[place][letter] = number = self.rules.new()
                    following[number] = {}
                place = following[place][letter]
            ends.add(place)
        for place, letters in following.items():
            begun = [(ord(letter), ord(letter)) for letter in letters]
            apart = characters(outside([*_ESCAPED, *begun]))
            rows = self.rules.rules[place]
            rows += [] if place in ends else [()]
            rows += [(*row, *self.plain) for row in apart]
            for letter, number in letters.items():
                if not _is_escaped(letter):
                    rows.append((*literal(letter), ("rule", number)))
        return (*literal('"'), ("rule", root), *literal('"'))

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> Row:
        least, most = self._counts(schema, where, "Items")
        front = self._list(schema.get("prefixItems", []), f"{where}/prefixItems", 0)
        items, where = schema.get("items", True), f"{where}/items"
        if not front:
            return self._listed("[", self.of(items, where, depth + 1), "]", least, most)
        rows = [self.of(each, f"{where}/{n}", depth + 1) for n, each in enumerate(front)]
        if items is not False and most != len(front):
            raise InvalidArgument(
                f"{where} is {items!r:.40} behind prefixItems, expected false, or their count as "
                "maxItems"
            )
        if least > len(front) or (most is not None and most < len(front)):
            raise InvalidArgument(
                f"{where} stands behind {len(front)} prefixItems, which are written all, but "
                f"minItems is {least} and maxItems {most}"
            )
        whole = rows[0] + tuple(part for row in rows[1:] for part in (*self._comma(), *row))
        return (*literal("["), *self.space, *whole, *self.space, *literal("]"))

    def _listed(self, begin: str, item: Row, end: str, least: int, most: int | None) -> Row:
        """So many items between brackets."""
        more = self.rules.repeated(
            (*self._comma(), *item), max(least - 1, 0), None if most is None else max(most - 1, 0)
        )
        some = (*item, *more) if most != 0 else ()
        inner = some if least else self.rules.one_of(some, ())
        return (*literal(begin), *self.space, *inner, *self.space, *literal(end))

    def _member(self, name: Row, value: Row) -> Row:
        return (*name, *literal(":"), *self.space, *value)

    def _comma(self) -> Row:
        return (*literal(","), *self.space)

    def _constant(self, value: Any) -> Row:
        try:
            return literal(json.dumps(value, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{value!r:.40} in the schema is no JSON: {error}") from None

    def _referred(self, reference: Any, where: str, depth: int) -> Row:
        """The rule of a schema elsewhere in this one, which may be in itself."""
        if not isinstance(reference, str) or f"{reference}/"[:2] != "#/":
            raise InvalidArgument(
                f"{where}/$ref is {reference!r:.60}, expected a place in the schema: '#/$defs/NAME'"
            )
        if reference not in self.named:
            found = self.whole
            for part in reference[1:].split("/")[1:]:
                part = unquote(part).replace("~1", "/").replace("~0", "~")
                found = _part_of(found, part)
            if found is None:
                raise InvalidArgument(f"{where}/$ref is {reference!r:.60}, which is not there")
            self.named[reference] = number = self.rules.new()
            self.rules.rules[number] = [self.of(found, reference, depth + 1)]
        return (("rule", self.named[reference]),)

    def _counts(self, schema: Mapping[str, Any], where: str, what: str) -> tuple[int, int | None]:
        least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}")
        numbers = [each for each in (least, most) if each is not None]
        if any(type(each) is not int or not 0 <= each <= 1 << 14 for each in numbers) or (
            most is not None and most < least
        ):
            raise InvalidArgument(
                f"{where} has min{what} {least!r:.20} and max{what} {most!r:.20}, expected counts "
                f"that grow, and at most {1 << 14}"
            )
        return least, most

    def _list(self, given: Any, where: str, least: int = 1) -> Sequence[Any]:
        if isinstance(given, Sequence) and not isinstance(given, str) and len(given) >= least:
            return given
        raise InvalidArgument(f"{where} is {given!r:.40}, expected a list")

    def _check(self, schema: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        """InvalidArgument: the schema demands something else."""
        for key in schema:
            if key not in (*known, *_NOTES):
                raise InvalidArgument(
                    f"{where} has the key {key!r:.40}, which is not supported there: known are "
                    f"{', '.join(known)}"
                )


def _part_of(schema: Any, name: str) -> Any:
    """What a part of a place leads to; None: nothing."""
    if isinstance(schema, Mapping):
        return schema.get(name)
    is_place = isinstance(schema, list) and name.isdecimal() and len(name) < 10
    return schema[int(name)] if is_place and int(name) < len(schema) else None


def _types_of(value: Any) -> set[str]:
    """The types that a value has."""
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, (int, float)):
        return {"number", "integer"} if value == value // 1 else {"number"}
    if isinstance(value, str):
        return {"string"}
    return {"object" if isinstance(value, Mapping) else "array"}


def _is_escaped(letter: str) -> bool:
    """Whether a letter is never plain, or none of UTF-8."""
    ranges = (*_ESCAPED, (0xD800, 0xDFFF))
    return any(first <= ord(letter) <= last for first, last in ranges)
