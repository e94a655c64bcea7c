"""An edited program as the HloModuleProto it was read from, with the same edits.

Messages that no edit touched are kept byte for byte, with fields that the schema does not name. New
computations and instructions get new ids, and operands precede their users.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError
from hlomem.hlo.opcodes import ASYNC_OPCODES, CALL_ATTRIBUTE_NAMES
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.text.attributes import parse_integers, parse_operand_aliasing, parse_string
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.proto.body import BodyLinks, EncodedAttributes, called_ids
from hlomem.proto.literal import encode_scalar
from hlomem.proto.schema import message_types, parse_message, parser_of
from hlomem.proto.shape import fill_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule, Origins

_ID_BITS = 32
"""An instruction's id has that of its computation above these bits."""
_LINKS = frozenset({*CALL_ATTRIBUTE_NAMES, CONTROL_PREDECESSORS})
"""Attributes that name what fields of their own link."""
_RANGE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")


def _read_config(text: str) -> bytes:
    """JSON stands as it is, anything else in quotes."""
    return (text if text.startswith("{") else parse_string(text)).encode("utf-8", "surrogateescape")


def _read_ranges(text: str) -> list[dict[str, int]]:
    return [
        {"start": int(start), "limit": int(limit), "stride": int(stride or 1)}
        for start, limit, stride in _RANGE.findall(text)
    ]


_FIELDS: Mapping[str, tuple[tuple[str, ...], Callable[[str], Any] | None]] = {
    "backend_config": (("backend_config", "backend_config_payload"), _read_config),
    "custom_call_target": (("custom_call_target",), parse_string),
    "dimensions": (("dimensions",), parse_integers),
    "direction": (("comparison_direction",), str),
    "dynamic_slice_sizes": (("dynamic_slice_sizes",), parse_integers),
    "index": (("tuple_index",), int),
    "iota_dimension": (("dimensions",), lambda text: [int(text)]),
    "kind": (("fusion_kind",), str),
    "metadata": (("metadata",), None),
    "output_to_operand_aliasing": (("output_operand_aliasing",), parse_operand_aliasing),
    "slice": (("slice_dimensions",), _read_ranges),
    "slice_sizes": (("gather_slice_sizes",), parse_integers),
}
"""The fields of attributes that edits change, and how a text is read; None where they only go."""


def name_of(encoded: bytes) -> str:
    return str(parse_message("ModuleParts", encoded).name)


def with_number(encoded: bytes, number: int) -> tuple[int, bytes]:
    """The number a module has in its process, and the module with another."""
    message = parse_message("ModuleHead", encoded)
    known = int(message.id)
    message.id = number
    return known, bytes(message.SerializeToString())


def write_orders(
    module: HloModule, orders: Mapping[HloComputation, Sequence[HloInstruction]]
) -> bytes:
    """The message of a module in other orders, each of all instructions of a computation."""
    if module.creation is None:
        rewriter = Rewriter(module)
        rewriter.schedule(orders)
        return write_module(rewriter.finish())
    message = parse_message("ModuleHead", module.creation.encoded)
    number_of = module.creation.instructions
    sequence_of = {entry.key: entry.value for entry in message.schedule.sequences}
    for computation, order in orders.items():
        sequence = sequence_of.get(module.creation.computations[computation])
        numbers = [number_of.get(instruction, -1) for instruction in order]
        if sequence is None or sorted(numbers) != sorted(sequence.instruction_ids):
            raise EditError(f"the order of `{computation.name}` is not one of its instructions")
        sequence.instruction_ids[:] = numbers
    return bytes(message.SerializeToString())


def write_module(module: HloModule) -> bytes:
    """The message of an edited module; `EditError` where an edit cannot be written there."""
    if module.creation is not None:
        return module.creation.encoded
    if module.origins is None:
        raise EditError(f"module `{module.name}` was not read from a message")
    return _Writer(module, module.origins).run()


