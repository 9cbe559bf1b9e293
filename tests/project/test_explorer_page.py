"""The page of `ingot explore` in a browser, opened from the disk: drawn, clicked, searched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.explorer import make_page
from ingot.explorer.facts import module_facts
from ingot.inspection import read_file
from tests.models import graphs
from tests.support.browser import Browser, find_chromium
from tests.support.devices import best_variant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None and not os.environ.get("INGOT_REQUIRE_CHROMIUM"),
        reason="there is no Chromium (Debian: apt install chromium)",
    ),
]

ROOT = Path(__file__).resolve().parents[2]
GENERATE = ROOT / "samples" / "generate"
PANE = "explorer.panes[0]"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
HOSTILE_SOURCE = f"""
module {{}} {{
  func @main(%x: f32[b,4] {json.dumps(HOSTILE)}) -> (f32[4,b] "<b>y</b>") symbols {{b in [1, 8]}} {{
    %1 = cumulative(%x) {{axis=0, exclusive=false, kind="add", reverse=false}} : f32[b,4]
        loc({json.dumps(HOSTILE + "/" + HOSTILE)})
    %2 = transpose(%1) {{permutation=[1, 0]}} : f32[4,b] loc("<i>turn</i>/<u>it</u>")
    return(%2)
  }}
}}
"""

# What objects of JavaScript have, a function of dims, and letters of Python's names.
DIMS = ("constructor", "toString", "__proto__", "min", "größe", "x²")
DIMS_SOURCE = f"""
module {{}} {{
  func @main(%x: f32[{",".join(DIMS)}] "x") -> (f32[{",".join(reversed(DIMS))}] "y")
      symbols {{{", ".join(f"{name} in [1, 8]" for name in DIMS)}}} {{
    %1 = cumulative(%x) {{axis=0, exclusive=false, kind="add", reverse=false}}
        : f32[{",".join(DIMS)}]
    %2 = transpose(%1) {{permutation=[5, 4, 3, 2, 1, 0]}} : f32[{",".join(reversed(DIMS))}]
    return(%2)
  }}
}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def _clean(browser: Browser) -> None:
    """Nothing was thrown, logged as an error, asked for from a network, or is no number."""
    problems, browser.problems = browser.problems, []
    assert not problems
    text = browser.evaluate("document.body.innerText")
    assert "NaN" not in text
    assert "undefined" not in text
    assert "[object" not in text
    assert "null" not in browser.evaluate("document.querySelector('.controls').innerText")


def _wait_for_picture(browser: Browser) -> None:
    """Until every canvas in view has more than a few colors."""
    script = """[...document.querySelectorAll(".pane:not([hidden]) canvas")].every((canvas) => {
      if (!canvas.width) return false;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size > 8;
    })"""
    browser.wait(script)


def _see_all_views(browser: Browser) -> None:
    for key, view in enumerate(("graph", "dispatches", "memory", "weights", "code", "module"), 1):
        browser.press(str(key))
        assert browser.evaluate("explorer.view") == view
        _wait_for_picture(browser)
        _clean(browser)
    browser.press("1")


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Path:
    """A module of two functions with state and shared weights."""
    sources = {name: GENERATE / f"{name}.stablehlo" for name in ("prefill", "decode")}
    state = ingot.state.carried("cache", capacity=256)
    module = ingot.compile(sources, state=state, debug=True, variants=[best_variant()])
    module.save(folder / "decoder.ingot")
    return folder / "decoder.ingot"


def test_names_with_html_in_them_are_text(browser: Browser, folder: Path) -> None:
    path = folder / "<b>net<b>.ingot"
    ingot.compile(HOSTILE_SOURCE, debug=True, variants=[best_variant()]).save(path)
    ingot.explore(path, folder / "hostile.html")
    browser.open(folder / "hostile.html")
    count = "document.querySelectorAll('img, i:not([style]), u, main b b').length"
    for _ in range(2):
        browser.press("j")
        browser.evaluate(f"{PANE}.surface.scene.tip({PANE}.scene.nodes[0])")
        _see_all_views(browser)
        assert browser.evaluate(count) == 0
    layers = browser.evaluate("document.querySelector('.layers').textContent")
    assert layers == "<i>turn</i>/<u>it</u>"
    assert "<b>net<b>" in browser.evaluate("document.title")


def test_text_that_hides_or_turns_is_shown_as_escapes(
    browser: Browser, decoder: Path, folder: Path
) -> None:
    hidden = "\u202e\u2066\u061c\u00ad\ufeff\U000e0041"
    data, contents = read_file(str(decoder))
    facts = module_facts(f"{hidden}.ingot", data, contents, {})
    facts["metadata"] |= {hidden: [hidden], "one": hidden, "dims": {hidden: hidden}}
    facts["texts"] = [hidden + text for text in facts["texts"]]
    for function in facts["functions"]:
        function["commands"][0] |= {"operations": hidden, "kernel": hidden}
    page = folder / "hidden.html"
    page.write_text(make_page([facts]))
    browser.open(page)
    browser.press("j")
    for key in "123456":
        browser.press(key)
        browser.wait("!document.querySelector('.lines:not(:has(.line))')")
        text = browser.evaluate("document.title + document.body.innerText")
        assert not set(hidden) & set(text)
    assert '["\\u202e\\u2066\\u061c\\u00ad\\ufeff\\ue0041"]' in text
    _clean(browser)


@pytest.mark.parametrize("debug", [False, True])
def test_every_name_of_a_dim_is_one(browser: Browser, folder: Path, debug: bool) -> None:
    path, page = folder / "dims.ingot", folder / "dims.html"
    module = ingot.compile(DIMS_SOURCE, debug=debug, variants=[best_variant()])
    module.save(path)
    ingot.explore(path, page, dims={"__proto__": 3})
    browser.open(page)
    assert browser.evaluate(f"{PANE}.model.names") == sorted(DIMS)
    sizes = {**dict.fromkeys(DIMS, 8 if debug else 64), "__proto__": 3}  # ends are of --debug
    shown = browser.evaluate(f"[...{PANE}.model.sizes]")
    assert dict(shown) == sizes
    if debug:
        (report,) = module.report.targets.values()
        function = report.functions["main"]
        assert browser.evaluate(f"{PANE}.model.peak()") == function.peak_at(sizes)
        costs = browser.evaluate(f"{PANE}.model.work.map((each) => {PANE}.model.at(each.flops))")
        assert costs == [each.flops_at(sizes) for each in function.dispatches]
        for place in ("in slab at 0 B", "in result 0"):
            browser.press("j")
            assert place in browser.evaluate("document.querySelector('.operands').innerText")
    _see_all_views(browser)


def test_the_graph_folds_zooms_and_shows_what_is_chosen(
    browser: Browser, decoder: Path, folder: Path
) -> None:
    page = folder / "decoder.html"
    ingot.explore(decoder, page, dims={"s": 16})
    browser.open(page)
    _wait_for_picture(browser)
    _see_all_views(browser)
    browser.press("c")
    folded = browser.evaluate(f"{PANE}.scene.nodes.length")
    browser.press("e")
    assert browser.evaluate(f"{PANE}.scene.nodes.length") > folded
    work = browser.evaluate(f"{PANE}.model.work.length")
    ends = browser.evaluate(
        f"{PANE}.model.function.arguments.length + {PANE}.model.function.results.length"
    )
    assert browser.evaluate(f"{PANE}.scene.nodes.length") == work + ends
    overlap = f"""{PANE}.scene.nodes.some((a, i) => {PANE}.scene.nodes.some((b, j) => i < j &&
      a.box.x < b.box.x + b.box.width && b.box.x < a.box.x + a.box.width &&
      a.box.y < b.box.y + b.box.height && b.box.y < a.box.y + a.box.height))"""
    assert not browser.evaluate(overlap)
    upward = f"{PANE}.scene.edges.filter(({{ from, to }}) => from.box.y >= to.box.y).length"
    assert browser.evaluate(upward) == 0
    browser.wait(f"{PANE}.surface.transform.k > 0")  # until it has been laid out
    scale = browser.evaluate(f"{PANE}.surface.transform.k")
    browser.wheel(500, 500, -400)
    browser.wait(f"{PANE}.surface.transform.k > {scale}")
    browser.press("j")
    browser.press("j")
    shown = browser.evaluate(f"{PANE}.selected.order")
    assert shown == 1
    text = browser.evaluate("document.querySelector('.detail').innerText")
    for word in ("FLOPs", "bytes", "predicted", "reads", "makes", "schedule", "loop IR", "copy"):
        assert word in text
    assert "loop.workgroup" in text
    assert "INGOT_KERNEL_CALL" in text or "ingot_kernel_dispatch_t" in text
    node = f"{PANE}.scene.nodes.find((each) => each.command?.order === 3)"
    x, y = browser.evaluate(
        f"(() => {{ const box = {node}.box; {PANE}.surface.center(box);"
        f"const frame = {PANE}.surface.canvas.getBoundingClientRect();"
        f"const [x, y] = {PANE}.surface.transform.apply([box.x + 20, box.y + 20]);"
        "return [frame.x + x, frame.y + y]; })()"
    )
    browser.click(x, y)
    assert browser.evaluate(f"{PANE}.selected.order") == 3
    _clean(browser)


def test_search_by_keys_finds_opens_and_shows(
    browser: Browser, decoder: Path, folder: Path
) -> None:
    page = folder / "search.html"
    ingot.explore(decoder, page)
    browser.open(page)
    browser.press("c")
    browser.press("/")
    browser.type("attention")
    count = browser.evaluate(f"{PANE}.found.length")
    assert 0 < count < browser.evaluate(f"{PANE}.model.work.length")
    assert browser.evaluate("document.querySelector('.count').textContent") == f"{count} found"
    for _ in range(2):
        browser.press("Enter")
    assert browser.evaluate(f"{PANE}.selected.id === {PANE}.found[1 % {count}].id")
    assert browser.evaluate(f"{PANE}.scene.nodes.some((n) => n.command?.id === {PANE}.selected.id)")
    browser.press("Escape")
    browser.press("2")
    browser.wait(f"document.querySelectorAll('.line.cells').length === {count}")
    browser.press("Escape")
    assert browser.evaluate(f"{PANE}.selected") is None
    browser.press("?")
    assert "next, previous dispatch" in browser.evaluate("document.body.innerText")
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('.detail').offsetWidth") <= 1
    _clean(browser)


def test_formulas_memory_and_times_are_those_of_python(browser: Browser, folder: Path) -> None:
    module = ingot.compile(GENERATE / "generate.stablehlo", debug=True, variants=[best_variant()])
    path, page, trace = (folder / f"generate.{end}" for end in ("ingot", "html", "json"))
    module.save(path)
    ids = np.arange(8, dtype=np.int32)
    ingot.load(path).trace(ids).save(trace)
    ingot.explore(path, page, trace=trace, dims={"s": 8})
    browser.open(page)
    assert browser.evaluate("document.querySelector('.controls .warning').textContent") == ""
    (report,) = module.report.targets.values()
    function = report.functions["main"]
    for size in (8, 13, 56):
        browser.evaluate(f"{PANE}.resize('s', {size})")
        sizes = function.sizes({"s": size})
        assert browser.evaluate(f"{PANE}.model.peak()") == function.peak_at(sizes)
        costs = browser.evaluate(
            f"{PANE}.model.work.filter((each) => each.kernel)"
            f".map((each) => [{PANE}.model.at(each.flops), {PANE}.model.at(each.bytes)])"
        )
        expected = [[d.flops_at(sizes), d.bytes_at(sizes)] for d in function.dispatches]
        assert costs == expected
    assert "other sizes" in browser.evaluate("document.querySelector('.warning').textContent")
    browser.evaluate(f"{PANE}.resize('s', 8)")
    steps = browser.evaluate(f"{PANE}.model.work.map((each) => {PANE}.model.cost(each).runs)")
    assert set(steps) == {1, 199}
    total = sum(event.end - event.begin for event in ingot.load(path).trace(ids))
    measured = browser.evaluate(f"{PANE}.model.totals().time")
    assert 0 < measured < 50 * total
    branches = browser.evaluate(
        f"{PANE}.model.function.code.filter(([, text]) => text.startsWith('branch')).length"
    )
    browser.press("5")
    assert branches > 0
    browser.evaluate("document.querySelector('.lines').scrollTop = 1e9")
    browser.wait("document.querySelectorAll('.branches path').length > 0")
    _clean(browser)


def test_rates_are_those_of_a_calculation_by_hand(browser: Browser, folder: Path) -> None:
    digits = ROOT / "samples" / "digits" / "digits.onnx"
    path, page, trace = (folder / f"digits.{end}" for end in ("ingot", "html", "json"))
    ingot.compile(digits, debug=True, variants=[best_variant()]).save(path)
    ingot.load(path).trace(np.zeros((2, 1, 8, 8), np.float32)).save(trace)
    events = json.loads(trace.read_text())
    work = [event for event in events if event.get("cat") == "host"]
    work[0]["dur"], work[1]["dur"] = 0, 1.0  # the second: 2 images, 16 channels, 8 x 8, 3 x 3
    trace.write_text(json.dumps(events))
    ingot.explore(path, page, trace=trace, dims={"batch": 2})
    browser.open(page)
    browser.evaluate("explorer.setRoofline('flops', 100)")
    browser.evaluate("explorer.setRoofline('bytes', 20)")
    browser.press("2")
    browser.click_on(".cells.head button:nth-child(9)")
    browser.wait("document.querySelectorAll('.line.cells').length === 6")
    cells = "[...document.querySelectorAll('.line.cells')].map((row) => [...row.children]"
    shown = browser.evaluate(f"{cells}.map((cell) => cell.textContent))")
    second = next(row for row in shown if row[0] == "1")
    assert 2 * 16 * 64 * 9 * 2 == 36_864
    assert 2 * (64 + 16 * 64) * 4 + (9 * 16 + 16) * 4 == 9_344
    assert second[3:6] == ["36.9 kFLOP", "9.34 KB", "467 ns"]
    assert second[7:] == ["1 us", "36.9", "9.3", "47 %"]
    # A time too short for the clock has no rate, and is the last of them.
    assert shown[-1][0] == "0"
    assert shown[-1][7:] == ["0 ns", "", "", ""]
    browser.evaluate(f"{PANE}.select({PANE}.model.work[0])")
    text = browser.evaluate("document.querySelector('.detail').innerText")
    assert "0 ns" in text
    assert "rates" not in text
    assert "Infinity" not in browser.evaluate("document.body.innerText")
    _clean(browser)


def test_colors_follow_the_system_until_they_are_turned(decoder: Path, folder: Path) -> None:
    page = folder / "colors.html"
    ingot.explore(decoder, page)
    color = "getComputedStyle(document.body).backgroundColor"
    with Browser(dark=True) as browser:
        browser.open(page)
        assert browser.evaluate(color) == "rgb(18, 22, 28)"
        browser.evaluate("explorer.turnColors()")
        assert browser.evaluate(color) == "rgb(244, 245, 247)"
        _clean(browser)


def test_two_modules_stand_side_by_side_on_two_targets(browser: Browser, folder: Path) -> None:
    digits = ROOT / "samples" / "digits" / "digits.onnx"
    one, other, page = (folder / f"{name}" for name in ("one.ingot", "two.ingot", "two.html"))
    ingot.compile(digits, debug=True, variants=[best_variant()]).save(one)
    ingot.compile(digits, debug=True, target=["opencl", "cpu"], fallback=False).save(other)
    ingot.explore(one, page, against=other)
    browser.open(page)
    assert browser.evaluate("document.querySelectorAll('.pane:not([hidden]) canvas').length") == 2
    browser.press("j")
    browser.evaluate(f"{PANE}.select({PANE}.model.work[1])")
    names = browser.evaluate("explorer.panes.map((each) => each.selected.layer)")
    assert names[0] == names[1]
    browser.evaluate("explorer.resize('batch', 3)")
    sizes = browser.evaluate("explorer.panes.map((each) => each.model.sizes.get('batch'))")
    assert sizes == [3, 3]
    assert "__kernel" in browser.evaluate("document.querySelectorAll('.detail')[1].innerText")
    _see_all_views(browser)
    browser.press("7")
    text = browser.evaluate("document.querySelector('.compare').innerText")
    assert "dense/linear" in text
    assert "working memory" in text
    _clean(browser)


@pytest.mark.parametrize(("name", "dims"), [("minilm", {"batch": 1}), ("resnet50", {})])
def test_whole_models_fit_in_a_page(
    browser: Browser, folder: Path, name: str, dims: dict[str, int]
) -> None:
    path, page = folder / f"{name}.ingot", folder / f"{name}.html"
    options = {"parameters": "external", "variants": [best_variant()]}
    ingot.compile(graphs.path(name), debug=True, **options).save(path)
    ingot.explore(path, page, dims=dims)
    assert page.stat().st_size < 2_000_000
    browser.open(page)
    _wait_for_picture(browser)
    browser.press("j")
    _see_all_views(browser)


def test_two_thousand_dispatches_are_drawn_without_waiting(
    browser: Browser, decoder: Path, folder: Path
) -> None:
    data, contents = read_file(str(decoder))
    facts = module_facts("large.ingot", data, contents, {})
    function = next(each for each in facts["functions"] if each["name"] == "prefill")
    function["commands"] = _repeated(function["commands"], 2000)
    page = folder / "large.html"
    page.write_text(make_page([facts]))
    browser.open(page)
    place = browser.evaluate(f"{PANE}.model.functions.findIndex((each) => each.name === 'prefill')")
    browser.evaluate(f"{PANE}.model.select({place}); {PANE}.begin()")
    assert browser.evaluate(f"{PANE}.model.work.length") == 2000
    timed = "(() => { const begin = performance.now(); %s; return performance.now() - begin; })()"
    assert browser.evaluate(timed % f"{PANE}.foldAll(true)") < 1500
    assert browser.evaluate(f"{PANE}.scene.nodes.length") >= 2000
    draw = f"{PANE}.scene.draw({PANE}.surface.canvas.getContext('2d'), %s)"
    everything = draw % "{left: -1e9, top: -1e9, right: 1e9, bottom: 1e9}, 0.1"
    a_screen = draw % "{left: 0, top: 0, right: 1440, bottom: 900}, 1"
    assert min(browser.evaluate(timed % everything) for _ in range(5)) < 200
    assert min(browser.evaluate(timed % a_screen) for _ in range(5)) < 50
    assert browser.evaluate(timed % "explorer.setView('dispatches')") < 1000
    _clean(browser)


def _repeated(commands: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many commands: the same ones over and over, each reading those of its round."""
    result: list[dict[str, Any]] = []
    while len(result) < count:
        shift = 10_000 * (len(result) // len(commands) + 1)
        for each in commands[: count - len(result)]:
            operands = [
                {
                    **operand,
                    "from": [s + shift if isinstance(s, int) else s for s in operand["from"]],
                }
                for operand in each["operands"]
            ]
            layer = f"block.{shift // 10_000}/{each['layer']}"
            result.append({**each, "id": each["id"] + shift, "operands": operands, "layer": layer})
    return result
