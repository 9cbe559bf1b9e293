"""What an ONNX name can stand for beside a tensor: a sequence or an optional.

A sequence whose length is known at import is its elements (`Items`), and costs nothing; any
other one is a value of a list type. An optional is a flag and a content (`Maybe`). Branches
and loops hand values on, so structures are taken apart into values in front of them and put
together inside and behind; a `Flow` says how, and two flows have a common one, in which a
sequence is a list where their lengths differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.frontends.strings import Strings
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops.lists import ANY
from ingot.compiler.ir import ListType, TensorType, Type, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = [
    "Flow",
    "Forked",
    "Items",
    "ItemsFlow",
    "Maybe",
    "MaybeFlow",
    "RankConflict",
    "StringItems",
    "Structure",
    "as_list",
    "common_flow",
    "flow_of",
    "leaves_of",
    "list_of_types",
    "put_together",
    "take_apart",
]


@dataclass(frozen=True)
class Items:
    """A sequence of known length: tensors. `dtype` is theirs, also where there are none."""

    elements: tuple[Value, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"seq({', '.join(str(each.type) for each in self.elements) or self.dtype.name})"


@dataclass(frozen=True)
class StringItems:
    """A sequence of strings: of where they end, i64, and of their bytes, u8, one behind another;
    both of known length, or lists."""

    ends: Items | Value
    data: Items | Value

    def __str__(self) -> str:
        ends = self.ends.type if isinstance(self.ends, Value) else self.ends
        return str(ends).replace("i64", "string")


@dataclass(frozen=True)
class Maybe:
    """An optional: whether it has its content, as i1[] or known at import. The content of one
    that has none may be None. A tensor that only the caller may have given is `boxed`, and one of
    strings always: the content is a sequence of it, or of nothing."""

    present: Value | bool
    content: Structure | None
    boxed: bool = False

    def __str__(self) -> str:
        content = self.content.type if isinstance(self.content, Value) else self.content
        return f"optional({content or ''})"


@dataclass(frozen=True)
class Forked:
    """A tensor whose rank depends on which branch an `if` or `case` (`control`) of a layer took
    by its `selector`: its elements in a row, and its shape by branch, where dims that only the
    branch knew are values of rank 0."""

    layer: str
    control: str
    selector: Value
    flat: Value
    shapes: tuple[tuple[Dim | Value, ...], ...]

    def __str__(self) -> str:
        element = tensor_type(self.flat).dtype.name
        texts = (
            ",".join("?" if isinstance(dim, Value) else str(dim) for dim in shape)
            for shape in self.shapes
        )
        return " or ".join(f"{element}[{text}]" for text in dict.fromkeys(texts))


class RankConflict(CompileError):
    """Elements of one sequence would differ in rank; `rank` is the greater one."""

    def __init__(self, text: str, element: DType, rank: int) -> None:
        super().__init__(text)
        self.element = element
        self.rank = rank


Structure = Value | Items | StringItems | Maybe | Forked | Strings


@dataclass(frozen=True)
class ItemsFlow:
    """A sequence of known length: the types of its elements."""

    elements: tuple[TensorType, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"seq({', '.join(map(str, self.elements)) or self.dtype.name})"


@dataclass(frozen=True)
class MaybeFlow:
    """An optional; `present` is None where only a run knows whether it has its content."""

    present: bool | None
    content: Flow | None
    boxed: bool = False

    def __str__(self) -> str:
        return f"optional({self.content or ''})"


@dataclass(frozen=True)
class StringsFlow:
    """Strings: the types of starts, lengths and bytes."""

    starts: TensorType
    lengths: TensorType
    data: TensorType

    def __str__(self) -> str:
        return str(self.starts).replace("i64", "string", 1)


@dataclass(frozen=True)
class StringItemsFlow:
    """A sequence of strings: of ends and of bytes."""

    ends: Flow
    data: Flow

    def __str__(self) -> str:
        return str(self.ends).replace("i64", "string")


Flow = TensorType | ListType | ItemsFlow | MaybeFlow | StringsFlow | StringItemsFlow


def flow_of(structure: Structure) -> Flow:
    """How the structure is taken apart."""
    if isinstance(structure, Items):
        types = tuple(each.type for each in structure.elements)
        tensors = tuple(type for type in types if isinstance(type, TensorType))
        return ItemsFlow(tensors, structure.dtype)
    if isinstance(structure, Maybe):
        present = structure.present if isinstance(structure.present, bool) else None
        content = None if structure.content is None else flow_of(structure.content)
        return MaybeFlow(present, content, structure.boxed)
    if isinstance(structure, Forked):
        raise CompileError(
            f"{structure}, as the branches of layer '{structure.layer}' decide: other branches and "
            "loops hand on tensors of one rank; reshape it to one"
        )
    if isinstance(structure, Strings):
        parts = (structure.starts, structure.lengths, structure.data)
        return StringsFlow(*(tensor_type(each) for each in parts))
    if isinstance(structure, StringItems):
        return StringItemsFlow(flow_of(structure.ends), flow_of(structure.data))
    assert isinstance(structure.type, (TensorType, ListType))
    return structure.type


def leaves_of(flow: Flow) -> list[Type]:
    """The types of the values that the structure becomes."""
    if isinstance(flow, ItemsFlow):
        return list(flow.elements)
    if isinstance(flow, StringsFlow):
        return [flow.starts, flow.lengths, flow.data]
    if isinstance(flow, StringItemsFlow):
        return [*leaves_of(flow.ends), *leaves_of(flow.data)]
    if isinstance(flow, MaybeFlow):
        flag: list[Type] = [TensorType(dtype("i1"))] if flow.present is None else []
        return [*flag, *(leaves_of(flow.content) if flow.content is not None else [])]
    return [flow]


def list_of_types(types: Sequence[TensorType], element: DType) -> ListType:
    """The type of a list of such elements. CompileError: they differ in dtype or rank."""
    if not types:
        raise CompileError(
            "it is not known of which rank the elements of an empty sequence are: put one in "
            "before a branch or a loop changes it"
        )
    for type in types:
        if type.dtype is not element or type.rank != types[0].rank:
            texts = ", ".join(sorted({str(type) for type in types}))
            greatest = max(each.rank for each in types)
            text = f"a sequence of {texts}: dtype and rank must be equal"
            raise RankConflict(text, element, greatest)
    shapes = zip(*(type.shape for type in types), strict=True)
    dims = (dims[0] if len(set(dims)) == 1 else None for dims in shapes)
    return ListType(element, tuple(dim if isinstance(dim, int) else None for dim in dims))


def common_flow(a: Flow, b: Flow) -> Flow:
    """A flow that both can take. Dims of tensors may differ: those of `a` are given.
    CompileError: there is none."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype is b.dtype and a.rank == b.rank:
            return a
        raise CompileError("dtype and rank must stay")
    if isinstance(a, StringsFlow) and isinstance(b, StringsFlow):
        if a.starts.rank == b.starts.rank:
            return a
        raise CompileError("the rank of strings must stay")
    if isinstance(a, StringItemsFlow) and isinstance(b, StringItemsFlow):
        return StringItemsFlow(common_flow(a.ends, b.ends), common_flow(a.data, b.data))
    if isinstance(a, MaybeFlow) or isinstance(b, MaybeFlow):  # what is given is there
        a = a if isinstance(a, MaybeFlow) else MaybeFlow(True, a)
        b = b if isinstance(b, MaybeFlow) else MaybeFlow(True, b)
        present = a.present if a.present == b.present else None
        boxed = a.boxed or b.boxed
        ours, theirs = (_boxed(each) if boxed else each.content for each in (a, b))
        if ours is None or theirs is None:
            return MaybeFlow(present, theirs if ours is None else ours, boxed)
        return MaybeFlow(present, common_flow(ours, theirs), boxed)
    if isinstance(a, (ItemsFlow, ListType)) and isinstance(b, (ItemsFlow, ListType)):
        return _common_sequence(a, b)
    texts = (StringsFlow, StringItemsFlow)
    if isinstance(a, texts) or isinstance(b, texts):
        raise CompileError("strings stay strings, and sequences of strings stay such")
    raise CompileError("a tensor is no sequence")


