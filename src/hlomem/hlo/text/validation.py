"""Proof that what a lazy parse left as text is well-formed, or the first thing that is not.

In: a module whose computations are read, and where each begins. Out: nothing, or a `ParseError`.
Checked are the header and its tables, the heads of computations, the literals, and the attributes
of every instruction: names given once, values present, brackets closed by their like, strings
closed, and the content of the attributes the model has a type for.

Most texts repeat, and nearly all have one of a few forms. So the distinct texts are joined and one
pattern, which never backtracks, goes over them in a single call; only what it does not prove is
looked at again, item by item, to accept it or to say what is wrong. The proof must therefore be
strict, but need not be complete.

Mirrors what `HloParserImpl::ParseAttributes`, `ParseParamList` and `ParseMetadata` refuse.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.patterns import repeated
from hlomem.base.source import Source, Span
from hlomem.hlo.text.attributes import (
    CONTENT_PARSERS,
    INTEGER_LISTS,
    INTEGERS,
    TextProblem,
    check_brackets,
    iter_attributes,
)
from hlomem.hlo.text.printer import format_program_shape
from hlomem.hlo.text.shape_parser import parse_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.hlo.ir import HloComputation
    from hlomem.hlo.shape import Shape

_NAME = r"[A-Za-z_][\w.\-]*+"
_STRING = '"' + repeated(r'[^"\\\n]++|\\.') + '"'
_PLAIN = r"""[^{}()\[\]"'\n]++"""
_METADATA_STRINGS = "op_name|op_type|source_file|scheduling_name|deduplicated_name"
_METADATA_NUMBERS = (
    "source_line|source_end_line|source_column|source_end_column|stack_frame_id|profile_type"
)
_BRACES_DEPTH = 6
_METADATA = ", metadata="


def _braces(depth: int) -> str:
    """A pattern for braces, and for the brackets JSON and tilings have inside them."""
    flat = rf"{_PLAIN}|{_STRING}"
    many = repeated(flat)
    record = "\\{" + repeated(rf"{flat}|\[{many}\]|\{{{many}\}}") + "\\}"
    list_ = "\\[" + repeated(rf"{flat}|{record}") + "\\]"
    shapes = repeated(rf"{_PLAIN}|\{{{_PLAIN}\}}")
    inside = rf"{flat}|{list_}|\({shapes}\)"
    if depth > 1:
        inside = f"{inside}|{_braces(depth - 1)}"
    return rf"\{{{repeated(inside)}\}}"


@cache
def _attribute_lines() -> re.Pattern[str]:
    """Matches line after line; the group holds what is not proven to be attributes."""
    fields = repeated(
        rf"(?:(?:{_METADATA_STRINGS})={_STRING}|(?:{_METADATA_NUMBERS})=[0-9]{{1,18}}+)"
        r"(?: (?=[a-z])|(?=\}))"
    )
    metadata = rf"metadata=\{{{fields}\}}"
    entries = repeated(rf"[\w.\-/]++={_STRING}(?:,(?=[\w.\-/])|(?=\}}))")
    frontend = rf"frontend_attributes=\{{{entries}\}}"
    numbers = repeated(r"[0-9]{1,18}+(?:,(?=[0-9])|(?=\}))")
    lists = rf"(?:{'|'.join(INTEGER_LISTS)})=\{{{numbers}\}}"
    integers = rf"(?:{'|'.join(INTEGERS)})=[0-9]{{1,18}}+(?![^,\n])"
    content = "|".join(CONTENT_PARSERS)
    brackets = rf"{_braces(_BRACES_DEPTH)}|\[{_PLAIN}\]|\({_PLAIN}\)"
    value = rf"""(?:[^,{{}}()\[\]"'\s]++|{_STRING}|{brackets})"""
    other = rf"(?!(?:{content})=){_NAME}={value}{repeated(value)}"
    all_ = repeated(rf", (?:{metadata}|{other}|{lists}|{integers}|{frontend})")
    return re.compile(rf"^(?:{all_}$|([^\n]++))", re.MULTILINE | re.ASCII)


@cache
def _any_name() -> re.Pattern[str]:
    return re.compile(rf", ({_NAME})=", re.ASCII)


def unproven_attributes(texts: Iterable[str]) -> set[str]:
    """The attribute texts that may be wrong; few, if any, where XLA wrote them."""
    texts = list(texts)
    unproven = {text for text in _attribute_lines().findall("\n".join(texts)) if text}
    unproven.update(text for text in _texts_to_search(texts) if _may_repeat(text))
    return unproven


def _texts_to_search(texts: list[str]) -> Iterable[str]:
    """The texts to search for repeated names; whole unless the metadata comes last."""
    heads: dict[str, str] = {}
    for text in texts:
        head, _, rest = text.partition(_METADATA)
        if ", " in rest:
            yield text
        else:
            heads.setdefault(head, text)
    for head, text in heads.items():
        if _may_repeat(head):
            yield text


def _may_repeat(text: str) -> bool:
    """Whether what looks like the name of an attribute, maybe inside a string, is there twice."""
    names = _any_name().findall(text)
    return len(names) > 1 and len(set(names)) != len(names)


def check_attributes(text: str) -> None:
    """Raise `TextProblem` for the first thing wrong with the attributes of an instruction."""
    for name, start, end in iter_attributes(text):
        parse_content = CONTENT_PARSERS.get(name)
        if parse_content is None:
            continue
        try:
            parse_content(text[start:end])
        except TextProblem as problem:
            span = (start + problem.start, start + problem.end)
            raise TextProblem(problem.problem, *span, problem.hint) from None


@cache
def _literal() -> re.Pattern[str]:
    return re.compile(repeated(rf"{_PLAIN}|{_STRING}|{_braces(_BRACES_DEPTH)}|\({_PLAIN}\)"))


def check_literal(text: str) -> None:
    """Raise `TextProblem` unless the brackets of a literal are closed."""
    if _literal().fullmatch(text) is None:
        check_brackets(text)


def is_usual_head(head: str, computation: HloComputation) -> bool:
    """Whether the first line of a computation is what would be printed for it."""
    head = head.removeprefix("ENTRY ").removeprefix("%")
    name = computation.name
    return head in (f"{name} {{", f"{name} {format_program_shape(computation)} {{")


def check_head(source: Source, start: int) -> tuple[Shape, Span] | None:
    """The result that the first line of a computation promises, and where; None without one.

    head       ::= "ENTRY"? "%"? name (parameters "->" shape)? "{"
    parameters ::= "(" (name ":" shape ("," name ":" shape)*)? ")"
    """
    text, result = source.text, None
    position = _expect(source, start, r"(?:ENTRY\s)?\s*+%?[\w.\-]++\s*+", "a computation")
    if text.startswith("(", position):
        position = _expect(source, position, r"\(\s*+", "`(`")
        while not text.startswith(")", position):
            position = _expect(source, position, r"%?[\w.\-]++\s*+:\s*+", "`name: shape`")
            _, position = parse_shape(source, position)
            position = _expect(source, position, r"\s*+(?:,\s*+(?!\))|(?=\)))", "`,` or `)`")
        arrow = _expect(source, position, r"\)\s*+->\s*+", "`->`")
        shape, position = parse_shape(source, arrow)
        result = (shape, Span(arrow, position))
    _expect(source, position, r"\s*+\{", "`{`")
    return result


def _expect(source: Source, position: int, pattern: str, what: str) -> int:
    """The position after a pattern that must come next."""
    match = re.compile(pattern).match(source.text, position)
    if match is None:
        hint = "a computation reads `%name (p: f32[]) -> f32[] {`"
        raise ParseError(source, Span(position, position + 1), f"expected {what}", hint)
    return match.end()
