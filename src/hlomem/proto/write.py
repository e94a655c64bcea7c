"""A plan of ours → an HloProto: the program it was read from, and our BufferAssignmentProto.

In: the stages of a plan whose program was read from a proto. Out: bytes that XLA's own classes
read. The program is written as it was read, fields nobody here knows included. Mirrors
`BufferAssignment::ToProto` and `BufferAllocation::ToProto` of `service/buffer_assignment.cc`.
Traces of the heap simulator and lists of peak buffers are not written: they are XLA's own
account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.proto.names import ELEMENT_TYPES
from hlomem.proto.schema import message_types
from hlomem.proto.wire import BYTES, encode_varint

if TYPE_CHECKING:
    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.hlo.ir import Creation
    from hlomem.pipeline import Stages

_PROGRAM, _PLAN = 1, 3
"""The fields of an HloProto."""
_NUMBER_OF_TYPE = {kind: number for number, kind in ELEMENT_TYPES.items()}


def encode_plan(stages: Stages) -> bytes:
    """The HloProto of a plan."""
    creation = stages.module.creation
    if creation is None:
        problem = "its program was read from text, which does not say all that a proto says"
        where = visible(stages.module.source_name)
        raise CommandError(f"{where}: {problem}: plan the .hlo.pb of the same compile")
    plan = message_types()["BufferAssignment"]()
    _fill(plan, stages, creation)
    encoded: bytes = plan.SerializeToString(deterministic=True)
    return b"".join([*_field(_PROGRAM, creation.encoded), *_field(_PLAN, encoded)])


def _field(number: int, data: bytes) -> tuple[bytes, bytes, bytes]:
    """A message as a field of another."""
    return encode_varint(number << 3 | BYTES), encode_varint(len(data)), data


def _fill(proto: Any, stages: Stages, creation: Creation) -> None:
    """The message of a plan: buffers by id, then what lies with them, then allocations."""
    placed = {
        value: place
        for allocation in stages.assignment.allocations
        for value, place in allocation.slices.items()
    }
    for value in sorted(placed, key=lambda value: value.id):
        buffer = proto.logical_buffers.add(id=value.id, size=placed[value].size)
        buffer.color = stages.colors[value]
        _locate(buffer.defined_at, value, creation)
        for other in stages.aliasing.buffer_of[value].values:
            if other is not value:
                alias = proto.buffer_aliases.add(source_buffer_id=value.id)
                _locate(alias.location, other, creation)
    for allocation in stages.assignment.allocations:
        _fill_allocation(proto.buffer_allocations.add(), allocation)


def _locate(proto: Any, value: HloValue, creation: Creation) -> None:
    proto.instruction_id = creation.instructions[value.instruction]
    proto.shape_index.extend(value.index)


def _fill_allocation(proto: Any, allocation: BufferAllocation) -> None:
    proto.index = allocation.index
    proto.size = allocation.size
    proto.is_thread_local = allocation.is_thread_local
    proto.is_tuple = allocation.is_tuple
    proto.color = allocation.color
    proto.is_constant = allocation.is_constant
    proto.maybe_live_out = allocation.maybe_live_out
    if allocation.parameter is not None:
        number, index, is_aliased = allocation.parameter
        proto.is_entry_computation_parameter = True
        proto.parameter_number = number
        proto.parameter_shape_index.extend(index)
        proto.is_parameter_aliased_with_output = is_aliased
    for value in sorted(allocation.slices, key=lambda value: value.id):
        offset, size = allocation.slices[value]
        place = proto.assigned.add(logical_buffer_id=value.id, offset=offset, size=size)
        place.element_type = _NUMBER_OF_TYPE[value.shape.element_type]
