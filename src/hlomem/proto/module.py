"""HloModuleProto → `HloModule`, through the builder that makes modules without text.

In: the bytes or the message of a module. Out: the module that the text of the same compile would
give, its instructions in the order of the schedule where there is one; beside it `Creation`, which
no text has: the order in which XLA keeps computations and instructions in its lists, which ids in
the proto tell (an instruction's: its computation's id, then its place in the list; before 2025 one
count for the module). Mirrors `HloModule::CreateFromProto` and `HloComputation::CreateFromProto`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError, InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.hlo.builder import ModuleBuilder
from hlomem.hlo.ir import MAIN_THREAD, Creation
from hlomem.hlo.opcodes import ASYNC_OPCODES
from hlomem.hlo.shape import ShapeIndex
from hlomem.hlo.text.attributes import (
    BufferDonor,
    InputOutputAlias,
    format_buffer_donor,
    format_input_output_alias,
)
from hlomem.proto.attributes import frontend_attributes, generic_attributes
from hlomem.proto.frames import make_tables
from hlomem.proto.literal import UNSAID, format_literal
from hlomem.proto.names import MUST_ALIAS
from hlomem.proto.opcode_attributes import own_attributes
from hlomem.proto.print_order import printed_order
from hlomem.proto.schema import parse_message
from hlomem.proto.shape import make_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.hlo.builder import ComputationBuilder
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape


def read_module(data: bytes, name: str = "<proto>") -> HloModule:
    """The module in the bytes of an HloModuleProto; `name` is what errors call it."""
    return make_module(parse_message("Module", data), name)


def make_module(proto: Any, name: str = "<proto>") -> HloModule:
    """The module of a message."""
    try:
        with collector_off():
            module = _Reader(proto).read()
    except EditError as error:
        raise InputError(f"{visible(name)}: not a program XLA could have: {error}") from error
    except InputError as error:
        raise InputError(f"{visible(name)}: {error}") from error
    module.file_name = name
    return module


class _Reader:
    """Reads one module: ids of the proto to the objects they stand for."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._computations: dict[int, HloComputation] = {}
        self._number_of: dict[HloInstruction, int] = {}
        self._sequence_of = {
            entry.key: list(entry.value.instruction_ids) for entry in proto.schedule.sequences
        }
        self._shapes: dict[bytes, Shape] = {}
        self._builder = ModuleBuilder(
            proto.name,
            is_scheduled=proto.HasField("schedule"),
            attributes=dict(_header(proto)),
            stack_frame_tables=make_tables(proto.stack_frame_index),
        )

    def read(self) -> HloModule:
        proto = self._proto
        for computation in proto.computations:
            if computation.id in self._computations:
                raise InputError(f"two computations have id {computation.id}")
            self._computations[computation.id] = self._read_computation(computation)
        entry = self._computations.get(proto.entry_computation_id)
        if entry is None:
            entry = self._named(proto.entry_computation_name)
        module = self._builder.build(entry)
        ids = {found: number for number, found in self._computations.items()}
        module.creation = Creation(ids, self._number_of, proto)
        module.computations[:] = printed_order(module.creation)
        for index, computation in enumerate(module.computations):
            computation.index = index
        return module

    def _named(self, name: str) -> HloComputation:
        for computation in self._computations.values():
            if computation.name == name:
                return computation
        raise InputError(f"no computation is the entry: none is called `{visible(name)}`")

    def _read_computation(self, proto: Any) -> HloComputation:
        thread = proto.execution_thread or MAIN_THREAD
        builder = self._builder.computation(proto.name, execution_thread=thread)
        protos = {each.id: each for each in proto.instructions}
        if len(protos) != len(proto.instructions):
            raise InputError(f"two instructions of `{visible(proto.name)}` have one id")
        made: dict[int, HloInstruction] = {}
        for number in self._sequence_of.get(proto.id, protos):
            if number not in protos or number in made:
                raise InputError(f"the schedule of `{visible(proto.name)}` is not one of it")
            made[number] = self._read_instruction(protos[number], made, builder)
            self._number_of[made[number]] = number
        if len(made) != len(protos):
            raise InputError(f"the schedule of `{visible(proto.name)}` leaves instructions out")
        if proto.root_id not in made:
            raise InputError(f"`{visible(proto.name)}` has no root")
        return builder.finish(made[proto.root_id])

    def _read_instruction(
        self, proto: Any, made: dict[int, HloInstruction], builder: ComputationBuilder
    ) -> HloInstruction:
        shape = self._shape(proto.shape)
        operands = tuple(_linked(proto, proto.operand_ids, made))
        if proto.opcode == "get-tuple-element":
            _check_element(proto, operands)
        attributes = dict(own_attributes(proto, operands))
        attributes.update(generic_attributes(proto, self._proto.payloads))
        called = proto.called_computation_ids
        if proto.opcode in ASYNC_OPCODES and proto.opcode != "async-start":
            called = ()  # the start has it
        return builder.add(
            proto.name,
            shape,
            proto.opcode,
            operands,
            attributes=attributes,
            called=[self._called(proto, number) for number in called],
            control_predecessors=list(_linked(proto, proto.control_predecessor_ids, made)),
            payload=_payload(proto, shape),
        )

    def _called(self, proto: Any, number: int) -> HloComputation:
        found = self._computations.get(number)
        if found is None:
            problem = f"`{visible(proto.name)}` calls computation {number}"
            raise InputError(f"{problem}, which is not above it")
        return found

    def _shape(self, proto: Any) -> Shape:
        """A shape; the same object for all that are alike, of which there are many."""
        key: bytes = proto.SerializeToString()
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = make_shape(proto)
        return found


