"""Instructions with parameters and a root, read on demand (`hlo/ir/hlo_computation.h`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hlomem.base.source import Source, Span
    from hlomem.hlo.ir.instruction import HloInstruction
    from hlomem.hlo.ir.module import HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape

MAIN_THREAD = "main"
Found = TypeVar("Found")

BodyPlace = tuple[str, int, int]
"""A text, and the begin and end of a body in it."""


class BodyCall(Struct, frozen=True):
    """A calling instruction, known without reading its body."""

    opcode: Opcode
    called_computations: tuple[HloComputation, ...]
    attribute_text: str


class BodyReader(Protocol):
    """The parser as a computation sees it: reads bodies on demand."""

    findings: dict[tuple[int, Hashable], tuple[object, Any]]
    """About bodies as they were read, by `unread` and what was asked, which copies share."""

    @property
    def source(self) -> Source:
        """The user's text, or the printed module."""

    def open(self, computation: HloComputation) -> None:
        """Read the instructions of `computation` and `fill` it."""

    def outline(self, computation: HloComputation) -> list[tuple[Shape, Opcode]]:
        """Shape and opcode of every instruction of the body; links nothing."""

    def calls(self, computation: HloComputation) -> list[BodyCall]:
        """The calling instructions of the body; links nothing."""

    def first_parameter(self, computation: HloComputation) -> str:
        """The name of parameter 0, or an empty string; links nothing."""

    def body_place(self, computation: HloComputation) -> BodyPlace | None:
        """The location of the body; None if it is not formatted as by XLA."""

    def locate(self, computation: HloComputation, name: str) -> Span:
        """The span of an instruction's text."""


class HloComputation(Struct, eq=False):
    module: HloModule
    name: str
    index: int
    """Position in the module; callees have smaller ones."""
    is_entry: bool
    execution_thread: str
    reader: BodyReader | None = None
    """Reads its text or message, if any."""
    unread: object = None
    """The location of its text, or its message, for the reader."""
    is_fused: bool = False
    """Whether a fusion that has been read calls it; `HloModule.fused_computations` has all."""
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
        *,
        has_users: bool = False,
    ) -> None:
        """Set the body, once; with `has_users` the users of all instructions are already set."""
        for instruction in () if has_users else instructions:
            for operand in instruction.operands:
                users = operand.users
                if not users or users[-1] is not instruction:
                    users.append(instruction)
        self._instructions = instructions
        self._parameters = parameters
        self._root = root

    @property
    def is_open(self) -> bool:
        """Whether the instructions have been read; only for `hlo`."""
        return self._instructions is not None

    @property
    def instructions(self) -> list[HloInstruction]:
        """The instructions in the order of the text, which is the schedule if there is one."""
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
        if self._root is None:
            self.ensure_read()
        assert self._root is not None
        return self._root

    def ask_once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """A finding about the text of its body alone, made once for all copies of its module."""
        if self.reader is None:
            return find()
        known = self.reader.findings.get((id(self.unread), key))
        if known is None:
            known = self.unread, find()
            self.reader.findings[id(self.unread), key] = known
        found: Found = known[1]
        return found

    def ensure_read(self) -> None:
        """Read the instructions, if they are not read yet; raises `ParseError`."""
        if self._instructions is None:
            assert self.reader is not None, "a computation without a reader is filled at once"
            self.reader.open(self)

    @property
    def body_text(self) -> str | None:
        """The lines between its braces; None if edited or not formatted as by XLA."""
        place = self.body_place
        return None if place is None else place[0][place[1] : place[2]]

    @property
    def body_place(self) -> BodyPlace | None:
        """The location of `body_text`."""
        return None if self.reader is None else self.reader.body_place(self)

    @property
    def instruction_count(self) -> int:
        """`len(instructions)`, without reading them."""
        return len(self.outline())

    def outline(self) -> list[tuple[Shape, Opcode]]:
        """Shape and opcode of each instruction, without reading the rest."""
        if self._instructions is None and self.reader is not None:
            return self.reader.outline(self)
        return [(instruction.shape, instruction.opcode) for instruction in self.instructions]

    def calls(self) -> list[BodyCall]:
        """The calling instructions in order, without reading the others."""
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
        """The name of parameter 0, or an empty string, without reading the instructions."""
        if self._instructions is None and self.reader is not None:
            return self.reader.first_parameter(self)
        return self.parameters[0].name if self.parameters else ""

    @property
    def source(self) -> Source:
        """The text it was read from, or the printed module."""
        return self.module.source if self.reader is None else self.reader.source

    def locate(self, name: str) -> Span:
        """The span of an instruction in `source`."""
        if self.reader is not None:
            return self.reader.locate(self, name)
        from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - it imports this, errors only

        return parse(self.source.text).computation_by_name[self.name].locate(name)

    def find(self, name: str) -> HloInstruction | None:
        return next((found for found in self.instructions if found.name == name), None)
