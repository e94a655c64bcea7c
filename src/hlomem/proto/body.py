"""One linked body (`HloComputation::CreateFromProto`); attributes stay bytes until read."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError, InputError
from hlomem.base.source import visible
from hlomem.hlo.builder import (
    check_attribute_texts,
    check_form,
    check_name,
    link_attributes,
    numbered_parameters,
)
from hlomem.hlo.ir import BodyCall, HloComputation, HloInstruction
from hlomem.hlo.opcodes import ASYNC_OPCODES, KNOWN_OPCODES, Opcode, as_opcode, traits_of
from hlomem.hlo.text.style import UNSAID
from hlomem.proto.attributes import generic_attributes
from hlomem.proto.literal import format_literal
from hlomem.proto.opcode_attributes import own_attributes
from hlomem.proto.schema import parser_of
from hlomem.proto.shape import make_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.hlo.shape import Shape


_TAG_OF = {
    "custom_call_has_side_effect": b"\x88\x04",
    "output_to_operand_aliasing": b"\xd2\x04",
}
"""First bytes of the fields of attributes that few instructions have and many are asked for."""


class BodyLinks:
    def __init__(self, where: str) -> None:
        self.where = where
        """The name errors give the file."""
        self.payloads: Sequence[bytes] = ()
        """Configurations of backends, to which instructions refer."""
        self.shapes = _ShapeTable()
        self.by_id: dict[int, HloComputation] = {}
        """The computations of the module that was read; an edited copy has them by name."""
        self.attributes: dict[tuple[bytes, str], dict[str, str]] = {}
        """By message and type of the first operand: what edited copies read again."""

    def callee(self, caller: HloComputation, number: int) -> HloComputation:
        """The computation of an id in the module of a caller, above which it stands."""
        found = self.by_id.get(number)
        if found is not None and found.module is not caller.module:
            found = caller.module.computation_by_name.get(found.name)
        if found is None or found.index >= caller.index:
            problem = f"`{visible(caller.name)}` calls computation {number}"
            raise InputError(f"{problem}, which is not above it")
        return found

    def body_call(self, caller: HloComputation, proto: Any, data: bytes) -> BodyCall:
        opcode = _OPCODES[proto.opcode]
        called = tuple([self.callee(caller, number) for number in called_ids(proto)])
        shape = self.shapes[proto.shape]
        attributes = EncodedAttributes(data, proto.tuple_index, self)
        alone = HloInstruction(proto.name, shape, opcode, (), "", attributes, caller, -1, called)
        return BodyCall(opcode, called, alone.attribute_text)

    def error(self, problem: Exception) -> InputError:
        """A problem with the location it was found in."""
        if isinstance(problem, EditError):
            problem = InputError(f"not a program XLA could have: {problem}")
        return InputError(f"{visible(self.where)}: {problem}")


class _ShapeTable(dict[bytes, "Shape"]):
    """Shapes by their messages; the same object for all that are alike, of which there are many."""

    def __missing__(self, data: bytes) -> Shape:
        shape = self[data] = make_shape(parser_of("Shape")(data))
        return shape


class EncodedAttributes:
    __slots__ = ("_data", "_links", "tuple_index")

    def __init__(self, data: bytes, tuple_index: int, links: BodyLinks) -> None:
        self._data = data
        self._links = links
        self.tuple_index = tuple_index

    def read(self, instruction: HloInstruction) -> dict[str, str]:
        try:
            linked = link_attributes(
                instruction.opcode,
                instruction.operands,
                self._unlinked(instruction.operands),
                instruction.called_computations,
                instruction.control_predecessors,
                instruction.name,
            )
            check_attribute_texts(linked, f"`{instruction.name}`")
        except (EditError, InputError) as error:
            raise self._links.error(error) from error
        return linked

    def _unlinked(self, operands: tuple[HloInstruction, ...]) -> dict[str, str]:
        """The attributes but for names of callees and of what is waited for."""
        kind = operands[0].shape.element_type.text if operands else ""
        known = self._links.attributes.get((self._data, kind))
        if known is None:
            proto = parser_of("Instruction")(self._data)
            known = dict(own_attributes(proto, operands))
            known.update(generic_attributes(proto, self._links.payloads))
            self._links.attributes[self._data, kind] = known
        return known

    def may_have(self, name: str) -> bool:
        """False where the message cannot have the field."""
        return _TAG_OF.get(name, b"") in self._data


def instruction_heads(head: Any, sequence: Sequence[int] | None) -> dict[int, tuple[Any, bytes]]:
    parse = parser_of("InstructionHead")
    listed = [(parse(data), data) for data in head.instructions]
    found = {pair[0].id: pair for pair in listed}
    if len(found) != len(listed):
        raise InputError(f"two instructions of `{visible(head.name)}` have one id")
    if sequence is None:
        return found
    if len(set(sequence)) != len(sequence) or not found.keys() >= set(sequence):
        raise InputError(f"the schedule of `{visible(head.name)}` is not one of it")
    if len(sequence) != len(found):
        raise InputError(f"the schedule of `{visible(head.name)}` leaves instructions out")
    return {number: found[number] for number in sequence}


def link_body(
    computation: HloComputation, heads: Mapping[int, tuple[Any, bytes]], root: int, links: BodyLinks
) -> dict[int, HloInstruction]:
    """Make instructions and hand them to the computation; returns them by their ids."""
    made: dict[int, HloInstruction] = {}
    shapes, names = links.shapes, set[str]()
    for index, (number, (proto, data)) in enumerate(heads.items()):
        name, opcode = proto.name, _OPCODES[proto.opcode]
        operands = _linked(name, proto.operand_ids, made)
        instruction = HloInstruction(
            name,
            shapes[proto.shape],
            opcode,
            operands,
            "",
            EncodedAttributes(data, proto.tuple_index, links),
            computation,
            index,
        )
        check_name(name, "an instruction")
        called = proto.called_computation_ids
        if opcode == "fusion" and len(called) == 1:
            callee = links.callee(computation, called[0])
            callee.is_fused = True
            instruction.called_computations = (callee,)
        elif called or len(operands) != _PLAIN_ARITY.get(opcode):
            _finish(instruction, proto, links)
        if proto.control_predecessor_ids:
            needed = _linked(name, proto.control_predecessor_ids, made)
            instruction.control_predecessors = needed
        names.add(name)
        made[number] = instruction
    _fill(computation, made, root, names)
    return made


def _linked(
    name: str, numbers: Iterable[int], made: dict[int, HloInstruction]
) -> tuple[HloInstruction, ...]:
    try:
        return tuple([made[number] for number in numbers])
    except KeyError as missing:
        problem = f"`{visible(name)}` uses instruction {missing.args[0]}"
        raise InputError(f"{problem}, which is not above it in its computation") from None


def _finish(instruction: HloInstruction, proto: Any, links: BodyLinks) -> None:
    """Set the parts only some instructions have: callees, a number, a literal."""
    opcode = instruction.opcode
    if opcode == "parameter":
        instruction.payload = str(proto.parameter_number)
    elif opcode == "constant":
        literal, shape = proto.literal, instruction.shape
        instruction.payload = format_literal(literal, shape) if literal else UNSAID
    operands = instruction.operands
    check_form(instruction.name, opcode, len(operands), instruction.payload)
    elements = operands[0].shape.elements if opcode == "get-tuple-element" else ()
    if opcode == "get-tuple-element" and not 0 <= proto.tuple_index < len(elements):
        problem = f"`{visible(instruction.name)}` takes element {proto.tuple_index}"
        raise InputError(f"{problem}, which its operand has not")
    numbers = called_ids(proto)
    parent = instruction.parent
    called = tuple([links.callee(parent, number) for number in numbers])
    instruction.called_computations = called
    link_attributes(opcode, operands, {}, called, (), instruction.name)  # raises


def called_ids(proto: Any) -> Sequence[int]:
    """The ids of the computations an instruction calls; of an async operation, its start does."""
    if proto.opcode in ASYNC_OPCODES and proto.opcode != "async-start":
        return ()
    numbers: Sequence[int] = proto.called_computation_ids
    return numbers


def _fill(
    computation: HloComputation, made: dict[int, HloInstruction], root: int, names: set[str]
) -> None:
    name = visible(computation.name)
    if len(names) != len(made):
        raise InputError(f"two instructions of `{name}` have one name")
    if root not in made:
        raise InputError(f"`{name}` has no root")
    instructions = list(made.values())
    parameters = numbered_parameters(computation, instructions)
    computation.fill(instructions, parameters, made[root])


class _Opcodes(dict[str, "Opcode"]):
    """One object for all instructions of an opcode; known ones are kept."""

    def __missing__(self, text: str) -> Opcode:
        opcode = as_opcode(intern(text))
        if opcode in KNOWN_OPCODES:
            self[opcode] = opcode
        return opcode


_OPCODES = _Opcodes()
_PLAIN_ARITY = {
    opcode: traits.arity
    for opcode in KNOWN_OPCODES
    if (traits := traits_of(opcode)).arity is not None
    and not (traits.calls or traits.has_payload or traits.forwards == "element")
}
"""How many operands opcodes take of which nothing else is to be checked."""
