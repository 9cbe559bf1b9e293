"""Compiles kernels in groups side by side, and links one object per variant.

Starting a compiler and reading the headers takes longer than compiling a small kernel: kernels
share a file up to a length, a variant with one file is compiled and linked by one command where
the compiler can, and variants are built side by side. Equal kernels are compiled once. Results are
cached by their source, the headers, the flags and the compiler's version. Of many kernels, those
without products in tiles or in words, which round no vectors to bf16, are one object for all
variants that differ in instructions for these, and those without vectors, and the checks of
contracts, are one for all of a machine. Products with weights of f32 are files of their own: a
compiler may take less time for these.
Kernels that are sure to have a file of their own are compiled while others are made. The same
source and compiler give the same bytes, whatever the number of cores.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.cpu import c_printer
from ingot.compiler.targets.cpu.c_printer import PrintedKernel
from ingot.compiler.targets.cpu.compilers import (
    Compiler,
    Compilers,
    find_compiler,
    first_failure,
    read_object,
    run_compiler,
    submit,
)
from ingot.compiler.targets.cpu.headers import HEADER_FOLDER
from ingot.compiler.targets.cpu.misfit_printer import print_misfit
from ingot.compiler.targets.cpu.own_printer import OwnPrinted, print_kernel
from ingot.compiler.targets.cpu.variants import (
    BOARDS,
    VARIANTS,
    Variant,
    default_variants,
    fallback_variant,
    named_variants,
)
from ingot.hal.errors import CompileError
from ingot.hal.file_cache import Cache, default_cache
from ingot.hal.header import INCLUDE_FOLDER

__all__ = [
    "Build",
    "build_executable",
    "building_executables",
    "choose_fallback",
    "choose_variants",
    "kernel_files",
    "run",
    "without_objects",
]

GROUP_LENGTH = 100_000
"""Characters of kernel text per file, about half a second of compiling. A file costs 35 ms more."""

GREATEST_CACHE = 1 << 30  # bytes beside weights; what was not used for longest goes
_NAME = "ingot_name_of_kernel"
_QUERY = "ingot_executable_query"
_CHECKED = '#include "kernel_misfit.h"\n'
_MESSAGE_LENGTH = 2000
_FOLDERS = (f"-I{HEADER_FOLDER}", f"-I{INCLUDE_FOLDER}")


def choose_variants(
    names: Sequence[str] | None = None, products: Collection[str] = ()
) -> tuple[Variant, ...]:
    """The variants of these names of variants and platforms, else those of this machine's
    architecture, best first, for a program with these `products` in words: "i8", "bf16".

    InvalidArgument: there is no such variant. CompileError: none for this machine.
    """
    if names is not None and _without_objects.get() and all(name in BOARDS for name in names):
        return tuple(BOARDS[name] for name in names)
    if names is not None:
        return named_variants(names, products)
    try:
        return default_variants(_machine(), products)
    except KeyError:
        raise CompileError(
            f"there are no CPU variants for this machine's architecture {_machine()!r}; name "
            f"some to compile for another one: {', '.join(VARIANTS)}"
        ) from None


def choose_fallback(target: str) -> Variant:
    """The variant of plain C for this machine's architecture beside the kernels of `target`.

    CompileError: there is none.
    """
    try:
        return fallback_variant(_machine())
    except KeyError:
        raise CompileError(
            f"there is no C code for this machine's architecture {_machine()!r} that {target} "
            "kernels could fall back to; compile with fallback=False (--no-fallback)"
        ) from None


def _machine() -> str:
    """This machine's architecture, as formats of objects name it."""
    machine = platform.machine()
    names = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}
    return "arm" if machine.startswith("armv7") else names.get(machine, machine)