def _linked(
    proto: Any, numbers: Iterable[int], made: dict[int, HloInstruction]
) -> Iterator[HloInstruction]:
    for number in numbers:
        found = made.get(number)
        if found is None:
            problem = f"`{visible(proto.name)}` uses instruction {number}"
            raise InputError(f"{problem}, which is not above it in its computation")
        yield found


def _check_element(proto: Any, operands: tuple[HloInstruction, ...]) -> None:
    """What the text of a module is checked for when it is read."""
    if len(operands) != 1 or not 0 <= proto.tuple_index < len(operands[0].shape.elements):
        problem = f"`{visible(proto.name)}` takes element {proto.tuple_index}"
        raise InputError(f"{problem}, which its operand has not")


def _payload(proto: Any, shape: Shape) -> str:
    if proto.opcode == "parameter":
        return str(proto.parameter_number)
    if proto.opcode == "constant":
        return format_literal(proto.literal, shape) if proto.literal else UNSAID
    return ""


def _header(proto: Any) -> Iterator[tuple[str, str]]:
    """The attributes of the module, in the order they are printed."""
    aliases = [
        InputOutputAlias(
            ShapeIndex(each.output_shape_index),
            each.parameter_number,
            ShapeIndex(each.parameter_shape_index),
            each.kind == MUST_ALIAS,
        )
        for each in proto.input_output_alias.entries
    ]
    if aliases:
        yield "input_output_alias", format_input_output_alias(aliases)
    donors = [
        BufferDonor(each.parameter_number, ShapeIndex(each.parameter_shape_index))
        for each in proto.buffer_donor.entries
    ]
    if donors:
        yield "buffer_donor", format_buffer_donor(donors)
    if proto.HasField("host_program_shape"):
        yield "entry_computation_layout", _program_shape(proto.host_program_shape)
    for name, count in (
        ("replica_count", proto.device_assignment.replica_count),
        ("num_partitions", proto.device_assignment.computation_count),
    ):
        if count > 1:
            yield name, str(count)
    yield from frontend_attributes(proto.frontend_attributes)


def _program_shape(proto: Any) -> str:
    """`{(shape, shape)->shape}` (`ComputationLayout::Print`)."""
    pieces = []
    for number, shape in enumerate(proto.parameters):
        comment = f"/*index={number}*/" if number and number % 5 == 0 else ""
        pieces.append(comment + make_shape(shape).text)
    return f"{{({', '.join(pieces)})->{make_shape(proto.result).text}}}"
