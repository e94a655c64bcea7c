"""The program: a module of computations, each a list of instructions with identity.

In: what `hlomem.hlo.text.parser` or `hlomem.proto.module` read or `hlomem.hlo.builder` made. Out:
objects linked to each other (operands, users, called computations), read-only by custom:
`hlomem.hlo.rewrite` makes edited copies. A computation that only fusions reach stays text, or a
message, until somebody asks for its instructions; an attribute stays so until somebody asks for its
value. Either may therefore raise `ParseError`, of a message `InputError`, when first read;
`HloModule.validate` reads everything at once. Apart from that nobody can tell
whether a body has been read: only this package asks (`is_open`), and what it answers about a body
(`outline`, `calls`, `outer_computations`) is the same before and after.

Mirrors `hlo/ir/hlo_module.h`, `hlo_computation.h` and `hlo_instruction.h`, with their nouns.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.source import Source
from hlomem.hlo.opcodes import ASYNC_OPCODES, call_role
from hlomem.hlo.text import attributes as attr
from hlomem.hlo.text.style import TextStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.base.source import Span
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.stack_frames import StackFrame, StackFrameTables
    from hlomem.hlo.traits import CallRole

T = TypeVar("T")

MAIN_THREAD = "main"


class CalledComputation(NamedTuple):
    """A computation an instruction calls, and what for."""

    role: CallRole
    computation: HloComputation


class BodyCall(NamedTuple):
    """An instruction that calls computations, known without reading the body it is in."""

    opcode: Opcode
    called_computations: tuple[HloComputation, ...]
    attribute_text: str
    """As `HloInstruction.attribute_text`."""


class BodyReader(Protocol):
    """The parser as a computation sees it: reads bodies when somebody asks for them."""

    @property
    def source(self) -> Source:
        """The text the user wrote, or what would be printed of a module that was none."""

    def open(self, computation: HloComputation) -> None:
        """Read the instructions of `computation` and hand them to its `fill`."""

    def outline(self, computation: HloComputation) -> list[tuple[Shape, Opcode]]:
        """Shape and opcode of every instruction of the body; links nothing."""

    def calls(self, computation: HloComputation) -> list[BodyCall]:
        """The instructions of the body that call computations; links nothing."""

    def first_parameter(self, computation: HloComputation) -> str:
        """The name of parameter 0, empty where there is none; links nothing."""

    def body_text(self, computation: HloComputation) -> str | None:
        """The body, if it is laid out as XLA prints it."""

    def locate(self, computation: HloComputation, name: str) -> Span:
        """The span of an instruction's text."""


class TextReader(BodyReader, Protocol):
    """The parser as a module sees it, if that was a text."""

    def style(self) -> TextStyle:
        """How the text was written."""

    def implies_elements(self) -> bool:
        """Whether some instructions have no line in the text."""

    def validate(self) -> None:
        """Read what was left as text."""


class UnreadAttributes(Protocol):
    """The attributes of an instruction that was read from a message, until somebody asks."""

    tuple_index: int
    """As `HloInstruction.tuple_index`."""

    def read(self, instruction: HloInstruction) -> dict[str, str]:
        """As `HloInstruction.attributes`."""

    def may_have(self, name: str) -> bool:
        """As `HloInstruction.may_have`."""


