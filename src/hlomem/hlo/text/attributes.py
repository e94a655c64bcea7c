"""The attribute grammar: a list of `name=value`, and one small parse function per kind of value.

In: the text after an instruction's operands or after a module's name. Out: the values' texts by
name (`split_attributes`), and values. Mirrors `HloParserImpl::ParseAttributes` and the `Parse...`
functions it calls in `hlo/parser/hlo_parser.cc`.

    attributes ::= ("," name "=" value)*
    value      ::= anything up to the next comma outside brackets and strings

Functions raise `TextProblem` with offsets into the text they were given; a caller that knows where
the text stands makes a `ParseError` of it.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hlomem.base.errors import ParseError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Source, Span
from hlomem.hlo.shape import Shape, ShapeIndex
from hlomem.hlo.text.shape_parser import parse_shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_IN_QUOTES = repeated(r'[^"\\]++|\\.'), repeated(r"[^'\\]++|\\.")
STRING = rf"""(?:"{_IN_QUOTES[0]}"|'{_IN_QUOTES[1]}')"""
_OPENER = r"[{(\[]"
_BRACKETS_DEPTH = 6


def nested_brackets(opener: str, depth: int) -> str:
    """A pattern for what brackets enclose, brackets inside included, up to a depth.

    It never backtracks. Whether `(` is closed by `)` and not by `}` is left to `check_brackets`.
    """
    inner = rf"""[^{{}}()\[\]"']++|{STRING}"""
    if depth > 1:
        inner = f"{inner}|{nested_brackets(_OPENER, depth - 1)}"
    return rf"{opener}{repeated(inner)}[}})\]]"


_NESTED = nested_brackets(_OPENER, _BRACKETS_DEPTH)
_SHALLOW = nested_brackets(_OPENER, 4)
_NAME = lazy_pattern(r"\s*+,\s*+([A-Za-z_][\w.\-]*+)\s*+=\s*+")
_VALUE = repeated(rf"""[^,{{}}()\[\]"'\s]++|{STRING}|{_NESTED}|\s++(?=[^,\s])""")
_ITEM = lazy_pattern(rf", ([A-Za-z_][\w.\-]*+)=((?=[^,]){_VALUE})", re.DOTALL)
_MARK = lazy_pattern(rf"{STRING}|[{{}}()\[\]\"',]", re.DOTALL)
_CLOSER = {"{": "}", "(": ")", "[": "]"}
_CLOSERS = frozenset(_CLOSER.values())
FIRST_INDEX = lazy_pattern(r", index=([0-9]{1,9})(?![^,])")
"""The index of a get-tuple-element, where it is the first attribute."""
_INTEGER = lazy_pattern(r"-?[0-9]{1,19}")
_MORE_INTEGERS = repeated(r"\s*+,\s*+-?[0-9]{1,19}")
_INTEGERS = lazy_pattern(rf"\{{\s*+(?:-?[0-9]{{1,19}}{_MORE_INTEGERS})?\s*+\}}")
_MAP_ITEM = rf"\s*+([\w.\-/]++)\s*+=\s*+({STRING}|{_SHALLOW})\s*+,?"
_METADATA_ITEM = rf"\s*+,?\s*+([a-z_]++)=({STRING}|{_SHALLOW}|[^\s,{{}}]++)"
_IN_INDEX = repeated(r"[0-9]{1,9}\s*+(?:,\s*+(?=[0-9])|(?=\}))")
_INDEX = rf"\{{\s*+({_IN_INDEX})\}}"
_ALIAS_ITEM = (
    rf"\s*+{_INDEX}\s*+:\s*+\(\s*+([0-9]{{1,9}})\s*+,\s*+{_INDEX}\s*+"
    r"(?:,\s*+([a-z\-]++)\s*+)?\)\s*+,?"
)
_DONOR_ITEM = rf"\s*+\(\s*+([0-9]{{1,9}})\s*+,\s*+{_INDEX}\s*+\)\s*+,?"
_ESCAPE = lazy_pattern(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


compiled = cache(re.compile)
"""Compiles a pattern on first use: few texts need these."""


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


class Metadata(NamedTuple):
    """The origin of an instruction (`OpMetadata`); fields are 0 or empty where not given."""

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


_METADATA_DEFAULTS = Metadata()._asdict()
_PLAIN_METADATA = lazy_pattern(
    r'\{(?:op_type="([^"\\]*+)" ?)?+(?:op_name="([^"\\]*+)" ?)?+(?:source_file="([^"\\]*+)" ?)?+'
    rf"({repeated('(?:source_(?:end_)?(?:line|column)|stack_frame_id)=[0-9]{1,9} ?')})\}}"
)
"""All that XLA prints of most instructions, in its order."""
_PLAIN_NAME = lazy_pattern(r'metadata=\{(?:op_type="[^"\\]*+" )?+op_name="([^"\\]*+)"')
_MAX_KEPT = 1 << 15
"""How many texts of metadata are remembered; instructions of one operation have the same."""
METADATA = "metadata={"
"""The text before the metadata in a printed line."""


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
    return {name: text[start:end].rstrip() for name, start, end in iter_attributes(text)}


def iter_attributes(text: str) -> Iterator[tuple[str, int, int]]:
    """Every name, and where its value begins and ends; raises what is wrong on the way.

    Names are given once, no value is missing, brackets are closed by their like, strings closed.
    """
    seen: set[str] = set()
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _NAME.match(text, position)
        if match is None:
            raise TextProblem("expected `, name=value`", position, position + 1)
        name, start = match[1], match.end()
        if name in seen:
            raise TextProblem(f"attribute `{name}` is given twice", *match.span(1))
        seen.add(name)
        position = _end_of_value(text, start)
        if position == start:
            raise TextProblem(f"attribute `{name}` has no value", *match.span(1))
        yield name, start, position


def _end_of_value(text: str, start: int) -> int:
    """The end of the value at `start`: a comma outside brackets, or the end of the text."""
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


@lru_cache(_MAX_KEPT)
def parse_metadata(text: str) -> Metadata:
    """`{op_name="..." source_line=3}`; fields we do not know are left out."""
    if (plain := _read_plain(text, 0)) is not None and plain[1] == len(text):
        return plain[0]
    fields: dict[str, str | int] = {}
    for match in _parse_items(text, _METADATA_ITEM, "expected `field=value`"):
        _read_field(match, fields)
    return Metadata(**fields)  # type: ignore[arg-type]  # checked field by field


def _read_plain(text: str, start: int) -> tuple[Metadata, int] | None:
    """The metadata in the braces at `start`, and where it ends; None unless all of it is plain."""
    match = _PLAIN_METADATA.match(text, start)
    if match is None:
        return None
    op_type, op_name, file, numbers = match.groups("")
    if not numbers:
        return Metadata(op_name, op_type, file), match.end()
    fields: dict[str, Any] = {}
    for item in numbers.split():
        name, _, number = item.partition("=")
        fields[name] = int(number)
    return Metadata(op_name, op_type, file, **fields), match.end()


def _read_field(match: re.Match[str], fields: dict[str, str | int]) -> None:
    default = _METADATA_DEFAULTS.get(match[1])
    if isinstance(default, int):
        try:
            fields[match[1]] = parse_integer(match[2])
        except TextProblem:
            raise TextProblem("expected an integer", *match.span(2)) from None
    elif default is not None:
        if match[2][0] not in "\"'":
            raise TextProblem("expected a string", *match.span(2))
        fields[match[1]] = parse_string(match[2])


def find_metadata(line: str, start: int = 0) -> int:
    """The offset of the metadata in a printed line from `start` on; -1 where it has none."""
    position = line.find(METADATA, start)
    while position > 0 and line[position - 1] == "_":  # as in `kernel_metadata={}`
        position = line.find(METADATA, position + 1)
    return position


def read_metadata(line: str) -> Metadata:
    """The metadata in a printed line, also a cut one, up to the first item of another kind."""
    position = find_metadata(line)
    plain = _read_plain(line, position + len(METADATA) - 1) if position >= 0 else None
    if plain is not None:
        return plain[0]
    fields: dict[str, str | int] = {}
    match_item = compiled(_METADATA_ITEM).match
    position += len(METADATA) if position >= 0 else len(line) + 1
    while match := match_item(line, position):
        position = match.end()
        try:
            _read_field(match, fields)
        except TextProblem:
            break
    return Metadata(**fields)  # type: ignore[arg-type]  # checked field by field


def read_op_name(text: str, start: int = 0) -> str:
    """The operation's name in the metadata that begins at `start`; empty where it has none."""
    match = _PLAIN_NAME.match(text, start)
    return read_metadata(text[start:]).op_name if match is None else match[1]


def parse_backend_config(text: str) -> Json:
    """JSON, plain or in a string; any other config, as of the typed FFI, is a string."""
    string = parse_string(text)
    if string[:1] != "{":
        return string
    import json  # noqa: PLC0415 - few programs look into a config, all would wait for the import

    try:
        value: Json = json.loads(string)
    except (ValueError, RecursionError):  # too many digits are a ValueError, too
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


def format_input_output_alias(aliases: Iterable[InputOutputAlias]) -> str:
    """As `HloInputOutputAliasConfig::ToShortString` writes them."""
    items = [
        f"{alias.output_index}: ({alias.parameter_number}, {alias.parameter_index}, "
        f"{'must' if alias.must_alias else 'may'}-alias)"
        for alias in aliases
    ]
    return f"{{ {', '.join(items)} }}"


def format_buffer_donor(donors: Iterable[BufferDonor]) -> str:
    """As `HloBufferDonorConfig::ToShortString` writes them."""
    items = [f"({donor.parameter_number}, {donor.parameter_index})" for donor in donors]
    return f"{{ {', '.join(items)} }}"


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
    parameters, arrow, result = text[1:-1].partition("->")
    if text[:1] != "{" or text[-1:] != "}" or not arrow or parameters.lstrip()[:1] != "(":
        raise TextProblem("expected `{(parameter shapes)->result shape}`", 0, len(text))
    elements = _shape_at(1, parameters).elements
    return ProgramShape(elements, _shape_at(1 + len(parameters + arrow), result))


def _shape_at(start: int, part: str) -> Shape:
    """The shape a part of a text spells; `start` is where the part stands."""
    try:
        return parse_shape_text(part)
    except ParseError as error:
        place = (start + error.span.start, start + error.span.end)
        raise TextProblem(error.problem, *place, error.hint) from None


def _index(text: str) -> ShapeIndex:
    return ShapeIndex(map(int, text.split(","))) if text else ShapeIndex()


def _parse_items(text: str, item: str, expected: str) -> list[re.Match[str]]:
    """The items between the braces of `text`, which must be nothing else."""
    if text[:1] != "{" or text[-1:] != "}":
        raise TextProblem("expected braces", 0, len(text))
    items: list[re.Match[str]] = []
    match_item = compiled(item).match
    position, end = 1, len(text) - 1
    while match := match_item(text, position, end):
        items.append(match)
        position = match.end()
    if text[position:end].strip():
        _fail_item(text, position, end, expected)
    return items


def _fail_item(text: str, position: int, end: int, expected: str) -> NoReturn:
    start = position + len(text[position:end]) - len(text[position:end].lstrip())
    raise TextProblem(expected, start, min(end, start + 40))


INTEGER_LISTS = (
    "collapsed_slice_dims",
    "dimensions",
    "dynamic_slice_sizes",
    "fft_length",
    "inserted_window_dims",
    "lhs_batch_dims",
    "lhs_contracting_dims",
    "offset_dims",
    "rhs_batch_dims",
    "rhs_contracting_dims",
    "scatter_dims_to_operand_dims",
    "start_index_map",
    "update_window_dims",
)
"""Attributes that read `{0,1}` whatever the opcode."""

INTEGERS = (
    "batch_group_count",
    "channel_id",
    "exponent_bits",
    "feature_group_count",
    "feature_index",
    "index",
    "index_vector_dim",
    "iota_dimension",
    "mantissa_bits",
)
"""Attributes that are one integer whatever the opcode."""

CONTENT_PARSERS: Mapping[str, Callable[[str], object]] = {
    "metadata": parse_metadata,
    "frontend_attributes": parse_string_map,
    "output_to_operand_aliasing": parse_operand_aliasing,
    **dict.fromkeys(INTEGER_LISTS, parse_integers),
    **dict.fromkeys(INTEGERS, parse_integer),
}
"""Readers of attributes whose form does not depend on the opcode."""
