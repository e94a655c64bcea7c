"""The parts of one module's text, read when asked for.

In: a source and where its parts lie. Out: an `HloModule` that keeps this reader to open its
computations with. The reader knows two texts: the source the user wrote, and the one that is read,
which differs when the layout had to be normalized; every error is placed in the first.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.patterns import lazy_pattern
from hlomem.base.source import Source, Span
from hlomem.hlo.ir import MAIN_THREAD, BodyCall, HloComputation, HloModule
from hlomem.hlo.opcodes import PAYLOAD_OPCODES, Opcode
from hlomem.hlo.text import scanner, validation
from hlomem.hlo.text.async_sugar import is_sugared
from hlomem.hlo.text.attributes import TextProblem
from hlomem.hlo.text.body import (
    CONTROL_PREDECESSORS,
    IS_NATIVE,
    RowProblem,
    called_names,
    link_body,
    link_natively,
)
from hlomem.hlo.text.scanner import ComputationText, InstructionRow, ModuleText
from hlomem.hlo.text.shape_parser import ShapeTable
from hlomem.hlo.text.stack_frames import StackFrameTables
from hlomem.hlo.text.style import TextStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hlomem.hlo.ir import BodyPlace, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.freeform.writing import OffsetMap, Written
    from hlomem.hlo.text.scanner import InstructionRow, ModuleText

_SHAPED_OPERAND = lazy_pattern(r"\(|[a-z][a-z0-9]*+\[")
_FIRST_PARAMETER = lazy_pattern(r"\n  (?:ROOT )?%?(\S++) = \S++ parameter\(0\)", re.ASCII)


class LayoutError(ParseError):
    """A body that is not laid out as XLA prints it, or not with braces where they seem to be."""


class OrderError(ParseError):
    """A computation after one that calls it."""


class _Body(Struct, frozen=True, eq=False):
    """A body cut into rows, and the text the rows were cut from."""

    rows: list[InstructionRow]
    text: str
    start: int
    end: int
    offsets: OffsetMap | None
    """The original locations of the rows, if the text was rewritten."""
    long: list[Span] | None = None
    """The spans of the rows, if some go on in the next line."""


class ModuleReader:
    """Opens the computations of one module (`ir.TextReader`)."""

    def __init__(
        self,
        source: Source,
        spans: ModuleText,
        text: str | None = None,
        offsets: OffsetMap | None = None,
        *,
        is_trusted: bool = False,
    ) -> None:
        """`is_trusted` takes lines for the instructions they seem to be."""
        self.source = source
        self.findings: dict[tuple[int, Hashable], tuple[object, Any]] = {}
        self._text = source.text if text is None else text
        self._offsets = offsets
        self._is_trusted = is_trusted
        self._is_read = False
        self._is_opening = False
        self._spans = spans
        self._shapes = ShapeTable()
        self._is_plain = IS_NATIVE and offsets is None and self._text.isascii()
        self._calls: dict[HloComputation, list[BodyCall]] = {}
        self._module = self._make_module()

    def read(self) -> HloModule:
        """The module, with everything read that no fusion hides."""
        pending = [self._module.entry]
        while pending:
            computation = pending.pop()
            if not computation.is_open:
                pending += self._open(computation)
        self._is_read = True
        return self._module

    def open(self, computation: HloComputation) -> None:
        """Read the instructions of a computation."""
        self._open(computation)

    def outline(self, computation: HloComputation) -> list[tuple[Shape, Opcode]]:
        """Shape and opcode of every instruction of the body."""
        body = _text_of(computation).body
        rows = scanner.outline_rows(self._text, *body)
        # `%fusion#1` stands for an instruction that has no row.
        has_implied = self._text.find("#", *body) >= 0
        if has_implied or len(rows) != scanner.count_lines(self._text, *body):
            return [
                (instruction.shape, instruction.opcode) for instruction in computation.instructions
            ]
        try:
            return [(self._shapes[shape], opcode) for shape, opcode in rows]
        except ParseError:
            computation.ensure_read()  # raises the error at its location
            raise

    def calls(self, computation: HloComputation) -> list[BodyCall]:
        """The instructions of the body that call computations; looked for once."""
        known = self._calls.get(computation)
        if known is None:
            known = self._calls[computation] = self._find_calls(computation)
        return known

    def _find_calls(self, computation: HloComputation) -> list[BodyCall]:
        place = self.body_place(computation)
        rows = None if place is None else scanner.calling_rows(*place)
        if rows is None:
            return self._linked_calls(computation)
        by_name, index = computation.module.computation_by_name, computation.index
        calls: list[BodyCall] = []
        for opcode, attributes in rows:
            try:
                called = tuple([by_name[name] for name in called_names(opcode, attributes)])
            except (KeyError, RowProblem):
                return self._linked_calls(computation)
            if is_sugared(opcode) or [callee for callee in called if callee.index >= index]:
                return self._linked_calls(computation)
            if called:
                calls.append(BodyCall(opcode, called, attributes))
        return calls

    def _linked_calls(self, computation: HloComputation) -> list[BodyCall]:
        """The same of a body that must be read; raises what is wrong with it, at its location."""
        computation.ensure_read()
        return computation.calls()

    def first_parameter(self, computation: HloComputation) -> str:
        """The name of the first parameter."""
        body = _text_of(computation).body
        match = _FIRST_PARAMETER.search(self._text, *body) if self._offsets is None else None
        if match is not None:
            return match[1]
        if self._text.find(" parameter(", *body) < 0:
            return ""
        computation.ensure_read()
        return computation.first_parameter_name

    def body_place(self, computation: HloComputation) -> BodyPlace | None:
        """The location of the body, unless the text is laid out otherwise than XLA prints it."""
        if self._offsets is not None:
            return None
        unread: Any = computation.unread  # `_text_of`, without waiting for it
        return self._text, *unread.body

    def locate(self, computation: HloComputation, name: str) -> Span:
        """The span of an instruction; the head of its computation if it has no line."""
        body = self._body(computation)
        for row, parts in enumerate(body.rows):
            if parts[1] == name:
                return self._place(body, row, None)
        return self._head(computation)

    def style(self) -> TextStyle:
        """The style of the text."""
        if self._offsets is not None:
            return TextStyle(async_sugar=True, large_constants=False)
        text, first = self._text, self._spans.computations[0]
        head = text[first.head_start : first.body[0]]
        opcodes: set[str] = set()
        operands: list[str] = []
        for computation in self._read_computations():
            for _, _, _, opcode, inner, _ in self._body(computation).rows:
                opcodes.add(opcode)
                if inner and opcode not in PAYLOAD_OPCODES:
                    operands.append(inner)
        return TextStyle(
            percent=head.removeprefix("ENTRY ").startswith("%"),
            operand_shapes=any(map(_SHAPED_OPERAND.match, operands[:1])),
            program_shape="(" in head,
            compact_gte=any("#" in inner for inner in operands),
            name_after_brace=any(
                computation.has_name_after_brace for computation in self._spans.computations
            ),
            async_sugar=any(map(is_sugared, opcodes)),
        )

    def implies_elements(self) -> bool:
        """Whether an operand names an element of a tuple that has no line of its own."""
        # The style of a text is known when all of it has been read.
        return "#" in self._text and self._module.style.compact_gte

    def validate(self) -> None:
        """Read what was left as text, and check it (`hlomem.hlo.text.validation`)."""
        self._module.open_all()
        self._module.ensure_header_read()
        instruction_of: dict[str, HloInstruction] = {}  # many instructions share their text
        constant_of: dict[str, HloInstruction] = {}
        for computation in self._read_computations():
            for instruction in computation.instructions:
                instruction_of.setdefault(instruction.attribute_text, instruction)
                if instruction.opcode == "constant":
                    constant_of.setdefault(instruction.payload, instruction)
            self._check_head(computation)
        unproven = validation.unproven_attributes(instruction_of)
        for text, instruction in instruction_of.items():
            if text in unproven:
                self._check_text(instruction, text, validation.check_attributes)
        for text, instruction in constant_of.items():
            self._check_text(instruction, text, validation.check_literal)
        if not scanner.says_entry_layout(self._text, self._spans.header):
            from hlomem.hlo.text.freeform.module import check  # noqa: PLC0415 - no text of XLA's

            check(self.source)

    def _check_text(
        self, instruction: HloInstruction, text: str, check: Callable[[str], None]
    ) -> None:
        """Run a check on a part of an instruction's text, and place what it finds."""
        try:
            check(text)
        except TextProblem as problem:
            span = instruction.span
            start = self.source.text.find(text, span.start, span.end)
            if start < 0:  # the text is not as the user wrote it
                raise ParseError(self.source, span, problem.problem, problem.hint) from None
            raise problem.at(self.source, start) from None

    def _read_computations(self) -> list[HloComputation]:
        """The computations that have a text of their own: not those of sugared async operations."""
        by_name = self._module.computation_by_name
        return [by_name[span.name] for span in self._spans.computations]

    def _make_module(self) -> HloModule:
        """The module with its computations, none of them read."""
        spans = self._spans
        header = self._text[spans.header.start : spans.header.end]
        # Tables are read from the text that has them in rows.
        source = self.source if self._offsets is None else Source(self.source.name, self._text)
        tables = StackFrameTables(source, spans.tables)
        module = HloModule(spans.name, header, tables, self)
        entry: HloComputation | None = None
        for index, span in enumerate(spans.computations):
            thread = span.execution_thread or MAIN_THREAD
            computation = HloComputation(
                module, span.name, index, span.is_entry, thread, self, span
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
        """Read a computation; returns its callees other than fused bodies."""
        if self._is_plain and (callees := self._open_natively(computation)) is not None:
            return callees
        body = self._body(computation)
        if not body.rows:
            problem = f"computation `{computation.name}` has no instructions"
            raise ParseError(self.source, self._head(computation), problem)
        try:
            return self._link(computation, body)
        except RowProblem as problem:
            error = self._row_error(body, problem)
        if not self._is_read or self._offsets is not None:
            raise error
        # Maybe it only looks as if XLA had printed it.
        try:
            return self._link(computation, self._free_body(computation))
        except ParseError:
            raise error from None

    def _link(self, computation: HloComputation, body: _Body) -> list[HloComputation]:
        control = body.text.find(f"{CONTROL_PREDECESSORS}=", body.start, body.end)
        return link_body(
            computation,
            body.rows,
            self._shapes,
            computation.module.computation_by_name,
            has_control=control >= 0,
        )

    def _open_natively(self, computation: HloComputation) -> list[HloComputation] | None:
        """As `_open`; None where the rows have to be cut and looked at one by one."""
        text, (start, end) = self._text, _text_of(computation).body
        control = text.find(f"{CONTROL_PREDECESSORS}=", start, end)
        place = (text, start, end)
        return link_natively(computation, place, self._shapes, has_control=control >= 0)

    def _body(self, computation: HloComputation) -> _Body:
        """The rows of a computation; one that is not as XLA prints it is read freely."""
        span = _text_of(computation)
        body = _cut(self._text, *span.body, self._offsets)
        if body is None:
            return self._free_body(computation)
        if self._is_trusted or self._offsets is not None:
            return body
        has_more = self._text.count(" = ", *span.body) > len(body.rows)  # one on each line is known
        if has_more and scanner.may_hide_instructions(body.rows):
            return self._free_body(computation, body)
        return body

    def _free_body(self, computation: HloComputation, seeming: _Body | None = None) -> _Body:
        """The rows of a body in any form; while all of a text is read, that is read freely."""
        if not self._is_read:
            raise LayoutError(self.source, self._head(computation), "not as XLA prints it")
        from hlomem.hlo.text.freeform.lone_body import rewrite_body  # noqa: PLC0415 - few texts

        self._open_above(computation)
        try:
            *inner, (_, own) = rewrite_body(computation, _text_of(computation).body)
        except ParseError:
            if seeming is None:
                raise
            return seeming
        for added, written in inner:
            self._link(added, _cut_written(written))
        return _cut_written(own)

    def _open_above(self, computation: HloComputation) -> None:
        """Read all that a computation may call, from the top, so that no reading waits for one."""
        if self._is_opening:
            return
        self._is_opening = True
        for above in computation.module.computations[: computation.index]:
            if not above.is_open:
                with suppress(ParseError):  # raised again when it is used
                    self._open(above)
        self._is_opening = False

    def _row_error(self, body: _Body, problem: RowProblem) -> ParseError:
        span = self._place(body, problem.row or 0, problem)
        kind = OrderError if problem.is_of_order else ParseError
        return kind(self.source, span, problem.problem, problem.hint)

    def _place(self, body: _Body, row: int, problem: RowProblem | None) -> Span:
        """The span in the source of a row, or of the part of it that has a problem."""
        part = problem.part if problem else None
        if body.long is None:
            span = scanner.row_part(body.text, body.start, body.end, row, part)
        else:
            from hlomem.hlo.text.long_lines import long_row_part  # noqa: PLC0415 - few texts

            span = long_row_part(body.text, body.long[row], part)
        if problem is not None and problem.offsets is not None:
            start, end = problem.offsets
            span = Span(span.start + start, span.start + max(start + 1, end))
        return span if body.offsets is None else body.offsets.span(span)

    def _check_head(self, computation: HloComputation) -> None:
        """The first line promises the root's result (`HloParserImpl::ParseComputation`)."""
        span = _text_of(computation)
        head = self._text[span.head_start : span.body[0]]
        if validation.is_usual_head(head, computation):
            return
        source = Source(self.source.name, self._text)
        try:
            result = validation.check_head(source, span.head_start)
        except ParseError as error:
            raise self._error(error.span, error.problem, error.hint) from None
        promised, place = result or (computation.root.shape, Span(0, 0))
        expected = computation.root.shape.text_without_layout
        if promised.text_without_layout != expected:
            problem = f"computation `{computation.name}` does not return this shape"
            hint = f"its root `{computation.root.name}` has shape `{expected[:80]}`"
            raise self._error(place, problem, hint)

    def _defined_twice(self) -> ParseError:
        seen: set[str] = set()
        for span in self._spans.computations:
            if span.name in seen:
                break
            seen.add(span.name)
        return self._error(self._head_span(span), f"computation `{span.name}` is defined twice")

    def _head(self, computation: HloComputation) -> Span:
        return self._original(self._head_span(_text_of(computation)))

    def _head_span(self, span: ComputationText) -> Span:
        start = self._text.index(span.name, span.head_start)
        return Span(start, start + len(span.name))

    def _error(self, span: Span, problem: str, hint: str = "") -> ParseError:
        return ParseError(self.source, self._original(span), problem, hint)

    def _original(self, span: Span) -> Span:
        return span if self._offsets is None else self._offsets.span(span)


def _cut(text: str, start: int, end: int, offsets: OffsetMap | None) -> _Body | None:
    """A body cut into rows; None where it is not laid out as XLA prints it."""
    rows = scanner.instruction_rows(text, start, end)
    if rows is not None:
        return _Body(rows, text, start, end, offsets)
    from hlomem.hlo.text.long_lines import cut_row, long_rows  # noqa: PLC0415 - few texts

    spans = long_rows(text, start, end)
    if spans is None:
        return None
    return _Body([cut_row(text, span) for span in spans], text, start, end, offsets, spans)


def _cut_written(written: Written) -> _Body:
    text = written.text
    body = _cut(text, 0, len(text), written.offsets)
    assert body is not None, "it was written as XLA prints it"
    return body


def _text_of(computation: HloComputation) -> ComputationText:
    unread = computation.unread
    assert isinstance(unread, ComputationText), "the reader is asked about what it reads"
    return unread
