"""samples/android: its Kotlin and its native part run in a desktop JVM, and what the native part
needs of Android."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.hal.spec import dtype
from tests.support.emulators import need_tool, zig_cc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MAIN = ROOT / "samples/android/app/src/main"
KOTLIN = [MAIN / "java/dev/ingot" / name for name in ("Model.kt", "Tensor.kt")]
STANDARD_LIBRARY = "/usr/share/java/kotlin-stdlib.jar"
NATIVE = (str(MAIN / "cpp/ingot_jni.c"), str(ROOT / "csrc/ingot.c"))
FLAGS = (
    *("-std=gnu11", "-fvisibility=hidden", "-DINGOT_API="),
    *(f"-I{ROOT / each}" for each in ("csrc/include", "csrc")),
)
# In libc.so and libdl.so from API 24 on (Android 7), by bionic's own lists.
BIONIC = set(
    re.findall(
        r"\w+",
        """__errno __sched_cpucount access calloc clock_gettime close dlclose dlerror dlopen
    dlsym free fstat getauxval getenv geteuid getpid madvise malloc memchr memcmp memcpy memmove
    memset mkdir mkstemp mmap mprotect munmap open posix_memalign pread pthread_attr_destroy
    pthread_attr_init pthread_attr_setstacksize pthread_cond_broadcast pthread_cond_destroy
    pthread_cond_init pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_create
    pthread_detach pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock
    pthread_mutex_unlock pthread_self pthread_sigmask qsort read realloc rename sched_getaffinity
    sched_setaffinity sched_yield setpriority sigfillset snprintf stat strchr strcmp strcspn
    strerror strlen strncmp strpbrk strrchr strstr strtoll syscall sysconf sysinfo unlink vsnprintf
    write""",
    )
)
SAID = """\
InvalidArgument: result 0 'logits': dim 0 of the given view is 3, expected 360
NotFound: there is no function 'größe'; the program has 'main'
java.lang.IllegalArgumentException: a result is a buffer that is read-only
InvalidArgument: function 'main' takes 1 arguments and gives 1 results, it is called with 0 and 0
java.lang.IllegalStateException: the model is closed
InvalidArgument: module: its memory must start on a multiple of 8 bytes
DataLoss: module: this is no Ingot module: it does not start with the module magic
java.lang.IllegalArgumentException: memory is a buffer on the heap, expected a direct one
java.lang.IllegalArgumentException: data has LENGTH bytes, but F64[1,1000000] 8000000
"""


def _run(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def _jni() -> list[str]:
    """Where jni.h is."""
    need_tool("javac")
    javac = Path(_run("sh", "-c", "readlink -f $(command -v javac)").strip())
    include = javac.parents[1] / "include"
    return [f"-I{include}", f"-I{include / 'linux'}"]


def test_a_jvm_reads_digits_without_a_copy(tmp_path: Path) -> None:
    """With the checks of JNI, which would print what is wrong."""
    need_tool("kotlinc")
    library = tmp_path / "libingot_jni.so"
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
    _run("cc", *FLAGS, *warnings, "-O1", "-fPIC", "-shared", *_jni(), *NATIVE, "-o", library)
    test = Path(__file__).with_name("digits.kt")
    _run("kotlinc", "-nowarn", *KOTLIN, test, "-d", tmp_path / "digits.jar")
    images = np.load(ROOT / "samples/digits/images.npy")
    images.astype("<f4").tofile(tmp_path / "images")
    ingot.compile(ROOT / "samples/digits/digits.onnx").save(tmp_path / "digits.ingot")
    classes = f"{tmp_path / 'digits.jar'}:{STANDARD_LIBRARY}"
    options = ("-Xcheck:jni", "-Djava.library.path=.", "-cp", classes)
    said = _run("java", *options, "DigitsKt", "digits.ingot", "images", folder=tmp_path)
    found, told = said.split("\n", 1)
    labels = np.load(ROOT / "samples/digits/labels.npy")
    assert (np.array(list(found), int) == labels).sum() == 358
    length = str((tmp_path / "digits.ingot").stat().st_size + 4)
    assert told == SAID.replace("LENGTH", length)


def test_the_types_of_elements_are_the_runtimes() -> None:
    rows = re.findall(r"^  (\w+)\((0x\w+), (\d+)\)", KOTLIN[1].read_text(), re.M)
    assert len(rows) == 13
    for name, code, length in rows:
        known = dtype(name.lower())
        assert (known.code, known.bytes) == (int(code, 0), int(length))


def test_android_has_what_the_native_part_needs(tmp_path: Path) -> None:
    made = tmp_path / "native.o"
    needed, defined = set(), set()
    for file in NATIVE:
        zig_cc("aarch64-linux-android", *FLAGS, "-Os", *_jni(), "-c", file, "-o", made)
        needed |= {line.split()[-1] for line in _run("nm", "-u", made).splitlines()}
        defined |= {line.split()[-1] for line in _run("nm", "--defined-only", made).splitlines()}
    needed -= defined
    compiler = {name for name in needed if name.startswith(("__aarch64_", "__clear_cache"))}
    # musl's name is another.
    found = {"__errno" if name == "__errno_location" else name for name in needed - compiler}
    assert {"pthread_create", "mprotect"} <= found <= BIONIC