def _boxed(flow: MaybeFlow) -> Flow | None:
    """The content as a list of it."""
    if flow.boxed or flow.content is None:
        return flow.content
    if not isinstance(flow.content, TensorType):
        raise CompileError("a sequence is no tensor")
    return ItemsFlow((flow.content,), flow.content.dtype)


def _common_sequence(a: ItemsFlow | ListType, b: ItemsFlow | ListType) -> Flow:
    if a == b:
        return a
    if getattr(a, "any_rank", False) or getattr(b, "any_rank", False):
        ranks = [each.rank for each in (a, b) if isinstance(each, ListType)]
        rows = [each.elements for each in (a, b) if isinstance(each, ItemsFlow)]
        raise RankConflict(
            "it is not known of which rank the elements of a graph input are: declare their shape, "
            "dims may be symbolic",
            a.dtype,
            max([*ranks, *(type.rank for row in rows for type in row)]),
        )
    if isinstance(a, ItemsFlow) and isinstance(b, ItemsFlow):
        if len(a.elements) == len(b.elements):
            both = zip(a.elements, b.elements, strict=True)
            if all(x.dtype is y.dtype and x.rank == y.rank for x, y in both):
                return a
        return list_of_types([*a.elements, *b.elements], a.dtype)
    types = [_as_tensor_type(each) for each in (a, b) if isinstance(each, ListType)]
    types += [type for each in (a, b) if isinstance(each, ItemsFlow) for type in each.elements]
    list = list_of_types(types, a.dtype)
    dims = [each.shape for each in (a, b) if isinstance(each, ListType)]
    unknown = {axis for shape in dims for axis, dim in enumerate(shape) if dim is None}
    shape = tuple(None if axis in unknown else dim for axis, dim in enumerate(list.shape))
    return ListType(list.dtype, shape)


