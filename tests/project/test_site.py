"""The documentation as pages: it builds without a warning, so every page is in the navigation and
every link leads somewhere, and it holds what it should."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ingot
from tests.support.browser import Browser, find_chromium

pytest.importorskip("mkdocs", reason='needs mkdocs-material: pip install "ingot[docs]"')
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HEADING = "Boolean(document.querySelector('article h1'))"


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", site],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_that_nobody_lists_and_links_to_nothing_stop_the_build(tmp_path: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml", "csrc", "samples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    for path in (ROOT / "docs").iterdir():
        (tmp_path / "docs" / path.name).symlink_to(path)
    text = "# New\n\n[a](ops.md#nowhere) [b](gone.md) [c](../samples/gone.c)\n"
    (tmp_path / "docs" / "new.md").write_text(text)
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert re.search(r"not included in the \"nav\".*\n.*new\.md", done.stderr)
    for target in ("#nowhere", "gone.md", "../samples/gone.c"):
        assert target in done.stderr


def test_all_that_is_public_has_an_entry(site: Path) -> None:
    named = {f"ingot.{name}" for name in ingot.__all__} - {"ingot.__version__", "ingot.state"}
    _assert_entries(site / "python.html", named)
    _assert_entries(site / "python.html", {"ingot.Model.calling", "ingot.Model.trace"})
    _assert_entries(site / "command.html", {"ingot-compile", "ingot-devices"})
    header = (ROOT / "csrc/include/ingot/ingot.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^INGOT_API [^;]*?\b(ingot_\w+)\(", header, re.MULTILINE))
    assert len(declared) > 50
    _assert_entries(site / "c-api.html", declared)


def _assert_entries(page: Path, names: set[str]) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [name for name in sorted(names) if f'id="{name}"' not in text]


def test_picture_of_the_benchmarks_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "docs" / "pictures"
    monkeypatch.syspath_prepend(folder)
    make_benchmarks = importlib.import_module("make_benchmarks")
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    drawn = make_benchmarks.picture(recorded)
    assert (folder / "benchmarks.svg").read_text(encoding="utf-8") == drawn
    shares = [float(each) for each in re.findall(r">([\d.]+) of the best other<", drawn)]
    assert len(shares) == len({each["model"] for each in recorded["results"]})
    assert shares == sorted(shares, reverse=True)


@pytest.mark.skipif(
    find_chromium() is None and not os.environ.get("INGOT_REQUIRE_CHROMIUM"),
    reason="there is no Chromium (Debian: apt install chromium)",
)
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_open_from_the_disk_search_and_ask_for_nothing(site: Path, width: int) -> None:
    with Browser(width, 900) as browser:
        for page in ("index", "getting-started", "python", "command", "c-api", "explorer", "ir"):
            browser.open(site / f"{page}.html", f"{HEADING} && document.readyState === 'complete'")
            # Wide tables and code scroll in themselves, not the page.
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert browser.evaluate("[...document.images].every((each) => each.naturalWidth > 0)")
        browser.open(site / "index.html", HEADING)
        browser.follow("document.querySelector('article a[href^=\"onnx.html\"]')")
        assert browser.evaluate("document.querySelector('h1').innerText").startswith("From ONNX")
        browser.evaluate("document.querySelector('#__search').click()")
        browser.evaluate("document.querySelector('.md-search__input').focus()")
        browser.type("ingot_session_reset")
        found = "document.querySelector('.md-search-result__item a[href*=\"c-api.html\"]')"
        browser.wait(f"Boolean({found})")
        browser.follow(found)
        assert browser.evaluate("location.pathname").endswith("c-api.html")
        assert not browser.problems
