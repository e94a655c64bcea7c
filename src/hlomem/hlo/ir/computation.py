"""A computation: a list of instructions with parameters and a root, read when first asked for.

In: a reader that opens its body when somebody asks, or the instructions themselves. Out:
`HloComputation`. Mirrors `hlo/ir/hlo_computation.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from hlomem.base.named_tuples import NamedTuple

if TYPE_CHECKING:
    from hlomem.base.source import Source, Span
    from hlomem.hlo.ir.instruction import HloInstruction
    from hlomem.hlo.ir.module import HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape

MAIN_THREAD = "main"

BodyPlace = tuple[str, int, int]
"""A text, and where a body begins and ends there."""


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

    def body_place(self, computation: HloComputation) -> BodyPlace | None:
        """The text that has the body, and where; None if it is not laid out as XLA prints it."""

    def locate(self, computation: HloComputation, name: str) -> Span:
        """The span of an instruction's text."""


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
        *,
        has_users: bool = False,
    ) -> None:
        """Set the body; called once, by the maker of the computation.

        `has_users` says that the users of all instructions are known already.
        """
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
        place = self.body_place
        if place is None:
            return None
        text, start, end = place
        return text[start:end]

    @property
    def body_place(self) -> BodyPlace | None:
        """The text that `body_text` is a part of, where it begins and where it ends."""
        return None if self.reader is None else self.reader.body_place(self)

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
