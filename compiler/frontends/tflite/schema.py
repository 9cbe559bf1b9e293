"""What is read of the schema of TFLite models: names of ops, and the fields of their options."""

from __future__ import annotations

__all__ = ["DTYPES", "OPS", "OPTIONS", "OPTIONS_2", "TEXT"]

DTYPES = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 6: "i1", 7: "i16", 8: "c64", 9: "i8",
    10: "f64", 11: "c128", 12: "u64", 15: "u32", 16: "u16", 17: "i4", 18: "bf16", 19: "i2",
    20: "u4", 21: "f8e4m3fn", 22: "f8e5m2",
}  # fmt: skip
"""Element types by their numbers in the schema."""

TEXT = 5
"""The element type of strings."""

_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL
CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST
PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM
STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER
STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER
STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT
STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
OPS = _NAMES.split()
"""Builtin ops in the order of their numbers."""

OPTIONS = {
    1: (
        "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1 "
        "quantized_bias_type:b"
    ),
    2: (
        "padding:b stride_w:i stride_h:i depth_multiplier:i activation:b dilation_w:i=1 "
        "dilation_h:i=1"
    ),
    5: "padding:b stride_w:i stride_h:i filter_width:i filter_height:i activation:b",
    6: "rank:i activation:b asymmetric_quantize_inputs:?",
    7: "activation:b asymmetric_quantize_inputs:?",
    8: (
        "activation:b weights_format:b keep_num_dims:? asymmetric_quantize_inputs:? "
        "quantized_bias_type:b quant_spec:B*"
    ),
    9: "beta:f",
    10: "axis:i activation:b",
    11: "activation:b pot_scale_int16:?=1",
    12: "activation:b",
    13: "radius:i bias:f alpha:f beta:f",
    14: "activation:b cell_clip:f proj_clip:f kernel_type:b asymmetric_quantize_inputs:?",
    15: "- - align_corners:? half_pixel_centers:?",
    16: "subgraph:I",
    17: "new_shape:i*",
    19: "block_size:i",
    20: "combiner:b",
    21: "activation:b",
    23: "axis:i batch_dims:i",
    27: "keep_dims:?",
    28: "activation:b pot_scale_int16:?=1",
    29: "activation:b",
    30: "squeeze_dims:i*",
    31: "time_major:? activation:b asymmetric_quantize_inputs:?",
    32: ("begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?"),
    35: "num_splits:i",
    37: "in_data_type:b out_data_type:b",
    40: "output_type:b",
    49: "padding:b stride_w:i stride_h:i activation:b quantized_bias_type:b",
    55: "out_type:b",
    57: "output_type:b",
    58: "min:f max:f num_bits:i narrow_range:?",
    59: "values_count:i axis:i",
    61: "axis:i",
    64: "num:i axis:i",
    69: (
        "activation:b cell_clip:f proj_clip:f merge_outputs:? time_major:?=1 "
        "asymmetric_quantize_inputs:?"
    ),
    70: "time_major:? activation:b merge_outputs:? asymmetric_quantize_inputs:?",
    71: (
        "activation:b cell_clip:f proj_clip:f time_major:? asymmetric_quantize_inputs:? "
        "diagonal_recurrent_tensors:?"
    ),
    74: "align_corners:? half_pixel_centers:?",
    75: "alpha:f",
    77: "mode:b",
    79: "num_splits:i",
    80: "idx_out_type:b=2",
    87: "seq_dim:i batch_dim:i",
    92: "then_subgraph_index:i else_subgraph_index:i",
    93: "cond_subgraph_index:i body_subgraph_index:i",
    94: "block_size:i",
    101: "adj_x:? adj_y:? asymmetric_quantize_inputs:?",
    102: "exclusive:? reverse:?",
    103: "init_subgraph_index:i",
    106: (
        "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 "
        "dilation_w:i=1 dilation_h:i=1"
    ),
    107: "table_id:i key_dtype:b value_dtype:b",
    111: "container:s shared_name:s",
    114: "seed:q seed2:q",
    115: "boundaries:f*",
    116: "approximate:?",
}
"""Fields of options by the number of their kind, in order: their names, formats of `struct` (`s` a
string, `*` a vector) and defaults other than 0; `-` is one that is not read."""

OPTIONS_2 = {
    1: "dimension:q",
    2: "broadcast_dimensions:q*",
    3: "start_indices:q* limit_indices:q* strides:q*",
    4: (
        "window_strides:q* padding:q* lhs_dilation:q* rhs_dilation:q* window_reversal:?* "
        "input_batch_dimension:q input_feature_dimension:q input_spatial_dimensions:q* "
        "kernel_input_feature_dimension:q kernel_output_feature_dimension:q "
        "kernel_spatial_dimensions:q* output_batch_dimension:q output_feature_dimension:q "
        "output_spatial_dimensions:q* feature_group_count:q batch_group_count:q "
        "precision_config:I*"
    ),
    6: "dimensions:q* body_subgraph_index:i",
    7: (
        "indices_are_sorted:? update_window_dims:q* inserted_window_dims:q* "
        "scatter_dims_to_operand_dims:q* index_vector_dim:q unique_indices:? "
        "update_computation_subgraph_index:i"
    ),
    8: "comparison_direction:I compare_type:I",
    9: "slice_sizes:q*",
    10: "edge_padding_low:q* edge_padding_high:q* interior_padding:q*",
    11: "iota_dimension:q",
    12: (
        "lhs_batching_dimensions:q* rhs_batching_dimensions:q* "
        "lhs_contracting_dimensions:q* rhs_contracting_dimensions:q* precision_config:I*"
    ),
    13: (
        "window_dimensions:q* window_strides:q* base_dilations:q* window_dilations:q* "
        "padding:q* body_subgraph_index:i"
    ),
    14: "dimension:q is_stable:? comparator_subgraph_index:i",
    15: "cond_subgraph_index:i body_subgraph_index:i",
    16: (
        "offset_dims:q* collapsed_slice_dims:q* start_index_map:q* index_vector_dim:q "
        "slice_sizes:q* indices_are_sorted:?"
    ),
    17: "permutation:q*",
    19: "algorithm:b",
    20: "reduce_function:i",
    21: (
        "name:s decomposition_subgraph_index:i composite_attributes:B* "
        "composite_attributes_format:b version:i"
    ),
    23: "branch_subgraph_indices:i*",
}
"""As OPTIONS, of the second union of the schema."""
