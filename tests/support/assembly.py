"""Modules through text and back."""

from __future__ import annotations

from ingot.compiler.vm.read_assembly import read_assembly
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_assembly import assembly_text
from ingot.compiler.vm.write_module import write_module

__all__ = ["assert_assembles"]


def assert_assembles(data: bytes) -> None:
    """What `ingot dis` writes of a module, `ingot asm` makes the same bytes of."""
    text = assembly_text(read_module(data))
    assert write_module(read_assembly(text, "text")) == data
