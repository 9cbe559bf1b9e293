"""The typed C functions of a bundle: a header, and the calls of the runtime behind it.

Names of a source program are data: what stands in C as an identifier has letters, digits and
underscores only, and is no word of C or C++; what stands in a comment cannot end it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ingot.compiler.bundling.runtime_source import expand
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Call, Dim, Symbol, known_dim, product, symbols_of
from ingot.compiler.ir.polynomials import Atom
from ingot.compiler.targets.target import LINKED_TARGET
from ingot.compiler.vm.contents import FunctionContents, ModuleContents, ValueContents
from ingot.compiler.vm.disassemble import signature_text
from ingot.hal.errors import CompileError
from ingot.hal.header import INCLUDE_FOLDER
from ingot.hal.printable import printable

__all__ = ["C_TYPES", "TEMPLATES", "Interface", "Typed", "interface_of", "safe_name"]

TEMPLATES = Path(__file__).parent / "templates"

C_TYPES = {
    "f32": "float",
    "f64": "double",
    "i1": "bool",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}
"""Of elements; those of f16 and bf16 are their bits."""

_WORDS = re.compile(
    "alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|compl|"
    "concept|const|const_cast|consteval|constexpr|constinit|continue|decltype|default|delete|do|"
    "double|dynamic_cast|else|enum|errno|explicit|export|extern|false|float|for|friend|goto|if|"
    "inline|int|linux|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|"
    "private|protected|public|register|reinterpret_cast|requires|restrict|return|session|short|"
    "signed|sizeof|static|static_assert|static_cast|stderr|stdin|stdout|struct|switch|template|"
    "this|thread_local|throw|true|try|typedef|typeid|typename|typeof|typeof_unqual|union|unix|"
    "unsigned|using|virtual|void|volatile|while|xor|xor_eq|ingot.*|.*_t"
)
"""What nothing is called: words of C and C++, usual macros, types. Names of the code below end
in _."""


def safe_name(text: str, taken: Collection[str] = ()) -> str:
    """A C identifier that reads like the text and is none of `taken`. It begins with a letter."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text, flags=re.ASCII).strip("_")[:64]
    if not name or not name[0].isalpha() or name.upper() == name:  # of which macros are
        name = f"value_{name}".rstrip("_") if not name or name[0].isdigit() else name.lower()
    name += "_" * (_WORDS.fullmatch(name) is not None)
    count = 2
    found = name
    while found in taken:
        found, count = f"{name}_{count}", count + 1
    return found


@dataclass(frozen=True)
class Typed:
    """A function with the names that it has in C."""

    function: FunctionContents
    name: str
    symbols: Mapping[str, str]  # parameters by symbols, in the order of their first use
    values: tuple[str, ...]  # parameters of the arguments, then of the results

    def sizes_behind(self, place: int) -> list[str]:
        """The symbols that argument `place` is the first to have: they follow it."""
        before = _symbols(self.function.arguments[:place])
        return [
            each
            for each in _symbols(self.function.arguments[place : place + 1])
            if each not in before
        ]

    def parameters(self) -> Iterator[str]:
        count = len(self.function.arguments)
        values = (*self.function.arguments, *self.function.results)
        for place, (value, name) in enumerate(zip(values, self.values, strict=True)):
            const = "const " * (place < count)
            yield f"{const}{C_TYPES[value.dtype.name]} {name}[]"
            yield from (f"int64_t {self.symbols[each]}" for each in self.sizes_behind(place))


