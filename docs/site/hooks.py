"""What MkDocs asks for while it builds the site: pages that are generated, and links.

The README is the first page. Links to files of the repository that are no pages become links to a
page that shows the file, so that the same text is right in the repository and in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from command_page import command_page
from header_pages import PAGES, api_page, format_page, instructions_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from python_page import python_page

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {
    "c-api.md": api_page,
    "command.md": command_page,
    "format.md": format_page,
    "instructions.md": instructions_page,
    "python.md": python_page,
}
# Files outside of docs/ that are pages.
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
HEADERS = {f"csrc/include/ingot/{name}": page for name, page in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)")
LANGUAGES = {".c": "c", ".h": "c", ".def": "c", ".cl": "c", ".py": "python"}
NOTES = "design notes"


def on_config(config: MkDocsConfig) -> None:
    """All design notes are in the navigation."""
    notes = [f"design/{path.name}" for path in sorted((ROOT / "docs" / "design").glob("*.md"))]

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: filled(inner) for title, inner in entry.items()}
        if isinstance(entry, list):
            return [filled(inner) for inner in entry]
        return notes if entry == NOTES else entry

    config.nav = filled(config.nav)


def on_files(files: Files, config: MkDocsConfig) -> None:
    for path, page in MOVED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
    shown: set[str] = set()
    origins = {page: path for path, page in MOVED.items()}
    for file in files.documentation_pages():
        if file.src_uri not in GENERATED:
            origin = origins.get(file.src_uri, f"docs/{file.src_uri}")
            file.content_string = _with_links(file, origin, shown)
    for path in sorted(shown):
        page = _shown_page(path)
        files.append(File.generated(config, page, content=_shown_file(path)))


def _with_links(file: File, origin: str, shown: set[str]) -> str:
    """The text of a page with links that are right in the site; `shown` gets the files that need
    a page. Links that lead nowhere stay, for MkDocs to complain of."""

    def place(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match["path"]))
        page = MOVED.get(path) or HEADERS.get(path)
        if page is None and path.startswith("docs/"):
            page = path.removeprefix("docs/")
        elif page is None and (ROOT / path).is_file():
            shown.add(path)
            page = _shown_page(path)
        if page is None:
            return match[0]
        return posixpath.relpath(page, posixpath.dirname(file.src_uri) or ".")

    return LINK.sub(place, file.content_string)


def _shown_page(path: str) -> str:
    return f"source/{path}.md"


def _shown_file(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    head = f"---\ntitle: {posixpath.basename(path)}\nsearch:\n  exclude: true\n---\n"
    return f"{head}\n# {path}\n\n````{language}\n{text}\n````\n"
