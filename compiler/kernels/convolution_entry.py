"""An entry around one conv_packed, as schedules see it: window, shapes, bindings, epilogue.

Images are channels last, the weight is packed in panels whose depth runs over window
positions, then channels. This file chooses nothing.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import ConvPacked, Depthwise
from ingot.compiler.ir import Function, Op, TensorType, Value, tensor_type
from ingot.compiler.ir.attributes import Dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, known_dims, product
from ingot.compiler.kernels.contraction_entry import kernel_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.register_tile import PANEL, accumulation_dtype
from ingot.compiler.kernels.words import parts_of, tensor_in_words

__all__ = ["ConvolutionEntry", "Window", "window_of"]


@dataclass(frozen=True)
class Window:
    """The numbers of a convolution, per spatial dim."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[Dim, ...]  # padding in front
    after: tuple[Dim, ...]


def window_of(moves: ConvPacked | Depthwise, size: Dims) -> Window:
    """The window of a convolution, with this size; but for the padding all is known."""
    return Window(
        known_dims(size),
        known_dims(moves.strides),
        known_dims(moves.rhs_dilation),
        tuple(before for before, _ in moves.padding),
        tuple(after for _, after in moves.padding),
    )


class ConvolutionEntry:
    """State while one kernel is made. `words_for`: the target that reads words of several parts,
    where they lie so."""

    def __init__(self, function: Function, root: Op, words_for: TargetInfo | None = None) -> None:
        x, w = tensor_type(root.operands[0]), tensor_type(root.operands[1])
        result = tensor_type(root.result)
        self.function = function
        self.window = window_of(ConvPacked.of(root), ConvPacked.of(root).window)
        self.flops = 2 * product(result.shape) * product(self.window.size) * x.shape[-1]
        self.element = accumulation_dtype(x.dtype, w.dtype, result.dtype)
        dtypes = (x.dtype, w.dtype, result.dtype)
        parts = None if words_for is None else parts_of(*dtypes, words_for)
        words = tensor_in_words(x) if parts else None
        self.parts = parts if words else None
        if words is not None:
            x, w = words, TensorType(words.dtype, (*w.shape[:-1], 1))
        self.x, self.w, self.result = x, w, result
        self.factor = x.dtype if self.parts else self.element  # of what is multiplied
        self.builder = LoopBuilder()
        self.epilogue = Epilogue(self.builder, function, root)
        self.channels = x.shape[-1]
        self.depth = product(self.window.size) * self.channels
        self.panels = ceildiv(result.shape[-1], PANEL)
        self.ordinals = tuple(function.arguments.index(value) for value in root.operands)

    @property
    def input(self) -> Value:
        """The memory of the images."""
        return self.builder.binding(self.ordinals[0], self.x.dtype)

    def kernel(
        self,
        workload: tuple[Dim, Dim, Dim],
        tile: tuple[int, int, int],
        schedule: object,
        scratch_length: int = 0,
        local_size: tuple[int, int, int] = (1, 1, 1),
        local_length: int = 0,
    ) -> Kernel:
        """The finished kernel."""
        return kernel_of(
            self.function, self.builder, self.epilogue, set(self.ordinals), workload, tile,
            self.flops, schedule,
            scratch_length, local_size, local_length,
        )  # fmt: skip
