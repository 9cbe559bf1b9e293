"""Texts that follow a grammar or a JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies

import ingot
from ingot.language.constraint import Constraint
from ingot.language.gbnf import read_gbnf
from ingot.language.json_schema import grammar_of_schema
from ingot.language.text_stream import StopTexts
from ingot.language.tokenizer import FileTokenizer
from tests.support.drawn import examples
from tests.support.language import KEYS, PEER_SHAPES, TOKENS, write_model

_JSON = r"""
root ::= value
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws # escapes
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4, "title": "Name"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "\u00e9"]}, "minItems": 1, "maxItems": 2},
        "parent": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "pair": {"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}],
                 "items": False},
    },
    "required": ["name", "pair"],
}  # fmt: skip


def _fits(grammar: Any, text: str | bytes) -> bool | None:
    """Whether a text is whole; None where nothing behind it could be."""
    state = grammar.after(grammar.start, text if isinstance(text, bytes) else text.encode())
    return (None in state) if state else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": [1, -2.5e3, "x\\n\u00e9\U0001f600"], "b": {}}', True),
        ('{"a": tru', False),
        ('{"a" 1', None),
        ("[1,]", None),
        (b'"\xff', None),
        (b'"\xed\xa0\x80', None),  # half of a pair
        (b'"\xe2\x82', False),
        ("\n", None),
    ],
)
def test_texts_follow_grammars_of_llama_cpp(text: str | bytes, expected: bool | None) -> None:
    assert _fits(read_gbnf(_JSON), text) is expected


@pytest.mark.parametrize(
    ("grammar", "fit", "others"),
    [
        ('root ::= "a"{2,3} b+\nb ::= [x-z]', ["aax", "aaayzx"], ["ax", "aaaax"]),
        ('root ::= [^a-y]? ("n" | "no")', ["zn", "no", "\u20acno"], ["an"]),
        ("root ::= .\n\n# nothing\n", ["\n", "\U0010ffff"], ["ab"]),
        ('root ::= "\\x41\\u00e9\\U0001f600\\\\\\"" [\\]\\-]', ['A\u00e9\U0001f600\\"-'], ["A"]),
        ('root ::= "a" (b | "c")\nb ::= b2 "x"\nb2 ::= b', ["ac"], ["ab", "ax"]),
        ("root ::= [\u0100-\u07ff\u0801-\u1000]+", ["\u0100\u0801", "\u1000"], ["\u0800"]),
        ('root ::= (\n root2 \n | root2 )*\nroot2 ::=\n "q" |\n "r"', ["", "qrq"], ["qs"]),
    ],
)
def test_what_grammars_are_made_of(grammar: str, fit: list[str], others: list[str]) -> None:
    made = read_gbnf(grammar)
    assert all(_fits(made, text) for text in fit)
    assert not any(_fits(made, text) for text in others)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule 'root'"),
        ("root ::= other", "no rule 'other'"),
        ('root ::= "a"\nroot ::= "b"', "line 2 .* the rule 'root' is there twice"),
        ('root ::= "a', "expected a rule, a text, a set or a sign"),
        ("root ::= (a", r"expected \)"),
        ("root ::= []", "the set is empty"),
        ('root ::= "a"{3,2}', "expected counts that grow"),
        ('root ::= root "a" | "b"', "begins with itself"),
        ("root ::= " + "(" * 200, "too many brackets"),
        ('root ::= "a" b\nb ::= b "c"', "no text follows the grammar"),
        ("root ::= [z-a]", "the range from 0x7a to 0x61 is empty"),
        ("root ::=\n[\\d]", r"line 2 of the grammar has '.*': the escape .* is not known"),
        ('root ::= "\\ud800"', "0xd800 is no character"),
        ('root ::= "\\U00110000"', "0x110000 is no character"),
        ('root ::= "a"{' + "9" * 5000 + "}", "expected a rule, a text"),
    ],
)
def test_grammars_that_are_none_are_refused(grammar: str, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        read_gbnf(grammar)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "\\"\u00e9\\u00e9x", "pair": [1, true]}', True),
        ('{"name": "abcde', None),
        ('{"name":"","age":-10,"tags":["a","\u00e9"],"parent":null,"pair":[1,false]}', True),
        ('{"name": "", "tags": ["a"], "parent": {"name": "x", "pair": [1, true]}, "pair": [1, ',
         False),
        ('{"name": "", "tags": []', None),
        ('{"age"', None),
        ('{"name": "", "other"', None),
        ('{"name": "", "age": 007', None),
        ('{\n  "name": "",\n  "pair": [1, true]\n}', True),
    ],
)  # fmt: skip
def test_texts_fit_schemas(text: str, expected: bool | None) -> None:
    assert _fits(grammar_of_schema(_PERSON), text) is expected


