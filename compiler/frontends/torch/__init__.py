"""The PyTorch front end: `import_torch` makes graph IR from a program that torch.export saved.

It reads the archive (`.pt2`) with the standard library alone. torch itself, which is imported only
then, is needed where a program or a module in memory is given.
"""

from __future__ import annotations

from ingot.compiler.frontends.torch.export import (
    exported_archives,
    kept_decompositions,
    plain_attention,
)
from ingot.compiler.frontends.torch.graphs import argument_names, import_graph
from ingot.compiler.frontends.torch.importer import import_torch

__all__ = [
    "argument_names",
    "exported_archives",
    "import_graph",
    "import_torch",
    "kept_decompositions",
    "plain_attention",
]
