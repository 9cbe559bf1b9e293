"""An exported program in memory, read as its archive would be, without the archive.

torch.export.save sorts a deep copy of the program that it then drops, which takes it longer than
all else, and copies the weights into a file.
"""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.torch.archive import MAJOR, Archive

__all__ = ["LiveArchive"]


class LiveArchive(Archive):
    """Of a program whose weights and constants are plain strided tensors of the CPU.

    It uses what torch.export.save is made of, which may differ in other versions of torch: any
    exception means that the program is to be saved instead.
    """

    def __init__(self, torch: Any, program: Any) -> None:
        from torch._export.serde import serialize as serde

        if serde.SCHEMA_VERSION[0] != MAJOR:
            raise ValueError("another schema")
        self.what = "the PyTorch program"
        self._torch = torch
        self._folders = (program.state_dict, program.constants)
        self._weights, self._constants = (
            {name: _entry(torch, serde, each) for name, each in tensors.items()}
            for tensors in self._folders
        )
        writer = serde.GraphModuleSerializer(program.graph_signature, program.module_call_graph)
        ranges = serde.serialize_range_constraints(program.range_constraints)
        self.program = {
            "graph_module": _plain(writer.serialize(program.graph_module)),
            "range_constraints": _plain(ranges),
            "torch_version": str(torch.__version__),
        }

    def _bytes(self, name: str, is_constant: bool) -> bytes:
        """A copy of all of its storage: the program may change later."""
        storage = self._folders[is_constant][name].untyped_storage()
        data = self._torch.empty(0, dtype=self._torch.uint8, device=storage.device).set_(storage)
        return bytes(data.numpy())


def _entry(torch: Any, serde: Any, tensor: Any) -> dict[str, Any]:
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if type(tensor) not in plain or not tensor.is_cpu or tensor.layout is not torch.strided:
        raise TypeError("a tensor of another kind")
    meta = {
        "dtype": int(serde._TORCH_TO_SERIALIZE_DTYPE[tensor.dtype]),
        "sizes": [{"as_int": size} for size in tensor.shape],
        "strides": [{"as_int": stride} for stride in tensor.stride()],
        "storage_offset": {"as_int": tensor.storage_offset()},
    }
    return {"tensor_meta": meta}


def _plain(entry: Any) -> Any:
    """As the JSON of the archive has it: enums are numbers, dataclasses and unions are dicts."""
    if entry is None or isinstance(entry, (str, bool, float)):
        return entry
    if isinstance(entry, int):
        return int(entry)
    if isinstance(entry, (list, tuple)):
        return [_plain(each) for each in entry]
    if isinstance(entry, dict):
        return {key: _plain(each) for key, each in entry.items()}
    fields = object.__getattribute__(entry, "__dict__")  # a union's own looks up each name
    tag = fields.get("_type")
    if tag is None:
        return {key: _plain(each) for key, each in fields.items()}
    return {str(tag): _plain(fields[str(tag)])}
