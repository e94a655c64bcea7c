"""A module as XLA hands it over: its text, and the same bytes with another schedule.

In: a serialized `HloModuleProto`. Out: its text (printed by jaxlib), or the bytes with orders
written into the field `schedule`; fields that `hlomem.proto.schema` does not name are kept.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlomem.proto.schema import parse_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def text_of(proto: bytes) -> str:
    """The text of a module, as XLA prints it."""
    module = import_module("jaxlib._hlo").HloModule
    return str(module.from_serialized_hlo_module_proto(proto).to_string())


def with_schedule(proto: bytes, orders: Mapping[str, Sequence[str]]) -> bytes:
    """The module in other orders: names of instructions by the name of their computation.

    Raises `KeyError` for a name the module does not have, `ValueError` where an order is not one of
    all instructions of a computation that has one.
    """
    module = parse_message("Module", proto)
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
