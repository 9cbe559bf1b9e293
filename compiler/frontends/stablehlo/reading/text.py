"""Read MLIR text through jaxlib, whose parser knows every form of StableHLO, CHLO and MHLO.

A parser in C++ does not survive every text that it is given, so it runs in a process of its own;
what comes back are the bytes of a portable artifact, which are checked as those of a file are.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from typing import Any, BinaryIO
from weakref import finalize

from ingot.compiler.frontends.kept_file import KeptFile
from ingot.hal.errors import CompileError, Unsupported

__all__ = ["artifact_of_text", "is_mlir_text"]

_DIALECTS = re.compile(rb"\bfunc\.func\b|\b(stablehlo|mhlo|chlo)\.\w")
_PIECE, _LONGEST_NAME = 1 << 20, 64
_SECONDS = 120
_NO_JAXLIB, _REFUSED = 3, 4
_CODES = "func.func private @codes() -> tensor<!quant.uniform<i8:f32, 1.0>>"
# The folder that a user is in may hold anything, also a file called jaxlib.py.
_PROGRAM = f"""
import sys
sys.path = [folder for folder in sys.path if folder]
try:
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
except ImportError:
    sys.exit({_NO_JAXLIB})
registry = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(registry)
with ir.Context() as context, ir.Location.unknown():
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    try:
        text = sys.stdin.buffer.read().decode()
        version = stablehlo.get_current_version()
        if "!quant." in text:  # jaxlib has no call that loads the dialect: an artifact does
            codes = stablehlo.serialize_portable_artifact_str({_CODES!r}, version)
            stablehlo.deserialize_portable_artifact(context, codes)
        module = ir.Module.parse(text)
        artifact = _jax.mlir.serialize_portable_artifact(module, version, True)
        with open(1, "wb", closefd=False) as output:  # all of it, unlike a stream without a buffer
            output.write(artifact)
    except Exception as error:  # also of a disk that is full
        print(error, file=sys.stderr)
        sys.exit({_REFUSED})
"""


def is_mlir_text(text: bytes | BinaryIO) -> bool:
    """Whether a text, or what is left of a file, names ops of MLIR's dialects, which Ingot's own
    does not have."""
    if isinstance(text, bytes):
        return _DIALECTS.search(text) is not None
    before = b""
    while piece := text.read(_PIECE):
        if is_mlir_text(before + piece):
            return True
        before = piece[-_LONGEST_NAME:]
    return False


def artifact_of_text(text: bytes | BinaryIO) -> KeptFile:
    """The portable artifact of a module as text, all of a file or bytes, in the pretty or the
    generic form: in a file, for weights are in both, which goes with what is returned.

    CompileError: it is no such text, or the parser did not end or not survive. Unsupported: jaxlib
    is not installed, or too old.
    """
    try:
        with ExitStack() as stack:
            output = stack.enter_context(tempfile.TemporaryFile())
            _parse(text, output)
            artifact = KeptFile(partial(_opened, output), "the artifact of the MLIR text")
            stack.pop_all()
    except OSError as error:
        raise CompileError(f"the MLIR text cannot be read: {error}") from None
    finalize(artifact, output.close)
    return artifact


def _opened(file: BinaryIO) -> BinaryIO:
    return os.fdopen(os.dup(file.fileno()), "rb")


def _parse(text: bytes | BinaryIO, output: BinaryIO) -> None:
    """Write the artifact. Raises as `artifact_of_text`."""
    given: dict[str, Any] = {"input": text}
    if not isinstance(text, bytes):
        os.lseek(text.fileno(), 0, os.SEEK_SET)
        given = {"stdin": text}
    command = [sys.executable, "-c", _PROGRAM]
    try:
        done = subprocess.run(
            command, **given, stdout=output, stderr=subprocess.PIPE, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"the MLIR text was not read in {_SECONDS} s: pass the bytes that "
            "jax.export.export(...)(...).serialize() gives"
        ) from None
    if done.returncode == 0 and os.fstat(output.fileno()).st_size:
        return
    if done.returncode == _NO_JAXLIB:
        raise Unsupported(
            "MLIR text is read by the parser of jaxlib 0.6 or newer, which is not installed: pip "
            "install jaxlib, or pass the bytes that jax.export.export(...)(...).serialize() gives"
        )
    if done.returncode == _REFUSED:
        problem = done.stderr.decode(errors="replace").strip() or "it is not valid"
        raise CompileError(f"the MLIR text cannot be read: {problem[:2000]}")
    raise CompileError(
        f"jaxlib's parser ended with status {done.returncode} on the MLIR text: it is damaged, or "
        "nested too deep"
    )
