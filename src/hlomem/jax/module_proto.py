"""A module as XLA hands it over: its text, and the same bytes with another schedule.

In: a serialized `HloModuleProto`. Out: its text (printed by jaxlib), or the bytes with orders
written into the field `schedule`. The few messages and fields this needs are named here, with the
numbers they have in `xla/service/hlo.proto`; all others are kept as they are.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.text.printer import format_module
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.opt.orders.search import Orders
    from hlomem.opt.remat.edit import Edit

_PACKAGE = "hlomem.jax"
_FUSION = "fusion"
_CONSTANT = "constant"
_ELIDED = lazy_pattern(
    r"^\s*(?:ROOT )?%([\w.\-]+) = [^\n]{1,4096}? constant\(\{\.\.\.\}\)", re.MULTILINE
)
_OF_CLONE = lazy_pattern(rf"(?:\.{SUFFIX}\d*)+$")
_ID_BITS = 32
"""An instruction's id has that of its computation above these bits."""
# number, kind (`*` repeated), name; a kind is a scalar or another message.
_FIELDS = {
    "Instruction": "1 string name; 2 string opcode; 8 bytes literal; 35 int64 id; "
    "36 *int64 operand_ids; 37 *int64 control_predecessor_ids; 38 *int64 called_computation_ids",
    "Computation": "1 string name; 2 *Instruction instructions; 5 int64 id; 6 int64 root_id",
    "Sequence": "1 *int64 instruction_ids",
    "SequenceEntry": "1 int64 key; 2 Sequence value",
    "Schedule": "1 *SequenceEntry sequences",
    "Module": "1 string name; 2 string entry_computation_name; 3 *Computation computations; "
    "5 int64 id; 6 int64 entry_computation_id; 7 Schedule schedule",
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


def with_number(proto: bytes, number: int) -> tuple[int, bytes]:
    """The number a module has in its process, and the module with another."""
    module = _module_type()()
    module.ParseFromString(proto)
    known = int(module.id)
    module.id = number
    return known, bytes(module.SerializeToString())


def with_schedule(proto: bytes, orders: Mapping[str, Sequence[str]]) -> bytes:
    """The module in other orders: names of instructions by the name of their computation.

    Raises `KeyError` for a name the module does not have, `ValueError` where an order is not one of
    all instructions of a computation that has one.
    """
    module = _module_type()()
    module.ParseFromString(proto)
    _set_orders(module, orders)
    return bytes(module.SerializeToString())


def with_orders(proto: bytes, orders: Orders) -> bytes:
    """The same, the orders given by the instructions themselves."""
    return with_schedule(
        proto,
        {
            computation.name: [instruction.name for instruction in order]
            for computation, order in orders.items()
        },
    )


def with_edit(proto: bytes, edit: Edit) -> bytes:
    """The module with instructions of its entry computed again, and in other orders.

    A clone is a copy of its original's message with a name, an id and operands of its own; bodies
    of fusions are copied for it, what they apply is shared. Raises as `with_schedule` does.
    """
    module = _module_type()()
    module.ParseFromString(proto)
    _Editor(module).run(edit)
    _set_orders(module, edit.orders)
    return bytes(module.SerializeToString())


def with_text(proto: bytes, text: str) -> bytes:
    """The module with the computations of another text, whose constants may be left out.

    All else stays as it is. A constant of which the text has no numbers takes those of the constant
    of its name; `ValueError` where there is none.
    """
    module, read = _module_type()(), _module_type()()
    module.ParseFromString(proto)
    parsed = import_module("jaxlib._hlo").hlo_module_from_text(text)
    read.ParseFromString(bytes(parsed.as_serialized_hlo_module_proto()))
    literal_of = {
        part.name: part.literal
        for computation in module.computations
        for part in computation.instructions
        if part.opcode == _CONSTANT
    }
    elided = set(_ELIDED.findall(text))
    for computation in read.computations:
        for part in computation.instructions:
            if part.opcode == _CONSTANT and part.name in elided:
                name = part.name if part.name in literal_of else _OF_CLONE.sub("", part.name)
                if name not in literal_of:
                    raise ValueError(f"the numbers of {part.name} are not known")
                part.literal = literal_of[name]
    del module.computations[:]
    module.computations.extend(read.computations)
    module.schedule.CopyFrom(read.schedule)
    module.entry_computation_id = read.entry_computation_id
    module.entry_computation_name = read.entry_computation_name
    return bytes(module.SerializeToString())


def with_module(proto: bytes, module: HloModule) -> bytes:
    """The same of an edited module."""
    return with_text(proto, format_module(module))


class _Editor:
    """An edit on its way into a message."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._computation_of = {one.id: one for one in module.computations}
        self._names = {one.name for one in module.computations}
        self._names.update(part.name for one in module.computations for part in one.instructions)
        self._next = max(self._computation_of, default=0) + 1
        self._bodies: list[Any] = []

    def run(self, edit: Edit) -> None:
        """Add the clones, let readers read them, put new bodies before what calls them."""
        [entry] = [one for one in self._module.computations if one.name == edit.entry]
        message_of = {part.name: part for part in entry.instructions}
        number_of = {part.name: part.id for part in entry.instructions}
        fresh = max(number_of.values()) + 1
        for clone in edit.clones:
            if clone.name in self._names:
                raise ValueError(f"the name {clone.name} is taken")
            made = type(message_of[clone.original])()
            made.CopyFrom(message_of[clone.original])
            made.name, made.id = clone.name, fresh
            if made.opcode == _FUSION:
                made.called_computation_ids[:] = map(self._copy, made.called_computation_ids)
            number_of[clone.name] = fresh
            made.operand_ids[:] = [number_of[operand] for operand in clone.operands]
            entry.instructions.append(made)
            fresh += 1
        for name, operands in edit.operands.items():
            message_of[name].operand_ids[:] = [number_of[operand] for operand in operands]
        self._sort(entry, edit.orders[entry.name])
        self._extend_sequence(entry, [number_of[clone.name] for clone in edit.clones])
        self._add_bodies(entry)

    def _sort(self, entry: Any, order: Sequence[str]) -> None:
        """XLA reads operands before those that use them: instructions stand in their order."""
        place_of = {name: place for place, name in enumerate(order)}
        entry.instructions.sort(key=lambda part: place_of[part.name])

    def _extend_sequence(self, entry: Any, numbers: Sequence[int]) -> None:
        for known in self._module.schedule.sequences:
            if known.key == entry.id:
                known.value.instruction_ids.extend(numbers)

    def _copy(self, number: int) -> int:
        """The id of a copy of a fusion's body, and of the bodies of fusions in it."""
        body = type(self._computation_of[number])()
        body.CopyFrom(self._computation_of[number])
        body.id, self._next = self._next, self._next + 1
        body.name = self._free_name(body.name)
        id_of = {
            part.id: (body.id << _ID_BITS) + place for place, part in enumerate(body.instructions)
        }
        for part in body.instructions:
            part.name = self._free_name(part.name)
            part.id = id_of[part.id]
            part.operand_ids[:] = [id_of[operand] for operand in part.operand_ids]
            part.control_predecessor_ids[:] = [id_of[one] for one in part.control_predecessor_ids]
            if part.opcode == _FUSION:
                part.called_computation_ids[:] = map(self._copy, part.called_computation_ids)
        body.root_id = id_of[body.root_id]
        self._bodies.append(body)
        return int(body.id)

    def _free_name(self, name: str) -> str:
        number, free = 1, f"{name}.{SUFFIX}"
        while free in self._names:
            number += 1
            free = f"{name}.{SUFFIX}{number}"
        self._names.add(free)
        return free

    def _add_bodies(self, entry: Any) -> None:
        """Computations, each behind those it calls."""
        computations = self._module.computations
        place = next(place for place, one in enumerate(computations) if one.id == entry.id)
        behind = [type(one).FromString(one.SerializeToString()) for one in computations[place:]]
        del computations[place:]
        computations.extend([*self._bodies, *behind])


def _set_orders(module: Any, orders: Mapping[str, Sequence[str]]) -> None:
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
            if label == kinds.LABEL_REPEATED and kind == "int64" and name == "Instruction":
                field.options.packed = True  # as XLA writes them
            if kind in _FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file)
    factory: Any = import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Module"))
