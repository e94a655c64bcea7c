"""The order of the fields in a `backend_config`, which newer XLA sorts by key in module texts.

A module text of the newest XLA has the keys of each JSON object sorted (`SortJson`), its dumps have
them in the order of the proto's field numbers. This table turns one into the other. In: JSON text
with sorted keys. Out: the same values in field order, byte for byte as they were.

The orders of CPU and GPU are the field numbers of `service/cpu/backend_config.proto`,
`service/gpu/backend_configs.proto` and the protos those use; TPU's were read off dumps. A message
is named by the field that holds it; "" is the whole config, but for TPU's. Fields that are not
listed follow in the order they have. The entries of a proto map come in an unspecified order:
left as they are.
"""

from __future__ import annotations

from functools import lru_cache

from hlomem.base.patterns import lazy_pattern, repeated

_TPU, _TPU_MARK = "TPU's config", '"flag_configs":'
_COLLECTIVE_OFFLOAD = """
    use_single_sparse_core ici_strategy_config constant_propagation_config physical_core_indices
    tensor_split_factor use_n_dimension_strategy
"""
_FIELDS = {
    # CPU's BackendConfig, WhileLoopBackendConfig, GpuBackendConfig and TriangularSolveOptions. No
    # text has fields of two of them.
    "": """
        outer_dimension_partitions onednn_matmul_config onednn_layer_norm_config
        onednn_softmax_config onednn_conv_config fusion_config llvm_kernel_options

        known_trip_count known_init_step known_induction_variable dynamic_variables

        operation_queue_id cudnn_conv_backend_config gemm_backend_config bitcast_backend_config
        collective_backend_config fusion_backend_config cudnn_norm_backend_config
        cudnn_fmha_backend_config force_earliest_schedule custom_call_backend_config
        reification_cost block_scaled_dot_backend_config device_type native_emitter_backend_config
        collective_metadata_backend_config grouped_gemm_backend_config dynamic_slice_config

        left_side lower unit_diagonal transpose_a
    """,
    _TPU: """
        flag_configs window_config barrier_config loop_config scoped_memory_configs indices_config
        implicit_sharding custom_call_metadata custom_call_config device_type continuation_config
        collective_offload_config used_scoped_memory_configs fusion_formation_source
        sparse_core_config output_chunk_bound_config aliasing_operands dma_priority
    """,
    "fusion_config": "kind xnn_fusion_options ynn_fusion_options",
    "llvm_kernel_options": """
        slp_vectorizer_disabled disable_loop_unrolling optimize_for_size
        disable_platform_dependent_math
    """,
    "onednn_matmul_config": """
        transpose_a transpose_b fusions optimization_config lhs rhs result
    """,
    "onednn_conv_config": """
        dims input kernel output window fusions feature_groups optimization_config
    """,
    "onednn_layer_norm_config": "rescale epsilon_typecast fusions",
    "fusions": "ops alpha",
    "optimization_config": "weights_prepacked user_scratchpad bias_broadcast",
    "cudnn_conv_backend_config": """
        activation_mode conv_result_scale side_input_scale algorithm reordered_int8_nchw_vect
        leakyrelu_alpha serialized_graph
    """,
    "algorithm": "algo_id math_type tuning_knobs is_cudnn_frontend workspace_size",
    "gemm_backend_config": """
        selected_algorithm alpha_real beta dot_dimension_numbers alpha_imag precision_config
        epilogue lhs_stride rhs_stride grad_x grad_y damax_output autotune_workspace_size scale_mode
    """,
    "dot_dimension_numbers": """
        lhs_contracting_dimensions rhs_contracting_dimensions lhs_batch_dimensions
        rhs_batch_dimensions
    """,
    "precision_config": "operand_precision algorithm",
    "bitcast_backend_config": "source_layout result_layout",
    "collective_backend_config": """
        is_sync is_pipelined backend collectives_mode kernel_strategy is_spmd_generated
        communication_domain
    """,
    "fusion_backend_config": """
        kind triton_gemm_config custom_fusion_config cudnn_fusion_config block_level_fusion_config
    """,
    "cudnn_fusion_config": "plan_id precision_config",
    "triton_gemm_config": """
        block_m block_n block_k split_k num_stages num_warps num_ctas is_tma_allowed
        is_warp_specialization_allowed
    """,
    "block_level_fusion_config": """
        num_warps output_tiles num_ctas num_stages is_tma_allowed is_warp_specialization_allowed
        waves_per_eu num_tiles_per_pid group_size
    """,
    "cudnn_norm_backend_config": "epsilon algorithm kind",
    "cudnn_fmha_backend_config": """
        algorithm fmha_scale bmm1_dot_dimension_numbers bmm2_dot_dimension_numbers dropout_rate
        intermediate_tensor_shape seed bmm1_grad_gemm1_dot_dimension_numbers
        bmm1_grad_gemm2_dot_dimension_numbers bmm2_grad_gemm1_dot_dimension_numbers
        bmm2_grad_gemm2_dot_dimension_numbers is_flash_attention is_causal_mask mask_type
        force_deterministic sliding_window_length max_seg_per_batch is_paged_attention
    """,
    "custom_call_backend_config": "opaque attributes",
    "reification_cost": """
        end_to_end_cycles exec_time_us compute_time_us memory_access_time_us name
    """,
    "native_emitter_backend_config": "type unroll_factor",
    "grouped_gemm_backend_config": "gemm_backend_config ragged_dot_dimension_numbers",
    "dynamic_slice_config": "loop_index byte_offset byte_stride",
    "known_init_step": "init step",
    "dynamic_variables": "tuple_index init step",
    "custom_call_config": """
        body cost_estimate needs_layout_passes needs_hlo_passes allow_input_fusion
        serialization_format internal_scratch_in_bytes output_memory_colors
        output_memory_space_colors input_memory_space_colors shape_invariant_numerics
        operand_to_metadata debug_locations
    """,
    "cost_estimate": "flops transcendentals bytes_accessed remote_bytes_transferred",
    "input_memory_space_colors": "operand_index color shape_index",
    "collective_offload_config": """
        all_gather_offload_config reduce_scatter_offload_config all_reduce_offload_config
        is_conditional_collective_offload custom_call_async_collective_config
    """,
    "all_reduce_offload_config": _COLLECTIVE_OFFLOAD,
    "all_gather_offload_config": _COLLECTIVE_OFFLOAD,
    "reduce_scatter_offload_config": _COLLECTIVE_OFFLOAD,
    "phase_rings": """
        ring_type core_count ring_neighbor ring_neighbor_table_offset ring_dim barrier_id
        across_cores_on_chip has_reordering_map explicit_strategy_ring_dim
        partner_transfers_outside_the_ring hierarchical_kind
    """,
    "continuation_config": """
        output_tuple_original_start output_tuple_original_end operand_original_start
        operand_original_end
    """,
    "implicit_sharding": """
        type tile_assignment_dimensions tile_assignment_devices tuple_shardings
        replicate_on_last_tile_dim metadata last_tile_dims iota_reshape_dims iota_transpose_perm
        is_shard_group shard_group_id shard_group_type
    """,
    "index_known_bits": "zeroes ones bitwidth",
    "unrolled_loops": """
        unroll_dimension unroll_factor pipeline_remainder fully_unroll_if_trip_count_is_at_most
    """,
    "sparse_core_config": """
        tiling offload comp_env enable_megacore hbm_bandwidth_adjustment_factor
        enable_program_barrier load_dat core_type subcore_type core_ids subcore_ids producers
        consumers offload_id binary_offset program_offset program_size stack_size_high_watermark
        trace_op_offset log_op_offset enable_end_program_barrier
    """,
    "producers": "core_type core_ids subcore_ids",
    "consumers": "core_type core_ids subcore_ids",
    "window_config": """
        kernel_window_bounds output_window_bounds input_window_bounds estimated_cycles
        iteration_bounds scratchpad_allocation_size cost_model_type ml_estimated_microseconds
        is_mask pad_output_on_minor_dim pad_input_on_minor_dim estimated_vmem_bytes
        estimated_bundle_count estimated_scoped_vmem_bytes buffering_level
    """,
}
_bmm_dots = (
    "bmm1_dot_dimension_numbers bmm2_dot_dimension_numbers bmm1_grad_gemm1_dot_dimension_numbers "
    "bmm1_grad_gemm2_dot_dimension_numbers bmm2_grad_gemm1_dot_dimension_numbers "
    "bmm2_grad_gemm2_dot_dimension_numbers"
)
_FIELDS.update(dict.fromkeys(_bmm_dots.split(), _FIELDS["dot_dimension_numbers"]))

