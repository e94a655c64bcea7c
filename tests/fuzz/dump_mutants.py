"""Damaged dumps: one small, seeded change of one of a dump's files at a time.

To the damage any text may suffer (`mutants.TEXT_KINDS`) come the changes only a dump can have:
sizes and offsets that cannot be, ids that stand twice, sections in another order, lines of another
program.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.fuzz.mutants import TEXT_KINDS, choose_span, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_SIZE = re.compile(r"(?:size[ =]|offset=|Total bytes used: )(-?\d+)")
_ID = re.compile(r"<(\d+) ")
_RANGE = re.compile(r":(-?\d+)-(-?\d+)\n")
_STEP = re.compile(r"\n    (\d+):")
_INDEX = re.compile(r"\{[\d,]*\}")
_LINE_NAME = re.compile(r"(?:<\d+ |\n    \d+:|\n  )([\w.\-]+)")
_ATTRIBUTE = re.compile(r", (?:[a-z\-]+)(?=[,:])|, (?:color|page|parameter) \d+")
_SECTION = re.compile(r"(?m)^(?=\S)")

_SIZES = ["-1", "0", "1", "63", "9223372036854775807", "9223372036854775808", "1" + "0" * 4000]
_TIMES = ["-5", "0", "1", "1" + "0" * 30, "9223372036854775807", "4294967296"]
_INDICES = ["", "{}", "{0}", "{999999999}", "{" + "0," * 5000 + "0}", "{-1}", "{,}"]
_NAMES = ["nope", "x" * 70_000, "a.b.c", "\x1b[2J", "\u202e", "", "fusion", "param_0"]
_ATTRIBUTES = [
    *(", constant", ", maybe-live-out", ", thread-local", ", color 7", ", page 9", ", new thing"),
    *(", parameter 99, shape |f32[2]| at ShapeIndex {}", ", output shape is ||", ", |", ", |a|b"),
]
_FORGED = [
    "\nallocation 9: size 1:\n",
    "\n value: <0 x @0> (size=4,offset=0): f32[]\n",
    "\n    99:forged\n",
    "\nHloLiveRange (max 3):\n",
    "\n\nTotal bytes used: 0 (0B)\n",
    "\n  BufferLiveRange:\n",
    "\nI0101 00:00:00.000000 1 log.cc:1] a line of a log\n",
]


def change_size(random: Random, text: str) -> str:
    """A size or an offset that cannot be."""
    return put(text, choose_span(random, _SIZE, text, 1), random.choice(_SIZES))


def change_id(random: Random, text: str) -> str:
    """The id of another value, or one that nobody has."""
    others = [match[1] for match in _ID.finditer(text)]
    new = random.choice([*others, "99999", "1" + "0" * 30])
    return put(text, choose_span(random, _ID, text, 1), new)


def change_range(random: Random, text: str) -> str:
    """A live range that ends before it begins, or never."""
    group = random.choice([1, 2])
    return put(text, choose_span(random, _RANGE, text, group), random.choice(_TIMES))


def change_step(random: Random, text: str) -> str:
    """A step out of its order."""
    return put(text, choose_span(random, _STEP, text, 1), random.choice(_TIMES))


def change_index(random: Random, text: str) -> str:
    """Another shape index."""
    return put(text, choose_span(random, _INDEX, text), random.choice(_INDICES))


def change_instruction(random: Random, text: str) -> str:
    """The name of another instruction, or of none."""
    others = [match[1] for match in _LINE_NAME.finditer(text)]
    return put(text, choose_span(random, _LINE_NAME, text, 1), random.choice([*_NAMES, *others]))


def change_allocation(random: Random, text: str) -> str:
    """An attribute of an allocation more, less or in the place of another."""
    span = choose_span(random, _ATTRIBUTE, text)
    return put(text, span, random.choice([*_ATTRIBUTES, "", 2 * text[span[0] : span[1]]]))


def forge_lines(random: Random, text: str) -> str:
    """Lines that look like the dump's own, where a name could have brought them."""
    place = random.randrange(len(text))
    return put(text, (place, place), random.choice(_FORGED))


def _sections(text: str) -> list[str]:
    starts = [match.start() for match in _SECTION.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def double_section(random: Random, text: str) -> str:
    """A section twice."""
    sections = _sections(text)
    place = random.randrange(len(sections))
    return "".join([*sections[: place + 1], *sections[place:]])


def swap_sections(random: Random, text: str) -> str:
    """Two sections in each other's place."""
    sections = _sections(text)
    one, two = random.randrange(len(sections)), random.randrange(len(sections))
    sections[one], sections[two] = sections[two], sections[one]
    return "".join(sections)


def write_twice(random: Random, text: str) -> str:
    """Two writers at once: the text, and itself from somewhere on."""
    place = random.randrange(len(text))
    return random.choice([text + text, text[:place] + text + text[place:], text[:place] + text])


KINDS: list[Callable[[Random, str], str]] = [
    *TEXT_KINDS,
    change_size,
    change_id,
    change_range,
    change_step,
    change_index,
    change_instruction,
    change_allocation,
    forge_lines,
    double_section,
    swap_sections,
    write_twice,
]
