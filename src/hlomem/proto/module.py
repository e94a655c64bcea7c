"""HloModuleProto → `HloModule`, with the bodies of fusions unread (`HloModule::CreateFromProto`).

Instructions are in the order of the schedule, if any. `Creation` has what no text tells: the order
of XLA's lists, by ids (an instruction's: its computation's id, then its number in the list; before
2025 one count for the module).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError, InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import Source, Span, visible
from hlomem.hlo.builder import check_attribute_texts, check_name, verified
from hlomem.hlo.ir import MAIN_THREAD, BodyCall, Creation, HloComputation, HloInstruction, HloModule
from hlomem.hlo.opcodes import Opcode, as_opcode
from hlomem.hlo.shape import Shape, ShapeIndex
from hlomem.hlo.text.attributes import (
    BufferDonor,
    InputOutputAlias,
    format_buffer_donor,
    format_input_output_alias,
)
from hlomem.hlo.text.print_order import printed_order
from hlomem.proto.attributes import frontend_attributes
from hlomem.proto.body import BodyLinks, called_ids, instruction_heads, link_body
from hlomem.proto.frames import make_tables
from hlomem.proto.names import MUST_ALIAS
from hlomem.proto.schema import parse_message, parser_of

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable, Iterator, Mapping

    from hlomem.base.source import Source, Span
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape

_MAY_CALL = (b"\xb2\x02", b"\xb0\x02")
"""First bytes of `called_computation_ids`, packed or not; other fields may hold them, too."""

_NO_LINE = b"\x12\x02\x3a\x00"
"""An instruction of `ComputationLines` whose metadata tells no line."""
_NO_METADATA = b"\x12\x00"


def read_module(data: bytes, name: str = "<proto>") -> HloModule:
    """The module in the bytes of an HloModuleProto; `name` is what errors call it."""
    with collector_off():
        return ModuleReader(data, name).read()


class ModuleReader:
    """Opens the computations of one module (`ir.BodyReader`)."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._where = name
        self._links = BodyLinks(name)
        self.findings: dict[tuple[int, Hashable], tuple[object, Any]] = {}
        self._number_of: dict[HloInstruction, int] = {}
        self._module: HloModule

    def read(self) -> HloModule:
        """The module, with everything read that no fusion hides."""
        try:
            self._read_heads(parse_message("ModuleHead", self._data))
        except (EditError, InputError) as error:
            raise self._links.error(error) from error
        pending, seen = [self._module.entry], {self._module.entry}
        while pending:
            callees = dict.fromkeys(self._open(pending.pop()))
            pending += [callee for callee in callees if callee not in seen]
            seen.update(callees)
        try:
            self._sort(seen)
            return verified(self._module)
        except (EditError, InputError) as error:
            raise self._links.error(error) from error

    def open(self, computation: HloComputation) -> None:
        self._open(computation)

    def outline(self, computation: HloComputation) -> list[tuple[Shape, Opcode]]:
        shapes = self._links.shapes
        try:
            return [
                (shapes[proto.shape], as_opcode(proto.opcode))
                for proto, _ in self._in_order(computation)
            ]
        except InputError as error:
            raise self._links.error(error) from error

    def calls(self, computation: HloComputation) -> list[BodyCall]:
        if not _may_call(_head_of(computation).SerializeToString()):
            return []
        try:
            calling = [pair for pair in self._in_order(computation) if called_ids(pair[0])]
            if not any(proto.opcode == "conditional" for proto, _ in calling):
                return [self._links.body_call(computation, *pair) for pair in calling]
        except (EditError, InputError) as error:
            raise self._links.error(error) from error
        computation.ensure_read()  # its operands tell what it calls them for
        return computation.calls()

    def first_parameter(self, computation: HloComputation) -> str:
        for proto, _ in self._in_order(computation):
            if proto.opcode == "parameter" and proto.parameter_number == 0:
                return str(proto.name)
        return ""

    def body_place(self, _: HloComputation) -> None:
        """No message is a text."""

    @property
    def source(self) -> Source:
        return self._module.source

    def locate(self, computation: HloComputation, name: str) -> Span:
        """The span of an instruction in what would be printed."""
        from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - errors only

        return parse(self.source.text).computation_by_name[computation.name].locate(name)

    def tells_lines(self) -> bool:
        """Whether any instruction names the line it comes from."""
        try:
            lines = parse_message("ModuleLines", self._data)
        except InputError as error:
            raise self._links.error(error) from error
        lines.DiscardUnknownFields()
        return any(
            computation.SerializeToString().replace(_NO_LINE, b"").replace(_NO_METADATA, b"")
            for computation in lines.computations
        )

    def _read_heads(self, proto: Any) -> None:
        """Make the module, none of whose computations is open."""
        self._links.payloads = proto.payloads
        self._sequence_of = {
            entry.key: list(entry.value.instruction_ids)
            for entry in proto.schedule.sequences
            if entry.value.instruction_ids  # libtpu has empty ones for some bodies of fusions
        }
        module = self._module = self._make_module(proto)
        by_id = self._links.by_id
        for index, head in enumerate(proto.computations):
            check_name(head.name, "a computation")
            thread = head.execution_thread or MAIN_THREAD
            computation = HloComputation(module, head.name, index, False, thread, self, head)
            if by_id.setdefault(head.id, computation) is not computation:
                raise InputError(f"two computations have id {head.id}")
        if len({computation.name for computation in by_id.values()}) != len(by_id):
            raise InputError("two computations have one name")
        module.entry = by_id.get(proto.entry_computation_id) or self._named(proto)
        module.entry.is_entry = True
        ids = {computation: number for number, computation in by_id.items()}
        module.creation = Creation(ids, self._number_of, self._data, self.tells_lines)

    def _sort(self, seen: Container[HloComputation]) -> None:
        """Put the computations in the order of a text; the bodies of some were seen."""
        by_id = self._links.by_id
        calls: dict[HloComputation, list[tuple[HloComputation, ...]]] = {}
        parts = parse_message("ModuleParts", self._data).computations
        for computation, data in zip(by_id.values(), parts, strict=True):
            if computation in seen:
                calling = [found for found in computation.instructions if found.called_computations]
                calling.sort(key=self._number_of.__getitem__)
                calls[computation] = [instruction.called_computations for instruction in calling]
            else:
                calls[computation] = self._unread_calls_of(computation) if _may_call(data) else []
        listed = {by_id[number]: calls[by_id[number]] for number in sorted(by_id)}
        for index, computation in enumerate(printed_order(listed)):
            computation.index = index
            self._module.computations.append(computation)

    def _unread_calls_of(self, computation: HloComputation) -> list[tuple[HloComputation, ...]]:
        """The same of a body that stays as it is."""
        parse = parser_of("InstructionHead")
        protos = [parse(part) for part in _head_of(computation).instructions if _may_call(part)]
        protos.sort(key=lambda proto: proto.id)
        groups = [
            tuple([self._links.callee(computation, number) for number in called_ids(proto)])
            for proto in protos
        ]
        return [group for group in groups if group]

    def _make_module(self, proto: Any) -> HloModule:
        check_name(proto.name, "a module")
        header = {"is_scheduled": "true"} if proto.HasField("schedule") else {}
        header.update(_header(proto, self._links.shapes))
        module = HloModule(proto.name, header, make_tables(proto.stack_frame_index))
        module.file_name = self._where
        return module

    def _named(self, proto: Any) -> HloComputation:
        name = proto.entry_computation_name
        for computation in self._links.by_id.values():
            if computation.name == name:
                return computation
        raise InputError(f"no computation is the entry: none is called `{visible(name)}`")

    def _in_order(self, computation: HloComputation) -> Iterable[tuple[Any, bytes]]:
        head = _head_of(computation)
        sequence = self._sequence_of.get(head.id)
        if sequence is not None:
            return instruction_heads(head, sequence).values()
        parse = parser_of("InstructionHead")
        return ((parse(data), data) for data in head.instructions)

    def _open(self, computation: HloComputation) -> list[HloComputation]:
        """Read a computation; returns its callees other than fused bodies."""
        head = _head_of(computation)
        try:
            heads = instruction_heads(head, self._sequence_of.get(head.id))
            made = link_body(computation, heads, head.root_id, self._links)
        except (EditError, InputError) as error:
            raise self._links.error(error) from error
        if computation.module is self._module:  # and not of a copy that is being edited
            self._number_of.update({found: number for number, found in made.items()})
        return [
            callee
            for instruction in made.values()
            if instruction.called_computations and instruction.opcode != "fusion"
            for callee in instruction.called_computations
        ]


