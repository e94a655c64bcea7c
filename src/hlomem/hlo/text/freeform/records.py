"""Instructions and computations while a text is read, with their locations.

The reader fills them in the order of XLA's lists, which are not those of the text where operands or
computations are nested in instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.source import Span  # noqa: TC001 - msgspec reads annotations
from hlomem.hlo.ir import MAIN_THREAD
from hlomem.hlo.opcodes import as_opcode, traits_of
from hlomem.hlo.text.attributes import ProgramShape

if TYPE_CHECKING:
    from hlomem.hlo.shape import Shape


class DraftInstruction(Struct, eq=False):
    """An instruction as it was read."""

    name: str
    shape: Shape
    opcode: str
    operands: list[DraftInstruction]
    payload: str
    """The text between the parentheses where that is not operands."""
    attributes: dict[str, str]
    """Texts by name, in the order they are printed; empty where callees or instructions are named,
    and written from the links."""
    span: Span
    called: dict[str, list[DraftComputation]] = {}
    """The computations that attributes name."""
    predecessors: list[DraftInstruction] = []
    has_users: bool = False

    @property
    def callees(self) -> list[DraftComputation]:
        """The computations it calls, in the order XLA keeps them."""
        order = [name for name, _ in traits_of(as_opcode(self.opcode)).calls]
        return [callee for name in order for callee in self.called.get(name, ())]


class DraftComputation(Struct, eq=False):
    """A computation as it was read."""

    name: str
    span: Span
    """Of its name, or of the brace where it has none."""
    instructions: list[DraftInstruction] = []
    root: DraftInstruction | None = None
    thread: str = MAIN_THREAD
    is_entry: bool = False

    @property
    def parameters(self) -> list[DraftInstruction]:
        """The parameters by number."""
        found = [
            instruction for instruction in self.instructions if instruction.opcode == "parameter"
        ]
        return sorted(found, key=lambda instruction: int(instruction.payload))

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of parameters and of the result."""
        assert self.root is not None, "a computation that was read has a root"
        shapes = tuple([parameter.shape for parameter in self.parameters])
        return ProgramShape(shapes, self.root.shape)