class HloInstruction(Struct, eq=False):
    """One operation. Compared by identity; nobody changes it after parsing.

    `called_computations` is in XLA's order (a while calls its body, then its condition:
    `hlo_instruction.cc: CreateWhile`).
    """

    name: str
    shape: Shape
    opcode: Opcode
    """Its text, one that is not known included."""
    operands: tuple[HloInstruction, ...]
    payload: str
    """The text between the parentheses where that is not operands: the number of a parameter,
    the literal of a constant."""
    _attributes: str | dict[str, str] | UnreadAttributes
    parent: HloComputation
    index: int
    """Position in `parent.instructions`."""
    called_computations: tuple[HloComputation, ...] = ()
    control_predecessors: tuple[HloInstruction, ...] = ()
    users: list[HloInstruction] = []
    """Each user once, in the order of the text; complete when the whole computation is read."""

    def __repr__(self) -> str:
        return f"<{self.opcode} %{self.name}>"

    @property
    def attributes(self) -> dict[str, str]:
        """Every attribute and the text of its value, in the order of the text."""
        attributes = self._attributes
        if isinstance(attributes, dict):
            return attributes
        if isinstance(attributes, str):
            read = self._read(attr.split_attributes, attributes)
        else:
            read = attributes.read(self)
        self._attributes = read
        return read

    def set_attributes(self, attributes: dict[str, str]) -> None:
        """Replace the attributes; only while the instruction is being made."""
        self._attributes = attributes

    @property
    def attribute_text(self) -> str:
        """The attributes as they stand behind the operands, the first comma included."""
        attributes = self._attributes
        if isinstance(attributes, str):
            return attributes
        return "".join([f", {name}={value}" for name, value in self.attributes.items()])

    def may_have(self, name: str) -> bool:
        """Whether it is worth reading the attributes to see one; false is certain."""
        attributes = self._attributes
        if isinstance(attributes, str | dict):
            return name in attributes
        return attributes.may_have(name)

    @property
    def metadata(self) -> attr.Metadata:
        """The origin of the instruction; all fields empty where it has no metadata."""
        return self._read(attr.parse_metadata, self.attributes.get("metadata", "{}"))

    @property
    def backend_config(self) -> attr.Json:
        """The backend's own settings: the JSON value, or the string it is; None where absent."""
        text = self.attributes.get("backend_config")
        return None if text is None else self._read(attr.parse_backend_config, text)

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """The `frontend_attributes={...}` map, without quotes."""
        return self._read(attr.parse_string_map, self.attributes.get("frontend_attributes", "{}"))

    @property
    def output_to_operand_aliasing(self) -> tuple[attr.OperandAlias, ...]:
        """The parts of a custom call's or fusion's result that are written into operands."""
        text = self.attributes.get("output_to_operand_aliasing")
        return () if text is None else self._read(attr.parse_operand_aliasing, text)

    def integers(self, name: str) -> tuple[int, ...]:
        """The value of a `{1,2,3}` attribute, empty where it is absent."""
        return self._read(attr.parse_integers, self.attributes.get(name, "{}"))

    def string(self, name: str) -> str | None:
        """The value of an attribute without its quotes, None where it is absent."""
        text = self.attributes.get(name)
        return None if text is None else self._read(attr.parse_string, text)

    @property
    def tuple_index(self) -> int:
        """The number of the element a get-tuple-element takes."""
        attributes = self._attributes
        if isinstance(attributes, str):  # XLA prints it first, so that the rest need not be read
            match = attr.FIRST_INDEX.match(attributes)
            if match is not None:
                return int(match[1])
        elif not isinstance(attributes, dict):
            return attributes.tuple_index
        return self._read(attr.parse_integer, self.attributes.get("index", ""))

    @property
    def parameter_number(self) -> int:
        """The position of a parameter among the arguments."""
        return int(self.payload)

    @property
    def custom_call_target(self) -> str | None:
        """The function a custom call names."""
        return self.string("custom_call_target")

    @property
    def calls(self) -> tuple[CalledComputation, ...]:
        """The called computations, each with its role."""
        return tuple(
            CalledComputation(call_role(self.opcode, position), computation)
            for position, computation in enumerate(self.called_computations)
        )

    @property
    def async_start(self) -> HloInstruction | None:
        """The async-start an async-start, -update or -done belongs to; None for other opcodes.

        `hlo_instructions.cc: HloAsyncInstruction::async_chain_start`.
        """
        instruction = self
        while instruction.opcode in ASYNC_OPCODES:
            if instruction.opcode == "async-start":
                return instruction
            if not instruction.operands:
                break
            instruction = instruction.operands[0]
        return None

    @property
    def async_wrapped_computation(self) -> HloComputation | None:
        """The computation an async-start, -update or -done runs; None for other opcodes."""
        start = self.async_start
        return start.called_computations[0] if start and start.called_computations else None

    @property
    def is_root(self) -> bool:
        """Whether this is what its computation returns."""
        return self.parent.root is self

    @property
    def stack_frames(self) -> list[StackFrame]:
        """The frames of the program that made it, innermost first; empty without the tables."""
        return self.parent.module.stack_frame_tables.frames(self.metadata.stack_frame_id)

    @property
    def span(self) -> Span:
        """The span of the instruction in `parent.source`."""
        return self.parent.locate(self.name)

    def error(
        self, problem: str, hint: str = "", kind: type[ParseError] = ParseError
    ) -> ParseError:
        """An error that points at this instruction."""
        return kind(self.parent.source, self.span, problem, hint)

    def _read(self, parse: Callable[[str], T], text: str) -> T:
        """`parse(text)`, with a problem placed where the text stands in the source."""
        try:
            return parse(text)
        except attr.TextProblem as problem:
            source, span = self.parent.source, self.span
            start = max(source.text.find(text, span.start, span.end), span.start)
            raise problem.at(source, start) from None


