"""The C compilers: which there are, what each is told, and which one makes a variant.

gcc makes code of one machine, clang of all that it was built for, if there is a linker. ziglang,
from pip, is a clang with linkers for every variant; `CC="zig cc"` is the same. What a compiler can
make is found by building a small object just as kernels are built: success is kept in the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.targets.cpu.variants import Variant
from ingot.hal.errors import CompileError
from ingot.hal.file_cache import default_cache

__all__ = [
    "COMMON_FLAGS",
    "Compiler",
    "Compilers",
    "find_compiler",
    "find_ziglang",
    "first_failure",
    "read_object",
    "run_compiler",
    "submit",
]

COMMON_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffreestanding",
    "-nostdlib",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-tree-vectorize",  # kernels have vectors of their own, and gcc 12 makes wrong code of
    "-ftree-slp-vectorize",  # loops whose branches store to the same places
    "-Wframe-larger-than=8192",
    "-Wno-psabi",
)
_GCC_FLAG = "-fno-tree-loop-distribution"  # a search that takes 5 % of the time, and finds nothing
_WITHOUT = ("tree-pre", "code-hoisting", "tree-pta", "ipa-cp", "ipa-sra", "ipa-icf")
"""What takes gcc a twelfth of its time, and makes no kernel for x86-64 faster: schedules share what
would be computed twice."""
_REGIONS = "-fira-region=all"
"""Registers are assigned loop by loop. Else gcc may join a loop with those around it, and keep all
sums of a tile on the stack: 64 x 2048 by 2048 x 512 in T5 took 1790 us of one core with AVX-512."""
_WITHOUT_IN_WORDS = ("schedule-insns2", "gcse")
"""The same of products in words, another twentieth."""
_ELF_LINK_FLAGS = (
    ("-z", "max-page-size=65536"),
    ("-z", "noseparate-code"),  # else the file is padded: 198 KB instead of 3 KB for six kernels
    ("-z", "norelro"),
    ("-z", "noexecstack"),
    ("--build-id=none",),
    ("--no-undefined",),
    ("-s",),
)
_WASM_LINK_FLAGS = (("--experimental-pic",), ("--no-entry",), ("--strip-all",))
_TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm": "armv7a-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}
_ELF_RELOCATABLE, _ELF_SHARED = b"\1\0", b"\3\0"  # types of objects
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "arm": 40, "riscv64": 243}  # EM_*
_PROBE = """#include <stddef.h>
#include <stdint.h>
typedef float vector __attribute__((vector_size(16)));
static void add(vector *a, const vector *b) { *a += *b; }
static void (*const table[])(vector *, const vector *) = {add};
__attribute__((visibility("default"))) const void *ingot_executable_query(uint32_t version);
const void *ingot_executable_query(uint32_t version) { return version ? table : NULL; }
"""
TIME_LIMIT = 1800  # seconds of one compiler, which takes a few for a file of kernels
QUESTION_LIMIT = 120  # seconds of one that is asked for its version, or for a probe
MOST_SAID = 1 << 20  # bytes of messages; a compiler that goes on is ended
T = TypeVar("T")
_TURN = 0.5  # seconds between looks at a compiler that says nothing
_QUERY = b"ingot_executable_query"
_MOST_OBJECT = 1 << 30  # bytes
_GIVEN_UP = "compiling was given up"
_INSTALL = "pip install ingot[cross] brings ziglang, which makes every variant"
_MISSING = (
    "no C compiler was found: set CC to one, or install gcc or clang "
    f"(Debian and Ubuntu: apt-get install gcc); or {_INSTALL}"
)


@dataclass(frozen=True)
class Compiler:
    """A C compiler command and what it says of itself."""

    command: tuple[str, ...]
    version: str
    linker: tuple[str, ...] = ()  # the command of linkers that are not called by the compiler

    def compile_command(self, variant: Variant) -> list[str]:
        """What compiles C for the variant; options and files follow."""
        command = [*self._driver(variant), *COMMON_FLAGS]
        if self._is_measured(variant):
            command += [_REGIONS, *(f"-fno-{each}" for each in _WITHOUT)]
        return command

    def flags_of_words(self, variant: Variant) -> list[str]:
        """Further ones for products in words."""
        without = _WITHOUT_IN_WORDS if self._is_measured(variant) else ()
        return [f"-fno-{each}" for each in without]

    def flags_of_products(self, variant: Variant) -> list[str]:
        """Further ones for products with packed weights of f32, whose schedules have unrolled all:
        with gcc for x86-64 they compile in three quarters of the time, and are as fast."""
        aligned = ("-falign-functions", "-falign-loops", "-falign-jumps")  # else luck decides
        return ["-O1", *aligned] if self._is_measured(variant) else []

    def _is_measured(self, variant: Variant) -> bool:
        return variant.machine == "x86_64" and "clang" not in self.version

    def link_command(self, variant: Variant, output: str, files: Sequence[str]) -> list[str]:
        """What links files to one object."""
        is_wasm = variant.machine == "wasm32"
        flags = _WASM_LINK_FLAGS if is_wasm else _ELF_LINK_FLAGS
        if self.linker:
            name = "wasm-ld" if is_wasm else "ld.lld"
            words = [word for flag in flags for word in flag]
            return [*self.linker, name, "-shared", *words, "-o", output, *files]
        passed = [",".join(("-Wl", *flag)) for flag in flags]
        return [
            *self._driver(variant),
            "-shared",
            "-nostdlib",
            *passed,
            "-o",
            output,
            *files,
            "-lgcc",
        ]

    def at_once(self, variant: Variant, output: str, file: str) -> list[list[str]]:
        """The commands that make an object of one file of C: one, where the compiler links."""
        compile = self.compile_command(variant)
        if self.linker:
            made = f"{output}.o"
            return [[*compile, "-c", file, "-o", made], self.link_command(variant, output, [made])]
        link = self.link_command(variant, output, [file])
        return [[*compile, *link[len(self._driver(variant)) :]]]

    def _driver(self, variant: Variant) -> list[str]:
        is_clang = "clang" in self.version
        target = [_GCC_FLAG]
        if is_clang:
            target = [f"--target={variant.triple or _TRIPLES[variant.machine]}"]
        return [*self.command, *target, *variant.flags]


def find_compiler(variant: Variant) -> Compiler:
    """A compiler that makes the variant: `$CC`, else gcc, else clang; where it cannot, ziglang.

    CompileError: there is none, and why each cannot.
    """
    failures: list[str] = []
    for compiler in _compilers(os.environ.get("CC", ""), os.environ.get("PATH", "")):
        failure = _failure(compiler, variant)
        if failure is None:
            return compiler
        failures.append(f"  {shlex.join(compiler.command)}: {failure}")
    if not failures:
        raise CompileError(_MISSING)
    way = f"\n{_INSTALL}" if find_ziglang() is None else ""
    raise CompileError(
        f"no C compiler of this machine makes code for the variant '{variant.name}':\n"
        + "\n".join(failures)
        + way
    )


def find_ziglang() -> Path | None:
    """The program of the package ziglang, if it is installed."""
    found = find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        return None
    name = "zig.exe" if sys.platform == "win32" else "zig"
    path = Path(found.submodule_search_locations[0]) / name
    return path if path.is_file() else None


def _compilers(chosen: str, path: str) -> Iterator[Compiler]:
    """Those to try, best first."""
    if chosen:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError:  # a quotation without an end
            command = ()
        if not command or shutil.which(command[0], path=path) is None:
            raise CompileError(f"CC is {chosen!r}, which is no command; {_MISSING}")
        if os.path.dirname(command[0]):  # it runs in other folders
            command = (os.path.abspath(command[0]), *command[1:])
        *_, before, last = ("", *command)
        is_zig = last == "cc" and "zig" in Path(before).name  # "ccache cc" is another
        yield _zig(command[:-1], path) if is_zig else _plain(command, path)
    else:
        names = [name for name in ("gcc", "clang") if shutil.which(name, path=path)]
        yield from (_plain((name,), path) for name in names)
    ziglang = find_ziglang()
    if ziglang is not None:
        yield _zig((str(ziglang),), path)


@lru_cache(maxsize=8)
def _plain(command: tuple[str, ...], path: str) -> Compiler:
    return Compiler(command, _said((*command, "--version")))


@lru_cache(maxsize=8)
def _zig(command: tuple[str, ...], path: str) -> Compiler:
    """The clang in zig. `zig cc` would translate its flags, and refuses some."""
    found = re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', _said((*command, "env")))
    headers = ("-isystem", str(Path(found[1]).absolute() / "include")) if found else ()
    clang = (*command, "clang")
    return Compiler((*clang, *headers), _said((*clang, "--version")), command)


def _said(command: Sequence[str]) -> str:
    done = run_compiler(command, seconds=QUESTION_LIMIT)
    return done.stdout or done.stderr


def run_compiler(
    command: Sequence[str], folder: Path | None = None, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, where its temporary files are, too. It reads no input; its
    messages may be of any encoding. CompileError: it does not start, does not end, or does not stop
    writing messages."""
    group = _group.get() or Compilers()
    if threading.current_thread() is not threading.main_thread():
        return _run(group, command, folder, seconds)
    # Here a signal raises anywhere, also before anyone knows of a process that has started.
    with ThreadPoolExecutor(1) as pool:
        try:
            return submit(pool, _run, group, command, folder, seconds).result()
        except BaseException:
            group.end()
            raise


