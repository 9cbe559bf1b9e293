"""What `ingot coverage` prints, and the page docs/coverage.md: which ops are taken.

The page is made of the tables of the front ends: `python -m ingot.coverage docs/coverage.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.hal.printable import printable

if TYPE_CHECKING:
    from ingot.compiler.coverage import Coverage

__all__ = ["coverage_lines", "coverage_markdown"]

_OPSET = 22  # of the ONNX ops on the page: that of the oldest onnx package that is supported
_LONGEST_ROW = 160  # characters

_HEAD = f"""# Ops that are taken

Generated from the tables of the front ends by `python -m ingot.coverage docs/coverage.md`; do not
edit. What a given model needs, with its dtypes and dims, on which target and in which layers, says

```sh
ingot coverage model.onnx other.stablehlo --target cpu,opencl
```

without compiling anything: one line per op and kind of operands (`_` is a dim that is a number,
`?` one that is known at the call only), then all problems at once. For a target, `yes` is a kernel
of its own, `host` one that the host runs for the device, `no` that the model cannot be compiled
because of it, `unknown` that nothing is known of the operands, which come from a layer that is not
taken. Weights need not be there. It exits with 1 if there is a problem.

Every op that is taken is taken on every target: what a device lacks, the host runs
([OpenCL](opencl.md)). Dtypes are those of the [op table](ops.md); strings are not among them.

## ONNX

Ops of the default domain in opset {_OPSET}; older opsets are read as this one.

"""


def coverage_lines(path: str, coverage: Coverage) -> Iterator[str]:
    """The table of a model, and its problems."""
    uses = sum(row.count for row in coverage.rows)
    yield f"{path}: {len(coverage.rows)} kinds of op, used {uses} times"
    if coverage.rows:
        targets = "".join(f"{name:>9}" for name in coverage.rows[0].takes)
        yield f"    uses{targets}  op"
    for row in coverage.rows:
        takes = "".join(f"{state:>9}" for state in row.takes.values())
        text = printable(f"{row.op}({', '.join(row.patterns)})", _LONGEST_ROW)
        yield f"  {row.count:>6}{takes}  {text}"
    if coverage.problems:
        count = len(coverage.problems)
        yield f"{count} problem{'s' * (count > 1)}, without which it compiles:"
    for problem in coverage.problems:
        yield from (f"  {printable(line)}" for line in problem.split("\n"))
    for target, kernels in coverage.hosted.items():
        yield f"{len(kernels)} kernel{'s' * (len(kernels) > 1)} for {target} run on the host:"
        yield from (f"  {name}: {printable(reason)}" for name, reason in kernels.items())


def coverage_markdown() -> str:
    """The page as Markdown."""
    from ingot.compiler.frontends.stablehlo import importer as _stablehlo  # noqa: F401 - as below
    from ingot.compiler.frontends.stablehlo.lowering import LOWERINGS
    from ingot.compiler.frontends.stablehlo.lowerings.rare import REFUSED

    parts = [
        _HEAD,
        *_onnx_parts(),
        "\n## StableHLO\n\n",
        _list("Taken", set(LOWERINGS) - set(REFUSED)),
        "Not taken, nor any other op:\n\n",
        *(f"- `{name}`: {reason}\n" for name, reason in sorted(REFUSED.items())),
        *_torch_parts(),
        *_tflite_parts(),
    ]
    return "".join(parts)


def _onnx_parts() -> Iterator[str]:
    import onnx

    from ingot.compiler.frontends.onnx import importer as _importer  # noqa: F401 - fills the table
    from ingot.compiler.frontends.onnx.lowerings.microsoft.refused import REFUSED
    from ingot.compiler.frontends.onnx.registry import CLASSIC, MICROSOFT, STRINGS, registered_ops

    taken = {*registered_ops(), *registered_ops(STRINGS)}
    schemas = {
        each.name: onnx.defs.get_schema(each.name, _OPSET, "")
        for each in onnx.defs.get_all_schemas_with_history()
        if each.domain == "" and each.since_version <= _OPSET
    }
    bodies = {
        name
        for name, each in schemas.items()
        if name not in taken and (each.has_function or each.has_context_dependent_function)
    }
    yield _list("Taken", taken & set(schemas))
    yield _list("Taken through the body that the standard gives them", bodies)
    yield _list("Not taken", set(schemas) - taken - bodies)
    yield "\nOf the domain `com.microsoft`, which onnxruntime and its tools write:\n\n"
    yield _list("Taken", set(registered_ops(MICROSOFT)) - set(REFUSED))
    yield "Not taken:\n\n"
    yield from (f"- `{name}`: {reason}\n" for name, reason in sorted(REFUSED.items()))
    yield "\nOf the domain `ai.onnx.ml`, classic models:\n\n"
    yield _list("Taken", set(registered_ops(CLASSIC)))
    yield "Of other domains only functions that the model brings are taken.\n"


def _torch_parts() -> Iterator[str]:
    from ingot.compiler.frontends.torch import lowerings as _lowerings  # noqa: F401 - as above
    from ingot.compiler.frontends.torch.complex_values import COMPLEX
    from ingot.compiler.frontends.torch.core_ops import CORE
    from ingot.compiler.frontends.torch.lowering import ALIASES, COMPOSED, LOWERINGS, REFUSED

    composed = COMPOSED | set(ALIASES)
    taken = (set(LOWERINGS) | set(COMPLEX)) - composed
    core = {f"aten.{name}" for name in CORE}
    yield "\n## PyTorch\n\n"
    yield "Of the core ATen opset, which `run_decompositions()` leaves:\n\n"
    yield _list("Taken", core & taken)
    yield "Not taken:\n\n"
    yield from (f"- `{name}`: {REFUSED[name]}\n" for name in sorted(core - taken))
    yield "\nBeyond it, which are kept whole where a program in memory is compiled, and their "
    yield "variants that write into the first argument (`add_`):\n\n"
    yield _list("Taken", taken - core)
    yield "Those that torch makes of others, in programs that are saved as exported:\n\n"
    yield _list("Taken", composed)


def _tflite_parts() -> list[str]:
    from ingot.compiler.frontends.tflite import lowerings as _lowerings  # noqa: F401 - likewise
    from ingot.compiler.frontends.tflite.lowering import LOWERINGS
    from ingot.compiler.frontends.tflite.schema import OPS

    rest = set(OPS) - set(LOWERINGS) - {"PLACEHOLDER_FOR_GREATER_OP_CODES"}
    return ["\n## TFLite\n\n", _list("Taken", set(LOWERINGS)), _list("Not taken", rest)]


def _list(title: str, names: set[str]) -> str:
    return f"{title} ({len(names)}): {', '.join(f'`{name}`' for name in sorted(names))}.\n\n"


def main() -> None:
    """Writes the page to the path that is the only argument."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: python -m ingot.coverage docs/coverage.md")
    Path(sys.argv[1]).write_text(coverage_markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
