"""Text to `HloModule`, lazily.

In: the text of a module. Out: the module with its entry computation and everything reachable from
it without entering a fusion read and linked; the bodies of fusions, and what only they call, stay
text until asked for. `parse(text, lazy=False)` reads all of it.

Mirrors `HloParserImpl::ParseHloModule` and `ParseComputations` of `hlo/parser/hlo_parser.cc`, with
their leniency: without an `ENTRY` the last computation is the entry, and a text may begin with
`ENTRY name` or `name {` instead of `HloModule`. Unlike XLA it keeps opcodes and attributes it does
not know. It refuses three forms that XLA reads and never prints: an instruction without a shape
(shapes are not inferred), one inside the operands of another, and a text that is one instruction.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.gc_pause import collector_off
from hlomem.base.patterns import repeated
from hlomem.base.source import Source, Span
from hlomem.hlo.text import scanner
from hlomem.hlo.text.reader import NOT_AN_INSTRUCTION, LayoutError, ModuleReader

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule

_BLANKS = repeated(r"\s++|//[^\n]*+|/\*(?s:.*?)\*/")
_BEGIN = re.compile(rf"{_BLANKS}(HloModule)")
_HEADERLESS = rf"{_BLANKS}(?:ENTRY\s|%?[\w.\-]++{_BLANKS}\{{)"
_COMPUTATION_FORM = "a computation reads `ENTRY %main (p: f32[]) -> f32[] {`, instructions, `}`"
_NAMELESS = re.compile(r"HloModule\s*+(?:ENTRY\b|[^\w.\-]|\Z)")


def parse(text: str, name: str = "<string>", lazy: bool = True) -> HloModule:
    """The module a text describes; raises `ParseError`.

    `name` is what errors call the text. With `lazy=False` fused bodies and attributes are read and
    checked, too: see `HloModule.validate`.
    """
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    source = Source(name, text)
    nul = source.text.find("\0")
    if nul >= 0:
        raise ParseError(source, Span(nul, nul + 1), "NUL byte in text", "is this a text file?")
    with collector_off():
        module = _parse_any_layout(source)
        if not lazy:
            module.validate()
    return module


def _parse_any_layout(source: Source) -> HloModule:
    """In the layout XLA prints, if the text has it; else token by token."""
    if not _BEGIN.match(source.text):
        return _parse_without_header(source)
    spans = scanner.scan_module(source.text)
    if spans is None:
        return _parse_normalized(source)
    try:
        return ModuleReader(source, spans).read()
    except LayoutError as error:
        problem = error
    # Maybe the braces only seem to be where XLA has them.
    try:
        return _parse_normalized(source)
    except ParseError as error:
        raise (problem if error.problem == NOT_AN_INSTRUCTION else error) from None


def _parse_without_header(source: Source) -> HloModule:
    """A text that begins with a computation; XLA names such a module after the entry."""
    if not re.match(_HEADERLESS, source.text):
        raise _no_module(source)
    module = _parse_normalized(source, has_header=False)
    module.name = f"module_{module.entry.name}"
    return module


def _parse_normalized(source: Source, *, has_header: bool = True) -> HloModule:
    from hlomem.hlo.text.normalizer import normalize  # noqa: PLC0415 - no text of XLA's needs it

    text, offsets = normalize(source, has_header=has_header)
    spans = scanner.scan_module(text)
    if spans is not None:
        return ModuleReader(source, spans, text, offsets).read()
    computations, end = scanner.scan_computations(text, max(0, text.find("\n\n")))
    if not computations:
        raise _no_module(source)
    rest = offsets.span(Span(end, max(end + 1, len(text.rstrip()))))
    problem = "expected a computation or the end of the text"
    raise ParseError(source, rest, problem, _COMPUTATION_FORM)


def _no_module(source: Source) -> ParseError:
    """The error for a text in which no computation was found."""
    match = _BEGIN.match(source.text)
    if match is None:
        start = len(source.text) - len(source.text.lstrip())
        hint = "the text of a module begins with `HloModule name`"
        return ParseError(source, Span(start, start + 1), "expected `HloModule`", hint)
    span = Span(match.start(1), match.end(1))
    if _NAMELESS.match(source.text, span.start):
        return ParseError(source, span, "the module has no name")
    return ParseError(source, span, "the module has no computations", _COMPUTATION_FORM)
