"""The attribute grammar: a list of `name=value`, and one small parse function per kind of value.

In: the text behind an instruction's operands or behind a module's name. Out: the values' texts by
name (`split_attributes`), and values. Mirrors `HloParserImpl::ParseAttributes` and the `Parse...`
functions it calls in `hlo/parser/hlo_parser.cc`.

    attributes ::= ("," name "=" value)*
    value      ::= anything up to the next comma outside brackets and strings

Functions raise `TextProblem` with offsets into the text they were given; who knows where that text
stands makes a `ParseError` of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, NoReturn

from hlomem.errors import ParseError
from hlomem.hlo.shape import Shape, ShapeIndex
from hlomem.hlo.shape_parser import parse_shape
from hlomem.source import Source, Span

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_STRING = r"""(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')"""
_OPENER = r"[{(\[]"
_BRACKETS_DEPTH = 12


def nested_brackets(opener: str, depth: int) -> str:
    """A pattern for what brackets enclose, brackets inside included, up to a depth.

    It never backtracks. Whether `(` is closed by `)` and not by `}` is left to `check_brackets`.
    """
    inner = rf"""[^{{}}()\[\]"']++|{_STRING}"""
    if depth > 1:
        inner = f"{inner}|{nested_brackets(_OPENER, depth - 1)}"
    return rf"{opener}(?:{inner})*+[}})\]]"


_NESTED = nested_brackets(_OPENER, _BRACKETS_DEPTH)
_SHALLOW = nested_brackets(_OPENER, 4)
_NAME = re.compile(r"\s*+,\s*+([A-Za-z_][\w.\-]*+)\s*+=\s*+")
_VALUE = rf"""(?:[^,{{}}()\[\]"'\s]++|{_STRING}|{_NESTED}|\s++(?=[^,\s]))*+"""
_ITEM = re.compile(rf", ([A-Za-z_][\w.\-]*+)=((?=[^,]){_VALUE})", re.DOTALL)
_ANY_NAME = re.compile(r", ([A-Za-z_][\w.\-]*+)=")
_MARK = re.compile(rf"{_STRING}|[{{}}()\[\]\"',]", re.DOTALL)
_CLOSER = {"{": "}", "(": ")", "[": "]"}
_CLOSERS = frozenset(_CLOSER.values())
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INTEGERS = re.compile(r"\{\s*+(?:-?[0-9]{1,19}(?:\s*+,\s*+-?[0-9]{1,19})*+)?\s*+\}")
_MAP_ITEM = re.compile(rf"\s*+([\w.\-/]++)\s*+=\s*+({_STRING}|{_SHALLOW})\s*+,?")
_METADATA_ITEM = re.compile(rf"\s*+,?\s*+([a-z_]++)=({_STRING}|{_SHALLOW}|[^\s,{{}}]++)")
_INDEX = r"\{([0-9,\s]*+)\}"
_ALIAS_ITEM = re.compile(
    rf"\s*+{_INDEX}\s*+:\s*+\(\s*+([0-9]{{1,9}})\s*+,\s*+{_INDEX}\s*+(?:,\s*+([a-z\-]++)\s*+)?\)\s*+,?"
)
_DONOR_ITEM = re.compile(rf"\s*+\(\s*+([0-9]{{1,9}})\s*+,\s*+{_INDEX}\s*+\)\s*+,?")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class TextProblem(Exception):  # noqa: N818 - not an error of the user until it has a place
    """Something wrong at `start` to `end` of the text a function was given."""

    def __init__(self, problem: str, start: int, end: int, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.start = start
        self.end = end
        self.hint = hint

    @classmethod
    def of(cls, error: ParseError) -> TextProblem:
        """The problem of an error whose source was only a piece of text."""
        return cls(error.problem, *error.span, error.hint)

    def at(self, source: Source, base: int) -> ParseError:
        """The error for a text that stands at offset `base` of a source."""
        span = Span(base + self.start, base + max(self.end, self.start + 1))
        return ParseError(source, span, self.problem, self.hint)


class InputOutputAlias(NamedTuple):
    """An output that lives in the buffer of a parameter (`HloInputOutputAliasConfig::Alias`)."""

    output_index: ShapeIndex
    parameter_number: int
    parameter_index: ShapeIndex
    must_alias: bool


class BufferDonor(NamedTuple):
    """A part of a parameter that may be overwritten (`HloBufferDonorConfig::BufferDonor`)."""

    parameter_number: int
    parameter_index: ShapeIndex


class OperandAlias(NamedTuple):
    """A part of a result that is written into an operand (`output_to_operand_aliasing`)."""

    output_index: ShapeIndex
    operand_number: int
    operand_index: ShapeIndex


class ProgramShape(NamedTuple):
    """The shapes of the parameters and of the result."""

    parameters: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction comes from (`OpMetadata`); 0 or empty where nothing is said."""

    op_name: str = ""
    op_type: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    scheduling_name: str = ""
    deduplicated_name: str = ""


_METADATA_DEFAULTS = {name: getattr(Metadata(), name) for name in Metadata.__slots__}


def split_attributes(text: str) -> dict[str, str]:
    """The text of every value by name, in order. `text` begins with the comma before the first."""
    items = _ITEM.findall(text)
    attributes: dict[str, str] = dict(items)
    # Nothing stands between the items, and no name is there twice.
    length = sum(map(len, chain.from_iterable(items))) + len(", =") * len(items)
    if length == len(text) and len(attributes) == len(items):
        return attributes
    return _split_carefully(text)


def _split_carefully(text: str) -> dict[str, str]:
    """As `split_attributes`, for brackets of any depth and any blanks; says what is wrong."""
    attributes: dict[str, str] = {}
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _NAME.match(text, position)
        if match is None:
            raise TextProblem("expected `, name=value`", position, position + 1)
        name = match[1]
        if name in attributes:
            raise TextProblem(f"attribute `{name}` is given twice", *match.span(1))
        position = _end_of_value(text, match.end())
        if position == match.end():
            raise TextProblem(f"attribute `{name}` has no value", *match.span(1))
        attributes[name] = text[match.end() : position]
    return attributes


def check_attributes(text: str) -> None:
    """Raise what `split_attributes` would, or what is wrong with the brackets."""
    split_attributes(text)
    check_brackets(text)


def need_check(text: str) -> bool:
    """Whether `check_attributes` might raise, at a fraction of its cost.

    Braces and quotes come in pairs, every attribute has a value, no name is repeated.
    """
    quotes = text.count('"') - (text.count('\\"') if "\\" in text else 0)
    names = _ANY_NAME.findall(text)  # what looks like one inside strings, too
    return (
        text.count("{") != text.count("}")
        or quotes % 2 == 1
        or text[-1:] == "="
        or "=," in text
        or (len(names) > 1 and len(set(names)) != len(names))
    )


def _end_of_value(text: str, start: int) -> int:
    """Where the value at `start` ends: at a comma outside brackets, or with the text."""
    open_brackets: list[int] = []
    for match in _MARK.finditer(text, start):
        mark, place = match[0], match.start()
        if mark == "," and not open_brackets:
            return place
        _check_mark(text, mark, place, open_brackets)
    _check_closed(text, open_brackets)
    return len(text.rstrip())


def check_brackets(text: str) -> None:
    """Raise `TextProblem` unless every bracket and string of a text is closed by its like."""
    open_brackets: list[int] = []
    for match in _MARK.finditer(text):
        _check_mark(text, match[0], match.start(), open_brackets)
    _check_closed(text, open_brackets)


def _check_mark(text: str, mark: str, place: int, open_brackets: list[int]) -> None:
    if mark in _CLOSER:
        open_brackets.append(place)
    elif mark in ("'", '"'):
        raise TextProblem("string is never closed", place, place + 1)
    elif mark in _CLOSERS and (not open_brackets or _CLOSER[text[open_brackets.pop()]] != mark):
        raise TextProblem(f"unbalanced `{mark}`", place, place + 1)


def _check_closed(text: str, open_brackets: list[int]) -> None:
    if open_brackets:
        place = open_brackets[-1]
        raise TextProblem(f"`{text[place]}` is never closed", place, place + 1)


def unescape(text: str) -> str:
    """The string an escaped text stands for (`absl::CUnescape`)."""
    if "\\" not in text:
        return text
    if re.search(r"\\[0-7x]", text) is None:
        return _ESCAPE.sub(lambda match: _PLAIN_ESCAPES.get(match[3], match[3]), text)
    # Octal and hexadecimal escapes are bytes of UTF-8.
    pieces: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(text):
        pieces.append(text[position : match.start()].encode("utf-8", "surrogateescape"))
        octal, hexadecimal, plain = match.groups()
        if plain is not None:
            pieces.append(_PLAIN_ESCAPES.get(plain, plain).encode("utf-8", "surrogateescape"))
        else:
            pieces.append(bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 255]))
        position = match.end()
    pieces.append(text[position:].encode("utf-8", "surrogateescape"))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def parse_string(text: str) -> str:
    """A quoted string, or a bare word as it is."""
    quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
    return unescape(text[1:-1]) if quoted else text


def parse_integer(text: str) -> int:
    """An integer."""
    if _INTEGER.fullmatch(text.strip()) is None:
        raise TextProblem("expected an integer", 0, len(text))
    return int(text)


def parse_integers(text: str) -> tuple[int, ...]:
    """`{1,2,3}`."""
    if _INTEGERS.fullmatch(text) is None:
        raise TextProblem("expected integers such as `{0,1}`", 0, len(text))
    return tuple(map(int, _INTEGER.findall(text)))


def parse_string_map(text: str) -> dict[str, str]:
    """`{name="value",other={json}}`: frontend attributes."""
    items = _parse_items(text, _MAP_ITEM, 'expected `name="value"`')
    return {match[1]: parse_string(match[2]) for match in items}


def parse_metadata(text: str) -> Metadata:
    """`{op_name="..." source_line=3}`; fields we do not know are left out."""
    fields: dict[str, str | int] = {}
    for match in _parse_items(text, _METADATA_ITEM, "expected `field=value`"):
        default = _METADATA_DEFAULTS.get(match[1])
        if isinstance(default, int):
            try:
                fields[match[1]] = parse_integer(match[2])
            except TextProblem:
                raise TextProblem("expected an integer", *match.span(2)) from None
        elif default is not None:
            fields[match[1]] = parse_string(match[2])
    return Metadata(**fields)  # type: ignore[arg-type]


def parse_backend_config(text: str) -> Json:
    """JSON as it stands or inside a string; any other config is the string it is.

    Custom calls of the typed FFI print `{name = 1 : i64}`, which is not JSON either.
    """
    string = parse_string(text)
    if string[:1] != "{":
        return string
    try:
        value: Json = json.loads(string)
    except (json.JSONDecodeError, RecursionError):
        return string
    return value


def parse_input_output_alias(text: str) -> tuple[InputOutputAlias, ...]:
    """`{ {0}: (0, {}, may-alias) }` (`HloParserImpl::ParseAliasing`)."""
    example = "expected `{output index}: (parameter, {index}, may-alias)`"
    must = "must-alias"
    return tuple(
        InputOutputAlias(_index(match[1]), int(match[2]), _index(match[3]), match[4] == must)
        for match in _parse_items(text, _ALIAS_ITEM, example)
    )


def parse_buffer_donor(text: str) -> tuple[BufferDonor, ...]:
    """`{ (0, {}), (1, {2}) }` (`HloParserImpl::ParseBufferDonor`)."""
    items = _parse_items(text, _DONOR_ITEM, "expected `(parameter, {index})`")
    return tuple(BufferDonor(int(match[1]), _index(match[2])) for match in items)


def parse_operand_aliasing(text: str) -> tuple[OperandAlias, ...]:
    """`{{0}: (1, {})}` (`HloParserImpl::ParseInstructionOutputOperandAliasing`)."""
    items = _parse_items(text, _ALIAS_ITEM, "expected `{output index}: (operand, {index})`")
    return tuple(OperandAlias(_index(match[1]), int(match[2]), _index(match[3])) for match in items)


def parse_program_shape(text: str) -> ProgramShape:
    """`{(shape, shape)->shape}`: the entry computation's layout."""
    source = Source("<layout>", text)
    try:
        start = text.index("{") + 1
        parameters, end = parse_shape(source, start)
        arrow = text.index("->", end)
        result, end = parse_shape(source, arrow + 2)
    except ValueError:
        raise TextProblem("expected `{(parameter shapes)->result shape}`", 0, len(text)) from None
    except ParseError as error:
        raise TextProblem.of(error) from None
    if text[end:].strip() != "}":
        raise TextProblem("unexpected text after the result shape", end, len(text))
    return ProgramShape(parameters.elements, result)


def _index(text: str) -> ShapeIndex:
    return ShapeIndex(map(int, filter(None, text.replace(" ", "").split(","))))


def _parse_items(text: str, item: re.Pattern[str], expected: str) -> list[re.Match[str]]:
    """The items between the braces of `text`, which must be nothing else."""
    if text[:1] != "{" or text[-1:] != "}":
        raise TextProblem("expected braces", 0, len(text))
    items: list[re.Match[str]] = []
    position, end = 1, len(text) - 1
    while match := item.match(text, position, end):
        items.append(match)
        position = match.end()
    if text[position:end].strip():
        _fail_item(text, position, end, expected)
    return items


def _fail_item(text: str, position: int, end: int, expected: str) -> NoReturn:
    start = position + len(text[position:end]) - len(text[position:end].lstrip())
    raise TextProblem(expected, start, min(end, start + 40))
