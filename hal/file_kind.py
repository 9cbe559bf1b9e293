"""What a file or folder is, told by its first bytes, or the names in it, and then by its own name:
for messages about files of the wrong kind.

Nothing is read here: callers pass the bytes and names that they have.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePath

__all__ = [
    "ARTIFACT",
    "CHECKPOINT",
    "COPY_AGAIN",
    "EXPORTED",
    "GGUF",
    "HEAD_LENGTH",
    "MODULE",
    "ONNX",
    "START_LENGTH",
    "TEXT",
    "TFLITE",
    "FileKind",
    "file_kind",
    "folder_kind",
    "why_no_file",
    "why_no_module",
]

START_LENGTH = 64  # bytes of a file that tell its kind
HEAD_LENGTH = 4096  # bytes with which a module begins: the checksums of all sections
COPY_AGAIN = "copy the file again, or compile the model again"  # where a module is damaged


@dataclass(frozen=True)
class FileKind:
    """A kind of file, and what a user who has one does with it."""

    name: str  # as in "'x' is NAME"
    is_source: bool = False  # `ingot.compile` takes it
    advice: str = ""  # how to get from it to something that can be compiled


MODULE = FileKind("a compiled Ingot module")
ARTIFACT = FileKind("a StableHLO artifact", is_source=True)
TEXT = FileKind("the text of a program", is_source=True)
ONNX = FileKind("an ONNX model", is_source=True)
GGUF = FileKind("a GGUF file", is_source=True)
EXPORTED = FileKind("a program of torch.export", is_source=True)
TFLITE = FileKind("a TFLite model", is_source=True)
_TORCH = FileKind(
    "a PyTorch file",
    advice="in Python, export the model with torch.export.export, save that with "
    "torch.export.save, and compile the .pt2 file",
)
_KERAS = FileKind(
    "a Keras model",
    advice="with Keras 3, call model.export(path, format='onnx') and compile the .onnx file",
)
_TENSORFLOW = FileKind(
    "a TensorFlow model",
    advice="convert its SavedModel folder with `python -m tf2onnx.convert --saved-model FOLDER "
    "--output model.onnx` and compile the .onnx file",
)
_CORE_ML = FileKind(
    "a Core ML model",
    advice="export the original model to ONNX or StableHLO and compile that",
)
CHECKPOINT = FileKind("a folder of a language model", is_source=True)
_PICKLED = FileKind(
    "a folder of pickled weights and settings",
    advice="write it again with safetensors, as save_pretrained does, or export it to ONNX, as "
    "with `optimum-cli export onnx --model FOLDER OUT`, and compile what that gives",
)
_ADAPTER = FileKind(
    "an adapter (LoRA) of a language model",
    advice="merge it into its model, as with peft's merge_and_unload, save that with "
    "save_pretrained, and compile its folder",
)
_ORT = FileKind(
    "a model in onnxruntime's own format",
    advice="compile the .onnx file that it was made from",
)
_WEIGHTS = (
    "weights alone, with no program: compile the model's program and pass them as parameters="
)
_SAFETENSORS = FileKind("a safetensors file", advice=f"it holds {_WEIGHTS}")
_NUMPY = FileKind("a NumPy file", advice=f"it holds {_WEIGHTS}")
_POINTER = FileKind(
    "a pointer of Git LFS and not the file itself",
    advice="fetch the file with `git lfs pull` in its repository",
)
_PAGE = FileKind("a web page", advice="download the model itself, not the page that shows it")
_ZIP = FileKind("a zip archive", advice="unpack it and pass the model that is in it")

_BY_START = (
    (b"INGOT\r\n", MODULE),
    (b"ML\xefR", ARTIFACT),
    (b"GGUF", GGUF),
    (b"\x89HDF\r\n", _KERAS),
    (b"\x93NUMPY", _NUMPY),
    (b"version https://git-lfs", _POINTER),
    (b"<!DOCTYPE html", _PAGE),
    (b"<!doctype html", _PAGE),
    (b"<html", _PAGE),
)
_BY_IDENTIFIER = {b"TFL3": TFLITE, b"ORTM": _ORT}  # of flatbuffers: their bytes 4 to 8
_BY_FIRST_NAME = (  # of what lies in a zip archive
    (re.compile(rb"/data/(weights|constants)/|/models/|/archive_format"), EXPORTED),
    (re.compile(rb"/data\.pkl|/\.format_version"), _TORCH),
    (re.compile(rb"\Ametadata\.json"), _KERAS),
    (re.compile(rb"\.mlpackage/"), _CORE_ML),
    (re.compile(rb"\.npy"), _NUMPY),
)
_NAME_IN_ZIP = 30  # where the first name begins
# A number of the format, then a text or a message.
_ONNX_START = re.compile(rb"\x08[\x01-\x20][\x12\x1a\x22\x3a\x42]")
# A flatbuffer without an identifier, as jax.export.Exported.serialize gives: where its root is, and
# the sizes of the root's table of fields, which stands right behind.
_JAX_START = re.compile(rb"[\x08-\xfc]\0\0\0.\0.\0", re.DOTALL)
_FIRST_FIELDS = b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca"  # that an ONNX model may begin with
_BY_SUFFIX = {
    ".gguf": GGUF,
    ".h5": _KERAS,
    ".keras": _KERAS,
    ".mlmodel": _CORE_ML,
    ".mlpackage": _CORE_ML,
    ".mlir": TEXT,
    ".npy": _NUMPY,
    ".npz": _NUMPY,
    ".onnx": ONNX,
    ".ort": _ORT,
    ".pbtxt": _TENSORFLOW,
    ".pt": _TORCH,
    ".pt2": EXPORTED,
    ".pth": _TORCH,
    ".safetensors": _SAFETENSORS,
    ".tflite": TFLITE,
}


def file_kind(start: bytes, name: str = "") -> FileKind | None:
    """The kind of a file with these first START_LENGTH bytes and this name; None: unknown."""
    for mark, kind in _BY_START:
        if start.startswith(mark):
            return kind
    if start[4:8] in _BY_IDENTIFIER:
        return _BY_IDENTIFIER[start[4:8]]
    if start[8:9] == b"{" and start[5:8] == bytes(3):
        return _SAFETENSORS
    if _JAX_START.match(start):
        return ARTIFACT
    if start.lstrip().startswith((b"module", b"//", b"func", b"#loc", b'"builtin.module"')):
        return TEXT
    path = PurePath(name)
    suffix = path.suffix.lower()
    if start.startswith(b"PK\x03\x04"):
        first = start[_NAME_IN_ZIP:]
        found = (kind for pattern, kind in _BY_FIRST_NAME if pattern.search(first))
        return next(found, _BY_SUFFIX.get(suffix, _ZIP))
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _TORCH  # a pickle, as torch.save wrote them before it wrote archives
    if path.name == "saved_model.pb" or (suffix == ".pb" and start.startswith(b"\x0a")):
        return _TENSORFLOW
    if suffix == ".onnx":
        return ONNX if start[:1] in _FIRST_FIELDS and start else None
    if suffix not in _BY_SUFFIX and _ONNX_START.match(start):
        return ONNX
    return _BY_SUFFIX.get(suffix)


def folder_kind(names: Collection[str], name: str) -> FileKind | None:
    """The kind of a folder with this name that has files and folders with these; None: unknown."""
    if "saved_model.pb" in names:
        return _TENSORFLOW
    if PurePath(name).suffix.lower() in (".mlpackage", ".mlmodelc"):
        return _CORE_ML
    if models := sorted(each for each in names if each.endswith(".onnx")):
        shown = f"'{PurePath(name, models[0])}'"
        return FileKind("a folder with an ONNX model", advice=f"pass the model itself, {shown}")
    if "adapter_config.json" in names:
        return _ADAPTER
    if "config.json" in names:
        if any(each.endswith(".safetensors") for each in names):
            return CHECKPOINT
        if any(each.endswith(".bin") for each in names):
            return _PICKLED
    return None


def why_no_module(start: bytes, name: str = "") -> str | None:
    """What to tell a user who loads a file that is no module; None: it is one, whole or not."""
    kind = file_kind(start, name)
    if kind is None and PurePath(name).suffix.lower() == ".onnx":
        return (
            f"'{name}' is no compiled Ingot module, and does not begin like the ONNX model that "
            "it is named as: download or export it again, and compile it"
        )
    if kind is None:
        what = f"'{name}'" if name else "this"
        return f"{what} is no compiled Ingot module; `ingot compile` makes one of a model"
    return None if kind is MODULE else _why_not(kind, name)


def why_no_file(names: Collection[str], name: str) -> str | None:
    """What to tell a user who loads a folder that has these names; None: its kind is unknown."""
    return _why_not(folder_kind(names, name), name)


def _why_not(kind: FileKind | None, name: str) -> str | None:
    if kind is None:
        return None
    what = f"'{name}'" if name else "this"
    if not kind.is_source:
        return f"{what} is {kind.name}, no compiled Ingot module; {kind.advice}"
    example = f"ingot.compile('{name}')" if name else "ingot.compile(...)"
    return f"{what} is {kind.name}, no compiled module: compile it first, as in {example}"
