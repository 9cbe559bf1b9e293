"""What this machine makes of a module's variants, as `ingot inspect` and `ingot devices` say."""

from __future__ import annotations

from types import SimpleNamespace

from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.device import open_device
from ingot.hal.spec import layout
from ingot.machine import judge_variants, variants_of


def test_the_first_variant_that_runs_is_chosen_and_others_say_what_they_lack() -> None:
    here = variants_of(open_device("cpu"))
    best, base = VARIANTS[here[0]], VARIANTS[here[-1]]
    foreign = SimpleNamespace(format="elf-of-another", features=0)
    bits = layout().constants
    lacking = SimpleNamespace(
        format=base.format,
        features=int(bits["INGOT_CPU_WASM_SIMD128"]) | int(bits["INGOT_CPU_WASM_RELAXED_SIMD"]),
    )
    given = [
        foreign,
        lacking,
        *(SimpleNamespace(format=each.format, features=each.feature_bits) for each in (best, base)),
        SimpleNamespace(format="opencl-c", features=0),
    ]
    assert list(judge_variants(given)) == [
        "for another machine",
        "needs simd128 and relaxed-simd",
        "chosen here",
        "runs here",
        "",
    ]
