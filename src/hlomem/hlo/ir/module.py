"""A module: its computations in the order of the text, and what its header says.

In: a name, the text or attributes of the header, and the reader of the text if there is one. Out:
`HloModule`, whose computations are added by its maker. Mirrors `hlo/ir/hlo_module.h`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from hlomem.base.named_tuples import NamedTuple
from hlomem.base.source import Source
from hlomem.hlo.ir.computation import BodyReader
from hlomem.hlo.text import attributes as attr
from hlomem.hlo.text.style import TextStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir.computation import HloComputation
    from hlomem.hlo.ir.instruction import HloInstruction
    from hlomem.hlo.text.stack_frames import StackFrameTables

T = TypeVar("T")


class TextReader(BodyReader, Protocol):
    """The parser as a module sees it, if that was a text."""

    def style(self) -> TextStyle:
        """How the text was written."""

    def implies_elements(self) -> bool:
        """Whether some instructions have no line in the text."""

    def validate(self) -> None:
        """Read what was left as text."""


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


class Origins(NamedTuple):
    """The message an edited module was read from, and the parts that are left of it or are copies.

    A computation that still has its reader is as the message has it.
    """

    encoded: bytes
    header: dict[str, str]
    """The attributes of the header as they were read."""
    computations: dict[HloComputation, int]
    """The ids of those that are in the message."""
    instructions: dict[HloInstruction, tuple[int, str]]
    """By instruction of a changed computation: the id of a computation and a name, by which the
    message has it, or the instruction that it is a copy of."""


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
        self.origins: Origins | None = None
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
