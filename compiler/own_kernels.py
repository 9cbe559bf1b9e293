"""Kernels of users: what `kernels=` of `ingot.compile` says.

gelu = ingot.Kernel("(f32[n]) -> (f32[n])", TEXT, entry="gelu", workload=["n"], tile=[64])
ingot.compile("model.onnx", kernels={"acme.Gelu": gelu})
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from ingot.compiler.graph.native_signature import NativeSignature, parse_signature
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.compiler.kernels.own import OwnKernel
from ingot.compiler.targets.target import TARGETS, language_of
from ingot.hal.errors import InvalidArgument

__all__ = ["Kernel", "checked_kernels"]

_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_GREATEST_GROUP = 1024  # work items


@dataclass(frozen=True)
class Kernel:
    """A kernel for an op of your own, in C for the target "cpu", in OpenCL C for "opencl".

    `source` has a function `entry` that returns nothing. It takes a pointer to the elements of each
    argument and result of the `signature`, in their order and row-major, an int64_t (in OpenCL C a
    long) for each symbol of it, and the position of its workgroup: an int64_t per axis of
    `workload`, dims over the symbols. The grid is ceil(workload / tile), so a workgroup computes
    what lies from position * tile on; on "opencl" it has `local_size` work items. Workgroups run in
    any order and on any thread, and write nothing but the results. `flops` is an estimate of all
    its work, over the symbols. All other functions of the text are `static` in C; it imports none.
    In OpenCL C the texts of a module are one program: their other names differ.

    InvalidArgument: something of it is not as it must be.
    """

    signature: str
    source: str
    entry: str
    workload: Sequence[str | int]
    tile: Sequence[int] = (1,)
    target: str = "cpu"
    local_size: Sequence[int] = (1,)
    flops: str | int = 0

    def __post_init__(self) -> None:
        self.own()

    def own(self) -> OwnKernel:
        """As the compiler takes it."""
        types = parse_signature(self.signature)
        if types.decided or not types.results or types.has_complex:
            raise InvalidArgument(
                f"a kernel of the signature {types}: it fills one result or more, whose dims its "
                "arguments tell, and takes complex numbers as parts"
            )
        if self.target not in TARGETS:
            raise InvalidArgument(
                f"a kernel for the target {self.target!r}; the targets are: {', '.join(TARGETS)}"
            )
        if not _IDENTIFIER.fullmatch(self.entry):
            raise InvalidArgument(f"entry {self.entry!r} is no name of a function of the source")
        if re.search("[\0\ud800-\udfff]", self.source):
            raise InvalidArgument("source has a character that no text of a program can have")
        axes = [_dim(each, types, "workload") for each in self.workload]
        return OwnKernel(
            str(types),
            language_of(self.target),
            self.source,
            self.entry,
            cast("tuple[Dim, Dim, Dim]", _three("workload", axes)),
            len(axes),
            _sizes("tile", self.tile),
            _sizes("local_size", self.local_size),
            _dim(self.flops, types, "flops"),
        )


def _dim(given: str | int, types: NativeSignature, what: str) -> Dim:
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        raise InvalidArgument(f"{what} has {given!r}, expected dims")
    try:
        dim = parse_dim(given) if isinstance(given, str) else given
    except ValueError as error:
        raise InvalidArgument(f"{what}: {error}") from None
    known = {str(each) for type in types.arguments for each in type.shape}
    unknown = [] if isinstance(dim, int) else sorted(symbols_of(dim) - known)
    if unknown:
        raise InvalidArgument(f"{what} {given!r}: no argument of {types} has a dim '{unknown[0]}'")
    return dim


def _three(what: str, given: Sequence[Dim]) -> tuple[Dim, ...]:
    if not 1 <= len(given) <= 3:
        raise InvalidArgument(f"{what} has {len(given)} axes, expected 1 to 3")
    return (*given, 1, 1)[:3]


def _sizes(what: str, given: Sequence[int]) -> tuple[int, int, int]:
    sizes = cast("tuple[int, int, int]", _three(what, given))
    if not all(isinstance(each, int) and each > 0 for each in sizes):
        raise InvalidArgument(f"{what} is {list(given)}, expected numbers above 0")
    if what == "local_size" and prod(sizes) > _GREATEST_GROUP:
        raise InvalidArgument(f"{what} is {list(given)}: more than {_GREATEST_GROUP} work items")
    return sizes


def checked_kernels(
    kernels: Mapping[str, Kernel | Sequence[Kernel]] | None,
) -> dict[str, tuple[OwnKernel, ...]]:
    """By name the kernels, at most one per target. InvalidArgument: they are none."""
    found: dict[str, tuple[OwnKernel, ...]] = {}
    if not isinstance(kernels or {}, Mapping):
        raise InvalidArgument(f"kernels is {type(kernels).__name__}, but must be a dict by name")
    for name, given in (kernels or {}).items():
        several: Any = given if isinstance(given, (list, tuple)) else [given]
        if not isinstance(name, str) or not all(isinstance(each, Kernel) for each in several):
            raise InvalidArgument(
                f"kernels[{name!r}] must be an ingot.Kernel, or a list of one for each target"
            )
        own = tuple(each.own() for each in several)
        if len({each.language for each in own}) < len(own) or len({str(k.types) for k in own}) > 1:
            raise InvalidArgument(
                f"kernels[{name!r}] has two kernels for one target, or of different signatures"
            )
        found[name] = own
    return found
