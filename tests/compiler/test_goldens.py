"""Small programs after each pass that changed them, as texts to read and to compare.

A change of a pass shows here what it does to programs of all kinds. Kernels are left out: what
they look like depends on the variant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir import parse, to_text, verify
from ingot.compiler.pipeline import DISPATCH_PASSES
from tests.support.goldens import assert_golden

FOLDER = Path(__file__).parent / "goldens"

PROGRAMS = {
    "chain": """(%x: f32[b,4] "x", %y: f32[4] "y") -> (f32[b,4] "out") {
        %one = constant() {value=dense<f32[] 1.0>} : f32[]
        %wide = broadcast(%y) {shape=[<b>, 4], dimensions=[1]} : f32[b,4] loc("add")
        %sum = add(%x, %wide) : f32[b,4] loc("add")
        %ones = broadcast(%one) {shape=[<b>, 4], dimensions=[]} : f32[b,4]
        %same = mul(%sum, %ones) : f32[b,4]
        %unused = exp(%same) : f32[b,4]
        %y0 = tanh(%same) : f32[b,4] loc("tanh")
        return(%y0)
    }""",
    "softmax": """(%x: f32[b,s] "x") -> (f32[b,s] "out") {
        %top = reduce(%x) {axes=[1], kind="max"} : f32[b]
        %tops = broadcast(%top) {shape=[<b>, <s>], dimensions=[0]} : f32[b,s]
        %low = sub(%x, %tops) : f32[b,s]
        %power = exp(%low) : f32[b,s]
        %sum = reduce(%power) {axes=[1], kind="add"} : f32[b]
        %sums = broadcast(%sum) {shape=[<b>, <s>], dimensions=[0]} : f32[b,s]
        %y = div(%power, %sums) : f32[b,s]
        return(%y)
    }""",
    "dense": """(%x: f32[b,3] "x") -> (f32[b,2] "out") {
        %w = constant() {value=dense<f32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>} : f32[3,2]
        %bias = constant() {value=dense<f32[2] [0.5, -0.5]>} : f32[2]
        %p = dot_general(%x, %w)
            {lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], dtype=f32} : f32[b,2]
        %biases = broadcast(%bias) {shape=[<b>, 2], dimensions=[1]} : f32[b,2]
        %y = add(%p, %biases) : f32[b,2] loc("dense")
        return(%y)
    }""",
    "shapes": """(%x: f32[a,b,6] "x") -> (f32[b,a,6] "out") {
        %flat = reshape(%x) {shape=[<a*b>, 6]} : f32[a*b,6]
        %back = reshape(%flat) {shape=[<a>, <b>, 6]} : f32[a,b,6]
        %turned = transpose(%back) {permutation=[1, 0, 2]} : f32[b,a,6]
        %again = transpose(%turned) {permutation=[1, 0, 2]} : f32[a,b,6]
        %y = neg(%again) : f32[a,b,6]
        %z = transpose(%y) {permutation=[1, 0, 2]} : f32[b,a,6]
        return(%z)
    }""",
    "lookup": """(%table: f32[10,4] "table", %at: i64[n] "at") -> (f32[n] "out") {
        %rows = take(%table, %at) {axis=0, mode="check"} : f32[n,4] loc("embedding")
        %y = reduce(%rows) {axes=[1], kind="add"} : f32[n]
        return(%y)
    }""",
    "branch": """(%p: i1[] "p", %x: f32[n] "x") -> (f32[m] "out") {
        %r = if(%p) {symbols=["m"]} : f32[m] ({
        ^():
            %twice = concatenate(%x, %x) {axis=0} : f32[2*n]
            yield(%twice)
        }, {
        ^():
            %small = exp(%x) : f32[n]
            yield(%small)
        })
        return(%r)
    }""",
    "loop": """(%n: i32[] "n", %x: f32[4] "x") -> (f32[4] "out") {
        %zero = constant() {value=dense<i32[] 0>} : i32[]
        %one = constant() {value=dense<i32[] 1>} : i32[]
        %a, %b = while(%zero, %x) {symbols=[]} : i32[], f32[4] ({
        ^(%i: i32[], %s: f32[4]):
            %c = compare(%i, %n) {direction="lt"} : i1[]
            yield(%c)
        }, {
        ^(%i: i32[], %s: f32[4]):
            %next = add(%i, %one) : i32[]
            %same = exp(%x) : f32[4]
            %t = add(%s, %same) : f32[4]
            yield(%next, %t)
        })
        return(%b)
    }""",
    "counter": """(%x: f32[2] "x") -> (f32[2] "out") {
        %old = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]
        %new = add(%old, %x) : f32[2]
        variable.store(%new) {name="total"}
        return(%old)
    }""",
    "order": """(%keys: f32[n] "keys", %values: i32[n] "values") -> (i32[n] "out") {
        %k, %v = sort(%keys, %values) {axis=0} : f32[n], i32[n] ({
        ^(%a: f32, %b: f32, %c: i32, %d: i32):
            %less = compare(%a, %b) {direction="lt"} : i1
            yield(%less)
        })
        return(%v)
    }""",
    "decided": """(%x: f32[4] "x") -> (f32[4] "out") {
        %yes = constant() {value=dense<i1[] true>} : i1[]
        %r = if(%yes) {symbols=[]} : f32[4] ({
        ^():
            %a = exp(%x) : f32[4]
            yield(%a)
        }, {
        ^():
            yield(%x)
        })
        %again = exp(%x) : f32[4]
        %y = add(%r, %again) : f32[4]
        return(%y)
    }""",
    "narrow": """(%x: i4[n] "x", %y: i4[n] "y") -> (i4[n] "out") {
        %z = add(%x, %y) : i4[n]
        return(%z)
    }""",
    "asserted": """(%x: f32[n] "x") -> (f32[n] "out") symbols {n in [0, none]} {
        assert() {kind="le", a=<n>, b=<9>}
        %y = neg(%x) : f32[n]
        return(%y)
    }""",
}
HEADS = {"counter": "variable @total: f32[2] = dense<f32[] 1.5>\n"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_does_what_it_did(name: str) -> None:
    module = parse(f"module {{}} {{\n{HEADS.get(name, '')}func @main{PROGRAMS[name]}\n}}\n")
    verify(module, GRAPH)
    last = to_text(module, elide=True)
    texts = [f"// the program\n{last}"]
    for each in (*GRAPH_PASSES, *DISPATCH_PASSES):
        module = each(module)
        text = to_text(module, elide=True)
        if text != last:
            texts.append(f"// after {each.__name__}\n{text}")
        last = text
    assert_golden(FOLDER / f"{name}.ir", "\n".join(texts))