def build_executable(
    kernels: Mapping[Variant, Sequence[Kernel]],
    cache: Cache | None = None,
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> list[bytes]:
    """Per variant one shared object whose entry n is the n-th kernel of the list.

    `progress` is told how many of how many kernels are compiled. CompileError: no compiler, or it
    failed; the message says where the source was kept.
    """
    with building_executables(cache) as build:
        return build.executable(list(kernels.items()))(progress)


Column = tuple[Variant, Sequence[Kernel]]
"""A variant, and the kernels of its object."""

Finish = Callable[[Callable[[int, int], None]], list[bytes]]
"""Waits for compilers, tells how many of how many kernels are compiled, and gives the objects."""


@contextmanager
def building_executables(cache: Cache | None = None) -> Iterator[Build]:
    """Inside, compilers run beside the caller. Who leaves without the objects begins no more of
    them."""
    with ExitStack() as stack:
        yield Build(cache or default_cache(), stack)


class Build:
    """Compilers that run in a pool, and what they make: equal files are compiled once."""

    def __init__(self, cache: Cache, stack: ExitStack) -> None:
        self.cache = cache
        self._stack = stack
        self._printed: dict[Kernel, _Texts] = {}
        self._running: tuple[ThreadPoolExecutor, Path] | None = None
        self._kinds: dict[tuple[Variant, int], dict[str, PrintedKernel]] = {}
        self._begun: dict[str, tuple[Path, Future[None] | None]] = {}  # objects by their keys

    def begin(self, variant: Variant, kernel: Kernel) -> None:
        """Take note of a kernel, and begin with those that share no file, whatever else comes.
        CompileError: no compiler, or no room for files."""
        if _without_objects.get():
            return
        name, function, _, _ = _texts(kernel, self._printed)
        kind = self._kinds.setdefault((variant, _kind(function)), {})
        if name in kind or isinstance(function, OwnPrinted):
            return
        kind[name] = function
        length = sum(len(each.text) for each in kind.values())
        if length <= GROUP_LENGTH:
            return
        # those from before, when this one makes the kind long
        is_first = length - len(function.text) <= GROUP_LENGTH
        for each in kind.values() if is_first else [function]:
            if len(each.text) > GROUP_LENGTH // 2:
                with _telling():
                    path = self.folder() / "kernels_0.c"
                    self.compile(find_compiler(variant), variant, _file([each]), path)

    def is_printed(self, kernel: Kernel) -> bool:
        """Whether `begin` has taken note of it."""
        return kernel in self._printed

    def text_length(self, kernel: Kernel) -> int:
        """Characters of the text of a kernel."""
        return len(_texts(kernel, self._printed)[1].text)

    def code_of(self, variant: Variant, kernel: Kernel) -> tuple[object, ...]:
        """What the code of a kernel is made of: where this is equal for two variants of a machine,
        either's code will do for both."""
        name, function, check, _ = _texts(kernel, self._printed)
        level = variant.levels[_LEVELS[_kind(function)]]
        return _entry(kernel, name, check), function, level

    def begin_files(self, kernels: Iterable[Column]) -> None:
        """Begin with the files that a program with these kernels has. CompileError: as `begin`."""
        if _without_objects.get():
            return
        found: list[tuple[_File, Variant]] = []
        for variant, each in kernels:
            files = kernel_files(each, printed=self._printed)
            found += [(file, variant) for file in files if len(files) > 1]
        with _telling():
            # checks include little, and take longer than kernels of as much text
            found.sort(key=lambda each: (each[0].count > 0, -len(each[0].text)))
            for file, variant in found:
                path = self.folder() / "kernels_0.c"
                self.compile(find_compiler(variant), variant, file, path)

    def executable(self, kernels: Sequence[Column]) -> Finish:
        """Begin to compile objects, of all variants at once, and what waits for them; they and the
        errors are those of `build_executable`."""
        if _without_objects.get():
            return lambda progress: [b""] * len(kernels)
        jobs: list[_Job] = []
        with _telling():
            for variant, each in kernels:
                jobs.append(_Job(self, variant, kernel_files(each, printed=self._printed)))

        def finish(progress: Callable[[int, int], None]) -> list[bytes]:
            with _telling():
                objects = _finish(jobs, progress)
            self._printed.clear()
            self._kinds.clear()
            if any(job.cached is None for job in jobs):
                self.cache.trim(GREATEST_CACHE, weights=False)
            return objects

        return finish

    def folder(self) -> Path:
        """An empty folder that is gone behind the build."""
        return Path(tempfile.mkdtemp(dir=self._pool()[1]))

    def submit(self, run: Callable[..., None], *arguments: object) -> Future[None]:
        """Run compilers when there is a core for them."""
        return submit(self._pool()[0], run, *arguments)

    def compile(
        self, compiler: Compiler, variant: Variant, file: _File, path: Path
    ) -> tuple[Path, Future[None] | None]:
        """Where one of several files is an object, when the future has its result; it is compiled
        as `path` unless the same was before."""
        flags = file.flags(compiler, variant)
        variant = variant.levels[_LEVELS[file.kind]]
        key = _key(compiler, variant, [*flags, file.text])
        if key not in self._begun:
            path.write_text(file.text, encoding="utf-8")
            known, future = self.cache.read(key), None
            if known is not None:
                path.with_suffix(".o").write_bytes(known)
            else:
                command = [*compiler.compile_command(variant), *_FOLDERS, *flags]
                future = self.submit(self._compile, command, path, key, variant)
            self._begun[key] = path.with_suffix(".o"), future
        return self._begun[key]

    def _compile(self, command: Sequence[str], path: Path, key: str, variant: Variant) -> None:
        """Compile one of several files; what is done is kept if another fails."""
        command = [*command, path.name, "-o", path.with_suffix(".o").name]
        run(command, path.parent)
        self.cache.write(key, _made(command, path.parent, variant, is_linked=False))

    def _pool(self) -> tuple[ThreadPoolExecutor, Path]:
        if self._running is None:
            self._running = self._stack.enter_context(_running())
        return self._running


@contextmanager
def _telling() -> Iterator[None]:
    """CompileError where files cannot be written."""
    try:
        yield
    except OSError as error:
        raise CompileError(
            f"cannot write to the folder of temporary files: {error.strerror}; "
            "make room there, or set TMPDIR to another"
        ) from error


_without_objects: ContextVar[bool] = ContextVar("without objects", default=False)


@contextmanager
def without_objects() -> Iterator[None]:
    """Inside, `build_executable` compiles nothing: the kernels are linked into a program."""
    token = _without_objects.set(True)
    try:
        yield
    finally:
        _without_objects.reset(token)


@contextmanager
def _running() -> Iterator[tuple[ThreadPoolExecutor, Path]]:
    """A pool for compilers, and a folder; behind it none runs any more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    compilers = Compilers()
    with (
        tempfile.TemporaryDirectory(prefix="ingot-build-") as folder,
        ThreadPoolExecutor(cores or 1, initializer=compilers.take_thread) as pool,
    ):
        try:
            yield pool, Path(folder)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            compilers.end()


def _finish(jobs: Sequence[_Job], progress: Callable[[int, int], None]) -> list[bytes]:
    counts = {future: count for job in jobs for future, count in job.running.items()}
    done, count = 0, sum(counts.values())
    if counts:
        progress(done, count)
    for future in as_completed(counts):
        future.result()
        done += counts[future]
        progress(done, count)
    return [job.finish() for job in jobs]


class _Job:
    """One variant's object. `running` has the kernels that each compiler builds."""

    def __init__(self, build: Build, variant: Variant, files: Sequence[_File]) -> None:
        self.compiler = find_compiler(variant)
        self.variant, self.cache = variant, build.cache
        flags = [each.flags(self.compiler, variant) for each in files] if len(files) > 1 else []
        texts = [*chain(*flags), *(file.text for file in files)]
        self.key = _key(self.compiler, variant, texts)
        self.cached = self.cache.read(self.key)
        self.running: dict[Future[None], int] = {}
        self.objects: list[Path] = []  # of the files, if there are several
        self._last: Sequence[str] = ()  # the command that makes the object
        if self.cached is None:
            self.folder = build.folder()
            self._start(build, files)

    def _start(self, build: Build, files: Sequence[_File]) -> None:
        """Begin to compile what no other job has begun."""
        for place, file in enumerate(files):
            path = self.folder / f"kernels_{place}.c"
            if len(files) == 1:
                path.write_text(file.text, encoding="utf-8")
                self.running[build.submit(self._build, path.name)] = file.count
                return
            made, future = build.compile(self.compiler, self.variant, file, path)
            self.objects.append(made)
            if future is not None:
                self.running[future] = file.count

    def _build(self, file: str) -> None:
        """Make the object of one file."""
        first, *others = self.compiler.at_once(self.variant, "kernels.so", file)
        self._last = [*first, *_FOLDERS]
        run(self._last, self.folder)
        for self._last in others:
            run(self._last, self.folder)

    def finish(self) -> bytes:
        """The object's bytes, when all compilers have ended."""
        if self.cached is not None:
            return self.cached
        if self.objects:
            names = [os.path.relpath(each, self.folder) for each in self.objects]
            self._last = self.compiler.link_command(self.variant, "kernels.so", names)
            run(self._last, self.folder)
        data = _made(self._last, self.folder, self.variant, is_linked=True)
        self.cache.write(self.key, data)
        return data


def _key(compiler: Compiler, variant: Variant, texts: Sequence[str]) -> str:
    """What an object of these texts is cached by."""
    digest = hashlib.sha256()
    parts = [compiler.version, *compiler.compile_command(variant)]
    parts += [*compiler.link_command(variant, "", []), _headers(), *texts]
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class _File:
    """A C file, how many kernels are in it, and their kind: 0 if they need all instructions of a
    variant, 1 without those for tiles, 2 without those for products in words, 3 if they multiply
    with packed weights of f32, 4 without vectors."""

    text: str
    count: int
    kind: int

    def flags(self, compiler: Compiler, variant: Variant) -> list[str]:
        """With which it is compiled as one of several."""
        if self.count == 0:
            return ["-c", "-O1"]  # checks and the table, which -O3 does not shorten
        if self.kind < 2:
            return ["-c", *compiler.flags_of_words(variant)]
        return ["-c", *(compiler.flags_of_products(variant) if self.kind == 3 else [])]


_LEVELS = (0, 1, 2, 2, 3)
"""Of a variant, by kind."""

_OWN_INSTRUCTIONS = re.compile(r"\b((store|store_partial|round)_bf16|lookup_u8)x16\(")
"""Functions for which a variant with tiles, or with products of bf16, has an instruction."""

_LOOPS = re.compile("(i8|u8|i16|u16|f16|bf16)x|code$|gather$")
"""Parts that are shorter with -O3: vectors of narrow elements, and what goes lane by lane."""


_Texts = tuple[str, PrintedKernel, str, str]
"""A kernel's function, and the check of its contract, each behind its name."""


def kernel_files(
    kernels: Sequence[Kernel], query: str = "", printed: dict[Kernel, _Texts] | None = None
) -> list[_File]:
    """The kernels in files, the longest first, and the table of entries in the last one. `query`:
    of `linked_sources`. `printed` learns the texts of kernels that other variants may have."""
    printed = {} if printed is None else printed
    functions: dict[str, PrintedKernel] = {}
    checks: dict[str, str] = {}  # equal contracts are shared
    rows: list[str] = []
    for kernel in kernels:
        name, function, check, misfit = _texts(kernel, printed, query or "kernel")
        functions[name], checks[check] = function, misfit
        rows.append(_entry(kernel, name, check))
    groups = [[functions[name] for name in each] for each in _groups(functions)]
    files = [_file(each) for each in groups]
    length = sum(len(each.text) for each in functions.values())
    is_own = any(isinstance(each, OwnPrinted) for each in functions.values())
    is_one = length <= GROUP_LENGTH and not is_own
    parts = [_CHECKED, *(f"{c_printer.prototype(name)};" for name in functions)]
    if is_one or query:
        parts += [f"static {text}" for text in checks.values()]
    else:
        parts += [f"{text[: text.index(' {')]};" for text in checks.values()]
        shared = _shared({name: len(text) for name, text in checks.items()})
        texts = ("\n".join([_CHECKED, *(checks[name] for name in each)]) for each in shared)
        files += [_File(text, 0, 4) for text in texts]
    files.sort(key=lambda file: (-len(file.text), file.text))
    table = "\n".join([*parts, _table(rows, query)])
    if not is_one:
        return [*files, _File(c_printer.print_source([]) + table, 0, 4)]
    # a file of its own would take a third of a small build
    text = files[0].text if files else c_printer.print_source([])
    return [_File(text + table, len(functions), 0)]


def _texts(kernel: Kernel, printed: dict[Kernel, _Texts], prefix: str = "kernel") -> _Texts:
    """The texts of a kernel, which `printed` learns."""
    if kernel not in printed:
        function = print_kernel(replace(kernel, name=_NAME))
        name, text = _named(prefix, function.text)
        misfit = _named("misfit", print_misfit(kernel, _NAME))
        printed[kernel] = name, replace(function, text=text), *misfit
    return printed[kernel]


def _file(kernels: Sequence[PrintedKernel]) -> _File:
    return _File(c_printer.print_source(kernels), len(kernels), min(map(_kind, kernels)))


def _named(prefix: str, text: str) -> tuple[str, str]:
    """A name that depends on the text of a function, and the text with that name."""
    name = f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return name, text.replace(_NAME, name)


def _kind(kernel: PrintedKernel) -> int:
    if "tiles" in kernel.parts or _OWN_INSTRUCTIONS.search(kernel.text):
        return 0
    if not kernel.parts.isdisjoint(("dot2", "dot4", "half2")):
        return 1
    if isinstance(kernel, OwnPrinted):
        return 2
    if not kernel.headers:
        return 4
    asks = {"f32", "prefetch"} <= kernel.parts  # for the next of its weights
    return 3 if asks and not any(map(_LOOPS.match, kernel.parts)) else 2


def _groups(functions: Mapping[str, PrintedKernel]) -> list[list[str]]:
    """The names of the functions that share a file: of one kind, where there is much of it."""
    own = [[name] for name, each in functions.items() if isinstance(each, OwnPrinted)]
    kinds: list[dict[str, int]] = [{}, {}, {}, {}, {}]
    for name, each in functions.items():
        if not isinstance(each, OwnPrinted):
            kinds[_kind(each)][name] = len(each.text)
    lengths = [sum(kind.values()) for kind in kinds]
    if sum(lengths) <= GROUP_LENGTH:
        kinds = [{name: length for kind in kinds for name, length in kind.items()}]
    elif lengths[4] < GROUP_LENGTH // 8:
        kinds = [*kinds[:2], {**kinds[2], **kinds[4]}, kinds[3]]
    return [*own, *(each for kind in kinds for each in _shared(kind))]


def _shared(lengths: Mapping[str, int]) -> list[list[str]]:
    """The names of texts that share a file: which one depends on the name, and on the length of all
    that are not long only by its power of two."""
    length = sum(lengths.values())
    if length <= GROUP_LENGTH:
        return [sorted(lengths)] if lengths else []
    groups = [[name] for name in sorted(lengths) if lengths[name] > GROUP_LENGTH // 2]
    length -= sum(lengths[name] for (name,) in groups)
    # as a power of two the nearest count of files
    count = 1 << max((length * 3 // 2 // GROUP_LENGTH).bit_length() - 1, 0)
    places: dict[int, list[str]] = {}
    for name in sorted(lengths):
        if lengths[name] <= GROUP_LENGTH // 2:
            places.setdefault(int(name[-8:], 16) % count, []).append(name)
    return [*groups, *places.values()]


def _entry(kernel: Kernel, name: str, check: str) -> str:
    """The row of a table for a kernel with functions of these names."""
    tile = ", ".join(map(str, kernel.tile))
    counts = f"{kernel.written}u, {len(kernel.bindings)}, {len(kernel.constants)}"
    return f"  {{{name}, {{{tile}}}, {kernel.scratch_length}, {check}, {counts}}},"


def _table(rows: Sequence[str], query: str = "") -> str:
    """What is behind the functions of one file: the only export, and without `query` the memory
    functions."""
    export = "" if query else '__attribute__((visibility("default"))) '
    lines = [
        "",
        "static const ingot_kernel_entry_t entries[] = {",
        *rows,
        "};",
        "static const ingot_kernel_library_t library = {INGOT_KERNEL_ABI_VERSION, "
        f"{len(rows)}, entries}};",
        "",
        f"{export}const ingot_kernel_library_t *INGOT_KERNEL_CALL",
        f"{query or _QUERY}(uint32_t abi_version);",
        "const ingot_kernel_library_t *INGOT_KERNEL_CALL",
        f"{query or _QUERY}(uint32_t abi_version) {{",
        "  return abi_version == INGOT_KERNEL_ABI_VERSION ? &library : 0;",
        "}",
        "",
    ]
    return "\n".join(lines if query else [*lines, '#include "kernel_memory.h"', ""])


@lru_cache(maxsize=1)
def _headers() -> str:
    """The text of all headers that kernels include."""
    paths = [*sorted(HEADER_FOLDER.glob("*.h")), INCLUDE_FOLDER / "ingot" / "kernel_abi.h"]
    return "\0".join(path.read_text(encoding="utf-8") for path in paths)


def run(command: Sequence[str], folder: Path) -> None:
    """Run the compiler in a folder. CompileError: it failed; the folder's sources are kept."""
    done = run_compiler(command, folder)
    if done.returncode == 0 and (folder / command[command.index("-o") + 1]).is_file():
        return
    how = f"failed with exit status {done.returncode}" if done.returncode else "made no object"
    if done.returncode < 0:
        how = f"was ended by signal {-done.returncode}; perhaps memory ran out"
    message = (done.stderr or done.stdout).strip()[:_MESSAGE_LENGTH]
    raise first_failure(lambda: _failed(command, folder, how, message))


def _made(command: Sequence[str], folder: Path, variant: Variant, is_linked: bool) -> bytes:
    """What the command has made. CompileError: no whole object for the variant."""
    data = read_object(folder / command[command.index("-o") + 1], variant, is_linked)
    if data is None:
        how = f"made no object for {variant.name}, and says it did"
        raise first_failure(lambda: _failed(command, folder, how, ""))
    return data


def _failed(command: Sequence[str], folder: Path, how: str, message: str) -> CompileError:
    kept = Path(tempfile.mkdtemp(prefix="ingot-failed-"))
    for path in folder.glob("*.c"):
        shutil.copy(path, kept)
    return CompileError(
        f"the C compiler {how}:\n{message}\n"
        f"command: {shlex.join(command)}\nthe source was kept in {kept}\n"
        "set CC to another compiler (gcc 12, clang 14 and ziglang, or newer, are known to work)"
    )
