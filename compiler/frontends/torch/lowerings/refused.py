"""Ops that are refused with what to do: those that only training has, symmetric factors,
and a write that resizes."""

from __future__ import annotations

from ingot.compiler.frontends.torch.lowering import TRAINING, refuse

__all__: list[str] = []

refuse(
    "it computes gradients: export what the model does in inference, without backward()",
    "aten._adaptive_avg_pool2d_backward.default",
    "aten.avg_pool2d_backward.default",
    "aten.convolution_backward.default",
    "aten.embedding_dense_backward.default",
    "aten.max_pool2d_with_indices_backward.default",
    "aten.native_group_norm_backward.default",
    "aten.native_layer_norm_backward.default",
)
refuse(
    TRAINING,
    "aten._batch_norm_with_update_functional.default",
    "aten._native_batch_norm_legit_functional.default",
)
refuse(
    "symmetric matrices are not factored: use torch.linalg.lu_factor and lu_solve",
    "aten.linalg_ldl_factor_ex.default",
    "aten.linalg_ldl_solve.default",
)
refuse(
    "it resizes the memory of a tensor: make a new tensor of the size",
    "aten.resize_.default",
)
