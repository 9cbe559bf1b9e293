"""Devices, providers and memory in the words of onnxruntime, for programs that look or choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.hal.device import devices
from ingot.onnxruntime.options import CPU, OPENCL, is_cpu
from ingot.onnxruntime.types import NamedNumber

__all__ = [
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "choose_devices",
    "get_ep_devices",
]


class OrtAllocatorType(NamedNumber):
    """Memory is planned before a call: a program may name one, and nothing depends on it."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(NamedNumber):
    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(NamedNumber):
    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(NamedNumber):
    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(NamedNumber):
    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(NamedNumber):
    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(NamedNumber):
    """Which device a session takes: the CPU, or, where it speaks of a GPU or of speed, one."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


@dataclass(frozen=True)
class OrtMemoryInfo:
    """Where a tensor lies."""

    name: str
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0


class OrtArenaCfg:
    """How an arena would grow; there is none."""

    def __init__(self, *sizes: Any, **named: Any) -> None:
        self.sizes = sizes or named


class OrtDevice:
    """A device by its name."""

    def __init__(self, name: str, number: int = 0, vendor: int = 0) -> None:
        self._name, self._number, self._vendor = name, number, vendor

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        return OrtDevice(ort_device_name.lower(), device_id, max(vendor_id, 0))

    def device_id(self) -> int:
        return self._number

    def device_type(self) -> int:
        return int(not self._name.startswith("cpu"))

    def device_vendor_id(self) -> int:
        return self._vendor

    def device_mem_type(self) -> int:
        return 0


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A processor. `metadata` has its description."""

    type: OrtHardwareDeviceType
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider on a device."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: Mapping[str, str] = field(default_factory=dict)
    ep_options: Mapping[str, str] = field(default_factory=dict)

    def memory_info(self, kind: OrtDeviceMemoryType) -> OrtMemoryInfo:
        name = "Cpu" if self.ep_name == CPU else "OpenCL"
        return OrtMemoryInfo(name, device_id=self.device.device_id, device_mem_type=kind)


def get_ep_devices() -> list[OrtEpDevice]:
    """The CPU, and each OpenCL device."""
    found = []
    for each in devices():
        if not each.uri.startswith(("cpu", "opencl")):
            continue
        name = CPU if each.uri.startswith("cpu") else OPENCL
        number = 0 if name == CPU else int(each.uri.rpartition("/")[2])
        on_cpu = each.is_host or is_cpu(each)
        kind = OrtHardwareDeviceType.CPU if on_cpu else OrtHardwareDeviceType.GPU
        device = OrtHardwareDevice(kind, "", 0, number, {"description": each.description})
        options = {} if name == CPU else {"device_id": str(number)}
        found.append(OrtEpDevice(name, "Ingot", device, {}, options))
    return found


def choose_devices(
    policy: OrtExecutionProviderDevicePolicy | Callable[..., Any] | None,
) -> list[tuple[str, dict[str, str]]]:
    """The providers that a policy, or a function of the devices, chooses."""
    if policy is None:
        return []
    known = get_ep_devices()
    if not isinstance(policy, OrtExecutionProviderDevicePolicy):
        chosen = policy(known, {}, {}, len(known))
    else:
        wants = OrtExecutionProviderDevicePolicy
        fast = policy in (wants.PREFER_GPU, wants.MAX_PERFORMANCE)
        gpus = [each for each in known if each.device.type == OrtHardwareDeviceType.GPU]
        chosen = gpus[:1] if fast else []
    return [(each.ep_name, dict(each.ep_options)) for each in chosen]