@pytest.mark.parametrize(
    ("schema", "fit", "others"),
    [
        (
            {"properties": {"a": {"type": "integer"}, "ab": {"type": "null"}, "\u00e9": {}},
             "additionalProperties": {"type": "string"}},
            ['{"a":1,"abc":"x"}', '{"":"x","\u00ea":""}', '{"ab":null,"b":"x"}'],
            ['{"a":"x"', '{"a":1,"ab":"x"', '{"\\u0061"', '{"\u00e9":"x","\u00e9":'],
        ),
        ({"type": ["string", "null"], "enum": ["a", 1, None]}, ['"a"', "null"], ["1"]),
        ({"enum": ["a", True, 1], "const": 1}, ["1"], ["true", '"a"']),
        ({"properties": {"a": False, "b": {}}}, ['{"b":1}', "{}"], ['{"a']),
        ({"items": {"$ref": "#/$defs/a%20b/anyOf/1"},
          "$defs": {"a b": {"anyOf": [True, {"const": 2}]}}}, ["[2]"], ["[1"]),
        ({"items": {"properties": {"a": {"$ref": "#/items"}}, "required": ["a"]}}, ["[]"], ["[{"]),
    ],
)  # fmt: skip
def test_texts_fit_schemas_of_several_parts(schema: Any, fit: list[str], others: list[str]) -> None:
    made = grammar_of_schema(schema)
    assert [_fits(made, text) for text in fit] == [True] * len(fit)
    assert [_fits(made, text) for text in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "minimum": 3}, "# has the key 'minimum', which is not supported"),
        ({"properties": {"a": {"pattern": "x", "type": "string"}}}, "#/properties/a has the key"),
        ({"type": "text"}, r"#/type is \['text'\], expected of object"),
        ({"$ref": "#/$defs/a"}, "which is not there"),
        ({"$ref": "http://x"}, "expected a place in the schema"),
        ({"$ref": "#"}, "no text follows the grammar"),
        ({"items": 3}, "#/items is 3, expected a schema"),
        ({"required": ["a"]}, "'a', which is no property"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "expected counts that grow"),
        ({"enum": []}, "#/enum is .*, expected a list"),
        ({"const": float("nan")}, "is no JSON"),
        ({"const": 1, "type": "string"}, "# allows no value"),
        ({"type": 3}, "#/type is 3, expected a list"),
        ({"required": [["a"]], "properties": {"a": {}}}, "which is no property"),
        ({"properties": {3: {}}}, "expected schemas by name"),
        ({"$ref": "#name"}, "expected a place in the schema"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no text follows the grammar"),
        ({"prefixItems": [{}, {}], "items": False, "maxItems": 1}, "minItems is 0 and maxItems 1"),
        (False, "no text follows the grammar"),
    ],
)
def test_schemas_that_demand_more_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        grammar_of_schema(schema)


