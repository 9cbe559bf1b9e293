"""An exported program in memory, read as its archive would be, without the archive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ingot.compiler.frontends.kept_file import Kept, KeptBytes
from ingot.compiler.frontends.torch.archive import Archive
from ingot.compiler.frontends.torch.graph_writer import GraphWriter, ranges_of
from ingot.hal.errors import CompileError

__all__ = ["LiveArchive", "program_archive"]


class LiveArchive(Archive):
    """A program as JSON, whose weights and constants are plain strided tensors of the CPU. Another
    one raises TypeError."""

    def __init__(
        self,
        torch: Any,
        writer: GraphWriter,
        program: Any,
        weights: Mapping[str, Any],
        constants: Mapping[str, Any],
    ) -> None:
        self.what = "the PyTorch program"
        self.program = {**program, "torch_version": str(torch.__version__)}
        self._places, self._wrappers = {}, {}
        self._torch = torch
        self._folders = (weights, constants)
        self._weights, self._constants = (
            {
                name: {"tensor_meta": writer.meta(_plain(torch, each))}
                for name, each in items.items()
            }
            for items in self._folders
        )

    def opened(self) -> AbstractContextManager[None]:
        return nullcontext()

    def memory(self, name: str, is_constant: bool) -> object:
        return self._folders[is_constant][name].untyped_storage().data_ptr()

    def _storage(self, name: str, is_constant: bool) -> tuple[Kept, int, int]:
        try:
            storage = self._folders[is_constant][name].untyped_storage()
        except NotImplementedError:
            raise CompileError(
                f"torch keeps no numbers of '{name}', which a transform of torch.func made: "
                "compute gradients outside of the model"
            ) from None
        data = self._torch.empty(0, dtype=self._torch.uint8, device=storage.device).set_(storage)
        return KeptBytes(memoryview(data.numpy())), 0, data.numel()


def program_archive(torch: Any, program: Any) -> LiveArchive:
    """Of an ExportedProgram. Any exception means that it is to be saved instead."""
    writer = GraphWriter(torch)
    signature = program.graph_signature
    (call,) = (each for each in program.module_call_graph if not each.fqn)
    names = json.dumps([1, _tree(call.signature.out_spec)], default=str)
    graph = writer.graph(program.graph_module)
    module = {
        "graph": graph,
        "signature": {
            "input_specs": list(map(_input, signature.input_specs, graph["inputs"])),
            "output_specs": list(map(_output, signature.output_specs, graph["outputs"])),
        },
        "module_call_graph": [{"fqn": "", "signature": {"out_spec": names}}],
    }
    if writer.constants:
        raise TypeError("a graph holds tensors")
    written = {"graph_module": module, "range_constraints": ranges_of(program.range_constraints)}
    return LiveArchive(torch, writer, written, program.state_dict, program.constants)


def _tree(spec: Any) -> dict[str, Any]:
    """How results lie in containers, as torch would save it if it knew all containers."""
    children = [_tree(each) for each in spec.children()]
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    context, kind = spec.context, spec.type
    if isinstance(context, type):  # a named tuple, of which pytree notes the class
        kind = context
    names = getattr(kind, "_fields", None) or getattr(kind, "__match_args__", None)
    if names and len(names) == len(children) and issubclass(kind, tuple):
        context = list(names)
    return {"type": str(kind), "context": json.dumps(context, default=str),
            "children_spec": children}  # fmt: skip


def _input(spec: Any, argument: dict[str, Any]) -> dict[str, Any]:
    kind = {"CONSTANT_TENSOR": "tensor_constant"}.get(spec.kind.name, spec.kind.name.lower())
    if kind == "token":
        return {kind: {}}
    if kind == "user_input":
        return {kind: {"arg": argument}}
    entry = {"arg": argument["as_tensor"], f"{kind}_name": spec.target}
    return {kind: {**entry, "persistent": spec.persistent is not False}}


def _output(spec: Any, argument: dict[str, Any]) -> dict[str, Any]:
    kind = spec.kind.name.lower()
    if kind == "token":
        return {kind: {}}
    if kind == "user_output":
        return {kind: {"arg": argument}}
    written = kind.removesuffix("_mutation")
    return {kind: {"arg": argument["as_tensor"], f"{written}_name": spec.target}}


def _plain(torch: Any, tensor: Any) -> Any:
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if type(tensor) not in plain or not tensor.is_cpu or tensor.layout is not torch.strided:
        raise TypeError("a tensor of another kind")
    return tensor
