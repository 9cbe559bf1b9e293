"""Ops of `com.microsoft` that are not taken, and why."""

from __future__ import annotations

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value

__all__ = ["REFUSED"]

_ONE_MACHINE = "it holds a program for one kind of device: take the model it was made of"
_BUFFERS = "it works in buffers of one kind of device: take the model without drafted tokens"
_SELECTED = "onnxruntime has it for some devices alone: export dense attention"
_BFP = "onnxruntime does not say how its numbers lie: quantise with QuantizeLinear"

REFUSED = {
    "ConvStateReplay": _BUFFERS,
    "DequantizeBFP": _BFP,
    "DynamicSparseAttention": _SELECTED,
    "EPContext": _ONE_MACHINE,
    "GatedDeltaNetStateReplay": _BUFFERS,
    "Mamba2Verify": "export its convolution, recurrence and norm as layers of their own",
    "PackedSparseAttentionIndexer": _SELECTED,
    "PackedSparseAttentionIndexerMerge": _SELECTED,
    "QOrderedLongformerAttention": "export the model with LongformerAttention in its place",
    "QuantizeBFP": _BFP,
    "RMSNormRotary": "export the norm and RotaryEmbedding as layers of their own",
    "Snpe": _ONE_MACHINE,
    "SparseAttentionIndexer": _SELECTED,
    "SparsePagedAttention": _SELECTED,
    "SpeculativePrefixCommit": _BUFFERS,
}
"""What to do where an op cannot be taken."""


@lowering(*REFUSED, domain=MICROSOFT)
def refuse(node: Node) -> Value:
    raise UnsupportedNode(REFUSED[node.proto.op_type])
