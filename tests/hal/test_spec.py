"""The shared tables, as Python reads them from the C headers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from ingot.hal import errors, header, spec


def test_every_row_of_every_table_is_read() -> None:
    for name, macro, read in (
        ("dtype", "DTYPE(", spec.DTYPES),
        ("status", "STATUS(", spec.STATUSES),
        ("op", "OP(", spec.OPCODES),
    ):
        lines = header.read(f"spec/{name}.def").splitlines()
        rows = [line for line in lines if line.startswith(macro)]
        assert len(read) == len(rows)
        assert len({each.code for each in read.values()}) == len(rows)


def test_dtypes_are_unique_objects() -> None:
    f32 = spec.dtype("f32")
    assert spec.dtype(f32) is f32
    assert spec.dtype_of_code(f32.code) is f32
    assert copy.deepcopy(f32) is f32
    assert pickle.loads(pickle.dumps(f32)) is f32
    assert repr(f32) == "f32"


@pytest.mark.parametrize("dtype", spec.DTYPES.values(), ids=repr)
def test_numpy_dtype_has_the_width_of_the_table_and_leads_back(dtype: spec.DType) -> None:
    assert dtype.numpy.itemsize == dtype.bytes
    assert spec.DType.from_numpy(dtype.numpy) is dtype


def test_big_endian_dtype_is_the_same_element_type() -> None:
    assert spec.DType.from_numpy(">f4") is spec.dtype("f32")


def test_dtype_without_counterpart_is_refused_with_the_choices() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"datetime64.*float32"):
        spec.DType.from_numpy(np.dtype("datetime64[s]"))
    with pytest.raises(errors.InvalidArgument, match="NumPy dtype void32 has no counterpart"):
        spec.DType.from_numpy([("real", "f4")])
    with pytest.raises(errors.InvalidArgument, match=r"unknown dtype 'float'.*f32"):
        spec.dtype("float")


def test_missing_ml_dtypes_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    monkeypatch.delitem(spec.dtype("bf16").__dict__, "numpy", raising=False)
    with pytest.raises(errors.Unsupported, match=r'install ml_dtypes, or .*astype\("f32"\)'):
        _ = spec.dtype("bf16").numpy


def test_every_status_is_an_exception_class() -> None:
    for status in spec.STATUSES.values():
        found = errors.error_class(status.code)
        assert found is getattr(errors, status.name)
        assert found.code == status.code
    assert errors.CompileError.code is None
    assert errors.error_class(9999) is errors.Error


def test_operand_letters_are_known_and_split_whole() -> None:
    for opcode in spec.OPCODES.values():
        assert "".join(opcode.operand_kinds) == opcode.operands
        assert {kind[0] for kind in opcode.operand_kinds} <= set("IFOifoknxstb")
    assert spec.opcode("assert").operand_kinds == ("i", "n", "s", "i*")
    found = spec.opcode_of_code(spec.opcode("add.i64").code)
    assert found is spec.opcode("add.i64")
    assert spec.opcode_of_code(0xFFFF) is None


def test_layout_structs_pack_and_unpack() -> None:
    layout = spec.layout()
    header_row = {"magic": layout.constants["INGOT_MODULE_MAGIC"], "version_major": 1, "crc": 7}
    data = layout.pack("ingot_layout_header_t", [header_row])
    assert len(data) == layout.size("ingot_layout_header_t") == 64
    assert data.startswith(b"INGOT\r\n\x1a\x01\0\0\0")
    assert layout.unpack("ingot_layout_header_t", data)[0]["crc"] == 7
    assert layout.pack("ingot_layout_dim_t", []) == b""
    assert layout.size("ingot_opencl_header_t") == 120
    assert layout.size("ingot_opencl_fault_t") == 32
    assert layout.unpack("ingot_layout_dim_t", b"") == []


def test_constants_are_read_in_every_notation() -> None:
    constants = spec.layout().constants
    assert constants["INGOT_CPU_ARM_I8MM"] == 0x200
    assert constants["INGOT_KERNEL_MAX_SCRATCH"] == 1 << 20
    assert constants["INGOT_KERNEL_ABI_VERSION"] == 3
    assert constants["INGOT_OPENCL_OBJECT_MAGIC"] == b"INGOTCL\x1a"
    assert constants["INGOT_OPENCL_SUBGROUPS"] == 8
    assert constants["INGOT_FAULT_INDEX_OUT_OF_RANGE"] == 1
    assert constants["INGOT_KERNEL_QUERY_NAME"] == b"ingot_executable_query"
