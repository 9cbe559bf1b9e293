"""The names of onnxruntime's library, where its own modules and some programs look for them."""

from __future__ import annotations

from ingot.onnxruntime import *  # noqa: F403
from ingot.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