@examples(30)
@given(strategies.data())
def test_all_tokens_that_fit_are_found(data: Any) -> None:
    """Those whose bytes one after another may follow, behind whatever was drawn."""
    tokenizer = FileTokenizer({f"tokenizer.{key}": value for key, value in KEYS.items()})
    grammar = data.draw(strategies.sampled_from([read_gbnf(_JSON), grammar_of_schema(_PERSON)]))
    constraint = Constraint(grammar, tokenizer, np.zeros(len(TOKENS), np.float32))
    for _ in range(data.draw(strategies.integers(0, 12))):
        found = constraint._allowed()
        expected = [bool(x and grammar.after(constraint.state, x)) for x in constraint.pieces]
        for end in tokenizer.ends:
            expected[end] = None in constraint.state
        assert found.tolist() == expected
        left = [id for id, fits in enumerate(expected) if fits and id not in tokenizer.ends]
        if not left:
            break
        assert constraint._takes(data.draw(strategies.sampled_from(left)))


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["ab", "cd", "e"], ["cde"], ["ab", ""]),
        (["ab", "cd", "f"], ["cde"], ["ab", "", "cdf", ""]),
        (["ab", "c"], ["cde"], ["ab", "", "c"]),
        (["aab"], ["ab", "aa"], [""]),
        (["a"], [], ["a", ""]),
    ],
)
def test_texts_end_in_front_of_others(
    pieces: list[str], stops: list[str], expected: list[str]
) -> None:
    shown, found = StopTexts(stops), list[str]()
    for piece in pieces:
        found.append(shown(piece))
        if shown.is_over:
            break
    found += [] if shown.is_over else [shown.rest("")]
    assert found[: len(expected)] == expected
    assert "".join(found) == "".join(expected)


@pytest.mark.slow
def test_a_model_writes_what_fits(tmp_path: Path) -> None:
    """Also one that would write something else, by chance or not; and nothing changes where texts
    fit anyway."""
    path = tmp_path / "model.gguf"
    write_model(path, PEER_SHAPES["llama"], tokenizer=KEYS)
    model = ingot.LanguageModel(path, capacity=64)
    schema = {"properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": [1, None]}}}
    schema["required"] = ["a", "b"]  # type: ignore[assignment]
    for options in ({"temperature": 0}, {"seed": 1}, {"seed": 2, "top_k": 0, "top_p": 1.0}):
        made = json.loads("".join(model.generate("hell", schema=schema, **options)))
        assert set(made) == {"a", "b"}
        assert len(made["a"]) <= 3
        assert made["b"] in (1, None)
        free = "".join(model.generate("hell", max_tokens=4, **options))
        again = "".join(model.generate("hell", max_tokens=4, logit_bias={}, **options))
        assert again == free
        assert "".join(model.generate("hell", grammar='root ::= "no" | "yes"', **options)) in (
            "no", "yes",
        )  # fmt: skip
    [*tokens] = model.tokens("hell", max_tokens=5, alternatives=3, temperature=0)
    ids = model.tokenizer.encode("hell")
    for token in tokens:
        logits = model.model.fork(state=False).prefill(np.array(ids, np.int32)).numpy()
        expected = np.log(np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum())
        np.testing.assert_allclose(token.logprob, expected[token.id], atol=1e-5)
        assert token.alternatives[0] == (token.id, token.logprob)
        ids.append(token.id)
    assert len(token.alternatives) == 3
    text = "".join(token.text for token in tokens)
    assert text == "".join(model.generate("hell", max_tokens=5, temperature=0))
    stop = text[1:3]
    pieces = model.generate("hell", max_tokens=5, temperature=0, stop=["zz", stop])
    assert "".join(pieces) == text[: text.index(stop)]
    most = model.tokenizer.vocabulary()["ll"]
    text = "".join(model.generate("he", max_tokens=3, temperature=0, logit_bias={most: 1e3}))
    assert text == "llllll"
    for options, message in (
        ({"logit_bias": {len(TOKENS): 1.0}}, "or -inf, for a token from 0"),
        ({"logit_bias": {0: 1e39}}, "expected a number of f32"),
        ({"grammar": "root ::= .", "schema": True}, "a text can follow one of them only"),
    ):
        with pytest.raises(ingot.InvalidArgument, match=message):
            next(model.generate("he", **options))
