"""The variants of the OpenCL target that are OpenCL C."""

from __future__ import annotations

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.hal.spec import layout

__all__ = ["OPENCL_C", "OPENCL_C_LARGE", "OPENCL_VARIANTS", "OpenclVariant"]


@dataclass(frozen=True)
class OpenclVariant:
    """Source that the driver of the device compiles when a program is made ready.

    What a single kernel needs beyond OpenCL 1.2 stands in the object, not here.
    """

    target: TargetInfo
    features: tuple[str, ...] = ()  # INGOT_OPENCL_LARGE_GROUPS, or none

    @property
    def name(self) -> str:
        return self.target.variant

    @property
    def format(self) -> str:
        return "opencl-c"

    @property
    def feature_bits(self) -> int:
        """The features as the module file holds them."""
        constants = layout().constants
        return sum(int(constants[feature]) for feature in self.features)


def _variant(name: str, group_size: int, local_memory: int, *features: str) -> OpenclVariant:
    target = TargetInfo(
        name,
        vector_length=16,
        register_count=64,
        fma=True,
        group_size=group_size,
        local_memory=local_memory,
        has_items=True,
        language="OpenCL C",
    )
    return OpenclVariant(target, features)


OPENCL_C_LARGE = _variant("opencl-c-large", 256, 32 << 10, "INGOT_OPENCL_LARGE_GROUPS")
"""For GPUs with memory of their own: 64 results of a product in an item's registers."""

OPENCL_C = _variant("opencl-c", 64, 16 << 10)
"""For every device: groups and local memory are what OpenCL 1.2 devices have in practice."""

OPENCL_VARIANTS = (OPENCL_C_LARGE, OPENCL_C)
"""Best first."""