def submit(pool: ThreadPoolExecutor, run: Callable[..., T], *arguments: Any) -> Future[T]:
    """Run it on a thread. CompileError: the system starts none."""
    try:
        return pool.submit(run, *arguments)
    except RuntimeError as error:
        raise CompileError(
            f"the system does not let C compilers start: {error}; give this process more "
            "memory, threads and processes"
        ) from None


def _run(
    group: Compilers, command: Sequence[str], folder: Path | None, seconds: float | None
) -> subprocess.CompletedProcess[str]:
    try:
        process = group.start(
            list(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **({"TMPDIR": str(folder)} if folder else {})},
            start_new_session=True,
        )
    except OSError as error:
        raise CompileError(f"the C compiler {command[0]} does not start: {error}") from None
    with process:
        try:
            texts = _messages(process, TIME_LIMIT if seconds is None else seconds)
        except subprocess.TimeoutExpired as error:
            raise CompileError(
                f"the C compiler has not ended after {error.timeout} seconds: "
                f"{shlex.join(command)}\nset CC to another compiler"
            ) from None
        finally:
            if process.returncode is None:
                _end(process)
    group.leave(process)
    decoded = [text.decode(errors="replace") for text in texts]
    return subprocess.CompletedProcess(command, process.returncode, *decoded)


