"""The object of the opencl-c variant says of each kernel what the driver needs to know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.trial import Trial, TrialBinding
from ingot.compiler.targets.opencl.object import build_object, print_source
from ingot.hal.spec import dtype, layout
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS

TARGET = VARIANTS["opencl-c"].target


def kernel(name: str, element: str = "f32") -> Kernel:
    """A kernel of two operands and a constant."""
    types = [f"{element}[n]"] * 2
    made = lower_map(entry(types, lambda b, x, y: b.op("add", x, y)), TARGET)
    loops = replace(made.loops, name=name)
    return replace(made, name=name, loops=loops)


def rows(data: bytes, header: dict[str, Any], table: str, struct: str) -> list[dict[str, Any]]:
    known = layout()
    offset, count = header[f"{table}_offset"], header[f"{table}_count"]
    length = count * known.size(struct)
    return known.unpack(struct, data[offset : offset + length])


def header_of(data: bytes) -> dict[str, Any]:
    size = layout().size("ingot_opencl_header_t")
    (header,) = layout().unpack("ingot_opencl_header_t", data[:size])
    return header


def test_tables_and_source() -> None:
    shared = replace(
        kernel("shared"), local_size=(8, 4, 1), local_length=100, scratch_length=65, tile=(1, 2, 3)
    )
    kernels = [kernel("plain", "f16"), shared, kernel("wide", "f64")]
    made = build_object(kernels)
    assert made.host == {}
    header = header_of(made.data)
    assert bytes(header["magic"]) == b"INGOTCL\x1a"
    source = made.data[header["source_offset"] :][: header["source_length"]].decode()
    assert source == print_source(kernels)
    entries = rows(made.data, header, "entry", "ingot_opencl_entry_t")
    assert [each["features"] for each in entries] == [0, 0, layout().constants["INGOT_OPENCL_FP64"]]
    assert [each["first_binding"] for each in entries] == [0, 3, 6]
    assert entries[1]["local_size"] == [8, 4, 1]
    assert entries[1]["tile"] == [1, 2, 3]
    assert (entries[1]["local_length"], entries[1]["scratch_length"]) == (128, 128)
    bindings = rows(made.data, header, "binding", "ingot_opencl_binding_t")
    assert [each["element_length"] for each in bindings] == [2] * 3 + [4] * 3 + [8] * 3
    assert [each["alignment"] for each in bindings] == [2] * 3 + [4] * 3 + [8] * 3
    for table in ("entry", "binding", "test", "test_binding", "test_constant", "source"):
        assert header[f"{table}_offset"] % layout().constants["INGOT_OPENCL_OBJECT_ALIGNMENT"] == 0


def test_equal_kernels_give_equal_bytes() -> None:
    first, second = ([kernel("a"), kernel("b", "i8")] for _ in range(2))
    assert build_object(first).data == build_object(second).data


def test_what_cannot_be_printed_is_left_to_the_host_and_said() -> None:
    odd = kernel("odd", "f8e5m2")
    other = replace(kernel("other"), host="its class has no schedule for a device")
    made = build_object([odd, kernel("plain"), other])
    assert "f8e5m2" in made.host["odd"]
    assert made.host["other"] == "its class has no schedule for a device"
    header = header_of(made.data)
    entries = rows(made.data, header, "entry", "ingot_opencl_entry_t")
    host = layout().constants["INGOT_OPENCL_HOST"]
    assert [each["flags"] for each in entries] == [host, 0, host]
    source = made.data[header["source_offset"] :].decode()
    assert "odd" not in source
    assert "other" not in source


def test_trials_are_written_for_kernels_that_have_code() -> None:
    f32 = dtype("f32")
    bindings = (
        TrialBinding(20, f32, "uniform"),
        TrialBinding(20, f32, "positive"),
        TrialBinding(20, f32, "zero", tolerance=1e-4),
    )
    trial = Trial((5, 1, 1), (5,), bindings)
    kernels = [replace(kernel("left"), host="no reason"), kernel("a"), kernel("b")]
    made = build_object(kernels, {"left": trial, "b": trial})
    header = header_of(made.data)
    (test,) = rows(made.data, header, "test", "ingot_opencl_test_t")
    assert (test["entry"], test["workload"]) == (2, [5, 1, 1])
    found = rows(made.data, header, "test_binding", "ingot_opencl_test_binding_t")
    assert [each["length"] for each in found] == [20] * 3
    assert [each["fill"] for each in found] == [1, 3, 0]
    assert found[2]["tolerance"] == 1e-4
    assert header["test_constant_count"] == 1
