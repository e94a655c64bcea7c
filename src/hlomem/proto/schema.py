"""XLA's messages, as far as memory is concerned: a schema of our own, made when first used.

In: bytes. Out: messages of protobuf's runtime. Names and numbers are those of `xla/service/hlo.proto`
(HloProto, HloModuleProto, BufferAssignmentProto, …), `xla/xla_data.proto` (ShapeProto, LayoutProto,
OpMetadata, …) and `tsl/profiler/protobuf/xplane.proto` (XSpace). A field that is not here is kept by
the runtime among a message's unknown fields, so that writing a message back loses nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE = "hlomem.xla"

# number, kind (`*` repeated), name; a kind is a scalar or another message.
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
        15 i32 stack_frame_id; 16 s scheduling_name""",
    "OutputAliasing": "1 *i64 output_shape_index; 2 i64 operand_index; 3 *i64 operand_shape_index",
    "Instruction": """1 s name; 2 s opcode; 3 Shape shape; 7 OpMetadata metadata;
        9 i64 parameter_number; 11 s fusion_kind; 13 i64 tuple_index; 14 *i64 dimensions;
        28 s custom_call_target; 35 i64 id; 36 *i64 operand_ids; 37 *i64 control_predecessor_ids;
        38 *i64 called_computation_ids; 43 y backend_config;
        74 *OutputAliasing output_operand_aliasing; 79 s async_execution_thread""",
    "Computation": """1 s name; 2 *Instruction instructions; 4 ProgramShape program_shape; 5 i64 id;
        6 i64 root_id; 7 b is_fusion_computation; 8 s execution_thread""",
    "Sequence": "1 *i64 instruction_ids",
    "SequenceEntry": "1 i64 key; 2 Sequence value",
    "Schedule": "1 *SequenceEntry sequences",
    "AliasEntry": """1 *i64 output_shape_index; 2 i64 parameter_number; 3 *i64 parameter_shape_index;
        4 i32 kind""",
    "InputOutputAlias": "1 *AliasEntry entries",
    "DonorEntry": "1 i64 parameter_number; 2 *i64 parameter_shape_index",
    "BufferDonor": "1 *DonorEntry entries",
    "FileLocation": """1 i32 file_name_id; 2 i32 function_name_id; 3 i32 line; 4 i32 column;
        5 i32 end_line; 6 i32 end_column""",
    "StackFrame": "1 i32 file_location_id; 2 i32 parent_frame_id",
    "StackFrameIndex": """1 *s file_names; 2 *s function_names; 3 *FileLocation file_locations;
        4 *StackFrame stack_frames""",
    "Module": """1 s name; 2 s entry_computation_name; 3 *Computation computations;
        4 ProgramShape host_program_shape; 5 i64 id; 6 i64 entry_computation_id;
        7 Schedule schedule; 8 InputOutputAlias input_output_alias;
        18 BufferDonor buffer_donor; 17 StackFrameIndex stack_frame_index""",
    "Location": """1 s computation_name; 2 s instruction_name; 3 *i64 shape_index;
        4 i64 instruction_id""",
    "LogicalBuffer": "1 i64 id; 2 i64 size; 3 Location defined_at; 4 i64 color",
    "Assigned": "1 i64 logical_buffer_id; 2 i64 offset; 3 i64 size",
    "Allocation": """1 i64 index; 2 i64 size; 3 b is_thread_local; 5 b is_entry_computation_parameter;
        6 i64 parameter_number; 7 b maybe_live_out; 8 i64 color; 9 *Assigned assigned;
        10 *i64 parameter_shape_index; 11 b is_tuple; 12 b is_constant;
        13 b is_parameter_aliased_with_output""",
    "Event": """1 i32 kind; 2 i64 buffer_id; 3 s computation_name; 4 s instruction_name;
        5 i64 share_with_canonical_id""",
    "Trace": "1 *Event events; 2 b whole_module_simulation; 3 i64 buffer_allocation_index",
    "BufferAlias": "1 i64 source_buffer_id; 2 Location location",
    "Peak": "1 i64 index; 2 *i64 logical_buffer_ids",
    "BufferAssignment": """1 *LogicalBuffer logical_buffers; 2 *BufferAlias buffer_aliases;
        3 *Allocation buffer_allocations; 4 *Trace heap_simulator_traces; 5 *Peak peak_buffers""",
    "HloProto": "1 Module hlo_module; 3 BufferAssignment buffer_assignment",
    "HloSnapshot": "1 HloProto hlo",
    "XStat": "1 i64 metadata_id; 3 u64 uint64_value; 5 s str_value; 6 y bytes_value",
    "XEventMetadata": "1 i64 id; 2 s name; 4 s display_name; 5 *XStat stats",
    "XEventMetadataEntry": "1 i64 key; 2 XEventMetadata value",
    "XStatMetadata": "1 i64 id; 2 s name",
    "XStatMetadataEntry": "1 i64 key; 2 XStatMetadata value",
    "XPlane": """2 s name; 4 *XEventMetadataEntry event_metadata;
        5 *XStatMetadataEntry stat_metadata; 6 *XStat stats""",
    "XSpace": "1 *XPlane planes",
}


@cache
def message_types() -> Mapping[str, Any]:
    """The message classes by name, made when first asked for."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "i64": kinds.TYPE_INT64,
        "i32": kinds.TYPE_INT32,
        "u64": kinds.TYPE_UINT64,
        "b": kinds.TYPE_BOOL,
        "s": kinds.TYPE_STRING,
        "y": kinds.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="hlomem/xla.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for line in fields.split(";"):
            number, kind, field_name = line.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.removeprefix("*")
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


def parse_message(name: str, data: bytes) -> Any:
    """A message of that name; `InputError` where the bytes are none."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    message = message_types()[name]()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InputError(f"not a message {name}: {error}") from error
    return message
