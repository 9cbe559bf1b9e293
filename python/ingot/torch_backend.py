"""The backend "ingot" of torch.compile: graphs of inference, on the CPU or an OpenCL device.

torch finds it by the entry point `torch_dynamo_backends`. It hands over a graph of ATen ops without
writes and with symbolic sizes, which is compiled once for all of them. Parameters and buffers that
a graph only reads are external weights: they are packed when they are first seen, and again when
they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import getitem, is_
from typing import Any
from zlib import crc32

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.node import map_arg

from ingot.compiler.frontends.torch import (
    argument_names,
    import_graph,
    kept_decompositions,
    plain_attention,
)
from ingot.compiling import compile
from ingot.hal.errors import InvalidArgument
from ingot.runtime.model import Model, load

__all__ = ["backend"]

_MOST_WEIGHTS = 64  # sets of weights of one graph, such as those of equal layers
_OF_NUMPY = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
     torch.float32, torch.float64, torch.complex64, torch.complex128)
)  # fmt: skip


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What runs a graph of torch.compile. The one option is `device`, as in `ingot.load`.

    CompileError: an op is not supported. InvalidArgument: an option that is not known, or a graph
    that needs gradients.
    """
    device = _device(options)
    plain_attention(module)
    made = aot_autograd(
        fw_compiler=_refuse_gradients,
        inference_compiler=lambda graph, examples: _compiled(graph, examples, device),
        decompositions=kept_decompositions(torch._decomp.core_aten_decompositions()),
    )
    return made(module, inputs)  # type: ignore[no-any-return]


def _device(options: dict[str, Any] | None) -> str:
    unknown = [name for name in options or {} if name != "device"]
    if unknown:
        raise InvalidArgument(
            f'the backend "ingot" has no option {unknown[0]!r}: the only one is "device", such as '
            'options={"device": "cpu://?threads=4"}'
        )
    return str((options or {}).get("device", "cpu"))


def _refuse_gradients(graph: Any, inputs: Any) -> Any:
    raise InvalidArgument(
        'the backend "ingot" is for inference, but the graph needs gradients: call the model under '
        "torch.no_grad() or torch.inference_mode(), or model.requires_grad_(False)"
    )


def _compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any], device: str) -> Any:
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    weights = _weights(metadata, inputs)
    names = argument_names(graph)
    bases, views = _bases(graph)
    if not bases:  # no module is needed for views of what is given
        return _Graph(None, device, [], names, [], views)
    source = import_graph(graph, [names[place] for place in weights])
    module = compile(source, target=device.partition(":")[0])
    return _Graph(module, device, weights, names, list(map(_Result.of, bases)), views)


def _weights(metadata: Any, inputs: Sequence[Any]) -> list[int]:
    """The places of tensors that stay from call to call and that the graph only reads. A buffer
    that Python binds to another tensor at each call may have symbolic sizes: it is an argument."""
    fixed = set(getattr(metadata, "static_input_indices", None) or ())
    found = []
    for place in sorted(fixed):
        value, written = inputs[place], metadata.input_info[place].mutates_data
        if isinstance(value, torch.Tensor) and not written and _is_static(value):
            found.append(place)
    return found


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


@dataclass(frozen=True)
class _View:
    """A result: by its place an argument or, after these, what the module gives, or a view of it,
    which torch makes. So results share memory as they do in eager torch."""

    place: int
    steps: Sequence[torch.fx.Node]
    places: dict[torch.fx.Node, int]  # of the numbers that steps take

    def of(self, values: Sequence[Any]) -> Any:
        found = values[self.place]
        for step in self.steps:
            rest = map_arg(step.args[1:], lambda node: values[self.places[node]])
            found = step.target(found, *rest, **step.kwargs)
        return found


