"""The messages of `xla/service/hlo.proto` and `xla/xla_data.proto` as far as memory is concerned.

The classes are made on first use. The runtime keeps fields that are not named here, so that writing
a message back loses nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PACKAGE = "hlomem_xla"

# number, kind (`*` repeated, `?` optional), name; a kind is a scalar or another message.
_FIELDS = {
    "Tile": "1 *i64 dimensions",
    "SplitConfig": "1 i64 dimension; 2 *i64 split_indices",
    "Layout": """1 *i64 minor_to_major; 6 *Tile tiles; 7 i64 element_size_in_bits;
        8 i64 memory_space; 10 Shape physical_shape; 11 i32 index_primitive_type;
        12 i32 pointer_primitive_type; 15 i64 dynamic_shape_metadata_prefix_bytes;
        16 i64 tail_padding_alignment_in_elements; 17 *SplitConfig split_configs""",
    "Shape": """2 i32 element_type; 3 *i64 dimensions; 4 *Shape tuple_shapes; 5 Layout layout;
        6 *b is_dynamic_dimension""",
    "ProgramShape": "1 *Shape parameters; 2 Shape result; 3 *s parameter_names",
    "OpMetadata": """1 s op_type; 2 s op_name; 3 s source_file; 4 i32 source_line;
        17 i32 source_end_line; 18 i32 source_column; 19 i32 source_end_column;
        12 s deduplicated_name; 15 i32 stack_frame_id; 16 s scheduling_name""",
    "OutputAliasing": "1 *i64 output_shape_index; 2 i64 operand_index; 3 *i64 operand_shape_index",
    "WindowDimension": """1 i64 size; 2 i64 stride; 3 i64 padding_low; 4 i64 padding_high;
        5 i64 window_dilation; 6 i64 base_dilation; 7 b window_reversal""",
    "Window": "1 *WindowDimension dimensions",
    "Convolution": """7 i64 input_batch_dimension; 8 i64 input_feature_dimension;
        11 *i64 input_spatial_dimensions; 3 i64 kernel_input_feature_dimension;
        4 i64 kernel_output_feature_dimension; 6 *i64 kernel_spatial_dimensions;
        9 i64 output_batch_dimension; 10 i64 output_feature_dimension;
        12 *i64 output_spatial_dimensions""",
    "SliceDimension": "1 i64 start; 2 i64 limit; 3 i64 stride",
    "PaddingDimension": "1 i64 edge_padding_low; 2 i64 edge_padding_high; 3 i64 interior_padding",
    "Padding": "1 *PaddingDimension dimensions",
    "Dot": """1 *i64 lhs_contracting_dimensions; 2 *i64 rhs_contracting_dimensions;
        3 *i64 lhs_batch_dimensions; 4 *i64 rhs_batch_dimensions""",
    "Gather": """1 *i64 offset_dims; 2 *i64 collapsed_slice_dims; 3 *i64 start_index_map;
        4 i64 index_vector_dim; 5 *i64 operand_batching_dims; 6 *i64 start_indices_batching_dims""",
    "Scatter": """1 *i64 update_window_dims; 2 *i64 inserted_window_dims;
        3 *i64 scatter_dims_to_operand_dims; 4 i64 index_vector_dim; 5 *i64 input_batching_dims;
        6 *i64 scatter_indices_batching_dims""",
    "Precision": "1 *i32 operand_precision; 2 i32 algorithm",
    "TriangularSolve": "1 b left_side; 2 b lower; 3 b unit_diagonal; 4 i32 transpose_a",
    "Cholesky": "1 b lower",
    "StringPair": "1 s key; 2 s value",
    "StringMap": "1 *StringPair map",
    "ReplicaGroup": "1 *i64 replica_ids",
    "DeviceList": "1 *ReplicaGroup replica_groups; 2 IotaDeviceList iota_replica_group_list",
    "IotaDeviceList": """1 i64 num_replica_groups; 2 i64 num_devices_per_group;
        3 *i64 iota_reshape_dims; 4 *i32 iota_transpose_perm""",
    "SourceTarget": "1 i64 source; 2 i64 target",
    "Sharding": """1 i32 type; 3 *i64 tile_assignment_dimensions; 4 *i64 tile_assignment_devices;
        5 *Sharding tuple_shardings; 6 b replicate_on_last_tile_dim; 7 *OpMetadata metadata; 8 *i32
        last_tile_dims;
        9 *i64 iota_reshape_dims; 10 *i32 iota_transpose_perm; 14 NamedSharding named_sharding""",
    "NamedSharding": "2 NamedMesh mesh; 3 *NamedDimension dim_shardings",
    "NamedMesh": "1 *NamedAxis axes",
    "NamedAxis": "1 s name; 2 i64 size",
    "NamedDimension": "1 *AxisRef axes; 2 b is_closed",
    "AxisRef": "1 i64 mesh_axis_index; 2 SubAxis sub_axis",
    "SubAxis": "1 i64 pre_size; 2 i64 size",
    "Tolerance": "1 f64 atol; 2 f64 rtol; 3 i64 ulps",
    "ResultAccuracy": "1 i32 mode; 2 Tolerance tolerance",
    "Literal": """1 y shape; 2 *b preds; 15 y s8s; 3 y u8s; 4 *i32 s32s; 5 *i64 s64s; 6 *u32 u32s;
        7 *u64 u64s;
        8 *f32 f32s; 9 *f64 f64s; 16 y u16s; 17 y s16s; 11 y f16s; 13 y bf16s""",
    "Payload": "1 ?y value; 2 ?i64 id",
    # A literal may be large: its bytes are kept, and read where it is small.
    "Instruction": """1 s name; 2 s opcode; 3 Shape shape; 7 OpMetadata metadata; 8 y literal;
        9 i64 parameter_number; 11 s fusion_kind; 13 i64 tuple_index; 14 *i64 dimensions;
        15 Window window; 16 Convolution convolution_dimension_numbers; 17 *SliceDimension
        slice_dimensions; 18 i32 exponent_bits; 19 i32 mantissa_bits; 20 *i64 dynamic_slice_sizes;
        21 Padding padding_config; 23 i32 distribution; 24 f32 epsilon; 25 i64 feature_index;
        26 i64 channel_id; 28 s custom_call_target; 29 Shape outfeed_shape;
        30 Dot dot_dimension_numbers; 31 i32 fft_type; 32 *i64 fft_length;
        33 Gather gather_dimension_numbers; 34 *i64 gather_slice_sizes; 35 i64 id;
        36 *i64 operand_ids; 37 *i64 control_predecessor_ids; 38 *i64 called_computation_ids;
        40 Sharding sharding; 43 y backend_config; 47 b is_host_transfer;
        48 Scatter scatter_dimension_numbers; 49 *ReplicaGroup replica_groups;
        50 i64 feature_group_count; 51 Precision precision_config;
        52 *SourceTarget source_target_pairs; 56 b constrain_layout;
        57 *Shape operand_shapes_with_layout; 58 i64 batch_group_count;
        59 TriangularSolve triangular_solve_options; 60 b is_stable; 62 Cholesky cholesky_options;
        63 s comparison_direction; 65 b custom_call_has_side_effect; 66 i64 delta;
        67 b indices_are_sorted; 68 StringMap frontend_attributes; 69 b unique_indices;
        70 i32 rng_algorithm; 71 b use_global_device_ids; 72 s comparison_type;
        74 *OutputAliasing output_operand_aliasing; 75 i32 padding_type;
        76 i32 custom_call_schedule; 77 i32 custom_call_api_version; 79 s async_execution_thread;
        80 ?i32 cross_program_prefetch_index; 81 i64 k; 85 b largest;
        87 DeviceList collective_device_list; 89 b is_composite; 91 ResultAccuracy result_accuracy;
        92 IotaDeviceList iota_collective_device_list; 94 b is_reverse; 95 i64 num_carries;
        96 i32 is_associative; 99 Payload backend_config_payload; 100 b has_dynamic_root;
        102 s comparison_order""",
    # What links instructions to each other; the rest is kept as it is.
    "InstructionHead": """1 s name; 2 s opcode; 3 y shape; 8 y literal; 9 i64 parameter_number;
        13 i64 tuple_index; 35 i64 id; 36 *i64 operand_ids; 37 *i64 control_predecessor_ids;
        38 *i64 called_computation_ids""",
    "ComputationHead": """1 s name; 2 *y instructions; 4 y program_shape; 5 i64 id; 6 i64 root_id;
        7 b is_fusion_computation; 8 s execution_thread""",
    "Computation": """1 s name; 2 *Instruction instructions; 4 ProgramShape program_shape; 5 i64 id;
        6 i64 root_id; 7 b is_fusion_computation; 8 s execution_thread""",
    "Sequence": "1 *i64 instruction_ids",
    "SequenceEntry": "1 i64 key; 2 Sequence value",
    "Schedule": "1 *SequenceEntry sequences",
    "AliasEntry": """1 *i64 output_shape_index; 2 i64 parameter_number;
        3 *i64 parameter_shape_index; 4 i32 kind""",
    "InputOutputAlias": "1 *AliasEntry entries",
    "DonorEntry": "1 i64 parameter_number; 2 *i64 parameter_shape_index",
    "BufferDonor": "1 *DonorEntry entries",
    "FileLocation": """1 i32 file_name_id; 2 i32 function_name_id; 3 i32 line; 4 i32 column;
        5 i32 end_line; 6 i32 end_column""",
    "StackFrame": "1 i32 file_location_id; 2 i32 parent_frame_id",
    "StackFrameIndex": """1 *s file_names; 2 *s function_names; 3 *FileLocation file_locations;
        4 *StackFrame stack_frames""",
    "DeviceAssignment": "1 i32 replica_count; 2 i32 computation_count",
    "Module": """1 s name; 2 s entry_computation_name; 3 *Computation computations;
        4 ProgramShape host_program_shape; 5 i64 id; 6 i64 entry_computation_id;
        7 Schedule schedule; 8 InputOutputAlias input_output_alias;
        15 DeviceAssignment device_assignment; 17 StackFrameIndex stack_frame_index;
        18 BufferDonor buffer_donor; 19 StringMap frontend_attributes; 22 *y payloads""",
    "ProgramShapeHead": "1 *y parameters; 2 y result",
    "ModuleHead": """1 s name; 2 s entry_computation_name; 3 *ComputationHead computations;
        4 ProgramShapeHead host_program_shape; 5 i64 id; 6 i64 entry_computation_id;
        7 Schedule schedule; 8 InputOutputAlias input_output_alias;
        15 DeviceAssignment device_assignment; 17 StackFrameIndex stack_frame_index;
        18 BufferDonor buffer_donor; 19 StringMap frontend_attributes; 22 *y payloads""",
    "ModuleParts": "1 s name; 3 *y computations",
    # What tells a line, and nothing else.
    "MetadataLine": "3 s source_file; 15 i32 stack_frame_id",
    "InstructionLine": "7 MetadataLine metadata",
    "ComputationLines": "2 *InstructionLine instructions",
    "ModuleLines": "3 *ComputationLines computations",
    "Location": """1 s computation_name; 2 s instruction_name; 3 *i64 shape_index;
        4 i64 instruction_id""",
    "LogicalBuffer": "1 i64 id; 2 i64 size; 3 Location defined_at; 4 i64 color",
    "Assigned": "1 i64 logical_buffer_id; 2 i64 offset; 3 i64 size; 4 i32 element_type",
    "Allocation": """1 i64 index; 2 i64 size; 3 b is_thread_local;
        5 b is_entry_computation_parameter; 6 i64 parameter_number; 7 b maybe_live_out;
        8 i64 color; 9 *Assigned assigned; 10 *i64 parameter_shape_index; 11 b is_tuple;
        12 b is_constant; 13 b is_parameter_aliased_with_output""",
    "Event": """1 i32 kind; 2 i64 buffer_id; 3 s computation_name; 4 s instruction_name;
        5 i64 share_with_canonical_id""",
    "Trace": "1 *Event events; 2 b whole_module_simulation; 3 i64 buffer_allocation_index",
    "BufferAlias": "1 i64 source_buffer_id; 2 Location location",
    "Peak": "1 i64 index; 2 *i64 logical_buffer_ids",
    "BufferAssignment": """1 *LogicalBuffer logical_buffers; 2 *BufferAlias buffer_aliases;
        3 *Allocation buffer_allocations; 4 *Trace heap_simulator_traces; 5 *Peak peak_buffers""",
    "HloProto": "1 Module hlo_module; 3 BufferAssignment buffer_assignment",
    "HloSnapshot": "1 HloProto hlo",
    # A profile (`tsl/profiler/protobuf/xplane.proto`); texts as bytes, which need not be UTF-8.
    "ProfileName": "1 i64 id; 2 y name",
    "ProfileNameEntry": "1 i64 key; 2 ProfileName value",
    "ProfileStat": """1 i64 metadata_id; 2 ?f64 double_value; 3 ?u64 uint64_value;
        4 ?i64 int64_value; 5 ?y str_value; 7 ?u64 ref_value""",
    "ProfileEvent": "1 i64 metadata_id; 2 i64 offset_ps; 3 i64 duration_ps; 4 *ProfileStat stats",
    "ProfileLine": "1 i64 id; 2 y name; 3 i64 timestamp_ns; 4 *ProfileEvent events",
    "ProfilePlane": """2 y name; 3 *y lines; 4 *ProfileNameEntry event_names;
        5 *ProfileNameEntry stat_names; 6 *ProfileStat stats""",
    # A device memory profile (`google/pprof`, proto/profile.proto).
    "PprofType": "1 i64 type; 2 i64 unit",
    "PprofLabel": "1 i64 key; 2 i64 str; 3 i64 num",
    "PprofSample": "1 *u64 location_id; 2 *i64 value; 3 *PprofLabel label",
    "PprofLine": "1 u64 function_id; 2 i64 line",
    "PprofLocation": "1 u64 id; 2 u64 mapping_id; 4 *PprofLine line",
    "PprofFunction": "1 u64 id; 2 i64 name; 3 i64 system_name; 4 i64 filename; 5 i64 start_line",
    "Pprof": """1 *PprofType sample_type; 2 *PprofSample sample; 4 *PprofLocation location;
        5 *PprofFunction function; 6 *y string_table; 9 i64 time_nanos;
        14 i64 default_sample_type""",
}


@cache
def message_types() -> Mapping[str, Any]:
    """The message classes by name, made when first asked for."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "i64": kinds.TYPE_INT64,
        "i32": kinds.TYPE_INT32,
        "u32": kinds.TYPE_UINT32,
        "u64": kinds.TYPE_UINT64,
        "f32": kinds.TYPE_FLOAT,
        "f64": kinds.TYPE_DOUBLE,
        "b": kinds.TYPE_BOOL,
        "s": kinds.TYPE_STRING,
        "y": kinds.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="hlomem/xla.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for line in fields.split(";"):
            number, kind, field_name = line.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            if kind.startswith("?"):  # whether it is set can be asked
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"optional_{field_name}")
            kind = kind.lstrip("*?")
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


@cache
def parser_of(name: str) -> Callable[[bytes], Any]:
    """A function from bytes to a message of that name; `InputError` if they are not one."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    decode = message_types()[name].FromString

    def parse(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            raise InputError(f"not a message {name}: {error}") from error

    return parse


def parse_message(name: str, data: bytes) -> Any:
    """A message of that name; `InputError` if the bytes are not one."""
    return parser_of(name)(data)
