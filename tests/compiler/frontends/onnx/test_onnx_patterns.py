"""RegexFullMatch: automata of our own against RE2, as onnxruntime has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from tests.support.devices import load_best
from tests.support.node_tests import interpreted
from tests.support.onnx_models import make_value
from tests.support.onnx_sequences import Node

PATTERNS = [
    r"a*b", r"(a|b)*", r".*", r"(?s).*", r"\w+", r"\W+", r"[^a]+", r"\ba.*", r".*\bb", r"a\Bb",
    r"(?i)K+", r"(?i)\w+", r"(?i)[^k]+", r"(?i:a)B", r"(?i)É|ß", r"[[:alpha:]]+", r"[[:^alpha:]-]+",
    r"\pL+", r"\p{^Lu}+", r"\P{Ll}+", r"\PN*", r"[]a]+", r"a{2}b", r"a{0,3}b?", r"a{1,}", r"a{,2}",
    r"(?m)a$\n^b", r"(?m)^a$\n(?-m)b$", r"^$", r"a$|^b", r"\Aa\z", r"\Qa.b\E", r"(?P<x>a)b", "()",
    r"[\w.-]+", "a|", r"(?:a*)*b", r"\x{e9}", r"[é-日]+", r"[\x00-\x{10FFFF}]",
    r"\101|\x41", r"\.|\]", r"(a|ab)(c|bcd)?(?U)d*", r"[a-c-]+", r"\d{1,2}\s\D", r"[^\n\S]+",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "aab", "aaab", "abc", "abcd", "aé", "é", "É", "ß", "日本", "a\nb", "\n",
    "a b", "a_b9", "foo bar", "K", "k", "\u212a", "\u017f", "0", "12 x", "A", "-", "]", "a.b", ".",
    "\t ", "a{,2}", "\U0001f600", "\ud7ff\ue000", "d", "aB", "AB",
]  # fmt: skip


def _model(patterns: list[str]) -> onnx.ModelProto:
    nodes = [Node("RegexFullMatch", ["x"], [f"y{i}"], pattern=p) for i, p in enumerate(patterns)]
    outputs = [make_value(f"y{i}", ["n"], TensorProto.BOOL) for i in range(len(patterns))]
    graph = helper.make_graph(nodes, "g", [make_value("x", ["n"], TensorProto.STRING)], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_patterns_agree_with_re2() -> None:
    model, x = _model(PATTERNS), np.array(TEXTS, object)
    run: Any = interpreted(import_onnx(model))
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for pattern, got, expected in zip(PATTERNS, run([x]), wanted, strict=True):
        same = np.asarray(got) == expected
        assert same.all(), (pattern, x[~same].tolist())


def test_compiled_and_what_is_no_utf8() -> None:
    model = load_best(_model([r"(\W|^)[\w.]{1,9}@(b|c)\.com(\W|$)", ".*"]))
    mail, line = model(["a.x@b.com", "=a@c.com\n", "a@d.com", b"\xff", b"\xc0\x80", "ü"])
    assert np.asarray(mail).tolist() == [True, True, False, False, False, False]
    assert np.asarray(line).tolist() == [True, False, True, False, False, True]
    assert [np.asarray(each).size for each in model(np.empty(0, object))] == [0, 0]


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(", "a group is not closed"), ("a)", "closes no group"), ("[a", "a class is not closed"),
        ("a**", "repetition of a repetition"), ("*", "repetition of nothing"),
        ("[z-a]", "goes back"), ("(?=a)", "lookaround"), (r"\p{Greek}", "categories"),
        (r"(a)\1", "at character 3: a reference to a group is not regular"),
        ("a{2000}", "at most 1000 times"), ("a{3,2}", "in order"),
        (r"\q", "this escape"), ("[[:abc:]]", "no class has the name abc"), ("(" * 60, "groups in"),
        (r"(a|b)*a(a|b){13}", "more than 4096 states"), ("((a{999}){999})", "than 50000 nodes"),
        ("(((){1000}){1000}){1000}", "takes too long"),
        (r"\x{110000}", "no character has"), ("a\\", "this escape"),
    ],
)  # fmt: skip
def test_what_is_not_regular_or_too_large_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(ingot.CompileError, match=what):
        import_onnx(_model([pattern]))