_RANKS = {
    message: {field: rank for rank, field in enumerate(fields.split())}
    for message, fields in _FIELDS.items()
}

_IN_QUOTES = repeated(r'[^"\\]++|\\.')
_MARK = lazy_pattern(rf'"{_IN_QUOTES}"|[{{}}\[\],:]')
_MAX_DEPTH = 64


@lru_cache(maxsize=4096)
def in_proto_order(config: str) -> str:
    """JSON text with the fields of each object in proto order; other texts as they are."""
    try:
        text, end = _value(config, 0, _TPU if _TPU_MARK in config else "", _MAX_DEPTH)
    except _NotJsonError:
        return config
    return text if end == len(config) else config


class _NotJsonError(Exception):
    """Not JSON, or nested deeper than any config."""


def _value(text: str, start: int, message: str, depth: int) -> tuple[str, int]:
    """The value at `start`, reordered, and where it ends."""
    opener = text[start : start + 1]
    if opener in ("{", "["):
        if depth == 0:
            raise _NotJsonError
        return (
            _object(text, start, message, depth)
            if opener == "{"
            else _array(text, start, message, depth)
        )
    if opener == '"':
        return _string(text, start)
    match = _MARK.search(text, start)
    if match is None or match.start() == start:
        raise _NotJsonError
    return text[start : match.start()], match.start()


def _string(text: str, start: int) -> tuple[str, int]:
    match = _MARK.match(text, start)
    if match is None or match[0][0] != '"':
        raise _NotJsonError
    return match[0], match.end()


def _array(text: str, start: int, message: str, depth: int) -> tuple[str, int]:
    items: list[str] = []
    position = start + 1
    while text[position : position + 1] != "]":
        item, position = _value(text, position, message, depth - 1)
        items.append(item)
        position = _separator(text, position, "]")
    return f"[{','.join(items)}]", position + 1


def _object(text: str, start: int, message: str, depth: int) -> tuple[str, int]:
    fields: list[tuple[int, str]] = []
    ranks = _RANKS.get(message, {})
    position = start + 1
    while text[position : position + 1] != "}":
        key, position = _string(text, position)
        if text[position : position + 1] != ":":
            raise _NotJsonError
        name = key[1:-1]
        value, position = _value(text, position + 1, name, depth - 1)
        fields.append((ranks.get(name, len(ranks)), f"{key}:{value}"))
        position = _separator(text, position, "}")
    fields.sort(key=lambda field: field[0])
    return f"{{{','.join(field for _, field in fields)}}}", position + 1


def _separator(text: str, position: int, closer: str) -> int:
    mark = text[position : position + 1]
    if mark == closer:
        return position
    if mark != ",":
        raise _NotJsonError
    return position + 1