class _Writer:
    def __init__(self, module: HloModule, origins: Origins) -> None:
        self._module = module
        self._origins = origins
        self._message = parse_message("ModuleHead", origins.encoded)
        self._links = BodyLinks(module.source_name)
        self._links.payloads = self._message.payloads
        self._head_of = {head.id: head for head in self._message.computations}
        self._known: dict[int, dict[str, tuple[int, bytes]]] = {}
        """By computation of the given message its instructions' ids and messages, by name."""
        self._id_of = dict(origins.computations)
        new = [one for one in module.computations if one not in self._id_of]
        fresh = max(self._head_of, default=0) + 1
        self._id_of.update({one: fresh + place for place, one in enumerate(new)})
        self._number_of: dict[HloInstruction, int] = {}

    def run(self) -> bytes:
        given, header = self._origins.header, self._module.attributes
        for name in (*header, *given):
            if given.get(name) != header.get(name):
                raise EditError(f"`{name}` of the header was changed, which no message can follow")
        heads = [self._computation(one) for one in self._module.computations]
        del self._message.computations[:]
        self._message.computations.extend(heads)
        if self._message.HasField("schedule"):
            self._write_schedule()
        return bytes(self._message.SerializeToString())

    def _write_schedule(self) -> None:
        """Sequences of all computations that had one, and of new ones that no fusion calls."""
        sequences = self._message.schedule.sequences
        given = {entry.key: list(entry.value.instruction_ids) for entry in sequences}
        del sequences[:]
        for computation in self._module.computations:
            number = self._id_of[computation]
            order = given.get(number)
            is_new = computation not in self._origins.computations and not computation.is_fused
            if computation.reader is None and (order is not None or is_new):
                order = [self._number_of[one] for one in computation.instructions]
            if order is not None:
                sequences.add(key=number).value.instruction_ids[:] = order

    # Computations.

    def _computation(self, computation: HloComputation) -> Any:
        number = self._id_of[computation]
        given = self._head_of.get(number)
        if computation.reader is not None:
            return given
        head = message_types()["ComputationHead"]()
        if given is not None:
            head.CopyFrom(given)
        head.name, head.id = computation.name, number
        head.execution_thread = computation.execution_thread
        head.is_fusion_computation = computation.is_fused
        self._write_program_shape(head, computation)
        self._number(computation, number)
        head.instructions[:] = [self._instruction(one) for one in computation.instructions]
        head.root_id = self._number_of[computation.root]
        return head

    def _write_program_shape(self, head: Any, computation: HloComputation) -> None:
        parameters = computation.parameters
        shapes = [*(one.shape for one in parameters), computation.root.shape]
        if head.program_shape:
            given = parse_message("ProgramShapeHead", head.program_shape)
            known = [self._links.shapes[data] for data in (*given.parameters, given.result)]
            if known == shapes:
                return
        made = message_types()["ProgramShape"]()
        for parameter in parameters:
            fill_shape(made.parameters.add(), parameter.shape)
            made.parameter_names.append(parameter.name)
        fill_shape(made.result, shapes[-1])
        head.program_shape = made.SerializeToString()

    def _number(self, computation: HloComputation, number: int) -> None:
        """Let instructions keep their ids, and new ones follow."""
        known = self._messages(number) if number in self._head_of else {}
        ids = [own for own, _ in known.values()]
        fresh = max(ids, default=(number << _ID_BITS) - 1) + 1
        for instruction in computation.instructions:
            own, _ = known.get(instruction.name, (fresh, b""))
            self._number_of[instruction] = own
            fresh += own == fresh

    def _messages(self, number: int) -> dict[str, tuple[int, bytes]]:
        if number not in self._known:
            heads = map(parser_of("InstructionHead"), self._head_of[number].instructions)
            pairs = zip(heads, self._head_of[number].instructions, strict=True)
            self._known[number] = {head.name: (head.id, data) for head, data in pairs}
        return self._known[number]

    # Instructions.

    def _instruction(self, instruction: HloInstruction) -> bytes:
        """The message of an instruction: as it was, changed, or new."""
        origin = self._origins.instructions.get(instruction)
        data = b"" if origin is None else self._messages(origin[0])[origin[1]][1]
        head = parser_of("InstructionHead")(data)
        if head.opcode != instruction.opcode:  # it is something else now
            data = b""
            head.Clear()
        fields = {
            name: now
            for name, now in self._links_of(instruction, head).items()
            if getattr(head, name) != now
        }
        texts = self._changed_texts(instruction, data)
        has_shape = bool(data) and self._links.shapes[head.shape] == instruction.shape
        if has_shape and not fields and not texts:
            return data
        message = parse_message("Instruction", data)
        message.opcode = instruction.opcode
        for name, now in fields.items():
            _set(message, name, now)
        if not has_shape:
            message.shape.Clear()
            fill_shape(message.shape, instruction.shape)
        if not data and instruction.opcode == "constant":
            message.literal = encode_scalar(instruction.payload, instruction.shape)
        for name, text in texts.items():
            _write_attribute(message, name, text, instruction)
        return bytes(message.SerializeToString())

    def _links_of(self, instruction: HloInstruction, head: Any) -> dict[str, Any]:
        links: dict[str, Any] = {
            "name": instruction.name,
            "id": self._number_of[instruction],
            "operand_ids": [self._number_of[one] for one in instruction.operands],
            "control_predecessor_ids": [
                self._number_of[one] for one in instruction.control_predecessors
            ],
            "called_computation_ids": [self._id_of[one] for one in instruction.called_computations],
        }
        if instruction.opcode == "parameter":
            links["parameter_number"] = instruction.parameter_number
        if instruction.opcode in ASYNC_OPCODES and not called_ids(head):
            del links["called_computation_ids"]  # its start says what it calls
        return links

    def _changed_texts(self, instruction: HloInstruction, data: bytes) -> dict[str, str | None]:
        """The attributes that a message says otherwise; None for those that are gone."""
        now = instruction.attributes
        then: Mapping[str, str] = {}
        if data:
            tuple_index = parser_of("InstructionHead")(data).tuple_index
            then = EncodedAttributes(data, tuple_index, self._links).read(instruction)
        return {
            name: now.get(name)
            for name in {**then, **now}
            if then.get(name) != now.get(name) and name not in _LINKS
        }


def _set(message: Any, name: str, value: Any) -> None:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for part in value:
            getattr(message, name).add(**part)
    elif isinstance(value, list | tuple):
        getattr(message, name)[:] = value
    else:
        setattr(message, name, value)


def _write_attribute(
    message: Any, name: str, text: str | None, instruction: HloInstruction
) -> None:
    fields, read = _FIELDS.get(name, ((), None))
    if not fields or (text is not None and read is None):
        raise EditError(
            f"`{name}` of `{instruction.name}` was changed, which no message can follow"
        )
    for field in fields:
        message.ClearField(field)
    if text is None or read is None:
        return
    if name == "output_to_operand_aliasing":
        for output, operand, inside in read(text):
            alias = message.output_operand_aliasing.add(operand_index=operand)
            alias.output_shape_index[:], alias.operand_shape_index[:] = output, inside
    else:
        _set(message, fields[0], read(text))
