"""Damaged texts: one small, seeded change of a good text at a time.

In: a random generator and the text of a module. Out: a text that is nearly one. Each kind of damage
is one function; `KINDS` lists them. The kinds follow what happens to files (flips, cuts, lost and
doubled lines, line ends) and what a reader may trip over (brackets, numbers, names, attributes).
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOKEN = re.compile(r'"[^"\n]*"|[\w.\-%]+|[^\s\w]|\s+')
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"%[\w.\-]+")
_SHAPE = re.compile(r"[a-z]\w*\[[\d,<=]*\](?:\{[^{}]*\})?")
_LAYOUT = re.compile(r"\{[\d,]+(?::[^{}]*)?\}")
_ATTRIBUTE = re.compile(r", [a-z_-]+=(?:\{[^{}\n]*\}|[^,\n]*)")
_OPCODE = re.compile(r" ([a-z][a-z\-]*)\(")
_STRING = re.compile(r'"[^"\n]*"')
_LITERAL = re.compile(r"constant\(([^()\n]*)\)")
_HEADER = re.compile(r", [a-z_]+=(?:\{[^\n]*?\}|\w+)(?=, |\n)")

_NUMBERS = ["-1", "0", "9" * 19, "9" * 400, "9" * 5000, "18446744073709551616", "1e999", "00", "٣"]
_ODD = ["\0", "\r", "\r\n", "\x0b", "\x1b[2J", "\x85", "\u2028", "\u202e", "\ud800", "é", "𝔘", "\t"]
_BRACKETS = ["{", "}", "(", ")", "[", "]", '"', "'", "/*", "*/", "//", "\\", "#0", "->", "=", ","]
_SHAPES = [
    *("()", "token[]", "opaque[]", "(f32[], s32[2]{0})", "f32[", "f32[2]{1}", "b(f32[])", "f32[?]"),
    *("f32[<=4]{0:T(0)}", "f32[]{:L(-1)}", "g32[]", "f32[1099511627776,1099511627776]"),
]
_OPCODES = [
    *("add", "tuple", "while", "fusion", "call", "parameter", "constant", "async-done"),
    *("slice-start", "copy-done", "get-tuple-element", "no-such-thing", "call-start"),
]
_VALUES = [
    *("", "{", "}", "{}", '"', "{{0},{1}", "[2,2]<=[4]T(1,0)", "{maximal device=0}", "\\", "%x"),
    *('{op_name="', "{source_line=x}", "{0,0,0}", "{" * 60 + "}" * 60, "9" * 30),
]
_ATTRIBUTES = [
    *(", index=9", ", calls=%nope", ", to_apply=%nope", ", x=", ", metadata={op_name=1}", ", =1"),
    *(", control-predecessors={%nope}", ', sharding={"', ", dimensions={9}"),
    *(", origin={" + "(" * 50 + ")" * 50 + "}", ', backend_config={"a":[{]}'),
]


def put(text: str, span: tuple[int, int], new: str) -> str:
    """`text` with `new` in the place of a span."""
    return text[: span[0]] + new + text[span[1] :]


def choose_span(
    random: Random, pattern: re.Pattern[str], text: str, group: int = 0
) -> tuple[int, int]:
    """Where some match of a pattern lies; the end of the text where there is none."""
    spans = [match.span(group) for match in pattern.finditer(text)]
    return random.choice(spans) if spans else (len(text), len(text))


def _choose_text(random: Random, pattern: re.Pattern[str], text: str) -> str:
    start, end = choose_span(random, pattern, text)
    return text[start:end]


def _lines(random: Random, text: str) -> tuple[list[str], int]:
    lines = text.split("\n")
    return lines, random.randrange(len(lines))


def flip_characters(random: Random, text: str) -> str:
    """Some bits of some characters."""
    characters = list(text)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(characters))
        characters[place] = chr(ord(characters[place]) ^ (1 << random.randrange(7)))
    return "".join(characters)


def delete_line(random: Random, text: str) -> str:
    """One line less."""
    lines, place = _lines(random, text)
    return "\n".join(lines[:place] + lines[place + 1 :])


def double_line(random: Random, text: str) -> str:
    """One line twice."""
    lines, place = _lines(random, text)
    return "\n".join([*lines[: place + 1], *lines[place:]])


def swap_lines(random: Random, text: str) -> str:
    """Two lines in each other's place."""
    lines, place = _lines(random, text)
    other = random.randrange(len(lines))
    lines[place], lines[other] = lines[other], lines[place]
    return "\n".join(lines)


def swap_tokens(random: Random, text: str) -> str:
    """Two tokens of one line in each other's place."""
    lines, place = _lines(random, text)
    tokens = _TOKEN.findall(lines[place]) or [""]
    one, two = random.randrange(len(tokens)), random.randrange(len(tokens))
    tokens[one], tokens[two] = tokens[two], tokens[one]
    lines[place] = "".join(tokens)
    return "\n".join(lines)


def delete_token(random: Random, text: str) -> str:
    """One token less."""
    return put(text, choose_span(random, _TOKEN, text), "")


def double_token(random: Random, text: str) -> str:
    """One token twice."""
    start, end = choose_span(random, _TOKEN, text)
    return put(text, (end, end), text[start:end])


