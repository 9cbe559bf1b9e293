"""Runs the steps of a compile: tells progress, measures time, writes IR into a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ingot.compiler import ir
from ingot.compiler.foreign import own_errors
from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir.printer import to_text
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import described
from ingot.hal.errors import CompileError

__all__ = ["Driver", "Pass"]

Pass = Callable[[ir.Module], ir.Module]

_GREATEST_DUMP_LENGTH = 1 << 20
"""Bytes of constants that a dump writes out; of more it leaves out the elements."""


def _literal_length(module: ir.Module) -> int:
    """Bytes of all constants of the module."""
    ops = (op for function in module.functions.values() for op in function.block.ops)
    found = (each.attributes for op in ops for each in ir.walk(op))
    return sum(each.value.nbytes for each in found if isinstance(each, Constant))


@dataclass
class Dump:
    """Numbered files of IR in a folder; nothing without one."""

    folder: str | os.PathLike[str] | None
    count: int = 0
    last: str = ""

    def write(self, name: str, module: ir.Module) -> None:
        if self.folder is not None:
            text = to_text(module, elide=_literal_length(module) > _GREATEST_DUMP_LENGTH)
            if text != self.last:
                self.write_text(f"{name}.ir", text)
                self.last = text

    def write_text(self, name: str, text: str) -> None:
        if self.folder is None:
            return
        folder = Path(self.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.count == 0:
                for old in folder.glob("[0-9][0-9]-*.ir"):
                    old.unlink(missing_ok=True)
            (folder / f"{self.count:02}-{name}").write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: no folder has such a name
            why = getattr(error, "strerror", error)
            raise CompileError(f"cannot write the IR to '{folder}': {why}") from error
        self.count += 1


@dataclass
class Driver:
    """Runs steps: tells progress, measures time, dumps IR."""

    dump: Dump
    progress: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    prefix: str = ""  # of the steps' names, where the module has several targets
    begin: float = 0.0  # of the compilers of kernels

    @classmethod
    def of(
        cls,
        progress: Callable[[str], None] | None,
        dump_ir: str | os.PathLike[str] | None = None,
    ) -> Driver:
        return cls(Dump(dump_ir), progress or (lambda step: None))

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        name = self.prefix + name
        self.progress(name)
        start = time.perf_counter()
        with own_errors(f"compiling ({name})"):
            result = run()
        self.seconds[name] = time.perf_counter() - start + self.seconds.get(name, 0.0)
        if isinstance(result, ir.Module):
            self.dump.write(name, result)
        return result

    def share(self, done: int, count: int) -> None:
        """Tell how many of how many kernels are compiled, and how long the rest may take."""
        if done == 0:
            self.begin = time.perf_counter()
        left = (time.perf_counter() - self.begin) * (count - done) / max(done, 1)
        estimate = f", about {left:.0f} s left" if done else ""
        self.progress(f"{self.prefix}build_kernels: {done} of {count} kernels{estimate}")

    def passes(self, module: ir.Module, passes: Sequence[Pass]) -> ir.Module:
        for run in passes:
            module = self.step(run.__name__, partial(run, module))
        return module

    def dump_kernels(
        self, kernels: Mapping[str, Sequence[Kernel]], variants: Sequence[str]
    ) -> None:
        """Every variant's kernels, below their schedules."""
        if self.dump.folder is None:
            return
        for place, variant in enumerate(variants):
            module = ir.Module()
            for each in kernels.values():
                module.add(described(each[place]))
            schedules = [f"// {name}: {each[place].schedule}\n" for name, each in kernels.items()]
            text = "".join(schedules) + to_text(module)
            self.dump.write_text(f"{self.prefix}kernels.{variant}.ir", text)