def _head_of(computation: HloComputation) -> Any:
    assert computation.unread is not None, "the reader is asked about what it reads"
    return computation.unread


def _may_call(data: bytes) -> bool:
    return _MAY_CALL[0] in data or _MAY_CALL[1] in data


def _header(proto: Any, shapes: Mapping[bytes, Shape]) -> Iterator[tuple[str, str]]:
    aliases = [
        InputOutputAlias(
            ShapeIndex(alias.output_shape_index),
            alias.parameter_number,
            ShapeIndex(alias.parameter_shape_index),
            alias.kind == MUST_ALIAS,
        )
        for alias in proto.input_output_alias.entries
    ]
    if aliases:
        yield "input_output_alias", format_input_output_alias(aliases)
    donors = [
        BufferDonor(donor.parameter_number, ShapeIndex(donor.parameter_shape_index))
        for donor in proto.buffer_donor.entries
    ]
    if donors:
        yield "buffer_donor", format_buffer_donor(donors)
    if proto.HasField("host_program_shape"):
        yield "entry_computation_layout", _program_shape(proto.host_program_shape, shapes)
    for name, count in (
        ("replica_count", proto.device_assignment.replica_count),
        ("num_partitions", proto.device_assignment.computation_count),
    ):
        if count > 1:
            yield name, str(count)
    given = dict(frontend_attributes(proto.frontend_attributes))
    check_attribute_texts(given, f"the header of `{proto.name}`")
    yield from given.items()


def _program_shape(proto: Any, shapes: Mapping[bytes, Shape]) -> str:
    """`{(shape, shape)->shape}` (`ComputationLayout::Print`)."""
    pieces = []
    for number, shape in enumerate(proto.parameters):
        comment = f"/*index={number}*/" if number and number % 5 == 0 else ""
        pieces.append(comment + shapes[shape].text)
    return f"{{({', '.join(pieces)})->{shapes[proto.result].text}}}"
