"""The ONNX front end: `import_onnx` makes graph IR from a model that an exporter wrote.

It needs the `onnx` package (extra `onnx`), which is imported only when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingot.hal.errors import CompileError

if TYPE_CHECKING:
    from ingot.compiler.frontends.onnx.source import ModelSource
    from ingot.compiler.frontends.survey import Survey
    from ingot.compiler.ir import Module

__all__ = ["import_onnx"]


def import_onnx(
    source: ModelSource,
    *,
    parameters: str = "embedded",
    parameter_names: Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    survey: Survey | None = None,
) -> Module:
    """The graph-level module of an ONNX model: a path, its bytes, or an onnx.ModelProto.

    With `parameters="embedded"` initializers become constants. With "external" those that lie
    in a file of their own, and all floating-point ones of rank 1 or more, become parameters to
    be supplied when the module is loaded, by name or by the name that `parameter_names` gives;
    the module's attribute `weights` then has the key and a fingerprint of each. With `outputs`,
    names of values of the graph, these are the results, and nothing is read that they do not need.

    CompileError lists every op that cannot be compiled, with its layer, dtype and shape; a
    `survey` takes them instead.
    """
    if parameters not in ("embedded", "external"):
        raise CompileError(f'parameters is {parameters!r}, expected "embedded" or "external"')
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise CompileError(
            f"reading ONNX models needs the onnx package: pip install 'ingot[onnx]' ({error})"
        ) from None
    from ingot.compiler.frontends.onnx.importer import ImportOptions, import_model
    from ingot.compiler.frontends.onnx.malformed import MALFORMED
    from ingot.compiler.frontends.onnx.source import read_source

    options = ImportOptions(parameters == "external", parameter_names or {}, outputs, survey)
    try:
        return import_model(read_source(source), options)
    except MALFORMED as error:
        raise CompileError(
            f"the ONNX model is malformed ({type(error).__name__}: {error}): check it with "
            "onnx.checker.check_model and export it again"
        ) from error
