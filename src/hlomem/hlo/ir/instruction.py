"""An instruction, with attributes that are parsed on demand (`hlo/ir/hlo_instruction.h`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.hlo.opcodes import ASYNC_OPCODES, Opcode, call_role
from hlomem.hlo.text import attributes as attr

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.base.source import Span
    from hlomem.hlo.ir.computation import HloComputation
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.stack_frames import StackFrame
    from hlomem.hlo.traits import CallRole

T = TypeVar("T")


class CalledComputation(Struct, frozen=True):
    role: CallRole
    computation: HloComputation


class UnreadAttributes(Protocol):
    """The attributes in a proto message, with the methods of `HloInstruction`."""

    tuple_index: int

    def read(self, instruction: HloInstruction) -> dict[str, str]:
        """`HloInstruction.attributes`."""

    def may_have(self, name: str) -> bool:
        """`HloInstruction.may_have`."""


class HloInstruction(Struct, eq=False):
    """One instruction, compared by identity; immutable after parsing."""

    name: str
    shape: Shape
    opcode: Opcode
    """Known or not."""
    operands: tuple[HloInstruction, ...]
    payload: str
    """The text instead of operands: a parameter's number, a constant's literal."""
    _attributes: str | dict[str, str] | UnreadAttributes
    parent: HloComputation
    index: int
    """Position in `parent.instructions`."""
    called_computations: tuple[HloComputation, ...] = ()
    """In XLA's order: a while calls its body, then its condition (`CreateWhile`)."""
    control_predecessors: tuple[HloInstruction, ...] = ()
    users: list[HloInstruction] = []
    """Distinct users in the order of the text; complete when the computation is."""

    def __repr__(self) -> str:
        return f"<{self.opcode} %{self.name}>"

    @property
    def attributes(self) -> dict[str, str]:
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
        """Replace the attributes of an instruction in construction."""
        self._attributes = attributes

    @property
    def attribute_text(self) -> str:
        """The attributes after the operands, with the first comma."""
        attributes = self._attributes
        if isinstance(attributes, str):
            return attributes
        return "".join([f", {name}={value}" for name, value in self.attributes.items()])

    def may_have(self, name: str) -> bool:
        """Whether there may be an attribute, without parsing; false is certain."""
        attributes = self._attributes
        if isinstance(attributes, str | dict):
            return name in attributes
        return attributes.may_have(name)

    @property
    def metadata(self) -> attr.Metadata:
        """The metadata, with empty fields if there is none."""
        return self._read(attr.parse_metadata, self.attributes.get("metadata", "{}"))

    @property
    def backend_config(self) -> attr.Json:
        """The JSON value, or a string; None if absent."""
        text = self.attributes.get("backend_config")
        return None if text is None else self._read(attr.parse_backend_config, text)

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """The `frontend_attributes={...}` map, without quotes."""
        return self._read(attr.parse_string_map, self.attributes.get("frontend_attributes", "{}"))

    @property
    def output_to_operand_aliasing(self) -> tuple[attr.OperandAlias, ...]:
        """The parts of a custom call's or fusion's result that overwrite operands."""
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
        """The value of a `{1,2,3}` attribute; empty if absent."""
        return self._read(attr.parse_integers, self.attributes.get(name, "{}"))

    def string(self, name: str) -> str | None:
        """The value of an attribute without quotes; None if absent."""
        text = self.attributes.get(name)
        return None if text is None else self._read(attr.parse_string, text)

    @property
    def tuple_index(self) -> int:
        attributes = self._attributes
        if isinstance(attributes, str):  # XLA prints it first, which spares parsing the rest
            match = attr.FIRST_INDEX.match(attributes)
            if match is not None:
                return int(match[1])
        elif not isinstance(attributes, dict):
            return attributes.tuple_index
        return self._read(attr.parse_integer, self.attributes.get("index", ""))

    @property
    def parameter_number(self) -> int:
        return int(self.payload)

    @property
    def custom_call_target(self) -> str | None:
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
        """The start of an asynchronous operation (`HloAsyncInstruction::async_chain_start`)."""
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
        """The computation of an asynchronous operation; None for other opcodes."""
        start = self.async_start
        return start.called_computations[0] if start and start.called_computations else None

    @property
    def is_root(self) -> bool:
        return self.parent.root is self

    @property
    def stack_frames(self) -> list[StackFrame]:
        """The stack frames of its origin, innermost first; empty without tables."""
        return self.parent.module.stack_frame_tables.frames(self.metadata.stack_frame_id)

    @property
    def span(self) -> Span:
        """The span of the instruction in `parent.source`."""
        return self.parent.locate(self.name)

    def error(
        self, problem: str, hint: str = "", kind: type[ParseError] = ParseError
    ) -> ParseError:
        return kind(self.parent.source, self.span, problem, hint)

    def _read(self, parse: Callable[[str], T], text: str) -> T:
        """`parse(text)`; errors point into the source."""
        try:
            return parse(text)
        except attr.TextProblem as problem:
            source, span = self.parent.source, self.span
            start = max(source.text.find(text, span.start, span.end), span.start)
            raise problem.at(source, start) from None