@dataclass(frozen=True)
class Interface:
    """Of a bundle called `name`, a C identifier."""

    name: str
    functions: tuple[Typed, ...]
    has_state: bool
    state_length: int
    peaks: Mapping[str, str]  # bytes of working memory by the names of functions

    def header(self) -> str:
        """NAME.h"""
        name, guard = self.name, f"{self.name.upper()}_H_"
        lines = [
            f"/* The functions of the module {name}. They give NULL, or why not: then the caller",
            " * frees the status. Tensors are row-major; results are the caller's memory. f16 and",
            " * bf16 are passed as their bits. A session is for one thread at a time. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            '#include "ingot.h"',
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            f"typedef struct {name}_session_t {name}_session_t;",
            "",
            "/* A session in `length` bytes at `memory`, which stay until it is over: all that is",
            " * ever allocated is in them. */",
            f"ingot_status_t {name}_create(void *memory, size_t length, "
            f"{name}_session_t **out_session);",
            "",
            "/* How many of these bytes were needed so far. */",
            f"size_t {name}_memory_peak(const {name}_session_t *session);",
        ]
        if self.has_state:
            lines += [
                "",
                "/* All state gets its initial value back. */",
                f"ingot_status_t {name}_reset({name}_session_t *session);",
            ]
        for each in self.functions:
            lines += ["", *self._comment(each), f"{self._prototype(each)};"]
        lines += ["", "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */"]
        return "\n".join(lines) + "\n"

    def _comment(self, typed: Typed) -> list[str]:
        function = typed.function
        lines = [signature_text(function)]
        lines += [function.doc] * bool(function.doc)
        values = (*function.arguments, *function.results)
        lines += [f"{value.name}: {value.doc}" for value in values if value.doc]
        lines.append(f"working memory in bytes: {self.peak(typed)}")
        return ["/* " + "\n * ".join(map(_comment_text, lines)) + " */"]

    def _prototype(self, typed: Typed) -> str:
        head = f"ingot_status_t {typed.name}("
        parameters = [f"{self.name}_session_t *session", *typed.parameters()]
        line = f"{head}{', '.join(parameters)})"
        return line if len(line) < 99 else head + (",\n" + " " * len(head)).join(parameters) + ")"

    def peak(self, typed: Typed) -> Dim:
        """Bytes of working memory, with the state."""
        return parse_dim(self.peaks.get(typed.function.name, "0")) + self.state_length

    def source(self) -> str:
        """NAME.c"""
        arena = (INCLUDE_FOLDER / "ingot" / "arena.h").read_text(encoding="utf-8")
        copy = "void *memcpy(void *target, const void *source, size_t length);"
        arena = arena.replace("#include <string.h>", copy)  # boards have no such header
        session = (TEMPLATES / "session.c").read_text(encoding="utf-8").replace("NAME", self.name)
        parts = [f'#include "{self.name}.h"', "", expand(arena, {"ingot/ingot.h"}), session]
        if self.has_state:
            parts.append(_RESET.replace("NAME", self.name))
        called = {
            each
            for typed in self.functions
            for value in (*typed.function.arguments, *typed.function.results)
            for dim in value.shape
            for each in _functions(dim)
        }
        parts += [_DIM_FUNCTIONS[each] for each in sorted(called)]
        parts += [self._definition(place, typed) for place, typed in enumerate(self.functions)]
        return "\n".join(parts)

    def _definition(self, ordinal: int, typed: Typed) -> str:
        function = typed.function
        values = (*function.arguments, *function.results)
        counts = len(function.arguments), len(function.results)
        lines = [f"{self._prototype(typed)} {{"]
        lines.append(f"  ingot_buffer_view_t *views_[{max(len(values), 1)}] = {{NULL}};")
        lines.append("  ingot_status_t status_ = NULL;")
        for place, (value, name) in enumerate(zip(values, typed.values, strict=True)):
            dims = ", ".join(_c_dim(dim, typed.symbols) for dim in value.shape) or "0"
            lines.append(f"  const int64_t dims_{place}_[] = {{{dims}}};")
            data = f"(void *)(uintptr_t){name}"
            call = f"wrap_(session, {data}, INGOT_DTYPE_{value.dtype.name.upper()}"
            call += f", {len(value.shape)}, dims_{place}_, &views_[{place}])"
            lines.append(f"  if (!status_) status_ = {call};")
        call = f"ingot_session_call(session->session, {ordinal}, views_, {counts[0]}"
        lines += [
            "  if (!status_) {",
            f"    status_ = {call}, views_ + {counts[0]}, {counts[1]}, NULL);",
            "  }",
            f"  for (int i = 0; i < {len(values)}; ++i) ingot_buffer_view_release(views_[i]);",
            "  return status_;",
            "}",
            "",
        ]
        return "\n".join(lines)


_RESET = """ingot_status_t NAME_reset(NAME_session_t *session) {
  return ingot_session_reset(session->session);
}
"""