def _as_tensor_type(list: ListType) -> TensorType:
    """A type of an element; what may differ is 0, and is known to be so."""
    return TensorType(list.dtype, tuple(0 if dim is None else dim for dim in list.shape))


def as_list(structure: Structure, type: ListType, builder: Builder) -> Value:
    """A sequence as a list of that type, which fits it."""
    shape = tuple(ANY if dim is None else dim for dim in type.shape)
    if isinstance(structure, Value):
        if structure.type == type:
            return structure
        return builder.value("list.widen", structure, shape=shape)
    assert isinstance(structure, Items)
    if not structure.elements:
        return builder.value("list.empty", dtype=type.dtype, shape=shape)
    list = builder.value("list.of", structure.elements[0], shape=shape)
    for index, element in enumerate(structure.elements[1:], 1):
        list = builder.value("list.insert", list, element, index=index)
    return list


def take_apart(structure: Structure, flow: Flow, builder: Builder) -> list[Value]:
    """The values of a structure that the flow fits. Dims of tensors are as they are."""
    if isinstance(flow, ListType):
        return [as_list(structure, flow, builder)]
    if isinstance(flow, MaybeFlow):
        if not isinstance(structure, Maybe):
            structure = Maybe(True, structure)
        values: list[Value] = []
        if flow.present is None:
            flag = structure.present
            values = [builder.constant(flag) if isinstance(flag, bool) else flag]
        if flow.content is None:
            return values
        if flow.boxed and not structure.boxed and isinstance(structure.content, Value):
            dtype = structure.content.dtype
            return values + take_apart(Items((structure.content,), dtype), flow.content, builder)
        if structure.content is None:
            return values + [_nothing(type, builder) for type in leaves_of(flow.content)]
        return values + take_apart(structure.content, flow.content, builder)
    if isinstance(flow, StringItemsFlow):
        assert isinstance(structure, StringItems)
        ends = take_apart(structure.ends, flow.ends, builder)
        return ends + take_apart(structure.data, flow.data, builder)
    if isinstance(structure, Items):
        return list(structure.elements)
    if isinstance(structure, Strings):
        return [structure.starts, structure.lengths, structure.data]
    assert isinstance(structure, Value)
    return [structure]


def _nothing(type: Type, builder: Builder) -> Value:
    """A value that stands where an optional has no content; nobody reads it."""
    if isinstance(type, ListType):
        return as_list(Items((), type.dtype), type, builder)
    assert isinstance(type, TensorType)
    shape = tuple(dim if isinstance(dim, int) else 0 for dim in type.shape)
    return builder.full(0, type.dtype, shape)


def put_together(flow: Flow, values: Iterator[Value]) -> Structure:
    """The structure of the next values."""
    if isinstance(flow, ItemsFlow):
        return Items(tuple(next(values) for _ in flow.elements), flow.dtype)
    if isinstance(flow, StringsFlow):
        return Strings(next(values), next(values), next(values))
    if isinstance(flow, StringItemsFlow):
        ends, data = (put_together(each, values) for each in (flow.ends, flow.data))
        assert isinstance(ends, (Items, Value))
        assert isinstance(data, (Items, Value))
        return StringItems(ends, data)
    if isinstance(flow, MaybeFlow):
        present = next(values) if flow.present is None else flow.present
        content = None if flow.content is None else put_together(flow.content, values)
        return Maybe(present, content, flow.boxed)
    return next(values)
