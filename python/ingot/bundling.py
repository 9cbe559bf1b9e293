"""`ingot.bundle`: a module as C that a program is linked with. The files are the compiler's
(`compiler.bundling`); here the runtime's verifier has seen the module that they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from ingot.compiler import Module
from ingot.compiler.bundling.bundle import (
    CONFIGURATION,
    BundleOptions,
    bundle_files,
    linked_module,
)
from ingot.compiler.bundling.refusals import check_contents
from ingot.compiler.kernels.own import given_kernels
from ingot.compiler.own_kernels import checked_kernels
from ingot.compiler.targets.target import linked_variants, without_objects
from ingot.compiler.vm.contents import FunctionContents
from ingot.compiler.vm.read_module import read_module
from ingot.compiling import compile
from ingot.hal.errors import InvalidArgument
from ingot.hal.options import checked_options
from ingot.hal.spec import layout
from ingot.hal.whole_file import open_regular, write_whole
from ingot.inputs import read_inputs
from ingot.runtime.program import load_module
from ingot.runtime.signature import read_signature

__all__ = ["bundle"]


@checked_options(InvalidArgument)
def bundle(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    platform: str | None = None,
    sources: bool = False,
    strip_messages: bool = False,
    inputs: Mapping[str, Any] | Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> dict[str, int]:
    """Write a static bundle to `folder`, which is made if it is not there: the module, its kernels,
    the runtime, typed C functions and an example (docs/bundles.md). Gives the bytes of its files by
    name.

    `source`: a module file, its bytes, a compiled module, or what `compile` takes, with its
    `options`. `name`: what names in C begin with, else the source's. `platform`: a set of variants,
    one variant, or a board; else this machine. `sources`: kernels as C, for which no compiler is
    needed. `strip_messages`: failures have a code only. `inputs`: of the example, as arrays by
    argument, or as texts of `--input`. `progress`: told each step.

    CompileError: the source cannot be compiled, or its kernels cannot be made for the platform.
    Unsupported: it needs what a bundle lacks. InvalidArgument: there is no such platform, or the
    folder has files of these names that are no bundle's.
    """
    variants = linked_variants(platform, sources)
    kernels = checked_kernels(options.get("kernels"))
    data = _module_bytes(source)
    if data is None:
        names = [each.name for each in variants]
        with without_objects():
            data = bytes(compile(source, variants=names, progress=progress, **options))
    elif options:
        raise InvalidArgument(
            f"{', '.join(options)}: options are of a source that is compiled, and this is a module"
        )
    load_module(data, verify=True).release()
    contents = read_module(data)
    check_contents(contents)
    handle = load_module(linked_module(contents, strip_messages), verify=True)
    exported = [each.exported for each in contents.functions].index(True)
    if not isinstance(inputs, Mapping):
        inputs = read_inputs(inputs, read_signature(handle.pointer, exported))
    handle.release()
    arrays = _arrays(contents.functions[exported], inputs)
    made = BundleOptions(name or _name_of(source), platform, sources, strip_messages)
    with given_kernels(kernels):
        files = bundle_files(data, made, arrays)
    _write(Path(folder), files)
    return {path: len(content) for path, content in files.items()}


def _module_bytes(source: Any) -> bytes | None:
    """The module that `source` is; None for what is to be compiled."""
    magic = bytes(layout().constants["INGOT_MODULE_MAGIC"])
    if isinstance(source, (str, os.PathLike)):
        if Path(source).is_dir() or not Path(source).is_file():
            return None
        with open_regular(source) as file:
            return file.read() if file.read(len(magic)) == magic and not file.seek(0) else None
    if isinstance(source, (bytes, Module)):
        return bytes(source) if bytes(source).startswith(magic) else None
    return None


def _name_of(source: Any) -> str:
    return Path(source).stem if isinstance(source, (str, os.PathLike)) else "model"


def _arrays(function: FunctionContents, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with the elements of the signature. InvalidArgument: they do not fit it."""
    values = {each.name: each for each in function.arguments}
    found = {}
    for name, given in inputs.items():
        if name not in values:
            raise InvalidArgument(f"no argument is called {name!r}; there are {', '.join(values)}")
        value = values[name]
        array = np.asarray(given, value.dtype.numpy)
        fits = array.ndim == len(value.shape) and all(
            not isinstance(dim, int) or dim == size
            for dim, size in zip(value.shape, array.shape, strict=True)
        )
        if not fits:
            dims = ",".join(map(str, value.shape))
            raise InvalidArgument(f"input {name!r} has the shape {array.shape}, expected [{dims}]")
        found[name] = array
    return found


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"'{folder}' is a file, and a bundle needs a folder: name another")
    others = [path for path in files if (folder / path).exists()]
    if others and CONFIGURATION not in others:
        raise InvalidArgument(
            f"'{folder}' has files that are no bundle's and would be lost, such as "
            f"'{others[0]}': name another folder"
        )
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, methodcaller("write", content))
