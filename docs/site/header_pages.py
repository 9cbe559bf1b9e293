"""Pages from the C headers: the C API, the file format, the instructions of the VM.

A header is a list of parts with blank lines between: a comment, and the declarations it is about.
`/* -- title --- */` begins a section.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ingot.hal.spec import DTYPES, OPCODES, STATUSES

__all__ = ["PAGES", "api_page", "format_page", "instructions_page"]

INCLUDE = Path(__file__).resolve().parents[2] / "csrc" / "include" / "ingot"
API = ("ingot.h", "opencl.h", "timeline.h")
PAGES = {**dict.fromkeys(API, "c-api.md"), "module_layout.h": "format.md"}
PAGES |= {"spec/op.def": "instructions.md"}

COMMENT = re.compile(r"/\*(.*?)\*/\n?", re.DOTALL)
SECTION = re.compile(r"/\* -- (.*?) -+ \*/\n")
X_MACRO = re.compile(r"^enum \{ /\*.*?^\};\n", re.DOTALL | re.MULTILINE)
NOISE = re.compile(
    r"^(?:#(?:if|ifdef|ifndef|elif|else|endif|include)\b.*|#define (?:INGOT_API|\w+_H_)\b.*"
    r'|extern "C" \{|\})\n',
    re.MULTILINE,
)
BODY = re.compile(r"^static inline (.*?) \{\n.*?^\}$", re.DOTALL | re.MULTILINE)
DECLARED = re.compile(
    r"\b(ingot_\w+)\(|^\} (ingot_\w+);|^typedef .*\(\*(ingot_\w+)\)", re.MULTILINE
)
CODE = re.compile(r"(`[^`]*`|\bingot_\w+(?:\(\))?|\bINGOT_\w+\*?)")
CONTINUED = re.compile(r"(?<=,\n) {8,}")  # lines of parameters, which the header aligns


@dataclass
class Part:
    """A comment and what it is about; either may be empty. `names` are declared here."""

    text: str
    code: str
    names: list[str]


@dataclass
class Header:
    """`intro` is the comment at the top; the first section has no title."""

    intro: str
    sections: dict[str, list[Part]]


def api_page() -> str:
    """Markdown of the public headers."""
    headers = {name: read_header(name) for name in API}
    # What the interface of timeline.h is made of is no interface.
    timeline = headers["timeline.h"]
    timeline.sections = {"": timeline.sections["the interface"]}
    known = {
        name
        for header in headers.values()
        for parts in header.sections.values()
        for part in parts
        for name in part.names
    }
    lines = ["# C API", "", "How they are used together is told in [C programs](embedding.md)."]
    for name, header in headers.items():
        lines += ["", f"## {name} {{ #{name.replace('.', '-')} }}", ""]
        lines += [_prose(header.intro, known)]
        for title, parts in header.sections.items():
            lines += ["", f"### {title[:1].upper()}{title[1:]}"] if title else []
            lines += _shown(parts, known)
            lines += TABLES[title]() if title in TABLES else []
    return "\n".join(lines) + "\n"


def format_page() -> str:
    """Markdown of the layout of a module file."""
    header = read_header("module_layout.h")
    lines = ["# The file format", "", _prose(header.intro, ()), ""]
    lines += ["[The VM](vm.md) describes bytecode; there are tables of its"]
    lines += ["[instructions](instructions.md), of [dtypes](c-api.md#dtype) and of"]
    lines += ["[statuses](c-api.md#status)."]
    for part in header.sections[""]:
        if match := re.search(r"^\} ingot_layout_(\w+)_t;", part.code, re.MULTILINE):
            lines += ["", f"## The {match[1]}"]
        lines += _shown([Part(part.text, part.code, [])], ())
    return "\n".join(lines) + "\n"


def instructions_page() -> str:
    """Markdown of the instruction table."""
    intro = _comment((INCLUDE / "spec" / "op.def").read_text(encoding="utf-8"))
    lines = ["# Instructions", "", _prose(intro, ()), ""]
    lines += ["| code | instruction | operands | meaning |", "|---|---|---|---|"]
    lines += [
        f"| 0x{each.code:02X} | `{each.name}` | {f'`{each.operands}`' if each.operands else ''} "
        f"| {_escaped(each.meaning)} |"
        for each in OPCODES.values()
    ]
    return "\n".join(lines) + "\n"


def read_header(name: str) -> Header:
    """A header below csrc/include/ingot."""
    text = (INCLUDE / name).read_text(encoding="utf-8")
    intro = _comment(text)
    text = NOISE.sub("", X_MACRO.sub("", COMMENT.sub("", text, count=1)))
    titles_and_texts = ["", *SECTION.split(text)]
    sections = zip(titles_and_texts[::2], titles_and_texts[1::2], strict=True)
    return Header(intro, {title: list(_parts(body)) for title, body in sections})


def _parts(text: str) -> Iterator[Part]:
    for chunk in re.split(r"\n{2,}(?=\S)", text.strip()):
        comment = _comment(chunk) if chunk.startswith("/*") else ""
        code = COMMENT.sub("", chunk, count=1) if comment else chunk
        code = BODY.sub(r"\1;", code).replace("INGOT_API ", "").strip("\n")
        code = CONTINUED.sub("    ", code)
        # A function in a comment, or a type that a function takes, is not declared.
        plain = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
        names = [next(filter(None, each)) for each in DECLARED.findall(plain)]
        yield Part(comment, code, names)


def _comment(text: str) -> str:
    """The first comment, without its stars."""
    match = COMMENT.search(text)
    assert match is not None
    return re.sub(r"^ \*(?: |$)", "", match[1], flags=re.MULTILINE).strip()


def _shown(parts: Iterable[Part], known: Container[str]) -> Iterator[str]:
    for part in parts:
        if part.names:
            first, *others = part.names
            yield from ("", f"#### {first} {{ #{first} }}")
            anchors = "".join(f'<a id="{name}"></a>' for name in others)
            yield from ("", anchors) if anchors else ()
        if part.text:
            yield from ("", _prose(part.text, known))
        if part.code:
            yield from ("", "```c", part.code, "```")


def _prose(text: str, known: Container[str]) -> str:
    """The text of a comment as Markdown: what is indented is code, names are links."""
    lines: list[str] = []
    is_code = is_item = False
    for line in text.splitlines():
        is_item = line.startswith("- ") or (is_item and line.startswith("  "))
        begins_code = line.startswith("  ") and not is_item
        if line and begins_code != is_code:
            if begins_code:
                lines += ["", "```text"]
            else:
                while not lines[-1]:
                    lines.pop()
                lines += ["```", ""]
            is_code = begins_code
        if line.startswith("- ") and lines and not lines[-1].startswith(("- ", "  ")):
            lines.append("")
        lines.append(line[2:] if is_code else _linked(line, known))
    return "\n".join([*lines, "```"] if is_code else lines)


def _linked(line: str, known: Container[str]) -> str:
    """A line in which identifiers are code and, if they are declared here, links."""
    parts = CODE.split(line)
    for place, part in enumerate(parts):
        name = part.strip("`").removesuffix("()")
        if place % 2 == 0:
            parts[place] = _escaped(part)
        elif name in known:
            parts[place] = f"[`{part.strip('`')}`](#{name})"
        else:
            parts[place] = f"`{part.strip('`')}`"
    return "".join(parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*_<|`\\])", r"\\\1", text)


def _statuses() -> Iterator[str]:
    yield from ("", "| code | `INGOT_STATUS_...` | name |", "|---|---|---|", "| 0 | `OK` | OK |")
    yield from (f"| {each.code} | `{each.enum}` | {each.name} |" for each in STATUSES.values())


def _dtypes() -> Iterator[str]:
    yield from ("", "| code | `INGOT_DTYPE_...` | name | bits | bytes in a buffer | NumPy |")
    yield "|---|---|---|---|---|---|"
    for each in DTYPES.values():
        numpy = f"`{'' if each.is_numpy else 'ml_dtypes.'}{each.numpy_name}`"
        cells = (each.code, f"`{each.enum}`", each.name, each.bits, each.bytes, numpy)
        yield f"| {' | '.join(map(str, cells))} |"


TABLES = {"status": _statuses, "dtype": _dtypes}
