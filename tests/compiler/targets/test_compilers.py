"""C compilers: those that are missing, fail, lie or do not end, and what stays of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.command import main as command
from ingot.compiler.targets.cpu import compilers, toolchain
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.errors import CompileError
from ingot.hal.file_cache import Cache
from tests.support.entries import kernels


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """There is a file when a compiler has begun with kernels, which it does not end. None of them
    and no folder is there behind the test."""
    if os.name != "posix":
        pytest.skip("its compiler is a script of the shell")
    begun, script, folder = tmp_path / "begun", tmp_path / "cc", tmp_path / "temporary"
    script.write_text(
        f"""#!/bin/sh
        case "$*" in *kernels_*) touch {begun}; (sleep 600);; esac
        exec gcc "$@"
        """
    )
    script.chmod(0o755)
    folder.mkdir()
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    start = time.monotonic()
    yield begun
    assert time.monotonic() - start < 300  # what sleeps holds the compiler's output
    assert not list(folder.iterdir())


def test_who_leaves_without_the_objects_leaves_no_compiler_behind(begun: Path) -> None:
    def interrupted() -> None:
        with toolchain.building_executables(Cache(None)) as build:
            build.executable([(VARIANTS["x86-64-v3"], kernels())])
            while not begun.exists():
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_a_command_that_is_terminated_leaves_no_compiler_behind(
    begun: Path, tmp_path: Path
) -> None:
    def terminate() -> None:
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=terminate)
    thread.start()
    model = str(Path(__file__).parents[3] / "samples" / "hello" / "hello.onnx")
    with pytest.raises(SystemExit) as ended:
        command(["compile", model, "-o", str(tmp_path / "hello.ingot")])
    thread.join()
    signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM


@pytest.mark.skipif(os.name != "posix", reason="its compiler is a program of POSIX")
def test_a_signal_while_a_compiler_is_started_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            compilers.run_compiler(["sleep", "600"])
        assert started[0].returncode == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGINT, before)
        started[0].kill()
        started[0].wait()


def test_a_compiler_that_does_not_end_is_ended(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers.find_compiler(VARIANTS["x86-64-v3"])
    monkeypatch.setattr(compilers, "TIME_LIMIT", 0.5)
    with pytest.raises(CompileError, match=r"has not ended after 0\.5 seconds: .*kernels_0\.c"):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))


def test_a_kernel_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    calls: list[object] = []

    def fail(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) > 1:
            time.sleep(0.2)  # while the first failure is noticed
        raise CompileError("out of luck")

    monkeypatch.setattr(toolchain, "run", fail)
    monkeypatch.setattr(toolchain.os, "sched_getaffinity", lambda process: {0})
    with pytest.raises(CompileError, match="out of luck"):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))
    assert len(calls) < 5


def test_missing_compiler_names_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers, "find_ziglang", lambda: None)
    variant = VARIANTS["x86-64-v3"]
    with pytest.raises(CompileError, match=r"install gcc or clang.*pip install ingot\[cross\]"):
        toolchain.build_executable({variant: kernels()}, Cache(None))
    monkeypatch.setenv("CC", 'gcc "')
    with pytest.raises(CompileError, match="is no command"):
        compilers.find_compiler(variant)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler"):
        compilers.find_compiler(variant)


def test_a_compiler_behind_a_wrapper_is_no_zig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", f"{wrapper} cc")
    assert compilers.find_compiler(VARIANTS["x86-64-v3"]).command == (str(wrapper), "cc")


def test_a_variant_that_no_compiler_makes_says_why_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(compilers, "find_ziglang", lambda: None)
    with pytest.raises(CompileError, match=r"(?s)variant 'wasm32-simd128':\n  gcc: .*ingot\[cross"):
        toolchain.build_executable({VARIANTS["wasm32-simd128"]: kernels()}, Cache(None))


PROBED = 'case "$*" in *--version* | *probe*) exec gcc "$@"; esac; '


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 0", "broken: it ends without an error, and makes no object"),
        ('exec gcc "$@" -c', "broken: it makes objects of another format"),
        ("printf 'error: \\377' >&2; exit 1", "broken: error: \ufffd"),
        ("cat; exit 1", "broken: it fails and says nothing"),  # it has no input to wait for
        ("kill -SEGV $$", "broken: it fails and says nothing"),
        (f"{PROBED} exit 0", "the C compiler made no object"),
        (f"{PROBED} kill -KILL $$", "the C compiler was ended by signal 9; perhaps memory ran out"),
        ("exec cat /dev/zero", "the C compiler does not stop writing messages, such as '\\x00"),
        (f"{PROBED} yes 'an error' >&2", "writing messages, such as 'an error'; set CC"),
    ],
)
def test_what_is_no_compiler_is_told(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "broken").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "./broken")
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(compilers, "find_ziglang", lambda: None)
    with pytest.raises(CompileError, match=re.escape(message)):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))


HALF = 'gcc "$@"; eval "made=\\${$#}"; truncate -s -8 "$made"'

OTHER = 'gcc "$@"; eval "made=\\${$#}"; cp /bin/sh "$made"'

EMPTY = 'eval ": > \\${$#}"'


@pytest.mark.skipif(os.name != "posix", reason="its compiler is a script of the shell")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("script", [HALF, OTHER, EMPTY])
def test_an_object_that_is_none_is_neither_taken_nor_kept(
    script: str, many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (
        f'for each; do case "$last" in -o) set -- "$@" "$each";; esac; last=$each; done; {script}'
    )
    (tmp_path / "cc").write_text(f"#!/bin/sh\n{PROBED}\n{made}\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path))
    if many:
        monkeypatch.setattr(toolchain, "GROUP_LENGTH", 1)
    (tmp_path / "cache").mkdir()
    with pytest.raises(CompileError, match="made no object for x86-64-v3, and says it did"):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(tmp_path / "cache"))
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.skipif(os.name != "posix", reason="its compiler is a script of the shell")
def test_what_a_compiler_leaves_running_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'#!/bin/sh\nsleep 600 & echo $! >> {tmp_path}/left\nexec gcc "$@"\n'
    (tmp_path / "cc").write_text(script)
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    start = time.monotonic()
    assert toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))
    assert time.monotonic() - start < 300
    for each in (tmp_path / "left").read_text().split():
        os.kill(int(each), signal.SIGKILL)


@pytest.mark.skipif(os.name != "posix", reason="its compiler is a script of the shell")
def test_a_compiler_that_does_not_answer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cc").write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setattr(compilers, "QUESTION_LIMIT", 0.2)
    with pytest.raises(CompileError, match=r"has not ended after 0\.2 seconds: .*--version"):
        compilers.find_compiler(VARIANTS["x86-64-v3"])


def test_a_system_without_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(CompileError, match="compilers start: can't start new thread; give"):
        toolchain.build_executable({VARIANTS["x86-64-v3"]: kernels()}, Cache(None))


def test_failing_compiler_keeps_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "broken"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *--version* | *probe*) exec gcc "$@"; esac\n'
        "echo out of luck >&2\nexit 3\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path))
    both = {VARIANTS[name]: kernels() for name in ("x86-64-v3", "x86-64-v2")}
    with pytest.raises(CompileError, match=r"status 3:\nout of luck") as failure:
        toolchain.build_executable(both, Cache(None))
    kept = str(failure.value).split("kept in ")[1].split("\n")[0]
    assert list(Path(kept).glob("*.c"))
    assert list(tmp_path.glob("ingot-*")) == [Path(kept)]


@pytest.mark.skipif(not hasattr(os, "setpriority"), reason="there are no priorities")
def test_compilers_step_back_for_who_waits_for_them() -> None:
    group = compilers.Compilers()
    process = group.start(["sleep", "60"])
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(own + 3, 19)
    finally:
        process.kill()
        process.wait()
    group.leave(process)
