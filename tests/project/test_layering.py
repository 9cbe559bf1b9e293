"""The layers of the project, in Python and in C: who may import or include whom."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "ingot.compiler": ROOT / "compiler",
    "ingot.hal": ROOT / "hal",
    "ingot.runtime": ROOT / "runtime",
}

SPEC = (
    "ingot.hal.spec",
    "ingot.hal.errors",
    "ingot.hal.file_cache",
    "ingot.hal.file_kind",
    "ingot.hal.freed_memory",
    "ingot.hal.adapter",
    "ingot.hal.checkpoint",
    "ingot.hal.gguf",
    "ingot.hal.header",
    "ingot.hal.masks",
    "ingot.hal.module_bytes",
    "ingot.hal.options",
    "ingot.hal.printable",
    "ingot.hal.tensor_names",
    "ingot.hal.value_kind",
    "ingot.hal.whole_file",
)
COMPILER = "ingot.compiler."
STANDARD = set(sys.stdlib_module_names)

# Longest prefix first: what the modules below it may import.
ALLOWED: dict[str, tuple[str, ...]] = {
    "ingot.hal.header": (),
    "ingot.hal.adapter": (
        "ingot.hal.checkpoint",
        "ingot.hal.errors",
        "ingot.hal.gguf",
        "ingot.hal.tensor_names",
    ),
    "ingot.hal.tensor_names": (),
    "ingot.hal.checkpoint": ("ingot.hal.errors", "ingot.hal.gguf", "ingot.hal.whole_file"),
    "ingot.hal.gguf": ("ingot.hal.errors", "ingot.hal.whole_file"),
    "ingot.hal.errors": ("ingot.hal.header",),
    "ingot.hal.file_cache": (),
    "ingot.hal.file_kind": (),
    "ingot.hal.freed_memory": (),
    "ingot.hal.lz4": ("ingot.hal.errors", "ingot.hal.native", "ingot.hal.spec"),
    "ingot.hal.masks": ("ingot.hal.errors",),
    "ingot.hal.module_bytes": ("ingot.hal.file_kind",),
    "ingot.hal.options": ("ingot.hal.errors",),
    "ingot.hal.printable": (),
    "ingot.hal.value_kind": ("ingot.hal.header",),
    "ingot.hal.whole_file": ("ingot.hal.errors",),
    "ingot.hal.spec": SPEC,
    "ingot.hal": ("ingot.hal",),
    "ingot.runtime": ("ingot.hal", "ingot.runtime"),
    "ingot.compiler.ir": (*SPEC, COMPILER + "ir"),
    "ingot.compiler.graph": (*SPEC, COMPILER + "ir", COMPILER + "graph"),
    "ingot.compiler.dispatch": (
        *SPEC,
        COMPILER + "ir",
        COMPILER + "graph",
        COMPILER + "dispatch",
    ),
    "ingot.compiler.kernels": (
        *SPEC,
        COMPILER + "ir",
        COMPILER + "graph",
        COMPILER + "dispatch",
        COMPILER + "kernels",
    ),
    "ingot.compiler.stream": (
        *SPEC,
        COMPILER + "ir",
        COMPILER + "graph",
        COMPILER + "dispatch",
        COMPILER + "kernels",
        COMPILER + "stream",
    ),
    "ingot.compiler.vm": (
        *SPEC,
        "ingot.hal.lz4",
        COMPILER + "ir",
        COMPILER + "graph",
        COMPILER + "dispatch",
        COMPILER + "kernels",
        COMPILER + "stream",
        COMPILER + "vm",
    ),
    "ingot.compiler.frontends": (
        *SPEC,
        COMPILER + "ir",
        COMPILER + "graph",
        COMPILER + "frontends",
    ),
    "ingot.compiler.targets": (
        *SPEC,
        COMPILER + "ir",
        COMPILER + "kernels",
        COMPILER + "targets",
    ),
    "ingot.compiler": (*SPEC, "ingot.compiler"),
}

OPTIONAL_PACKAGES = {"onnx", "jax", "jaxlib", "torch", "sympy", "pyopencl", "ml_dtypes", "zarr"}
REQUIRED_PACKAGES = {"numpy", "cffi"}
# A front end that is imported only when its package is there; with it come its dependencies.
FRONTEND_PACKAGES = {"ingot.compiler.frontends.onnx": {"onnx", "ml_dtypes", "google"}}

C_LAYERS = ("platform", "base", "hal", "module", "vm", "api")

# Headers of C and of compilers; any other with < > is a system's.
C_HEADERS = {
    *("cpuid", "inttypes", "limits", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef"),
    *("stdint", "stdio", "stdlib", "string", "sanitizer/asan_interface"),
}


def _modules(folders: Mapping[str, Path] = FOLDERS) -> Iterator[tuple[str, Path]]:
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            if path.name == "build_extension.py":  # a script of the build, no part of it
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path, module: str) -> tuple[tuple[str, int, bool], ...]:
    """Each imported module, its line, and whether it stands at the top level."""
    return tuple(_find_imports(_tree(path), path, module))


def _find_imports(tree: ast.Module, path: Path, module: str) -> Iterator[tuple[str, int, bool]]:
    top_level = {id(node) for node in tree.body}
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top_level
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([base] if base else [])])
            if base in ("ingot", "ingot.hal", "ingot.compiler"):
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno, id(node) in top_level
            else:
                yield base, node.lineno, id(node) in top_level


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """Two million nodes, at which a collection of garbage would look again and again."""
    gc.disable()
    yield
    _tree.cache_clear()
    gc.enable()


def _imports_by_text(path: Path) -> Iterator[tuple[str, int]]:
    """What `import_module` gets, and its line."""
    for node in ast.walk(_tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "import_module"
        ):
            yield ast.unparse(node.args[0]).strip("'"), node.lineno


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def _allowed(module: str) -> tuple[str, ...]:
    prefix = max((each for each in ALLOWED if _is_below(module, each)), key=len)
    return ALLOWED[prefix]


def test_modules_import_only_lower_layers() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module} imports {name}"
        for module, path in _modules()
        for name, line in [*(each[:2] for each in _imports(path, module)), *_imports_by_text(path)]
        if _is_below(name, "ingot")
        and not any(_is_below(name, prefix) for prefix in _allowed(module))
    ]
    assert not wrong, "\n".join(wrong)


def _lines_for_types(path: Path) -> set[int]:
    """Where imports stand that only a type checker sees."""
    return {
        line
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    paths = dict(_modules({**FOLDERS, "ingot": ROOT / "python" / "ingot"}))
    imports = {
        module: [
            name
            for lines in [_lines_for_types(path)]
            for name, line, _ in _imports(path, module)
            if name in paths and name != module and line not in lines
        ]
        for module, path in paths.items()
        if path.name != "__init__.py"
    }
    imports = {name: [each for each in found if each in imports] for name, found in imports.items()}
    assert _circle(imports) == ""


def _circle(needs: Mapping[str, Collection[str]]) -> str:
    """The first circle of things that need each other; "" if there is none."""
    seen: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> str:
        if name in above:
            return " needs ".join([*above[above.index(name) :], name])
        if name not in seen:
            seen.add(name)
            return next(filter(None, (walk(each, (*above, name)) for each in needs[name])), "")
        return ""

    return next(filter(None, (walk(name, ()) for name in needs)), "")


def test_a_circle_is_found() -> None:
    assert _circle({"a": "bc", "b": "c", "c": "d", "d": ""}) == ""
    assert _circle({"a": "b", "b": "c", "c": "db", "d": ""}) == "b needs c needs b"


# A function, a table or a record that begins a line and is seen outside of its file.
DEFINITION = re.compile(
    r"^(?!static|typedef|[#\s/*])[\w *]*?\b(ingot_\w+)(?:\([^;{]*\)|(?:\[\w*\])? =) \{", re.M
)


def test_no_c_files_need_each_other_in_a_circle() -> None:
    """A file needs what it includes, and the sources that define the functions and tables which
    it uses."""
    files = {
        str(path.relative_to(ROOT / "csrc")): path.read_text(encoding="utf-8")
        for path in (ROOT / "csrc").rglob("*.[ch]")
    }
    del files["ingot.c"]  # includes all sources
    homes = {
        name: file
        for file, text in files.items()
        if file.endswith(".c")
        for name in DEFINITION.findall(text)
    }
    assert len(homes) > 200
    needs = {
        file: {
            *(each for each in re.findall(r'#include "([^"]+)"', text) if each in files),
            *(
                homes[name]
                for name in set(re.findall(r"\bingot_\w+", text)) & homes.keys()
                if file.endswith(".c")
            ),
        }
        - {file}
        for file, text in files.items()
    }
    assert _circle(needs) == ""


STATIC = re.compile(r"^static [\w *]*?\b(\w+)\([^;{]*\) \{", re.M)


def test_c_files_can_be_one_file() -> None:
    """csrc/ingot.c includes all sources, so functions of two files must not have one name."""
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "csrc").rglob("*.c")):
        text = re.sub(r"__attribute__\(\(.*?\)\)\s*", "", path.read_text(encoding="utf-8"))
        for name in STATIC.findall(text):
            homes.setdefault(name, []).append(path.name)
    assert len(homes) > 400
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


_DEVICES = re.compile("opencl|cpu|gpu|cuda|vulkan", re.IGNORECASE)


@pytest.mark.parametrize(
    "folder", ["ir", "graph", "dispatch", "kernels", "stream", "vm", "frontends"]
)
def test_no_level_holds_the_name_of_a_device(folder: str) -> None:
    """What a target can do stands in its `TargetInfo` and `Target`. Ops of torch have its names."""
    wrong = []
    for path in sorted((ROOT / "compiler" / folder).rglob("*.py")):
        tree = _tree(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):  # a docstring may tell
                continue
            for child in ast.iter_child_nodes(node):
                text = child.value if isinstance(child, ast.Constant) else None
                is_op = isinstance(text, str) and text.startswith("aten.")
                if isinstance(text, str) and _DEVICES.search(text) and not is_op:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text!r}")
    assert not wrong, "\n".join(wrong)


def test_nothing_above_the_targets_asks_for_a_device_or_one_targets_files() -> None:
    """A default may name a target; only `targets/` knows one from the other."""
    wrong = []
    for module, path in _modules():
        if not _is_below(module, "ingot.compiler") or _is_below(module, "ingot.compiler.targets"):
            continue
        asked = [
            (node.lineno, ast.unparse(node))
            for node in ast.walk(_tree(path))
            if isinstance(node, (ast.Compare, ast.MatchValue))
            and _DEVICES.search(ast.unparse(node))
        ]
        asked += [
            (line, name)
            for name, line, _ in _imports(path, module)
            if re.match(r"ingot\.compiler\.targets\.\w+\.", name)
        ]
        wrong += [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in asked]
    assert not wrong, "\n".join(wrong)


def test_optional_packages_are_imported_where_they_are_used_only() -> None:
    known = STANDARD | REQUIRED_PACKAGES | OPTIONAL_PACKAGES | {"ingot"}
    wrong = []
    for module, path in _modules():
        at_home = {
            each
            for prefix, packages in FRONTEND_PACKAGES.items()
            if _is_below(module, prefix)
            for each in packages
        }
        for name, line, is_top_level in _imports(path, module):
            package = name.partition(".")[0]
            if package in at_home:
                continue
            if package not in known or (package in OPTIONAL_PACKAGES and is_top_level):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_tests_share_helpers_in_one_package_only() -> None:
    """By a plain name, a test would find another test file, or nothing."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = {path.stem for path in files} - STANDARD
    shared = ("tests.support", "tests.models")
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {name}: what tests share is in tests/support, "
        f"and is imported as tests.support.{name.rpartition('.')[2]}"
        for path in files
        if path.name.startswith("test_") or path.parent.name == "support"
        for name, line, _ in _imports(path, "tests")
        if name.partition(".")[0] in names
        or (_is_below(name, "tests") and not any(_is_below(name, each) for each in shared))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", C_LAYERS)
