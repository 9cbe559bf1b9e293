"""An entry around one matrix product, as the schedules for work-groups see it.

Where its operands lie, as `Source`s of tiles, how its rows are numbered, and the finished
kernel, whose grid is that of the CPU: rows, panels, batch. It chooses nothing.
"""

from __future__ import annotations

from ingot.compiler.ir import Function, Op, Value, tensor_type
from ingot.compiler.ir.dims import Dim, ceildiv, product
from ingot.compiler.kernels.coding import coding_of
from ingot.compiler.kernels.contraction_entry import (
    argument_of,
    batch_offset,
    kernel_of,
    root_of,
)
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.items.coded_source import coded_source
from ingot.compiler.kernels.items.group_tile import Source
from ingot.compiler.kernels.items.panel_source import panel_source
from ingot.compiler.kernels.items.strided_source import Matrix, strided_source
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import Operand, Product, product_of
from ingot.compiler.kernels.register_tile import PANEL, accumulation_dtype
from ingot.compiler.kernels.words import Parts, product_in_words, unit_of
from ingot.compiler.kernels.work_group import WorkGroup
from ingot.hal.spec import DType, dtype

__all__ = ["ProductEntry"]


class ProductEntry:
    """The product of an entry, its operands as sources, and the kernel that was made of it.
    `words_for`: the target that multiplies words of bytes, if it does."""

    def __init__(self, function: Function, words_for: TargetInfo | None = None) -> None:
        self.function = function
        self.root: Op = root_of(function)
        p = product_of(self.root)
        self.flops = 2 * product(p.batch) * p.rows * p.columns * p.depth
        self.product: Product = p
        self.parts: Parts | None = None
        words = product_in_words(p, words_for) if words_for else None
        if words is not None and words[0].left.dtype == words[0].right.dtype == dtype("i32"):
            self.product, self.parts = words
        self.element: DType = accumulation_dtype(p.left.dtype, p.right.dtype, p.dtype)
        self.coding = coding_of(function, self.root)
        self.builder = LoopBuilder()
        self.epilogue = Epilogue(self.builder, function, self.root)
        self.panels = ceildiv(p.columns, PANEL)

    def ordinal(self, operand: Operand) -> int:
        """The argument that holds an operand."""
        return argument_of(self.function, operand.value)

    def batch(self) -> Index:
        """The work-group's batch."""
        return self.builder.workgroup(2) if self.product.batch else 0

    def memory(self, operand: Operand) -> tuple[Value, Index]:
        """Memory of an operand, of bytes where words are read (`load_where`), and where this
        work-group's batch begins."""
        stored = unit_of(tensor_type(operand.value).dtype) if self.parts else operand.dtype
        memory = self.builder.binding(self.ordinal(operand), stored)
        offset = batch_offset(self.builder, operand, self.product.batch, self.batch())
        return memory, offset

    def result_row(self, row: Index) -> Index:
        """A row of this batch as a row of the whole result."""
        b = self.builder
        return b.add(b.mul(self.batch(), b.dim(self.product.rows)), row)

    def right(self, panel: Index, columns: int) -> Source:
        """The right side's `columns` columns from `panel` on."""
        right = self.product.right
        if not right.packed:
            first = self.builder.mul(panel, PANEL)
            return self.strided(right, first, self.product.columns, columns)
        exact = isinstance(self.panels, int) and self.panels * PANEL % columns == 0
        bound = None if exact else self.panels
        if self.coding is not None:
            return coded_source(self.builder, self.coding, self.element, panel, bound)
        binding = (self.ordinal(right), right.dtype)
        return panel_source(self.builder, binding, self.element, self.product.depth, panel, bound)

    def strided(self, operand: Operand, first: Index, bound: Dim, lines: int) -> Source:
        """An operand where it lies; lines from `bound` on repeat the last one."""
        exact = isinstance(bound, int) and bound % lines == 0
        memory, base = self.memory(operand)
        matrix = Matrix(memory, base, operand.stride, operand.depth_stride, operand.dtype)
        return strided_source(self.builder, matrix, first, None if exact else bound, self.element)

    def finish(self, tile: tuple[int, int, int], group: WorkGroup, schedule: object) -> Kernel:
        """The finished kernel."""
        p = self.product
        batch = product(p.batch)
        read = self.coding.ordinals if self.coding else {self.ordinal(p.right)}
        return kernel_of(
            self.function, self.builder, self.epilogue, {self.ordinal(p.left), *read},
            (p.rows, self.panels, batch), tile,
            self.flops, schedule,
            local_size=group.size, local_length=group.local_length,
        )  # fmt: skip
