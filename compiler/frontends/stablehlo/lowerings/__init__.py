"""Lowerings of StableHLO and CHLO ops to graph ops, by theme: importing them fills the table."""

from ingot.compiler.frontends.stablehlo.lowerings import (
    bits,
    call,
    contraction,
    control,
    elementwise,
    fold,
    indexed,
    linear,
    quantized,
    random,
    rare,
    reduction,
    scatter,
    shape,
    window,
)

__all__ = [
    "bits",
    "call",
    "contraction",
    "control",
    "elementwise",
    "fold",
    "indexed",
    "linear",
    "quantized",
    "random",
    "rare",
    "reduction",
    "scatter",
    "shape",
    "window",
]
