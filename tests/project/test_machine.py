"""What this machine makes of a module's variants, as `ingot inspect` and `ingot devices` say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ingot.compiler.targets.cpu.variants import VARIANTS, default_variants
from ingot.hal.device import open_device
from ingot.hal.spec import layout
from ingot.machine import judge_variants, variants_of


class Processor(SimpleNamespace):
    """One on which instructions of the feature 2 are slow."""

    def runs(self, format: str, features: int = 0) -> bool:
        return format == "code" and features < 4

    def avoids(self, features: int) -> bool:
        return bool(features & 2)


def test_a_variant_that_is_slow_here_is_chosen_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingot.machine.open_device", Processor)
    slow, plain = (SimpleNamespace(format="code", features=bits) for bits in (3, 1))
    assert list(judge_variants([slow, plain])) == ["runs here, slowly", "chosen here"]
    assert list(judge_variants([slow])) == ["chosen here"]


def test_a_program_of_bf16_is_for_processors_with_fast_instructions_and_without() -> None:
    names = [each.name for each in default_variants("x86_64", {"bf16"})]
    assert names == ["x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4", "x86-64-v3"]
    assert [each.name for each in default_variants("aarch64", {"bf16"})][1:] == ["aarch64"]


def test_the_first_variant_that_runs_is_chosen_and_others_say_what_they_lack() -> None:
    device = open_device("cpu")
    here = [VARIANTS[name] for name in variants_of(device)]
    best, *_, base = (each for each in 2 * here if not device.avoids(each.feature_bits))
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