class HloComputation(Struct, eq=False):
    """A list of instructions with parameters and a root, read when first asked for."""

    module: HloModule
    name: str
    index: int
    """Position in the module: what it calls has a smaller one."""
    is_entry: bool
    execution_thread: str
    reader: BodyReader | None = None
    """Reads its text or message; None where it was made without one."""
    unread: object = None
    """The place of its text, or its message, for the reader."""
    is_fused: bool = False
    """Whether a fusion that has been read calls it; `HloModule.fused_computations` are all."""
    _instructions: list[HloInstruction] | None = None
    _parameters: list[HloInstruction] = []
    _root: HloInstruction | None = None

    def __repr__(self) -> str:
        return f"<computation %{self.name}>"

    def fill(
        self,
        instructions: list[HloInstruction],
        parameters: list[HloInstruction],
        root: HloInstruction,
    ) -> None:
        """Set the body; called once, by the maker of the computation."""
        for instruction in instructions:
            for operand in instruction.operands:
                users = operand.users
                if not users or users[-1] is not instruction:
                    users.append(instruction)
        self._instructions = instructions
        self._parameters = parameters
        self._root = root

    @property
    def is_open(self) -> bool:
        """Whether the instructions have been read; nothing outside of `hlo` may depend on it."""
        return self._instructions is not None

    @property
    def instructions(self) -> list[HloInstruction]:
        """The instructions in the order of the text (the schedule, where the module has one)."""
        if self._instructions is None:
            self.ensure_read()
        assert self._instructions is not None
        return self._instructions

    @property
    def parameters(self) -> list[HloInstruction]:
        """The parameters by number."""
        if self._instructions is None:
            self.ensure_read()
        return self._parameters

    @property
    def root(self) -> HloInstruction:
        """The instruction whose value the computation returns."""
        if self._root is None:
            self.ensure_read()
        assert self._root is not None
        return self._root

    def ensure_read(self) -> None:
        """Read the instructions, if nobody has; raises `ParseError` where they cannot be."""
        if self._instructions is None:
            assert self.reader is not None, "what has no reader is filled when it is made"
            self.reader.open(self)

    @property
    def body_text(self) -> str | None:
        """The lines between its braces, each after a line break, whether it has been read or not.

        None for what was made or edited or no text, and for one not laid out as XLA prints it.
        """
        return None if self.reader is None else self.reader.body_text(self)

    @property
    def instruction_count(self) -> int:
        """`len(instructions)`, without reading them."""
        return len(self.outline())

    def outline(self) -> list[tuple[Shape, Opcode]]:
        """Shape and opcode of each instruction, without reading more than that."""
        if self._instructions is None and self.reader is not None:
            return self.reader.outline(self)
        return [(instruction.shape, instruction.opcode) for instruction in self.instructions]

    def calls(self) -> list[BodyCall]:
        """The instructions that call computations, in order, without reading more than those."""
        if self._instructions is None and self.reader is not None:
            return self.reader.calls(self)
        return [
            BodyCall(
                instruction.opcode, instruction.called_computations, instruction.attribute_text
            )
            for instruction in self.instructions
            if instruction.called_computations
        ]

    @property
    def first_parameter_name(self) -> str:
        """The name of parameter 0, empty where there is none, without reading more than that."""
        if self._instructions is None and self.reader is not None:
            return self.reader.first_parameter(self)
        return self.parameters[0].name if self.parameters else ""

    @property
    def source(self) -> Source:
        """The text it is in: the one it was read from, or what would be printed of its module."""
        return self.module.source if self.reader is None else self.reader.source

    def locate(self, name: str) -> Span:
        """The span of an instruction in `source`."""
        if self.reader is not None:
            return self.reader.locate(self, name)
        from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - it imports this, errors only

        printed = parse(self.source.text).computation_by_name[self.name]
        return printed.locate(name)

    def find(self, name: str) -> HloInstruction | None:
        """The instruction of that name, None where there is none."""
        return next(
            (instruction for instruction in self.instructions if instruction.name == name), None
        )


