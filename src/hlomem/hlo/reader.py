"""The parts of one module's text, read when asked for.

In: a source and where its parts lie. Out: an `HloModule` that keeps this reader to open its
computations with. The reader knows two texts: the source the user wrote, and the one that is read,
which differs when the layout had to be normalized; every error is placed in the first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.errors import ParseError
from hlomem.hlo import scanner
from hlomem.hlo.async_sugar import is_sugared
from hlomem.hlo.attributes import (
    TextProblem,
    check_attributes,
    check_brackets,
    need_check,
)
from hlomem.hlo.body import CONTROL_PREDECESSORS, RowProblem, link_body
from hlomem.hlo.ir import MAIN_THREAD, HloComputation, HloModule
from hlomem.hlo.normalizer import OffsetMap, normalize_body
from hlomem.hlo.opcodes import PAYLOAD_OPCODES
from hlomem.hlo.shape_parser import ShapeTable, parse_shape
from hlomem.hlo.stack_frames import StackFrameTables
from hlomem.hlo.style import TextStyle
from hlomem.source import Source, Span

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.scanner import ComputationText, InstructionRow, ModuleText
    from hlomem.hlo.shape import Shape

NOT_AN_INSTRUCTION = "not an instruction"

_INSTRUCTION_FORM = "an instruction reads `%name = shape opcode(operands), attribute=value`"
_SHAPED_OPERAND = re.compile(r"\(|[a-z][a-z0-9]*+\[")


class LayoutError(ParseError):
    """A body that cannot be cut into instructions: maybe its braces are not where they seem."""


class _Body(NamedTuple):
    """A body cut into rows, and the text the rows were cut from."""

    rows: list[InstructionRow]
    text: str
    start: int
    end: int
    offsets: OffsetMap | None


class ModuleReader:
    """Opens the computations of one module (`ir.BodyReader`)."""

    def __init__(
        self,
        source: Source,
        spans: ModuleText,
        text: str | None = None,
        offsets: OffsetMap | None = None,
    ) -> None:
        self._source = source
        self._text = source.text if text is None else text
        self._offsets = offsets
        self._spans = spans
        self._shapes = ShapeTable()
        self._module = self._make_module()

    def read(self) -> HloModule:
        """The module, with everything read that no fusion hides."""
        pending = [self._module.entry]
        while pending:
            computation = pending.pop()
            if not computation.is_open:
                pending += self._open(computation)
        return self._module

    def open(self, computation: HloComputation) -> None:
        """Read the instructions of a computation."""
        self._open(computation)

    def outline(self, computation: HloComputation) -> list[tuple[Shape, str]]:
        """Shape and opcode of every instruction of the body."""
        span = self._spans.computations[computation.index]
        rows = scanner.outline_rows(self._text, span.body_start, span.body_end)
        if len(rows) != scanner.count_lines(self._text, span.body_start, span.body_end):
            return [(each.shape, each.opcode) for each in computation.instructions]
        try:
            return [(self._shapes[shape], opcode) for shape, opcode in rows]
        except ParseError:
            computation.instructions  # noqa: B018 - raises the error in its place
            raise

    def locate(self, computation: HloComputation, name: str) -> Span:
        """Where an instruction stands; the head of its computation if it has no line."""
        body = self._body(computation)
        for row, parts in enumerate(body.rows):
            if parts[1] == name:
                return self._place(body, row, None)
        return self._head(computation)

    def style(self) -> TextStyle:
        """How the text is written."""
        text, first = self._text, self._spans.computations[0]
        head = text[first.head_start : first.body_start]
        rows = [
            (opcode, inner)
            for computation in self._read_computations()
            for _, _, _, opcode, inner, _ in self._body(computation).rows
            if inner and opcode not in PAYLOAD_OPCODES
        ]
        return TextStyle(
            percent=head.removeprefix("ENTRY ").startswith("%"),
            operand_shapes=any(_SHAPED_OPERAND.match(inner) for _, inner in rows[:1]),
            program_shape="(" in head,
            compact_gte=any("#" in inner for _, inner in rows),
            name_after_brace=any(each.has_name_after_brace for each in self._spans.computations),
            async_sugar=any(is_sugared(opcode) for opcode in {opcode for opcode, _ in rows}),
        )

    def validate(self) -> None:
        """Read what was left as text."""
        checked: set[str] = set()  # many instructions share their text
        for computation in self._read_computations():
            instructions = computation.instructions
            texts = {instruction.unread_attributes for instruction in instructions} - checked
            checked |= texts
            doubtful = {text for text in texts if need_check(text)}
            for instruction in instructions:
                if doubtful and instruction.unread_attributes in doubtful:
                    self._check_attributes(instruction, instruction.unread_attributes)
                if instruction.opcode == "constant":
                    self._check_literal(instruction)
            self._check_result(computation)

    def _check_attributes(self, instruction: HloInstruction, text: str) -> None:
        try:
            check_attributes(text)
        except TextProblem as problem:
            start = self._source.text.find(text, instruction.span.start)
            raise problem.at(self._source, max(start, instruction.span.start)) from None

    def _check_literal(self, instruction: HloInstruction) -> None:
        if instruction.payload.isalnum():
            return
        try:
            check_brackets(instruction.payload)
        except TextProblem as problem:
            raise instruction.error(f"{problem.problem} in the literal") from None

    def _read_computations(self) -> list[HloComputation]:
        """The computations that have a text of their own: not those of sugared async operations."""
        by_name = self._module.computation_by_name
        return [by_name[span.name] for span in self._spans.computations]

    def _make_module(self) -> HloModule:
        spans = self._spans
        header = self._text[spans.header.start : spans.header.end]
        has_tables = spans.tables.end > spans.tables.start
        place = self._original(spans.tables) if has_tables else Span(0, 0)
        tables = StackFrameTables(self._source, place)
        module = HloModule(spans.name, self._source, header, tables)
        module.reader = self
        entry: HloComputation | None = None
        for index, span in enumerate(spans.computations):
            computation = HloComputation(
                module,
                span.name,
                index,
                is_entry=span.is_entry,
                execution_thread=span.execution_thread or MAIN_THREAD,
            )
            module.computations.append(computation)
            if span.is_entry:
                if entry is not None:
                    raise self._error(self._head_span(span), "a module has only one ENTRY")
                entry = computation
        if len(module.computation_by_name) != len(spans.computations):
            raise self._defined_twice()
        module.entry = entry or module.computations[-1]
        module.entry.is_entry = True
        return module

    def _open(self, computation: HloComputation) -> list[HloComputation]:
        """Read a computation; returns what it calls other than through fusions."""
        body = self._body(computation)
        if not body.rows:
            problem = f"computation `{computation.name}` has no instructions"
            raise ParseError(self._source, self._head(computation), problem)
        control = body.text.find(f"{CONTROL_PREDECESSORS}=", body.start, body.end)
        try:
            callees = link_body(
                computation,
                body.rows,
                self._shapes,
                self._module.computation_by_name,
                has_control=control >= 0,
            )
        except RowProblem as problem:
            raise self._row_error(body, problem) from None
        return callees

    def _body(self, computation: HloComputation) -> _Body:
        """The rows of a computation; those of another layout than XLA's are normalized first."""
        span = self._spans.computations[computation.index]
        body = self._cut(self._text, span.body_start, span.body_end, self._offsets)
        if body is None and self._offsets is None:
            try:
                text, offsets = normalize_body(self._source, span.body_start, span.body_end)
            except ParseError as error:
                raise LayoutError(self._source, error.span, error.problem, error.hint) from None
            body = self._cut(text, 0, len(text), offsets)
            if body is None:
                bad = scanner.first_bad_line(self._text, span.body_start, span.body_end)
                raise LayoutError(self._source, bad, NOT_AN_INSTRUCTION, _INSTRUCTION_FORM)
        if body is None:
            bad = scanner.first_bad_line(self._text, span.body_start, span.body_end)
            raise self._error(bad, NOT_AN_INSTRUCTION, _INSTRUCTION_FORM)
        return body

    def _cut(self, text: str, start: int, end: int, offsets: OffsetMap | None) -> _Body | None:
        rows = scanner.instruction_rows(text, start, end)
        return None if rows is None else _Body(rows, text, start, end, offsets)

    def _row_error(self, body: _Body, problem: RowProblem) -> ParseError:
        span = self._place(body, problem.row or 0, problem)
        return ParseError(self._source, span, problem.problem, problem.hint)

    def _place(self, body: _Body, row: int, problem: RowProblem | None) -> Span:
        """Where a row, or the part of it a problem is in, stands in the source."""
        part = problem.part if problem else None
        span = scanner.row_part(body.text, body.start, body.end, row, part)
        if problem is not None and problem.offsets is not None:
            start, end = problem.offsets
            span = Span(span.start + start, span.start + max(start + 1, end))
        return span if body.offsets is None else body.offsets.span(span)

    def _check_result(self, computation: HloComputation) -> None:
        """The result the head promises is what the root has (`HloParserImpl::ParseComputation`)."""
        span = self._spans.computations[computation.index]
        promised = computation.root.shape.text_without_layout
        if self._text.endswith(f"-> {promised} {{", span.head_start, span.body_start):
            return
        arrow = self._text.rfind("->", span.head_start, span.body_start)
        if arrow < 0:
            return
        shape, end = parse_shape(Source(self._source.name, self._text), arrow + 2, self._shapes)
        if shape.text_without_layout != promised:
            problem = f"computation `{computation.name}` does not return this shape"
            hint = f"its root `{computation.root.name}` has shape `{promised[:80]}`"
            raise self._error(Span(arrow + 3, end), problem, hint)

    def _defined_twice(self) -> ParseError:
        seen: set[str] = set()
        for span in self._spans.computations:
            if span.name in seen:
                break
            seen.add(span.name)
        return self._error(self._head_span(span), f"computation `{span.name}` is defined twice")

    def _head(self, computation: HloComputation) -> Span:
        return self._original(self._head_span(self._spans.computations[computation.index]))

    def _head_span(self, span: ComputationText) -> Span:
        start = self._text.index(span.name, span.head_start)
        return Span(start, start + len(span.name))

    def _error(self, span: Span, problem: str, hint: str = "") -> ParseError:
        return ParseError(self._source, self._original(span), problem, hint)

    def _original(self, span: Span) -> Span:
        return span if self._offsets is None else self._offsets.span(span)
