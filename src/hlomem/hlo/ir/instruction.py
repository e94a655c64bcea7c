"""An operation: its shape, operands, users and attributes, and the computations it calls.

In: what a reader or builder says of it; attributes stay text, or a message, until somebody asks.
Out: `HloInstruction`, compared by identity. Mirrors `hlo/ir/hlo_instruction.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.named_tuples import NamedTuple
from hlomem.hlo.opcodes import ASYNC_OPCODES, call_role
from hlomem.hlo.text import attributes as attr

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.base.source import Span
    from hlomem.hlo.ir.computation import HloComputation
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.stack_frames import StackFrame
    from hlomem.hlo.traits import CallRole

T = TypeVar("T")


class CalledComputation(NamedTuple):
    """A computation an instruction calls, and what for."""

    role: CallRole
    computation: HloComputation


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
        aliases = () if text is None else self._read(attr.parse_operand_aliasing, text)
        if self.opcode != "async-start":  # its parts may be bound later
            for alias in aliases:
                self._refuse_missing(alias)
        return aliases

    def _refuse_missing(self, alias: attr.OperandAlias) -> None:
        """Raise for an alias of parts that are not there."""
        number = alias.operand_number
        operand = self.operands[number].shape if number < len(self.operands) else None
        for name, shape, index in (
            (f"operand {number}", operand, alias.operand_index),
            ("output", self.shape, alias.output_index),
        ):
            if shape is None or shape.optional_subshape(index) is None:
                problem = f"output_to_operand_aliasing names {name} {index}, which is not there"
                raise self.error(problem)

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
