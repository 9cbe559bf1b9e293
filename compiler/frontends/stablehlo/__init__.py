"""The StableHLO front end: portable artifacts and jax exports to graph IR.

`read_artifact` decodes the file, `import_stablehlo` lowers it. A new op is one function in
one of the `lower_*.py` files.
"""

from __future__ import annotations

from ingot.compiler.frontends.stablehlo.importer import import_stablehlo
from ingot.compiler.frontends.stablehlo.reading.bytecode import read_artifact

__all__ = ["import_stablehlo", "read_artifact"]
