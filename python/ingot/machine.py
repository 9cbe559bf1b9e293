"""Which variants of kernels this machine runs, and why it does not run the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ingot.hal.device import Device, open_device
from ingot.hal.spec import layout

__all__ = ["judge_variants", "variants_of"]


def judge_variants(variants: Iterable[Any]) -> Iterator[str]:
    """Of an executable's variants, best first: "chosen here" for the one that the CPU of this
    machine takes, "runs here" for others, "runs here, slowly" for those with instructions that take
    it longer than doing without, "for another machine", "needs X and Y" for what it lacks; "" for
    what is no code of a CPU."""
    device, variants = open_device(), list(variants)
    fitting = [each for each in variants if device.runs(each.format, each.features)]
    chosen = min(fitting, key=lambda each: device.avoids(each.features), default=None)
    for each in variants:
        lacking = _lacking(device, each.format, each.features)
        if each.format.startswith("opencl"):
            yield ""
        elif not device.runs(each.format):
            yield "for another machine"
        elif lacking:
            yield f"needs {' and '.join(lacking)}"
        elif each is chosen:
            yield "chosen here"
        else:
            yield "runs here, slowly" if device.avoids(each.features) else "runs here"


def variants_of(device: Device) -> list[str]:
    """The names of the variants that `ingot compile` makes and the device runs, best first."""
    from ingot.compiler.targets.cpu.variants import VARIANTS

    running = [each for each in VARIANTS.values() if device.runs(each.format, each.feature_bits)]
    running.sort(key=lambda each: device.avoids(each.feature_bits))
    return [each.name for each in running]


def _lacking(device: Device, format: str, features: int) -> list[str]:
    """What code of these features uses and the device lacks: "avx512-vnni"."""
    constants = layout().constants.items()
    names = {int(bit): name for name, bit in constants if name.startswith("INGOT_CPU_")}
    return [
        name.removeprefix("INGOT_CPU_").partition("_")[2].lower().replace("_", "-")
        for bit, name in names.items()
        if features & bit and not device.runs(format, bit)
    ]
