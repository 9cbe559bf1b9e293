"""The variants of the CPU target, and the platforms that are sets of them: one table each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import layout

__all__ = [
    "BOARDS",
    "PLATFORMS",
    "VARIANTS",
    "Variant",
    "default_variants",
    "fallback_variant",
    "named_variants",
]


@dataclass(frozen=True)
class Variant:
    """One native object per executable: what it is built for and what it needs."""

    target: TargetInfo
    machine: str  # as in the format "elf-x86_64"
    features: tuple[str, ...]  # INGOT_CPU_*
    flags: tuple[str, ...]  # as gcc and clang spell them
    macros: tuple[str, ...] = ()  # defined by a compiler that knows the flags
    products: tuple[str, ...] = ()  # of words, "i8", "bf16", "f16" or both of "i8+f16", for which
    # alone it is there
    without_tiles: str = ""  # the variant that is the same without instructions for these
    without_words: str = ""  # the variant that is the same without instructions for these
    without_vectors: str = ""  # one of the same machine that is as good for code without them
    triple: str = ""  # as clang spells it, of a board; else Linux's for the machine

    @property
    def levels(self) -> tuple[Variant, Variant, Variant, Variant]:
        """What kernels are built for: those with products in tiles, those with products in words
        alone, those without either, and code without vectors."""
        names = ("", self.without_tiles, self.without_words, self.without_vectors)
        first, words, plain, scalar = (VARIANTS.get(name, self) for name in names)
        return first, words, plain, scalar

    @property
    def name(self) -> str:
        return self.target.variant

    @property
    def format(self) -> str:
        """The format of the object: ELF, or a WebAssembly module (docs/design/0021)."""
        return self.machine if self.machine == "wasm32" else f"elf-{self.machine}"

    @property
    def feature_bits(self) -> int:
        """The features as the module file holds them."""
        constants = layout().constants
        return sum(int(constants[feature]) for feature in self.features)


_PRODUCTS = {
    "": (),
    "bf16": ("bf16",),
    "fp16": ("f16",),
    "amx": ("i8", "bf16", "parts"),
    "amx-fp16": ("i8+f16",),
}
"""Of a variant of x86-64 with such instructions."""


def _x86(level: str, length: int, features: str, *flags: str, words: str = "") -> Variant:
    """`features` are those behind INGOT_CPU_X86_; `words` the instructions for products in words
    that it has beside its level, "vnni", "bf16", "fp16", "amx" or "amx-fp16", which ends its
    name."""
    name = f"{level}-{words}" if words else level
    fma = level.endswith(("v3", "v4"))
    registers = 32 if length == 64 else 16
    dot4, dot2, half2, tiles = bool(words), words == "bf16", "fp16" in words, "amx" in words
    target = TargetInfo(name, length, registers, fma, dot4, dot2, half2, tiles, polls=True)
    needs = tuple(f"INGOT_CPU_X86_{feature}" for feature in features.split())
    # Windows puts pages on a stack in order only: frames of more than one page touch each.
    all_flags = (f"-march={level}", "-mno-red-zone", "-fstack-clash-protection", *flags)
    without = (f"{level}-fp16" if half2 else f"{level}-vnni") if tiles else ""
    others = (without, level if words else "", "x86-64-v3" if fma else "")
    products = _PRODUCTS.get(words, ("i8",))
    return Variant(target, "x86_64", needs, all_flags, (), products, *others)


def _arm(name: str, features: str, architecture: str, *macros: str) -> Variant:
    """`features` are those behind INGOT_CPU_ARM_. Apple and Windows keep x18 for themselves."""
    dot2, half2 = name == "aarch64-bf16", name == "aarch64-fp16"
    dot4 = dot2 or name == "aarch64-i8mm"
    target = TargetInfo(name, 16, 32, True, dot4, dot2, half2, polls=True)
    needs = tuple(f"INGOT_CPU_ARM_{feature}" for feature in features.split())
    flags = (f"-march={architecture}", "-ffixed-x18")
    products = ("bf16" if dot2 else "f16" if half2 else "i8",) if macros else ()
    return Variant(target, "aarch64", needs, flags, macros, products, without_vectors="aarch64")


_WIDE = "-mprefer-vector-width=512"
_SMALL_ARM = ("-march=armv7ve", "-mfpu=neon-vfpv4", "-mfloat-abi=hard", "-marm")

VARIANTS: dict[str, Variant] = {
    each.name: each
    for each in (
        _x86(
            *("x86-64-v4", 64, "AVX512 AVX512_VNNI AVX512_FP16 AMX", _WIDE, "-mavx512vnni"),
            *("-mavx512fp16", "-mamx-tile", "-mamx-int8", "-mamx-bf16", "-mavx512vbmi"),
            words="amx-fp16",
        ),
        _x86(
            *("x86-64-v4", 64, "AVX512 AVX512_VNNI AMX", _WIDE, "-mavx512vnni"),
            *("-mamx-tile", "-mamx-int8", "-mamx-bf16", "-mavx512vbmi"),
            words="amx",
        ),
        _x86(
            *("x86-64-v4", 64, "AVX512 AVX512_VNNI AVX512_BF16"),
            *(_WIDE, "-mavx512vnni", "-mavx512bf16"),
            words="bf16",
        ),
        _x86(
            *("x86-64-v4", 64, "AVX512 AVX512_VNNI AVX512_FP16"),
            *(_WIDE, "-mavx512vnni", "-mavx512fp16"),
            words="fp16",
        ),
        _x86("x86-64-v4", 64, "AVX512 AVX512_VNNI", _WIDE, "-mavx512vnni", words="vnni"),
        _x86("x86-64-v3", 32, "AVX2 AVX_VNNI", "-mavxvnni", words="vnni"),
        _x86("x86-64-v4", 64, "AVX512", _WIDE),
        _x86("x86-64-v3", 32, "AVX2"),
        _x86("x86-64-v2", 16, "V2"),
        _x86("x86-64", 16, ""),
        *(
            _arm(
                name,
                "DOTPROD FP16 I8MM BF16",
                "armv8.2-a+dotprod+fp16+i8mm+bf16",
                "__ARM_FEATURE_MATMUL_INT8",
                "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",
            )
            for name in ("aarch64-bf16", "aarch64-i8mm")
        ),
        _arm(
            "aarch64-fp16",
            "FP16",
            "armv8.2-a+fp16",
            "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC",
        ),
        _arm(
            "aarch64-dotprod",
            "DOTPROD FP16",
            "armv8.2-a+dotprod+fp16",
            "__ARM_FEATURE_DOTPROD",
        ),
        _arm("aarch64", "", "armv8-a"),
        Variant(
            TargetInfo("armv7-neon", 16, 16, fma=True, polls=True),
            "arm",
            ("INGOT_CPU_ARM_NEON",),
            _SMALL_ARM,
            ("__ARM_NEON", "__ARM_FEATURE_FMA", "__ARM_FEATURE_IDIV"),
        ),
        # Pairs of registers of at least 128 bits: the same code for vectors of any length.
        Variant(
            TargetInfo("riscv64-v", 32, 16, fma=True, polls=True),
            "riscv64",
            ("INGOT_CPU_RISCV_V",),
            ("-march=rv64gcv", "-mabi=lp64d"),
            ("__riscv_vector",),
        ),
        Variant(
            TargetInfo("riscv64", 16, 16, fma=True, polls=True),
            "riscv64",
            (),
            ("-march=rv64gc", "-mabi=lp64d"),
        ),
        Variant(
            TargetInfo("wasm32-relaxed-simd", 16, 16, fma=False, polls=True),
            "wasm32",
            ("INGOT_CPU_WASM_SIMD128", "INGOT_CPU_WASM_RELAXED_SIMD"),
            ("-msimd128", "-mrelaxed-simd", "-mbulk-memory"),
            ("__wasm_relaxed_simd__",),
        ),
        Variant(
            TargetInfo("wasm32-simd128", 16, 16, fma=False, polls=True),
            "wasm32",
            ("INGOT_CPU_WASM_SIMD128",),
            ("-msimd128", "-mbulk-memory"),
            ("__wasm_simd128__",),
        ),
    )
}
"""Those of one machine best first."""


def _board(name: str, triple: str, *flags: str) -> Variant:
    """A processor without vectors: four lanes are four registers."""
    target = TargetInfo(name, 16, 8, fma=bool(flags), polls=True)
    return Variant(target, "arm", (), (f"-mcpu={name}", "-mthumb", *flags), triple=triple)


BOARDS: dict[str, Variant] = {
    each.name: each
    for each in (
        _board("cortex-m3", "armv7m-none-eabi"),
        _board("cortex-m4", "armv7em-none-eabihf", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        _board("cortex-m7", "armv7em-none-eabihf", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    )
}
"""Processors without a system that could load code: their kernels are linked (`bundling`)."""

_PHONES = ("aarch64-bf16", "aarch64-fp16", "aarch64-i8mm", "aarch64-dotprod", "aarch64")

PLATFORMS = {
    "android": (*_PHONES, "armv7-neon", "x86-64-v2"),
    "ios": _PHONES,
    "raspberry-pi": ("aarch64-dotprod", "aarch64", "armv7-neon"),
    "browser": ("wasm32-relaxed-simd", "wasm32-simd128"),
    "server": (
        *("x86-64-v4-amx-fp16", "x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4-fp16"),
        *("x86-64-v4-vnni", "x86-64-v3-vnni", "x86-64-v4", "x86-64-v3"),
        *_PHONES,
    ),
}
"""The variants that machines of a kind run. Those for products of words are left out of a program
without such."""


def named_variants(
    names: str | Sequence[str], products: Collection[str] = ()
) -> tuple[Variant, ...]:
    """The variants of these names of variants and platforms, or of one, each once, for a program
    with these `products` in words: "i8", "bf16", "f16". InvalidArgument: a name is neither."""
    chosen: dict[str, Variant] = {}
    for name in [names] if isinstance(names, str) else names:
        if name not in VARIANTS and name not in PLATFORMS:
            raise InvalidArgument(_unknown(name))
        for each in PLATFORMS.get(name, (name,)):
            if name in VARIANTS or _suits(VARIANTS[each], products):
                chosen[each] = VARIANTS[each]
    if not chosen:
        raise InvalidArgument(_unknown(""))
    return tuple(chosen.values())


def _suits(variant: Variant, products: Collection[str]) -> bool:
    """Whether a program with these products in words has a use for the variant."""
    kinds = (each.split("+") for each in variant.products)
    return not variant.products or any(set(products).issuperset(each) for each in kinds)


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), [*VARIANTS, *PLATFORMS], n=3, cutoff=0.6)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    return (
        f"unknown CPU variant {name!r}{meant}; the variants are: {', '.join(VARIANTS)}; "
        f"the platforms, which are sets of them: {', '.join(PLATFORMS)}"
    )


_DEFAULTS = {
    "x86_64": ("x86-64-v4", "x86-64-v3"),
    "aarch64": ("aarch64",),
    "arm": ("armv7-neon",),
    "riscv64": ("riscv64-v", "riscv64"),
}
_DEFAULTS_FOR_BYTES = {
    "x86_64": ("x86-64-v4-amx", "x86-64-v4-vnni", "x86-64-v3-vnni", "x86-64-v3"),
    "aarch64": ("aarch64-i8mm", "aarch64-dotprod", "aarch64"),
}
_DEFAULTS_FOR_HALVES: dict[str, dict[str, tuple[str, ...]]] = {
    "bf16": {"x86_64": ("x86-64-v4-amx", "x86-64-v4-bf16"), "aarch64": ("aarch64-bf16",)},
    "f16": {"x86_64": ("x86-64-v4-amx-fp16", "x86-64-v4-fp16"), "aarch64": ("aarch64-fp16",)},
    "parts": {"x86_64": ("x86-64-v4-amx",)},
}


def default_variants(machine: str, products: Collection[str] = ()) -> tuple[Variant, ...]:
    """What is built without flags, best first; of a program with these `products` in words: "i8",
    "bf16", "f16". KeyError: no variant for the machine."""
    halves = _DEFAULTS_FOR_HALVES.items()
    first = [name for each, of in halves if each in products for name in of.get(machine, ())]
    chosen = _DEFAULTS_FOR_BYTES.get(machine) if "i8" in products else None
    names = dict.fromkeys((*first, *(chosen or _DEFAULTS[machine])))
    return tuple(each for each in map(VARIANTS.__getitem__, names) if _suits(each, products))


_BASE = {
    VARIANTS[name].machine: VARIANTS[name]
    for name in ("x86-64", "aarch64", "armv7-neon", "riscv64")
}


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