def _messages(process: subprocess.Popen[bytes], seconds: float) -> Sequence[bytes]:
    """What a process writes to both pipes until it has ended. What it has left running may hold
    them for longer, such as the server of a wrapper that caches."""
    if os.name != "posix":
        return process.communicate(timeout=seconds)
    end = time.monotonic() + seconds
    said = {pipe: bytearray() for pipe in (process.stdout, process.stderr) if pipe}
    with selectors.PollSelector() as selector:
        for pipe in said:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(_TURN)
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                said[key.fileobj] += piece  # type: ignore[index]
                if not piece:
                    selector.unregister(key.fileobj)
            if sum(map(len, said.values())) > MOST_SAID:
                text = bytes(said[process.stderr] or said[process.stdout])  # type: ignore[index]
                raise CompileError(
                    "the C compiler does not stop writing messages, such as "
                    f"{_first_error(text.decode(errors='replace'))!r}; set CC to another compiler"
                )
            if not ready and process.poll() is not None:
                break
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired([], seconds)
    process.wait(max(0, end - time.monotonic()))
    return [bytes(each) for each in said.values()]


class Compilers:
    """Those that the threads of a pool run, which whoever waits for them can end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_ended = False
        self._failure: CompileError | None = None

    def take_thread(self) -> None:
        """What this thread runs is of them."""
        _group.set(self)

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_ended:
                raise CompileError(_GIVEN_UP)
            process = subprocess.Popen(command, **options)
            _step_back(process)
            self._running.add(process)
        return process

    def leave(self, process: subprocess.Popen[bytes]) -> None:
        """CompileError: it was ended."""
        with self._lock:
            self._running.discard(process)
            if self._is_ended:
                raise CompileError(_GIVEN_UP)

    def failure(self, make: Callable[[], CompileError]) -> CompileError:
        """What all of them fail with: what the first one makes."""
        with self._lock:
            self._failure = self._failure or make()
            return self._failure

    def end(self) -> None:
        """End what runs, with the processes that it has started; none is begun any more."""
        with self._lock:
            self._is_ended = True
            for process in self._running:
                _end(process)


def _step_back(process: subprocess.Popen[bytes]) -> None:
    """Let what made the process go first, where cores are few: others wait for its results."""
    if hasattr(os, "setpriority"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + 3)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started, whatever they do. Their temporary files lie in
    a folder that goes."""
    with suppress(ProcessLookupError, PermissionError):  # the latter of macOS
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def first_failure(make: Callable[[], CompileError]) -> CompileError:
    """What compilers of this thread's pool fail with: what the first one makes."""
    return (_group.get() or Compilers()).failure(make)


