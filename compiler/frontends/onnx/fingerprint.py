"""What tells the weights of one external parameter from those of another.

Modules with external parameters know weights by key only. Where two sources, or two weights of
one, use the same key, they must be the same weights; the file that gives them has one of them.
"""

from __future__ import annotations

import hashlib

import onnx

from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.frontends.onnx.tensors import array_of, dtype_of, is_external
from ingot.hal.errors import CompileError

__all__ = ["fingerprint"]


def fingerprint(tensor: onnx.TensorProto, files: Files) -> str:
    """Dtype, shape, and a digest of the elements; of elements in a file that is not there, where
    in that file they are."""
    type = f"{dtype_of(tensor.data_type)}[{','.join(map(str, tensor.dims))}]"
    try:
        array = array_of(tensor, files)
    except CompileError:
        if not is_external(tensor):
            raise
        entries = sorted((entry.key, entry.value) for entry in tensor.external_data)
        return f"{type} {entries}"
    return f"{type} {hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}"
