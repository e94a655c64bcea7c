"""A plan of ours as an HloProto: its program and our BufferAssignmentProto.

A program that was read from a proto is written back; jaxlib makes one of a text. Mirrors
`BufferAssignment::ToProto`, without heap traces and lists of peak buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.proto.module import read_module
from hlomem.proto.names import NUMBER_OF_TYPE
from hlomem.proto.schema import message_types
from hlomem.proto.wire import BYTES, encode_varint

if TYPE_CHECKING:
    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.pipeline import Stages

Ids = Mapping["HloInstruction", int]
_INSTEAD = "plan the .hlo.pb of the same compile"
_PROGRAM, _PLAN = 1, 3

_SAME = ("index", "size", "color", "is_thread_local", "is_tuple", "is_constant", "maybe_live_out")
"""Fields of an allocation that its message has, too."""


def encode_plan(stages: Stages) -> bytes:
    stages.check_written()
    encoded, ids = _program_of(stages.module)
    plan = message_types()["BufferAssignment"]()
    placed = {
        value: place
        for allocation in stages.assignment.allocations
        for value, place in allocation.slices.items()
    }
    for value in sorted(placed, key=lambda value: value.id):
        buffer = plan.logical_buffers.add(id=value.id, size=placed[value].size)
        buffer.color = stages.colors[value]
        _locate(buffer.defined_at, value, ids)
        for other in stages.aliasing.buffer_of[value].values:
            if other is not value:
                alias = plan.buffer_aliases.add(source_buffer_id=value.id)
                _locate(alias.location, other, ids)
    for allocation in stages.assignment.allocations:
        _fill_allocation(plan.buffer_allocations.add(), allocation)
    data: bytes = plan.SerializeToString(deterministic=True)
    return b"".join([*_field(_PROGRAM, encoded), *_field(_PLAN, data)])


def _program_of(module: HloModule) -> tuple[bytes, Ids]:
    if module.creation is not None:
        return module.creation.encoded, module.creation.instructions
    encoded = _encode_text(module)
    read = read_module(encoded, module.source_name)
    read.open_all()
    assert read.creation is not None, "it was read from a proto"
    number_of = {
        (instruction.parent.name, instruction.name): number
        for instruction, number in read.creation.instructions.items()
    }
    try:
        ids = {
            instruction: number_of[instruction.parent.name, instruction.name]
            for instruction in module.iter_instructions()
        }
    except KeyError as missing:
        where, name = missing.args[0]
        problem = f"XLA reads it without `{visible(name)}` in `{visible(where)}`"
        raise CommandError(f"{visible(module.source_name)}: {problem}: {_INSTEAD}") from None
    return encoded, ids


def _encode_text(module: HloModule) -> bytes:
    """The proto XLA makes of a program's text: a text does not say all that a proto says."""
    where = visible(module.source_name)
    try:
        from jaxlib import _hlo  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415
    except ImportError as error:
        problem = "its program was read from text, of which jaxlib from 0.10 on makes a proto"
        raise CommandError(
            f"{where}: {problem}: pip install 'hlomem[jax]', or {_INSTEAD}"
        ) from error
    try:
        encoded: bytes = _hlo.hlo_module_from_text(
            module.source.text
        ).as_serialized_hlo_module_proto()
    except Exception as error:  # of a class of its own in every release
        problem = visible(str(error).partition("\n")[0])
        raise CommandError(
            f"{where}: XLA does not read this text: {problem}: {_INSTEAD}"
        ) from error
    return encoded


def _field(number: int, data: bytes) -> tuple[bytes, bytes, bytes]:
    return encode_varint(number << 3 | BYTES), encode_varint(len(data)), data


def _locate(proto: Any, value: HloValue, ids: Ids) -> None:
    proto.instruction_id = ids[value.instruction]
    proto.shape_index.extend(value.index)


def _fill_allocation(proto: Any, allocation: BufferAllocation) -> None:
    for name in _SAME:
        setattr(proto, name, getattr(allocation, name))
    if allocation.parameter is not None:
        number, index, is_aliased = allocation.parameter
        proto.is_entry_computation_parameter = True
        proto.parameter_number = number
        proto.parameter_shape_index.extend(index)
        proto.is_parameter_aliased_with_output = is_aliased
    for value in sorted(allocation.slices, key=lambda value: value.id):
        offset, size = allocation.slices[value]
        place = proto.assigned.add(logical_buffer_id=value.id, offset=offset, size=size)
        place.element_type = NUMBER_OF_TYPE[value.shape.element_type]