def _bases(graph: torch.fx.GraphModule) -> tuple[list[Any], list[_View]]:
    """What the graph computes, which become its only results, and of what each result is a view."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    places = {node: place for place, node in enumerate(inputs)}
    bases: list[Any] = []

    def placed(value: Any) -> int:
        is_node = isinstance(value, torch.fx.Node)
        place = places.get(value) if is_node else None
        if place is None:
            place = len(inputs) + len(bases)
            bases.append(value)
            if is_node:
                places[value] = place
        return place

    views = []
    for base in output.args[0]:
        steps: list[Any] = []
        while _is_view(base):
            steps.insert(0, base)
            base = base.args[0]
        for step in steps:
            for each in step.all_input_nodes:
                if each is not step.args[0]:
                    placed(each)
        views.append(_View(placed(base), steps, places))
    output.args = (tuple(bases),)
    return bases, views


def _is_view(node: Any) -> bool:
    """Whether it is a view of its first argument that depends on no other tensors. Torch makes it
    again where it is one of what is given, from the offset that the result has in its memory."""
    if getattr(node, "op", "") != "call_function":
        return False
    others = [each for each in node.all_input_nodes if each is not node.args[0]]
    if any(isinstance(each.meta.get("val"), torch.Tensor) for each in others):
        return False
    is_part = node.target is getitem and _is_view(node.args[0])
    return is_part or bool(getattr(node.target, "is_view", False))


@dataclass(frozen=True)
class _Result:
    """How a result of the module becomes what torch expects."""

    kind: type | None  # torch.Tensor, int, float or bool; None: nothing
    order: list[int] | None = None  # axes by falling stride, where these are not 0, 1, ...
    back: list[int] | None = None
    shape: tuple[int, ...] | None = None  # of memory that torch gives; None: the module does
    dtype: torch.dtype | None = None

    @staticmethod
    def of(node: Any) -> _Result:
        value = getattr(node, "meta", {}).get("val", node)
        if value is None:
            return _Result(None)
        if not isinstance(value, torch.Tensor):
            kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
            return _Result(kinds.get(type(value), type(value)))
        strides = [_number(each) for each in value.stride()]
        axes = list(range(value.dim()))
        order = sorted(axes, key=lambda axis: -strides[axis])
        if order != axes:
            return _Result(torch.Tensor, order, [order.index(axis) for axis in axes])
        shape = tuple(value.shape) if _is_static(value) and value.dtype in _OF_NUMPY else None
        return _Result(torch.Tensor, shape=shape, dtype=value.dtype)

    def memory(self) -> torch.Tensor | None:
        return None if self.shape is None else torch.empty(self.shape, dtype=self.dtype)

    def taken(self, memory: torch.Tensor | None, array: Any) -> Any:
        """The result, which lies in `memory` or in an array of the module."""
        if memory is not None:
            return memory
        if self.kind is not torch.Tensor:
            return self.kind(array.item())  # type: ignore[misc]
        found = torch.from_dlpack(array)
        if self.order is None or self.back is None:
            return found
        return found.permute(self.order).contiguous().permute(self.back)


def _number(size: Any) -> int:
    """A stride, by the sizes of the call that torch traced where it is symbolic."""
    return int(size) if isinstance(size, int) else int(size.node.hint)


@dataclass
class _Graph:
    """A compiled graph; `models` are sessions by the weights that they have packed."""

    module: Any
    device: str
    weights: list[int]
    names: list[str]
    results: list[_Result]
    views: list[_View]
    models: dict[tuple[Any, ...], tuple[Model, list[Any]]] = field(default_factory=dict)
    last: tuple[list[Any], list[Any], Model] | None = None
    _boxed_call = True  # torch passes one list of arguments

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()  # torch wants them to be let go
        found = self._computed(given) if self.results else []
        return [view.of([*given, *found]) for view in self.views]

    def _computed(self, given: list[Any]) -> list[Any]:
        """What the module gives for these arguments."""
        model = self._model([given[place] for place in self.weights])
        changing = [each for place, each in enumerate(given) if place not in self.weights]
        tensors = [each.memory() for each in self.results if each.kind is not None]
        out = [None if each is None else each.numpy() for each in tensors]
        found = model(*map(_prepared, changing), out=out)
        arrays = iter(found if isinstance(found, tuple) else (found,))
        memory = iter(tensors)
        return [each.kind and each.taken(next(memory), next(arrays)) for each in self.results]

    def _model(self, fixed: list[Any]) -> Model:
        """The session that has these weights as they are now."""
        last = self.last
        versions = list(map(_version, fixed))
        if last is not None and last[1] == versions and all(map(is_, last[0], fixed)):
            return last[2]
        key = (*map(id, fixed), *versions)
        if key not in self.models:
            if len(self.models) >= _MOST_WEIGHTS:
                del self.models[next(iter(self.models))]
            named = {self.names[place]: each.detach().contiguous() for place, each in
                     zip(self.weights, fixed, strict=True)}  # fmt: skip
            model = load(self.module, device=self.device, parameters=named or None)
            self.models[key] = model, fixed  # which keeps their ids
        model = self.models[key][0]
        self.last = fixed, versions, model
        return model


def _prepared(x: Any) -> Any:
    """An argument as the runtime takes it without a copy, if it lies row by row."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    return x.numpy() if x.dtype in _OF_NUMPY else x


def _version(x: torch.Tensor) -> Any:
    """What changes when torch writes into a tensor, or gives it other memory."""
    if x.is_inference():  # whose writes torch does not count
        return crc32(x.contiguous().view(-1).view(torch.uint8).numpy())
    return x._version, x.data_ptr()