_group: ContextVar[Compilers | None] = ContextVar("compilers of this thread", default=None)


@lru_cache(maxsize=256)
def _failure(compiler: Compiler, variant: Variant) -> str | None:
    """Why the compiler cannot make the variant; None if it can."""
    tests = [f'#ifndef {each}\n#error "it has no {each}"\n#endif' for each in variant.macros]
    text = "\n".join([*tests, _PROBE])
    output = "probe"
    if variant.triple:  # nothing is loaded there, and what is linked is the program
        commands = [[*compiler.compile_command(variant), "-c", "probe.c", "-o", output]]
    else:
        commands = compiler.at_once(variant, output, "probe.c")
    parts = [compiler.version, *(word for command in commands for word in command), text]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cache = default_cache()
    if cache.read(key) is not None:
        return None
    with tempfile.TemporaryDirectory(prefix="ingot-probe-") as folder:
        (Path(folder) / "probe.c").write_text(text, encoding="utf-8")
        for command in commands:
            done = run_compiler(command, Path(folder), QUESTION_LIMIT)
            if done.returncode != 0:
                return _first_error(done.stderr)
        made = Path(folder) / output
        if not made.is_file():
            return "it ends without an error, and makes no object"
        if read_object(made, variant, not variant.triple) is None:
            return "it makes objects of another format"
    cache.write(key, b"")
    return None


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()
    return lines[0].strip()[:300] if lines else "it fails and says nothing"


def read_object(path: Path, variant: Variant, is_linked: bool) -> bytes | None:
    """A file's bytes, if it is an object for the variant that is whole: linked, with its export, or
    not yet. None: a compiler ended without an error, and did not do its work."""
    if not path.is_file() or path.stat().st_size > _MOST_OBJECT:
        return None
    data = path.read_bytes()
    if is_linked and _QUERY not in data:
        return None
    if variant.machine == "wasm32":
        return data if data.startswith(b"\0asm") else None
    number = int.from_bytes
    is_wide = data[4:5] == b"\2"  # 64 bits
    table, row = (data[40:48], data[58:62]) if is_wide else (data[32:36], data[46:50])
    is_whole = (
        data.startswith(b"\x7fELF")
        and data[16:18] == (_ELF_SHARED if is_linked else _ELF_RELOCATABLE)
        and number(data[18:20], "little") == _ELF_MACHINES[variant.machine]
        and number(table, "little") + number(row[:2], "little") * number(row[2:], "little")
        <= len(data)  # which ends with its table of sections
    )
    return data if is_whole else None