_DIM = "static inline int64_t dim_{}_(int64_t a, int64_t b) {{\n  return {};\n}}\n"
_DIM_FUNCTIONS = {
    "floordiv": _DIM.format("floordiv", "b == 0 ? -1 : a / b - (a % b != 0 && (a < 0) != (b < 0))"),
    "mod": _DIM.format("mod", "b == 0 ? -1 : (a % b + b) % b"),
    "min": _DIM.format("min", "a < b ? a : b"),
    "max": _DIM.format("max", "a > b ? a : b"),
    "broadcast": _DIM.format("broadcast", "a == 1 ? b : a"),
}


def interface_of(contents: ModuleContents, name: str) -> Interface:
    """The functions of a module of tensors. CompileError: C cannot pass a value of one."""
    own = ("create", "memory_peak", "reset", "session_t", "kernels", "module", "module_length")
    taken = {f"{name}_{each}" for each in own}
    functions = []
    for function in contents.functions:
        if function.exported:
            functions.append(_typed(function, safe_name(f"{name}_{function.name}", taken)))
            taken.add(functions[-1].name)
    targets = contents.metadata.get("targets", {})
    peaks = targets.get(LINKED_TARGET, {}).get("peaks", {}) if isinstance(targets, dict) else {}
    shapes = [(each.shape, each.dtype) for each in contents.variables]
    if any(not isinstance(dim, int) for shape, _ in shapes for dim in shape):
        raise CompileError("state that grows cannot be in a bundle: give it a capacity=")
    state = sum(known_dim(product(shape)) * dtype.bytes for shape, dtype in shapes)
    texts = {function: str(peak) for function, peak in peaks.items()}
    return Interface(name, tuple(functions), bool(contents.variables), state, texts)


def _typed(function: FunctionContents, name: str) -> Typed:
    known = _symbols(function.arguments)
    for value in (*function.arguments, *function.results):
        if value.dtype.name not in C_TYPES:
            raise CompileError(
                f"function '{function.name}', value '{value.name}': C has no type for elements "
                f"{value.dtype.name}; a bundle passes {', '.join(C_TYPES)}"
            )
    taken: set[str] = set()
    symbols: dict[str, str] = {}
    names: list[str] = []
    for value in (*function.arguments, *function.results):
        names.append(safe_name(value.name, taken))
        taken.add(names[-1])
    for symbol in known:
        symbols[symbol] = safe_name(symbol, taken)
        taken.add(symbols[symbol])
    return Typed(function, name, symbols, tuple(names))


def _symbols(values: Iterable[ValueContents]) -> list[str]:
    dims = [dim for value in values for dim in value.shape if dim is not None]
    return list(dict.fromkeys(name for dim in dims for name in sorted(symbols_of(dim))))


def _comment_text(text: str) -> str:
    return printable(text).replace("*/", "* /").replace("/*", "/ *")


def _c_dim(dim: Dim | None, names: Mapping[str, str]) -> str:
    """An int64_t expression; what overflows wraps, and is refused as a size."""
    assert dim is not None  # of a tensor
    return f"(int64_t)({_unsigned(dim, names)})"


def _unsigned(dim: Dim, names: Mapping[str, str]) -> str:
    if isinstance(dim, int):
        return f"UINT64_C({dim % (1 << 64)})"
    terms = []
    for monomial, factor in dim.terms:
        factors = [_atom(atom, names) for atom, power in monomial for _ in range(power)]
        if factor != 1 or not factors:
            factors.insert(0, f"UINT64_C({factor % (1 << 64)})")
        terms.append(" * ".join(factors))
    return " + ".join(terms)


def _atom(atom: Atom, names: Mapping[str, str]) -> str:
    if isinstance(atom, Symbol):
        return f"(uint64_t){names[atom.name]}"
    first, *others = (f"(int64_t)({_unsigned(each, names)})" for each in atom.operands)
    for each in others:
        first = f"dim_{atom.function}_({first}, {each})"
    return f"(uint64_t){first}"


def _functions(dim: Dim | None) -> Iterator[str]:
    """The functions that its formula calls."""
    for monomial, _ in () if dim is None or isinstance(dim, int) else dim.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                yield atom.function
                for each in atom.operands:
                    yield from _functions(each)
