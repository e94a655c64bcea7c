"""Text as people write it → the text XLA prints for the same module, and where all of it stood.

In: a source that is HLO in any form XLA's parser reads: a module, computations without a header, or
one instruction. Out: `Written`, the canonical text and a map of its lines to the source. Names are
made unique, computations and unscheduled instructions put in XLA's order, shapes and layouts that
were left out written. Only texts the scanner cannot cut take this way, so it may be slow, but it is
linear, and nothing in it recurses. Mirrors `HloParserImpl::Run`, `ParseHloModule`,
`ParseComputation`, `ParseSingleInstruction` of `hlo/parser/hlo_parser.cc` and
`HloModule::AddComputationInternal` of `hlo/ir/hlo_module.cc`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.source import Span
from hlomem.hlo.shape_inference.elements import compatible
from hlomem.hlo.text.freeform.asynchronous import set_threads
from hlomem.hlo.text.freeform.frames import FrameNumbers, Frames, read_frames
from hlomem.hlo.text.freeform.header import Header, add_layout, read_header
from hlomem.hlo.text.freeform.instructions import BodyReader, Scope
from hlomem.hlo.text.freeform.names import UniqueNames
from hlomem.hlo.text.freeform.records import DraftComputation
from hlomem.hlo.text.freeform.tokens import Tokens, TooLongError
from hlomem.hlo.text.freeform.writing import Written, write_module

if TYPE_CHECKING:
    from hlomem.base.source import Source
    from hlomem.hlo.shape import Shape

_FORM = "a computation reads `ENTRY %main (p: f32[]) -> f32[] {`, instructions, `}`"


class DraftModule(Struct, eq=False):
    """A module as it was read."""

    header: Header
    computations: list[DraftComputation]
    """In the order of XLA's list."""
    entry: DraftComputation


def write_canonical(source: Source) -> Written:
    """The text XLA prints for a source; raises `ParseError` where XLA refuses it."""
    return write_module(read_module(source), source)


def check(source: Source) -> None:
    """Raise `ParseError` for what XLA refuses in a text that it did not print.

    A text that is too long for that is taken as it is.
    """
    with suppress(TooLongError):
        read_module(source)


def read_module(source: Source) -> DraftModule:
    """The module a source describes."""
    tokens = Tokens(source)
    is_module = tokens.kind in ("HloModule", "ENTRY") or (
        tokens.kind in ("word", "name") and tokens.peek() == "{"
    )
    if not is_module:
        return _read_instruction(tokens)
    header = read_header(tokens) if tokens.kind == "HloModule" else None
    frames = read_frames(tokens)
    reader = BodyReader(tokens)
    entry = _read_computations(reader, header)
    if header is None:
        header = Header(f"module_{entry.name}")
    header.frames = frames
    module = DraftModule(header, reader.computations, entry)
    _finish(module)
    return module


def _read_computations(reader: BodyReader, header: Header | None) -> DraftComputation:
    """All computations; returns the entry, which is the last one where none is marked."""
    tokens = reader.tokens
    entry: DraftComputation | None = None
    if tokens.kind == "end":
        assert header is not None, "a text without a header begins with a computation"
        reader.fail_at(header.span, "the module has no computations", _FORM)
    while tokens.kind != "end":
        if tokens.kind not in ("ENTRY", "word", "name"):
            problem = "expected a computation or the end of the text"
            tokens.fail(f"unbalanced `{tokens.kind}`" if tokens.kind in ")}]" else problem, _FORM)
        is_entry = tokens.eat("ENTRY")
        computation = _read_computation(reader)
        if is_entry and entry is not None:
            reader.fail_at(computation.span, "a module has only one ENTRY")
        if is_entry:
            entry = computation
    entry = entry or reader.computations[-1]
    entry.is_entry = True
    return entry


