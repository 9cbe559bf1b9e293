"""The variants of the CPU target and their compiler flags: one table."""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.hal.spec import layout

__all__ = [
    "COMMON_FLAGS",
    "LINK_FLAGS",
    "VARIANTS",
    "Variant",
    "default_variants",
    "fallback_variant",
]

COMMON_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffreestanding",
    "-nostdlib",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-tree-vectorize",  # kernels have vectors of their own, and gcc 12 makes wrong code of
    "-ftree-slp-vectorize",  # loops whose branches store to the same places
    "-Wframe-larger-than=8192",
    "-Wno-psabi",
)
LINK_FLAGS = (
    "-shared",
    "-nostdlib",
    "-Wl,-z,max-page-size=65536",
    "-Wl,-z,noseparate-code",  # else the file is padded: 198 KB instead of 3 KB for six kernels
    "-Wl,-z,norelro",
    "-Wl,-z,noexecstack",
    "-Wl,--build-id=none",
    "-Wl,--no-undefined",
    "-Wl,-s",
)


@dataclass(frozen=True)
class Variant:
    """One native object per executable: what it is built for and what it needs."""

    target: TargetInfo
    machine: str  # as in the format "elf-x86_64"
    features: tuple[str, ...]  # INGOT_CPU_*
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.target.variant

    @property
    def format(self) -> str:
        return f"elf-{self.machine}"

    @property
    def feature_bits(self) -> int:
        """The features as the module file holds them."""
        constants = layout().constants
        return sum(int(constants[feature]) for feature in self.features)


def _variant(
    name: str,
    machine: str,
    vector_length: int,
    features: tuple[str, ...],
    flags: tuple[str, ...],
) -> Variant:
    wide = vector_length == 64
    fma = name.startswith(("x86-64-v3", "x86-64-v4", "aarch64"))
    dot4 = name.endswith("-vnni")
    registers = 32 if wide or machine == "aarch64" else 16
    target = TargetInfo(name, vector_length, registers, fma, dot4, polls=True)
    return Variant(target, machine, features, flags)


_V4 = ("-march=x86-64-v4", "-mno-red-zone", "-mprefer-vector-width=512")
_V3 = ("-march=x86-64-v3", "-mno-red-zone")

VARIANTS: dict[str, Variant] = {
    each.name: each
    for each in (
        _variant(
            "x86-64-v4-vnni",
            "x86_64",
            64,
            ("INGOT_CPU_X86_AVX512", "INGOT_CPU_X86_AVX512_VNNI"),
            (*_V4, "-mavx512vnni"),
        ),
        _variant(
            "x86-64-v3-vnni",
            "x86_64",
            32,
            ("INGOT_CPU_X86_AVX2", "INGOT_CPU_X86_AVX_VNNI"),
            (*_V3, "-mavxvnni"),
        ),
        _variant(
            "x86-64-v4",
            "x86_64",
            64,
            ("INGOT_CPU_X86_AVX512",),
            _V4,
        ),
        _variant(
            "x86-64-v3",
            "x86_64",
            32,
            ("INGOT_CPU_X86_AVX2",),
            _V3,
        ),
        _variant(
            "x86-64-v2",
            "x86_64",
            16,
            ("INGOT_CPU_X86_V2",),
            ("-march=x86-64-v2", "-mno-red-zone"),
        ),
        _variant("x86-64", "x86_64", 16, (), ("-march=x86-64", "-mno-red-zone")),
        _variant("aarch64", "aarch64", 16, (), ("-march=armv8-a", "-ffixed-x18")),
    )
}


_BASE = {each.machine: each for each in (VARIANTS["x86-64"], VARIANTS["aarch64"])}


def fallback_variant(machine: str) -> Variant:
    """Plain C beside the kernels of a target with work items: what any processor of that
    architecture can run. KeyError: there is none for the machine."""
    info = TargetInfo(
        "generic",
        vector_length=16,
        register_count=16,
        fma=False,
        has_items=True,
        polls=True,
        is_fallback=True,
    )
    return replace(_BASE[machine], target=info)


def default_variants(machine: str, has_dot4: bool = False) -> tuple[Variant, ...]:
    """What is built without flags, best first; `has_dot4`: of a program whose kernels multiply
    bytes. KeyError: no variant for the machine."""
    names = {"x86_64": ("x86-64-v4", "x86-64-v3"), "aarch64": ("aarch64",)}
    with_dot4 = {"x86_64": ("x86-64-v4-vnni", "x86-64-v3-vnni", "x86-64-v3")}
    chosen = with_dot4.get(machine) if has_dot4 else None
    return tuple(VARIANTS[name] for name in chosen or names[machine])
