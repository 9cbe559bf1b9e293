"""A runtime of MLServer for compiled modules: the Open Inference Protocol, REST and gRPC."""

from __future__ import annotations

from typing import Any

import mlserver
import numpy as np
from batcher import Arrays, Batcher, Overloaded
from mlserver.codecs import NumpyCodec
from mlserver.codecs.numpy import to_datatype
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor
from prometheus_client import Counter

import ingot

TOO_MANY_REQUESTS = 429
CALLS = Counter("ingot_calls", "calls of the model, each for some requests", ["model"])
REFUSED = Counter("ingot_refused", "requests that were refused because many wait", ["model"])
DEFAULTS = {"max_batch": 32, "max_delay": 0.002, "max_waiting": 1024}


class IngotModel(mlserver.MLModel):
    """Serves `main` of the module at `parameters.uri`.

    `parameters.extra` may have `max_batch` (rows), `max_delay` (seconds), `max_waiting` (rows),
    and what `ingot.load` takes: `device`, `threads`, `parameters`. Requests are joined where all
    arguments and results begin with one symbolic dim.
    """

    async def load(self) -> bool:
        extra = DEFAULTS | dict(self.settings.parameters.extra or {})
        limits = {name: extra.pop(name) for name in DEFAULTS}
        self._model = ingot.load(self.settings.parameters.uri, **extra)
        signature = self._model.signature
        self._arguments = [value.name for value in signature.arguments]
        self._results = [value.name for value in signature.results]
        self.inputs = [_metadata(value) for value in signature.arguments]
        self.outputs = [_metadata(value) for value in signature.results]
        first = {value.shape[:1] for value in (*signature.arguments, *signature.results)}
        self._joins = len(first) == 1 and all(
            isinstance(dim, str) for dims in first for dim in dims
        )
        self._batcher = Batcher(self._run, **limits)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        arrays = self._decode(payload)
        try:
            results = await self._batcher.submit(arrays, self._joins)
        except Overloaded as error:
            REFUSED.labels(self.name).inc()
            raise MLServerError(str(error), TOO_MANY_REQUESTS) from error
        except ingot.Error as error:
            raise InferenceError(str(error)) from error
        outputs = [
            NumpyCodec.encode_output(name, array)
            for name, array in zip(self._results, results, strict=True)
        ]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)

    async def unload(self) -> bool:
        self._model.close()
        return True

    def _decode(self, payload: InferenceRequest) -> Arrays:
        """The arguments in their order. InferenceError: one is missing, there twice, or not what it
        says of its shape and elements, or there are more."""
        names = [each.name for each in payload.inputs]
        if sorted(names) != sorted(self._arguments):
            raise InferenceError(
                f"the inputs are {', '.join(names)}; the model takes {self._model.signature}"
            )
        given = dict(zip(names, payload.inputs, strict=True))
        try:
            return [NumpyCodec.decode_input(given[name]) for name in self._arguments]
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InferenceError(f"an input is not what it says of itself: {error}") from error

    def _run(self, arrays: Arrays) -> Arrays:
        results = self._model.call(*arrays, as_dict=True)
        CALLS.labels(self.name).inc()
        return [np.asarray(results[name]) for name in self._results]


def _metadata(value: Any) -> MetadataTensor:
    shape = [dim if isinstance(dim, int) else -1 for dim in value.shape]
    return MetadataTensor(
        name=value.name, datatype=to_datatype(np.dtype(value.dtype.numpy)), shape=shape
    )
