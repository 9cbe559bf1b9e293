"""The pages for contributors name files, and names in them, that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = ("README.md", "CONTRIBUTING.md", "docs/extending.md")
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_and_names_exist(project_root: Path, page: str) -> None:
    text = (project_root / page).read_text(encoding="utf-8")
    named = [each for each in NAMED.findall(text) if not each[0].startswith("build/")]
    assert len(named) >= 8
    wrong = []
    for path, name in named:
        # Includes are written from csrc/ on.
        file = next(
            (f for f in (project_root / path, project_root / "csrc" / path) if f.exists()), None
        )
        if file is None:
            wrong.append(f"there is no {path}")
        elif name and not re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")):
            wrong.append(f"{path} has no {name}")
    assert not wrong, "\n".join(wrong)


def test_links_between_pages_lead_somewhere(project_root: Path) -> None:
    pages = [project_root / "README.md", project_root / "CONTRIBUTING.md"]
    wrong = []
    for page in [*pages, *sorted((project_root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not (page.parent / target).exists():
                wrong.append(f"{page.relative_to(project_root)}: {target}")
    assert not wrong, "\n".join(wrong)