def _read_computation(reader: BodyReader) -> DraftComputation:
    """`name (parameters "->" shape)? body ("," "execution_thread" "=" string)?`."""
    tokens = reader.tokens
    start = tokens.start
    name = tokens.expect_name("the name of a computation")
    stripped = start + tokens.text.startswith("%", start)
    computation = DraftComputation(name, Span(stripped, stripped + len(name)))
    promised = _read_head(tokens) if tokens.kind == "(" else None
    if tokens.kind != "{":
        tokens.fail("expected a computation or the end of the text", _FORM, start)
    reader.read_body(computation)
    if reader.by_name.setdefault(name, computation) is not computation:
        reader.fail_at(computation.span, f"computation `{name}` is defined twice")
    if promised is not None:
        _check_result(reader, computation, *promised)
    while tokens.eat(","):
        attribute_start, attribute = tokens.start, tokens.expect("attribute")
        if attribute != "execution_thread":
            tokens.fail(f"a computation has no `{attribute}=`", start=attribute_start)
        computation.thread = tokens.expect("string")
    return computation


def _read_head(tokens: Tokens) -> tuple[Shape, Span]:
    """`(name: shape, …) -> shape`: the result that is promised, and where."""
    tokens.expect("(")
    count = 0
    while tokens.kind != ")" or count:
        tokens.expect_name("`name: shape`")
        if not tokens.begins_shape():
            tokens.fail("expected a shape")
        tokens.read_shape()
        count += 1
        if not tokens.eat(","):
            break
    tokens.expect(")")
    tokens.expect("->")
    start = tokens.start
    shape = tokens.read_shape()
    return shape, Span(start, tokens.before)


def _check_result(
    reader: BodyReader, computation: DraftComputation, promised: Shape, span: Span
) -> None:
    root = computation.root
    assert root is not None, "a computation that was read has a root"
    if not compatible(promised, root.shape):
        problem = f"computation `{computation.name}` does not return this shape"
        hint = f"its root `{root.name}` has shape `{root.shape.text_without_layout[:80]}`"
        reader.fail_at(span, problem, hint)


# --- a text that is one instruction ------------------------------------------------------------


def _read_instruction(tokens: Tokens) -> DraftModule:
    """A text that is one instruction, with or without a name (`ParseSingleInstruction`)."""
    start, name = tokens.start, "_"
    if tokens.kind == "end":
        hint = "the text of a module begins with `HloModule name`"
        tokens.fail("expected `HloModule`", hint)
    if not tokens.begins_shape():
        tokens.eat("ROOT")
        start = tokens.start
        is_name = tokens.kind in ("word", "name") and tokens.peek() == "="
        if not is_name:
            tokens.fail("expected `HloModule`", "or a computation, or an instruction")
        name = tokens.expect_name("the name of an instruction")
        tokens.expect("=")
    reader, scope = BodyReader(tokens), Scope(is_loose=True)
    root = reader.read_alone(scope, name, start)
    if tokens.kind != "end":
        tokens.fail("expected the end of the text", "a module begins with `HloModule name`")
    entry = DraftComputation("_", root.span, scope.instructions, root, is_entry=True)
    module = DraftModule(Header("_"), [entry, *reader.computations], entry)
    module.header.texts["is_scheduled"] = "true"
    _finish(module)
    return module


# --- the module as a whole ---------------------------------------------------------------------


def _finish(module: DraftModule) -> None:
    """Set threads and make names unique (`HloModule::AddComputationInternal`)."""
    add_layout(module.header, module.entry.program_shape)
    set_threads(module.computations)
    module.header.frames = _renumber_frames(module)
    computations, instructions = UniqueNames(), UniqueNames()
    for computation in module.computations:
        computation.name = computations.take(computation.name)
        for instruction in computation.instructions:
            instruction.name = instructions.take(instruction.name)


def _renumber_frames(module: DraftModule) -> Frames:
    """Number the stack frames in the order of their first use; unused ones are dropped."""
    numbers = FrameNumbers(module.header.frames)
    for computation in module.computations:
        for draft in computation.instructions:
            text = draft.attributes.get("metadata", "")
            if "stack_frame_id" in text:
                draft.attributes["metadata"] = numbers.renumber(text)
                if draft.attributes["metadata"] == "{}":
                    del draft.attributes["metadata"]
    return numbers.used
