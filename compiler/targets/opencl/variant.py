"""The variants of the OpenCL target that are OpenCL C."""

from __future__ import annotations

from dataclasses import dataclass

from ingot.compiler.dispatch.kernel import TargetInfo

__all__ = ["OPENCL_C", "OpenclVariant"]


@dataclass(frozen=True)
class OpenclVariant:
    """Source that the driver of the device compiles when a program is made ready.

    What a single kernel needs beyond OpenCL 1.2 stands in the object, not here.
    """

    target: TargetInfo

    @property
    def name(self) -> str:
        return self.target.variant

    @property
    def format(self) -> str:
        return "opencl-c"

    @property
    def feature_bits(self) -> int:
        """Of the whole variant: none."""
        return 0


OPENCL_C = OpenclVariant(
    TargetInfo(
        "opencl",
        "opencl-c",
        vector_length=16,
        register_count=64,
        fma=True,
        group_size=256,
        local_memory=32 << 10,
    )
)
"""For every device: groups and local memory are what OpenCL 1.2 devices have in practice."""
