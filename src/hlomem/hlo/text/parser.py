"""Text to `HloModule`, lazily.

In: the text of a module. Out: the module with its entry computation and everything reachable from
it without entering a fusion read and linked; the bodies of fusions, and what only they call, stay
text until asked for. `parse(text, lazy=False)` reads all of it.

Text as XLA prints it is cut into lines and linked (`reader`). Everything else that XLA's parser
reads, with omitted shapes, nested instructions or any formatting, goes through a second reader
(`freeform`), which writes the text XLA prints for it; that is then read as any other, and errors
point into the original. Unlike XLA both keep opcodes and attributes they do not know.

Mirrors `HloParserImpl::ParseHloModule` and `ParseComputations` of `hlo/parser/hlo_parser.cc`, with
their leniency: without an `ENTRY` the last computation is the entry, and a text may begin with
`ENTRY name` or `name {` instead of `HloModule`, or be one instruction.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import Source, Span
from hlomem.hlo.text import scanner
from hlomem.hlo.text.reader import LayoutError, ModuleReader, OrderError

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.text.freeform.writing import OffsetMap
    from hlomem.hlo.text.scanner import ModuleText


def parse(text: str, name: str = "<string>", lazy: bool = True) -> HloModule:
    """The module a text describes; raises `ParseError`.

    `name` is what errors call the text. With `lazy=False` fused bodies and attributes are read and
    checked, too: see `HloModule.validate`.
    """
    source = _source(text, name)
    with collector_off():
        module = _parse_any_layout(source)
        if not lazy:
            module.validate()
    return module


def canonicalize(text: str, name: str = "<string>") -> str:
    """The text XLA prints for the module it reads from a text; raises `ParseError`.

    Names are unique, shapes, layouts and all that is usual are written, computations and
    instructions are in XLA's order. What XLA's parser refuses is refused.
    """
    from hlomem.hlo.text.printer import format_module  # noqa: PLC0415 - not for who parses

    with collector_off():
        return format_module(_parse_freely(_source(text, name)))


def _source(text: str, name: str) -> Source:
    """A text without byte-order mark, NUL bytes and other line ends."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    source = Source(name, text)
    nul = source.text.find("\0")
    if nul >= 0:
        raise ParseError(source, Span(nul, nul + 1), "NUL byte in text", "is this a text file?")
    return source


def _parse_any_layout(source: Source) -> HloModule:
    """In the layout XLA prints, if the text has it; else token by token."""
    spans = scanner.scan_module(source.text)
    if spans is None:
        return _parse_freely(source)
    if scanner.has_common_names(source.text, spans):
        with suppress(ParseError):  # what another release of XLA wrote is read below
            return _parse_freely(source)
    try:
        return _read(source, spans)
    except ParseError as error:
        problem = error
    # Maybe it only looks as if XLA had printed it; what is wrong then the second reader says.
    try:
        return _parse_freely(source)
    except ParseError as error:
        if not isinstance(problem, LayoutError):
            raise problem from None
        problem = error
    # Maybe a line that seems to hold two instructions holds one.
    try:
        return ModuleReader(source, spans, is_trusted=True).read()
    except ParseError:
        raise problem from None


def _read(
    source: Source, spans: ModuleText, text: str | None = None, offsets: OffsetMap | None = None
) -> HloModule:
    """The module of a text XLA printed, maybe with callees below their callers."""
    try:
        return ModuleReader(source, spans, text, offsets).read()
    except OrderError as error:
        from hlomem.hlo.text.call_order import sorted_spans  # noqa: PLC0415 - few texts need it

        ordered = sorted_spans(source.text if text is None else text, spans)
        if ordered is None:
            raise error from None
    module = ModuleReader(source, ordered, text, offsets).read()
    module.text_order = [module.computation_by_name[span.name] for span in spans.computations]
    return module


def _parse_freely(source: Source) -> HloModule:
    """A text in any form XLA reads, by way of the text XLA prints for it."""
    from hlomem.hlo.text.freeform.module import write_canonical  # noqa: PLC0415 - no text of XLA's

    written = write_canonical(source)
    text = written.text
    spans = scanner.scan_module(text)
    assert spans is not None, "it was written as XLA prints it"
    return _read(source, spans, text, written.offsets)
