"""The interface of ONNX's back ends: `prepare(model).run(inputs)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.onnxruntime.options import RunOptions, SessionOptions
from ingot.onnxruntime.session import InferenceSession

__all__ = ["Prepared", "is_compatible", "prepare", "run", "run_model", "supports_device"]


class Prepared:
    """A session whose inputs are told by their order."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **options: Any) -> list[Any]:
        """The outputs for a list of inputs, or for a single one."""
        run_options = _with(RunOptions(), options)
        names = [each.name for each in self._session.get_inputs()]
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(given) != len(names):
            raise RuntimeError(f"the model takes {len(names)} inputs, not {len(given)}")
        arrays = [np.asarray(each) if isinstance(each, np.generic) else each for each in given]
        return self._session.run(None, dict(zip(names, arrays, strict=True)), run_options)


def supports_device(device: str) -> bool:
    return device == "CPU"


def is_compatible(model: Any, device: str | None = None, **_: Any) -> bool:
    return supports_device(device or "CPU")


def prepare(model: Any, device: str | None = None, **options: Any) -> Prepared:
    """A model - a path, bytes, a ModelProto or a session - that is ready to run. `options` are
    those of a session. RuntimeError: there is no such device or option."""
    if isinstance(model, Prepared):
        return model
    if not is_compatible(model, device):
        raise RuntimeError(f"Incompatible device expected '{device}', got 'CPU'")
    if not isinstance(model, InferenceSession):
        source = model.SerializeToString() if hasattr(model, "SerializeToString") else model
        model = InferenceSession(source, _with(SessionOptions(), options))
    return Prepared(model)


def run_model(model: Any, inputs: Any, device: str | None = None, **options: Any) -> list[Any]:
    """As `prepare(model).run(inputs)`."""
    return prepare(model, device).run(inputs, **options)


run = run_model


def _with(options: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        if not hasattr(options, name):
            raise RuntimeError(f"{type(options).__name__} has no attribute '{name}'")
        setattr(options, name, value)
    return options