class Creation(NamedTuple):
    """In which order a module's parts were made, as ids tell: a proto has them, a text has not."""

    computations: dict[HloComputation, int]
    """The ids, by which XLA's list is sorted; in XLA's post order, which depends on history."""
    instructions: dict[HloInstruction, int]
    """The ids of those that were read, by which the lists of the computations are sorted."""
    encoded: bytes
    """The message it was read from."""
    tells_lines: Callable[[], bool]
    """True if any instruction names the line it comes from."""


class HloModule:
    """A program: its computations in the order of the text, and what its header says."""

    def __init__(
        self,
        name: str,
        header: str | dict[str, str],
        tables: StackFrameTables,
        reader: TextReader | None = None,
        style: Callable[[], TextStyle] = TextStyle,
    ) -> None:
        """`header` is the text behind the name, or the attributes that would stand there.

        `reader` reads the text the module is of, `style` makes that of one that has none.
        """
        self.name = name
        self.stack_frame_tables = tables
        self.computations: list[HloComputation] = []
        self.reader = reader
        self.entry: HloComputation  # set by who makes the module
        self.creation: Creation | None = None
        self.file_name = ""
        """The file it was read from, if that was no text."""
        self._header = header
        self._make_style = style

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    @cached_property
    def source(self) -> Source:
        """The text it was read from; of one made without text, what would be printed."""
        if self.reader is not None:
            return self.reader.source
        from hlomem.hlo.text.printer import format_module  # noqa: PLC0415 - it imports this

        return Source(self.source_name, format_module(self))

    @cached_property
    def searchable_text(self) -> str:
        """The text it was read from, in which marks of machines are looked for.

        Of one that was read from no text, the header, and the shapes and attributes of what is
        outside of fusions: printing all would read all.
        """
        if self.reader is not None:
            return self.reader.source.text
        instructions = list(self.iter_outer_instructions())
        shapes = {id(instruction.shape): instruction.shape for instruction in instructions}
        header = "".join([f", {name}={value}" for name, value in self.attributes.items()])
        return "\n".join(
            [
                f"HloModule {self.name}{header}",
                *[shape.text for shape in shapes.values()],
                *dict.fromkeys([instruction.attribute_text for instruction in instructions]),
            ]
        )

    @property
    def source_name(self) -> str:
        """The name errors give it: a file, `<string>`, or its own name."""
        if self.reader is not None:
            return self.reader.source.name
        return self.file_name or f"<{self.name}>"

    @cached_property
    def style(self) -> TextStyle:
        """The style of the text; `printer.format_module` prints it unless told otherwise."""
        return self._make_style() if self.reader is None else self.reader.style()

    @property
    def implies_elements(self) -> bool:
        """Whether it was read from a text that leaves get-tuple-elements out, as `%fusion#1`."""
        return self.reader is not None and self.reader.implies_elements()

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Every header attribute and the text of its value, unknown ones too, in order."""
        if isinstance(self._header, dict):
            return self._header
        return self._read(attr.split_attributes, self._header)

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of the text is the order of execution."""
        return self.attributes.get("is_scheduled") == "true"

    @cached_property
    def input_output_alias(self) -> tuple[attr.InputOutputAlias, ...]:
        """The outputs that live in the buffer of a parameter."""
        text = self.attributes.get("input_output_alias", "{}")
        return self._read(attr.parse_input_output_alias, text)

    @cached_property
    def buffer_donor(self) -> tuple[attr.BufferDonor, ...]:
        """The parameters any output may overwrite."""
        return self._read(attr.parse_buffer_donor, self.attributes.get("buffer_donor", "{}"))

    @cached_property
    def entry_computation_layout(self) -> attr.ProgramShape | None:
        """The shapes of parameters and result the caller was promised."""
        text = self.attributes.get("entry_computation_layout")
        return None if text is None else self._read(attr.parse_program_shape, text)

    @cached_property
    def frontend_attributes(self) -> dict[str, str]:
        """The `frontend_attributes={...}` map, without quotes."""
        return self._read(attr.parse_string_map, self.attributes.get("frontend_attributes", "{}"))

    @property
    def replica_count(self) -> int:
        """The number of replicas that run the program."""
        return self._read(attr.parse_integer, self.attributes.get("replica_count", "1"))

    @property
    def num_partitions(self) -> int:
        """The number of partitions the program was split into."""
        return self._read(attr.parse_integer, self.attributes.get("num_partitions", "1"))

    @cached_property
    def computation_by_name(self) -> dict[str, HloComputation]:
        """Every computation by its name, in the order of the text."""
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def outer_computations(self) -> list[HloComputation]:
        """The computations reached from the entry outside fusions, in the order of the module.

        Every scheduled computation, and those applied in one: reducers, comparators.
        """
        reached = {self.entry}
        pending = [self.entry]
        while pending:
            for instruction in pending.pop().instructions:
                if instruction.called_computations and instruction.opcode != "fusion":
                    new = [
                        callee
                        for callee in instruction.called_computations
                        if callee not in reached
                    ]
                    reached.update(new)
                    pending += new
        return [computation for computation in self.computations if computation in reached]

    @cached_property
    def fused_computations(self) -> frozenset[HloComputation]:
        """The bodies of fusions, those inside of other bodies included."""
        return frozenset(
            callee
            for computation in list(self.computations)
            for call in computation.calls()
            if call.opcode == "fusion"
            for callee in call.called_computations
        )

    def ensure_header_read(self) -> None:
        """Read all that the first line and the tables say; raises the first `ParseError`."""
        _ = (
            self.attributes,
            self.input_output_alias,
            self.buffer_donor,
            self.entry_computation_layout,
            self.frontend_attributes,
            self.replica_count,
            self.num_partitions,
            self.stack_frame_tables.tables,
        )

    def open_all(self) -> None:
        """Read every body that is still text."""
        for computation in list(self.computations):  # a sugared async operation adds one
            computation.ensure_read()

    def iter_instructions(self) -> Iterator[HloInstruction]:
        """Every instruction of every computation; opens all of them."""
        self.open_all()
        for computation in self.computations:
            yield from computation.instructions

    def iter_outer_instructions(self) -> Iterator[HloInstruction]:
        """Every instruction that is not inside a fusion."""
        for computation in self.outer_computations:
            yield from computation.instructions

    @cached_property
    def outer_instruction_by_name(self) -> dict[str, HloInstruction]:
        """The instructions that are not inside a fusion."""
        return {instruction.name: instruction for instruction in self.iter_outer_instructions()}

    def validate(self) -> None:
        """Read everything that was left as text; raises the first `ParseError` there is."""
        if self.reader is not None:
            self.reader.validate()
            return
        from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - it imports this

        parse(self.source.text, self.source.name, lazy=False)

    def _read(self, parse: Callable[[str], T], text: str) -> T:
        """`parse(text)`, with a problem placed where the text stands in the source."""
        try:
            return parse(text)
        except attr.TextProblem as problem:
            start = max(self.source.text.find(text), 0)
            raise problem.at(self.source, start) from None