def cut_end(random: Random, text: str) -> str:
    """The text up to some place."""
    return text[: random.randrange(len(text))]


def cut_start(random: Random, text: str) -> str:
    """The text from some place on."""
    return text[random.randrange(len(text)) :]


def cut_middle(random: Random, text: str) -> str:
    """A piece missing."""
    start = random.randrange(len(text))
    return text[:start] + text[start + random.randint(1, 200) :]


def add_bracket(random: Random, text: str) -> str:
    """A bracket, quote or sign too many."""
    place = random.randrange(len(text))
    return put(text, (place, place), random.choice(_BRACKETS))


def nest_brackets(random: Random, text: str) -> str:
    """Many brackets around a token, some of them closed."""
    start, end = choose_span(random, _TOKEN, text)
    opener, closer = random.choice([("(", ")"), ("{", "}"), ("[", "]")])
    depth = random.choice([1, 2, 30, 1000, 9000])
    nested = opener * depth + text[start:end] + closer * random.choice([depth, depth - 1])
    return put(text, (start, end), nested)


def change_number(random: Random, text: str) -> str:
    """Another number, maybe a huge one."""
    return put(text, choose_span(random, _NUMBER, text), random.choice(_NUMBERS))


def add_odd_character(random: Random, text: str) -> str:
    """NUL, controls, separators, surrogates."""
    place = random.randrange(len(text))
    return put(text, (place, place), random.choice(_ODD))


def change_line_ends(random: Random, text: str) -> str:
    """The line ends of another system."""
    return text.replace("\n", random.choice(["\r\n", "\r", "\n\n", "\n\r"]))


def change_name(random: Random, text: str) -> str:
    """A name replaced by another of the text, or by an unknown one."""
    names = [_choose_text(random, _NAME, text), "%nope", "%", "nope nope"]
    return put(text, choose_span(random, _NAME, text), random.choice(names))


def change_shape(random: Random, text: str) -> str:
    """A shape replaced."""
    shapes = [*_SHAPES, _choose_text(random, _SHAPE, text)]
    return put(text, choose_span(random, _SHAPE, text), random.choice(shapes))


def change_layout(random: Random, text: str) -> str:
    """A layout replaced."""
    layouts = ["{}", "{0,0}", "{9}", "{:T(-8", "{0:T(8,128)(", "{0:S(99999999999)}", "{0:SC(0:9)}"]
    return put(text, choose_span(random, _LAYOUT, text), random.choice(layouts))


def change_opcode(random: Random, text: str) -> str:
    """An opcode replaced."""
    return put(text, choose_span(random, _OPCODE, text, 1), random.choice(_OPCODES))


def change_literal(random: Random, text: str) -> str:
    """A literal replaced."""
    literals = ["", "{...}", "true", "{{1},{2", "nan", "(1, 2)", "-", '"', "{" * 500]
    return put(text, choose_span(random, _LITERAL, text, 1), random.choice(literals))


def drop_attribute(random: Random, text: str) -> str:
    """An attribute less."""
    return put(text, choose_span(random, _ATTRIBUTE, text), "")


def double_attribute(random: Random, text: str) -> str:
    """An attribute twice."""
    start, end = choose_span(random, _ATTRIBUTE, text)
    return put(text, (end, end), text[start:end])


def add_attribute(random: Random, text: str) -> str:
    """An attribute more, most likely a wrong one."""
    _, end = choose_span(random, _ATTRIBUTE, text)
    return put(text, (end, end), random.choice(_ATTRIBUTES))


def change_attribute(random: Random, text: str) -> str:
    """Another value for an attribute."""
    start, end = choose_span(random, _ATTRIBUTE, text)
    name = text[start:end].partition("=")[0]
    return put(text, (start, end), f"{name}={random.choice(_VALUES)}")


def change_string(random: Random, text: str) -> str:
    """A string that is not closed, or holds what looks like more."""
    strings = ['"', '"\\', '"a\nb"', '", x="', '"\\777\\xff"', "'a'", '"' + "\\" * 99 + '"']
    return put(text, choose_span(random, _STRING, text), random.choice(strings))


def change_header(random: Random, text: str) -> str:
    """A header attribute less or twice."""
    start, end = choose_span(random, _HEADER, text)
    return put(text, (start, end), random.choice(["", 2 * text[start:end], text[start : end - 1]]))


def several(
    random: Random, text: str, kinds: Sequence[Callable[[Random, str], str]] | None = None
) -> str:
    """Some kinds of damage, one after the other."""
    for _ in range(random.randint(2, 5)):
        text = random.choice(kinds or KINDS)(random, text) or "x"
    return text


TEXT_KINDS: list[Callable[[Random, str], str]] = [
    flip_characters,
    delete_line,
    double_line,
    swap_lines,
    swap_tokens,
    delete_token,
    double_token,
    cut_end,
    cut_start,
    cut_middle,
    add_bracket,
    nest_brackets,
    change_number,
    add_odd_character,
    change_line_ends,
]
"""What may happen to any text."""

KINDS: list[Callable[[Random, str], str]] = [
    *TEXT_KINDS,
    change_name,
    change_shape,
    change_layout,
    change_opcode,
    change_literal,
    drop_attribute,
    double_attribute,
    add_attribute,
    change_attribute,
    change_string,
    change_header,
]
"""What may happen to a module."""