def test_c_files_include_only_lower_layers(layer: str) -> None:
    allowed = {"ingot", *C_LAYERS[: C_LAYERS.index(layer) + 1]}
    folder = ROOT / "csrc" / layer
    wrong = []
    for path in sorted([*folder.rglob("*.c"), *folder.rglob("*.h")]):
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M):
            if name.partition("/")[0] not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


def test_only_the_platform_includes_headers_of_a_system() -> None:
    folder = ROOT / "csrc"
    apart = {folder / "include" / "ingot" / "timeline.h"}  # compiled into applications only
    wrong = []
    for path in sorted({*folder.rglob("*.[ch]")} - {*(folder / "platform").iterdir()} - apart):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^ *# *include <([^>]+)\.h>", text, re.M):
            if name not in C_HEADERS and not name.startswith("ingot/"):
                wrong.append(f"{path.relative_to(ROOT)} includes <{name}.h>: see platform.h")
    assert not wrong, "\n".join(wrong)


def test_public_headers_stand_alone() -> None:
    for path in (ROOT / "csrc" / "include" / "ingot").glob("*.h"):
        includes = re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M)
        assert all(name.startswith("ingot/") for name in includes), path


def test_files_begin_with_what_they_are() -> None:
    for _, path in _modules():
        tree = _tree(path)
        assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} has no docstring"
    for path in (ROOT / "csrc").rglob("*.[ch]"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("/*"), f"{path.relative_to(ROOT)} does not say what it is"
