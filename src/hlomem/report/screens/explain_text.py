"""Draws an `Explanation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.lines import bare_op_name
from hlomem.report.screens.scoped_text import describe_use
from hlomem.report.screens.text import Line, percent, shorten, shorten_front, space_label, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.report.data.explain import Explanation, Neighbour

_MARGIN = " " * 10
_MAX_LISTED = 4


def draw_explanation(told: Explanation, width: int, all_frames: bool = False) -> list[Line]:
    buffer = told.buffer
    facts = f"  value {buffer.id}, {buffer.role}"
    size = f"  {format_bytes(buffer.size)}"
    name = shorten(visible(buffer.name), width - len(size) - len(facts))
    lines: list[Line] = [
        [(name, "bold"), (size, "cyan"), (facts, "")],
        [(shorten(visible(buffer.shape), width), "cyan")],
    ]
    for title, sentences in (
        ("why", _why(told, width - len(_MARGIN), all_frames)),
        ("size", _size(told)),
        ("life", _life(told)),
        ("where", _location(told)),
        ("scoped", [] if told.scoped is None else [describe_use(told.scoped)]),
        ("in place", [f"{answer.operand}: {answer.why}" for answer in told.in_place[:_MAX_LISTED]]),
    ):
        lines += _section(title, sentences, width)
    return lines


def _section(title: str, sentences: Iterable[str], width: int) -> list[Line]:
    lines = [line for sentence in sentences for line in wrapped(sentence, width, _MARGIN)]
    if lines:
        head = lines[0][0][0]
        lines[0] = [(f"{title:<{len(_MARGIN)}}", "bold"), (head[len(_MARGIN) :], "")]
    return lines and [[], *lines]


def _why(told: Explanation, columns: int, all_frames: bool) -> list[str]:
    buffer = told.buffer
    what = buffer.parameter if buffer.opcode == "parameter" and buffer.parameter else buffer.opcode
    sentences = [f"{what or 'unknown instruction'}: {told.meaning}"]
    if buffer.op_name:
        sentences.append(shorten_front(bare_op_name(visible(buffer.op_name)), columns))
    if all_frames and told.frames:
        sentences += [
            shorten_front(visible(f"{frame.location} {frame.function}".rstrip()), columns)
            for frame in told.frames
        ]
    elif buffer.source:
        sentences.append(shorten_front(visible(buffer.source), columns))
    if buffer.source and buffer.told_by:
        sentences.append(f"that line is from {buffer.told_by}; its own instruction has none")
    if buffer.moved:
        sentences.append(f"{buffer.moved}, with the same role")
    return sentences


def _size(told: Explanation) -> list[str]:
    buffer = told.buffer
    if not buffer.padding:
        return [f"{buffer.size} bytes"]
    grown = ", ".join(growth.words for growth in told.growths) or "the whole is rounded up"
    share = percent(buffer.padding, buffer.size)
    return [
        f"{buffer.size} bytes, {buffer.size - buffer.padding} of them for its elements",
        f"{buffer.padding} bytes ({share}) are padding; {grown}",
    ]


def _life(told: Explanation) -> list[str]:
    buffer = told.buffer
    if buffer.start is None:
        return [told.first]
    sentences = [
        f"from instruction {buffer.start}: {told.first}",
        f"until instruction {buffer.end}: {told.last}",
    ]
    if told.readers:
        sentences.append(f"read by {_listed(told.readers)}")
    if told.also_known_as:
        sentences.append(f"also {_listed(told.also_known_as)}")
    return [*sentences, *_most(told.loops)]


def _location(told: Explanation) -> list[str]:
    buffer = told.buffer
    end = buffer.offset + buffer.size
    size = format_bytes(told.allocation_size)
    sentences = [f"bytes [{buffer.offset}, {end}) of allocation {buffer.allocation}"]
    sentences[0] += f" ({told.allocation_kind}, {size}) in {space_label(told.space)}"
    is_guest = buffer.role not in roles.OF_ARGUMENTS | {roles.RESULTS}
    if is_guest and buffer.place in allocation_kinds.WORDS:
        sentences.append(f"{allocation_kinds.WORDS[buffer.place]}, which it uses for a while")
    for when, words in (
        ("together", "shares bytes at the same time with"),
        ("before", "before it:"),
        ("after", "after it:"),
    ):
        found = [neighbour for neighbour in told.neighbours if neighbour.when == when]
        nearest = found[::-1] if when == "before" else found
        sentences += _most([f"{words} {_neighbour(neighbour)}" for neighbour in nearest])
    return sentences


def _neighbour(other: Neighbour) -> str:
    steps = "" if other.start is None else f", instructions {other.start} to {other.end}"
    why = f": {other.why}" if other.why else ""
    return f"{other.name} ({format_bytes(other.size)}{steps}){why}"


def _listed(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + rest


def _most(sentences: list[str] | tuple[str, ...]) -> list[str]:
    rest = len(sentences) - _MAX_LISTED
    return [*sentences[:_MAX_LISTED], *([f"and {rest} more"] if rest > 0 else [])]
