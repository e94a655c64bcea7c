"""Computations in the order of the text, and a header (`hlo/ir/hlo_module.h`)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from hlomem.base.source import Source
from hlomem.hlo.ir.computation import BodyReader, HloComputation
from hlomem.hlo.text import attributes as attr
from hlomem.hlo.text.style import TextStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir.instruction import HloInstruction
    from hlomem.hlo.text.stack_frames import StackFrameTables

T = TypeVar("T")


class TextReader(BodyReader, Protocol):
    """The parser as a module sees it."""

    def style(self) -> TextStyle:
        """The style of the text."""

    def implies_elements(self) -> bool:
        """Whether some instructions have no line in the text."""

    def validate(self) -> None:
        """Read everything that is still text."""


class Creation(Struct, frozen=True):
    """The creation order of a module's parts, by the ids in a proto."""

    computations: dict[HloComputation, int]
    """Ids, which sort XLA's list; in XLA's post order."""
    instructions: dict[HloInstruction, int]
    """Ids of instructions that were read, which sort the lists of computations."""
    encoded: bytes
    tells_lines: Callable[[], bool]
    """True if any instruction has a source line."""


class Origins(Struct, frozen=True):
    """The message of an edited module, and the origins of its parts in it."""

    encoded: bytes
    header: dict[str, str]
    computations: dict[HloComputation, int]
    """The ids of computations in the message."""
    instructions: dict[HloInstruction, tuple[int, str]]
    """For instructions of changed computations, the id of a computation and the name of the
    original instruction, or of the one it is a copy of."""


class HloModule:
    """A program: its computations in the order of the text, and its header."""

    def __init__(
        self,
        name: str,
        header: str | dict[str, str],
        tables: StackFrameTables,
        reader: TextReader | None = None,
        style: Callable[[], TextStyle] = TextStyle,
    ) -> None:
        """`header` is text or attributes; without a `reader`, `style` is that of printing."""
        self.name = name
        self.stack_frame_tables = tables
        self.computations: list[HloComputation] = []
        self.reader = reader
        self.entry: HloComputation  # set by the constructing code
        self.creation: Creation | None = None
        self.origins: Origins | None = None
        self.file_name = ""
        """The file it was read from, if not a text."""
        self._header = header
        self._make_style = style

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    @cached_property
    def source(self) -> Source:
        """The text it was read from, or its printed text."""
        if self.reader is not None:
            return self.reader.source
        from hlomem.hlo.text.printer import format_module  # noqa: PLC0415 - it imports this

        return Source(self.source_name, format_module(self))

    @cached_property
    def searchable_text(self) -> str:
        """The text to search for marks; without one, what is outside fusions, to read less."""
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
        """The name in errors: a file, `<string>`, or its own name."""
        if self.reader is not None:
            return self.reader.source.name
        return self.file_name or f"<{self.name}>"

    @cached_property
    def style(self) -> TextStyle:
        """The style of the text, by default also of printing."""
        return self._make_style() if self.reader is None else self.reader.style()

    @property
    def implies_elements(self) -> bool:
        """Whether its text omits get-tuple-elements, as `%fusion#1`."""
        return self.reader is not None and self.reader.implies_elements()

    @cached_property
    def attributes(self) -> dict[str, str]:
        """All header attributes as text, in order."""
        if isinstance(self._header, dict):
            return self._header
        return self._read(attr.split_attributes, self._header)

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of the text is the order of execution."""
        return self.attributes.get("is_scheduled") == "true"

    @cached_property
    def input_output_alias(self) -> tuple[attr.InputOutputAlias, ...]:
        """The outputs in the buffer of a parameter."""
        text = self.attributes.get("input_output_alias", "{}")
        return self._read(attr.parse_input_output_alias, text)

    @cached_property
    def buffer_donor(self) -> tuple[attr.BufferDonor, ...]:
        """The parameters any output may overwrite."""
        return self._read(attr.parse_buffer_donor, self.attributes.get("buffer_donor", "{}"))

    @cached_property
    def entry_computation_layout(self) -> attr.ProgramShape | None:
        """The promised shapes of parameters and result."""
        text = self.attributes.get("entry_computation_layout")
        return None if text is None else self._read(attr.parse_program_shape, text)

    @cached_property
    def frontend_attributes(self) -> dict[str, str]:
        """The `frontend_attributes={...}` map, without quotes."""
        return self._read(attr.parse_string_map, self.attributes.get("frontend_attributes", "{}"))

    @property
    def replica_count(self) -> int:
        return self._read(attr.parse_integer, self.attributes.get("replica_count", "1"))

    @property
    def num_partitions(self) -> int:
        return self._read(attr.parse_integer, self.attributes.get("num_partitions", "1"))

    @cached_property
    def computation_by_name(self) -> dict[str, HloComputation]:
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def outer_computations(self) -> list[HloComputation]:
        """The computations outside fusions: scheduled ones and those applied by them."""
        reached = {self.entry}
        pending = [self.entry]
        while pending:
            for instruction in pending.pop().instructions:
                called = instruction.called_computations
                if called and instruction.opcode != "fusion":
                    new = [callee for callee in called if callee not in reached]
                    reached.update(new)
                    pending += new
        return [computation for computation in self.computations if computation in reached]

    @cached_property
    def fused_computations(self) -> frozenset[HloComputation]:
        """The bodies of fusions, nested ones included."""
        return frozenset(
            callee
            for computation in list(self.computations)
            for call in computation.calls()
            if call.opcode == "fusion"
            for callee in call.called_computations
        )

    def ensure_header_read(self) -> None:
        """Read the first line and the tables; raises the first `ParseError`."""
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
        """Every instruction of every computation; reads all of them."""
        self.open_all()
        for computation in self.computations:
            yield from computation.instructions

    def iter_outer_instructions(self) -> Iterator[HloInstruction]:
        for computation in self.outer_computations:
            yield from computation.instructions

    @cached_property
    def outer_instruction_by_name(self) -> dict[str, HloInstruction]:
        return {instruction.name: instruction for instruction in self.iter_outer_instructions()}

    def validate(self) -> None:
        """Read everything that is still text; raises the first `ParseError`."""
        if self.reader is not None:
            self.reader.validate()
            return
        from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - it imports this

        parse(self.source.text, self.source.name, lazy=False)

    def _read(self, parse: Callable[[str], T], text: str) -> T:
        """`parse(text)`; errors point into the source."""
        try:
            return parse(text)
        except attr.TextProblem as problem:
            start = max(self.source.text.find(text), 0)
            raise problem.at(self.source, start) from None
