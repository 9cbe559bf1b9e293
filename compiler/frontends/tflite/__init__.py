"""The TFLite front end: `import_tflite` makes graph IR from a `.tflite` model.

It reads the file with tables of its own; no package is needed.
"""

from __future__ import annotations

from ingot.compiler.frontends.tflite.importer import import_tflite

__all__ = ["import_tflite"]
