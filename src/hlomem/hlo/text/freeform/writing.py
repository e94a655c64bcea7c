"""Drafts → the text XLA prints, and a map of its lines to where they stood.

In: a module as it was read. Out: `Written`. The order of computations is that of
`HloModule::PrintComputations`, the order of instructions that of the schedule or
`HloComputation::ForEachInstructionPostOrder`. Async operations are written out, with the
computations they call: the printer makes them short again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from hlomem.base.source import Span
from hlomem.hlo.ir import MAIN_THREAD
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.freeform.tokens import TooLongError
from hlomem.hlo.text.print_order import printed_order
from hlomem.hlo.text.printer import format_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.base.source import Source
    from hlomem.hlo.text.freeform.module import DraftModule
    from hlomem.hlo.text.freeform.records import DraftComputation, DraftInstruction

_MAX_LENGTH = 1 << 30
"""Shapes that are inferred may be much longer than the text they are inferred from."""
_LISTED = frozenset(("branch_computations", "called_computations"))


class OffsetMap:
    """A map from spans of a written text to those of the source it was read from.

    A part of a line maps to the whole instruction or head that the line was.
    """

    def __init__(self) -> None:
        self._starts = array("q")
        self._spans: list[Span] = []

    def add(self, start: int, span: Span) -> None:
        """The line that begins at `start` was at `span`."""
        self._starts.append(start)
        self._spans.append(span)

    def span(self, span: Span) -> Span:
        """The original location of a span."""
        line = bisect_right(self._starts, span.start) - 1
        return self._spans[line] if line >= 0 else Span(0, 1)


class Written:
    """A text, with the original locations of its lines."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[str] = []
        self._length = 0
        self.offsets = OffsetMap()

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._pieces)

    def add(self, text: str, span: Span | None = None) -> None:
        """Write more; `span` is where it was."""
        if span is not None:
            self.offsets.add(self._length, span)
        self._pieces.append(text)
        self._length += len(text)
        if self._length > _MAX_LENGTH:
            problem = f"XLA's text of this would be longer than {_MAX_LENGTH >> 20} MiB"
            raise TooLongError(self._source, span or Span(0, 1), problem)


def write_module(module: DraftModule, source: Source) -> Written:
    """The text of a module that was read from a source."""
    written, header = Written(source), module.header
    texts = header.texts
    written.add(f"HloModule {header.name}{format_header(texts)}", header.span)
    tables = header.frames.format()
    written.add(f"\n{tables}\n\n" if tables else "\n\n")
    is_scheduled = texts.get("is_scheduled") == "true"
    calls = {
        computation: [draft.callees for draft in computation.instructions if draft.called]
        for computation in module.computations
    }
    fused = {
        callee
        for computation in module.computations
        for draft in computation.instructions
        if draft.opcode == "fusion"
        for callee in draft.callees
    }
    for computation in printed_order(calls):
        is_ordered = is_scheduled and computation not in fused
        _write_computation(written, computation, is_scheduled=is_ordered)
    return written


def _write_computation(
    written: Written, computation: DraftComputation, *, is_scheduled: bool
) -> None:
    root = computation.root
    assert root is not None, "a computation that was read has a root"
    parameters = ", ".join(
        f"{parameter.name}: {parameter.shape.text_without_layout}"
        for parameter in computation.parameters
    )
    entry = "ENTRY " if computation.is_entry else ""
    head = f"{entry}%{computation.name} ({parameters}) -> {root.shape.text_without_layout} {{"
    written.add(head, computation.span)
    order = computation.instructions if is_scheduled else _post_order(computation)
    write_instructions(written, order, root)
    thread = computation.thread
    tail = "" if thread == MAIN_THREAD else f', execution_thread="{thread}"'
    written.add(f"\n}}{tail}\n\n", computation.span)


def write_instructions(
    written: Written, drafts: Sequence[DraftInstruction], root: DraftInstruction | None
) -> None:
    """The lines of a body, each after a line break."""
    for draft in drafts:
        written.add("\n")
        mark = "ROOT " if draft is root else ""
        written.add(f"  {mark}{_format_instruction(draft)}", draft.span)


def _post_order(computation: DraftComputation) -> list[DraftInstruction]:
    """Operands before their users, starting at those without users."""
    order: dict[int, DraftInstruction] = {}
    for last in computation.instructions:
        if last.has_users:
            continue
        pending, entered = [last], set[int]()
        while pending:
            draft = pending[-1]
            if id(draft) in order or id(draft) in entered:
                pending.pop()
                order.setdefault(id(draft), draft)
                continue
            entered.add(id(draft))
            needed = [*reversed(draft.operands), *draft.predecessors]
            pending += [operand for operand in needed if id(operand) not in order]
    return list(order.values())


def _format_instruction(draft: DraftInstruction) -> str:
    attributes = "".join(
        [f", {name}={text or _linked(draft, name)}" for name, text in draft.attributes.items()]
    )
    inner = draft.payload or ", ".join([f"%{operand.name}" for operand in draft.operands])
    return f"%{draft.name} = {draft.shape.text} {draft.opcode}({inner}){attributes}"


def _linked(draft: DraftInstruction, name: str) -> str:
    """The names of the computations or instructions that an attribute names."""
    if name == CONTROL_PREDECESSORS:
        return f"{{{', '.join([f'%{predecessor.name}' for predecessor in draft.predecessors])}}}"
    names = ", ".join([f"%{callee.name}" for callee in draft.called[name]])
    return f"{{{names}}}" if name in _LISTED else names
