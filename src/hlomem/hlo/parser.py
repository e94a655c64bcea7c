"""Text to `HloModule`, lazily.

In: the text of a module. Out: the module with its entry computation and everything reachable from
it without entering a fusion read and linked; the bodies of fusions, and what only they call, stay
text until asked for. `parse(text, lazy=False)` reads all of it.

Mirrors `HloParserImpl::ParseHloModule` and `ParseComputations` of `hlo/parser/hlo_parser.cc`, with
their leniency: without an `ENTRY` the last computation is the entry. Unlike XLA it keeps opcodes
and attributes it does not know, and it wants every instruction's shape and no instruction inside
the operands of another.
"""

from __future__ import annotations

import gc
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlomem.errors import ParseError
from hlomem.hlo import scanner
from hlomem.hlo.normalizer import normalize
from hlomem.hlo.reader import NOT_AN_INSTRUCTION, LayoutError, ModuleReader
from hlomem.source import Source, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.normalizer import OffsetMap

_BEGIN = re.compile(r"(?:\s++|//[^\n]*+|/\*(?s:.*?)\*/)*+(HloModule)")
_NAMELESS = re.compile(r"HloModule\s*+(?:ENTRY\b|[^\w.\-]|\Z)")


def parse(text: str, name: str = "<string>", lazy: bool = True) -> HloModule:
    """The module a text describes; raises `ParseError`.

    `name` is what errors call the text. With `lazy=False` fused bodies and attributes are read and
    checked, too: see `HloModule.validate`.
    """
    text = text.removeprefix("\ufeff")
    source = Source(name, text.replace("\r\n", "\n") if "\r" in text else text)
    nul = source.text.find("\0")
    if nul >= 0:
        raise ParseError(source, Span(nul, nul + 1), "NUL byte in text", "is this a text file?")
    with _collector_off():
        module = _parse_any_layout(source)
        if not lazy:
            module.validate()
    return module


def _parse_any_layout(source: Source) -> HloModule:
    """In the layout XLA prints, if the text has it; else token by token."""
    if not _BEGIN.match(source.text):
        raise _no_module(source)
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


def _parse_normalized(source: Source) -> HloModule:
    text, offsets = normalize(source)
    spans = scanner.scan_module(text)
    if spans is None:
        raise _no_module(source, text, offsets)
    return ModuleReader(source, spans, text, offsets).read()


def _no_module(source: Source, text: str = "", offsets: OffsetMap | None = None) -> ParseError:
    """What is wrong with a text that is no module, in itself and after normalizing."""
    match = _BEGIN.match(source.text)
    if match is None:
        start = len(source.text) - len(source.text.lstrip())
        hint = "the text of a module begins with `HloModule name`"
        return ParseError(source, Span(start, start + 1), "expected `HloModule`", hint)
    span = Span(match.start(1), match.end(1))
    if _NAMELESS.match(source.text, span.start):
        return ParseError(source, span, "the module has no name")
    hint = "a computation reads `ENTRY %main (p: f32[]) -> f32[] {`, instructions, `}`"
    computations, end = scanner.scan_computations(text, text.find("\n\n"))
    if computations and offsets is not None:
        rest = offsets.span(Span(end, max(end + 1, len(text.rstrip()))))
        return ParseError(source, rest, "expected a computation or the end of the text", hint)
    return ParseError(source, span, "the module has no computations", hint)


@contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection: a module is made of objects that all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:
                # Makes what was parsed old, or the first young collection would walk all of it.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
