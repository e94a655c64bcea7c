"""A module as XLA hands it over: its text, and the same bytes with another schedule.

In: a serialized `HloModuleProto`. Out: its text (printed by jaxlib), or the bytes with orders
written into the field `schedule`. The few messages and fields this needs are named here, with the
numbers they have in `xla/service/hlo.proto`; all others are kept as they are.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE = "hlomem.jax"
# number, kind (`*` repeated), name; a kind is a scalar or another message.
_FIELDS = {
    "Instruction": "1 string name; 35 int64 id",
    "Computation": "1 string name; 2 *Instruction instructions; 5 int64 id",
    "Sequence": "1 *int64 instruction_ids",
    "SequenceEntry": "1 int64 key; 2 Sequence value",
    "Schedule": "1 *SequenceEntry sequences",
    "Module": "1 string name; 3 *Computation computations; 7 Schedule schedule",
}


def text_of(proto: bytes) -> str:
    """The text of a module, as XLA prints it."""
    module = import_module("jaxlib._hlo").HloModule
    return str(module.from_serialized_hlo_module_proto(proto).to_string())


def name_of(proto: bytes) -> str:
    """The name of a module."""
    module = _module_type()()
    module.ParseFromString(proto)
    return str(module.name)


def with_schedule(proto: bytes, orders: Mapping[str, Sequence[str]]) -> bytes:
    """The module in other orders: names of instructions by the name of their computation.

    Raises `KeyError` for a name the module does not have, `ValueError` where an order is not one of
    all instructions of a computation that has one.
    """
    module = _module_type()()
    module.ParseFromString(proto)
    computation_of = {computation.name: computation for computation in module.computations}
    sequence_of = {entry.key: entry.value for entry in module.schedule.sequences}
    for name, order in orders.items():
        computation = computation_of[name]
        number_of = {instruction.name: instruction.id for instruction in computation.instructions}
        numbers = [number_of[instruction] for instruction in order]
        sequence = sequence_of[computation.id]
        if sorted(numbers) != sorted(sequence.instruction_ids):
            raise ValueError(f"the order of {name} is not one of its instructions")
        sequence.instruction_ids[:] = numbers
    return bytes(module.SerializeToString())


@cache
def _module_type() -> Any:
    """The class of modules, made when first asked for."""
    descriptors: Any = import_module("google.protobuf.descriptor_pb2")
    kinds = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(
        name="hlomem/jax.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for line in fields.split("; "):
            number, kind, field_name = line.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.removeprefix("*")
            if kind in _FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file)
    factory: Any = import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Module"))
