"""Memory that the application rules: what counting, measuring and sharing cost, what sharing saves,
and calls with threads that wait calmly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from runtime_rows.row import Row

import ingot
from ingot import ops

MODELS = 8


def rows() -> Iterator[Row]:
    w = np.eye(64, dtype=np.float32)
    module = ingot.compile(
        ingot.trace(lambda x: ops.sum(ops.exp(x @ w) @ w, axis=1), ingot.spec("f32[n,64]"))
    )
    model, shared = ingot.load(module, threads=1), ingot.load(module, threads=1, shares_slab=True)
    x = np.zeros((4, 64), np.float32)
    out = model(x)
    yield Row(
        "memory of a call",
        {
            "result made, and counted": lambda: model(x),
            "result given": lambda: model(x, out=out),
            "result given, slab shared": lambda: shared(x, out=out),
            "the call measured": lambda: model.main.measure((4, 64)),
            "statistics read": model.statistics,
        },
    )
    big = np.zeros((4096, 64), np.float32)
    yield Row(f"working memory of {MODELS} models", facts=dict(_slabs(module, big)))
    devices = {"spinning": {}, "calm": {"spin": False}}
    sides = {
        name: ingot.load(module, device=ingot.open_device(**options))
        for name, options in devices.items()
    }
    results = {name: each(big) for name, each in sides.items()}
    yield Row(
        "call of 2 x 33 MFLOP, all processors",
        {
            f"threads {name}": lambda each=each, out=results[name]: each(big, out=out)
            for name, each in sides.items()
        },
    )


def _slabs(module: ingot.Module, x: np.ndarray) -> Iterator[tuple[str, str]]:
    for name, shares in (("each its own", False), ("shared", True)):
        models = [ingot.load(module, shares_slab=shares) for _ in range(MODELS)]
        for model in models:
            model(x)
        peak = max(each.statistics().slabs.peak for each in models)
        held = sum(each.statistics().slabs.current for each in models)
        yield name, f"{(held if not shares else peak) / 1e6:.1f} MB"
