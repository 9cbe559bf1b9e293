"""A module of the text of one: `ingot asm`."""

from __future__ import annotations

from ingot.compiler.vm.read_assembly import read_assembly
from ingot.compiler.vm.write_assembly import blobs, hash_of
from ingot.compiler.vm.write_module import write_module
from ingot.hal.errors import DataLoss, Error
from ingot.hal.file_kind import MODULE, START_LENGTH, file_kind
from ingot.hal.whole_file import open_regular
from ingot.inspection import read_file
from ingot.runtime.program import load_module

__all__ = ["assemble_file"]


def assemble_file(path: str, origin: str | None = None) -> bytes:
    """The module that a file describes, which has passed the checks of a load. `origin` is the
    module whose bytes the hashes in it stand for.

    CompileError: the line that is wrong. DataLoss: what it describes is no module that can be
    loaded, or the file is no text. Else raises as `open_regular` and `read_file`.
    """
    with open_regular(path) as file:
        data = file.read()
    if file_kind(data[:START_LENGTH], path) is MODULE:
        raise DataLoss(f"'{path}' is a compiled module already; `ingot dis` makes text of it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DataLoss(f"'{path}' is no text: {error}") from None
    known = {}
    if origin is not None:
        known = {hash_of(each): each for _, each in blobs(read_file(origin, verify=True)[1])}
    module = write_module(read_assembly(text, path, known))
    try:
        load_module(module, verify=True).release()
    except Error as error:
        raise type(error)(f"'{path}' is well formed, but no module that can run: {error}") from None
    return module
