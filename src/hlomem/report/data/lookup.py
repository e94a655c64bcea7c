"""Memory spaces, buffers and steps by the names users type, or an error with suggestions."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError, InputError, UnknownChoiceError, UnknownNameError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.memory import Buffer, MemoryView, Space

_SUGGESTED = 5


def find_space(memory: MemoryView, wanted: str | None = None) -> Space:
    """The space of a name or color; by default the first that is not empty."""
    if wanted is None:
        held = [space for space in memory.spaces if space.size] or list(memory.spaces)
        if not held:
            raise InputError(f"{visible(memory.dump.name)}: no allocation in this dump")
        return held[0]
    color = memory.machine.find_color(wanted.lower())
    for space in memory.spaces:
        if space.color == color:
            return space
    known = ", ".join(f"{space.name} ({space.color})" for space in memory.spaces)
    raise UnknownNameError(f"no memory space `{visible(wanted)}` in this dump; there are: {known}")


def find_buffer(memory: MemoryView, wanted: str) -> Buffer:
    """The buffer of a value, instruction (`%` optional), argument or result as in reports."""
    wanted = wanted.removeprefix("%")
    for buffer in memory.buffers:
        if wanted in {buffer.name, f"<{buffer.id}>"}:
            return buffer
    parts = [part for part in memory.buffers if part.name.partition("{")[0] == wanted]
    parts = parts or [
        buffer
        for buffer in memory.buffers
        if buffer.parameter == wanted and buffer.opcode in (None, "parameter")
    ]
    parts = parts or [part for part in memory.buffers if part.result == wanted]
    if parts:
        return max(parts, key=lambda part: part.size)
    known = chain(
        (candidate.name for candidate in memory.buffers),
        (candidate.parameter for candidate in memory.buffers if candidate.parameter),
        (candidate.result for candidate in memory.buffers if candidate.result),
    )
    raise UnknownNameError(_unknown(memory, "buffer", wanted, known))


def check_choice(name: str, chosen: str, choices: Sequence[str]) -> None:
    if chosen not in choices:
        known = ", ".join(map(repr, choices))
        raise UnknownChoiceError(f"no {name} {chosen!r}: the choices are {known}")


def find_step(memory: MemoryView, wanted: str) -> int:
    if wanted.isdecimal() and int(wanted) <= memory.steps:
        return int(wanted)
    if wanted in memory.joined.time_of:
        return memory.joined.time_of[wanted]
    if wanted.isdecimal():
        raise CommandError(f"no instruction {wanted}: the last is {memory.steps}")
    raise UnknownNameError(_unknown(memory, "instruction", wanted, memory.joined.sequence))


def _unknown(memory: MemoryView, what: str, wanted: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    near = [name for name in names if wanted in name][:_SUGGESTED]
    if not near:
        from difflib import get_close_matches  # noqa: PLC0415 - only for typos

        near = get_close_matches(wanted, names, n=_SUGGESTED, cutoff=0.5)
    hint = f"; did you mean {', '.join(map(visible, near))}?" if near else ""
    return f"no {what} `{visible(wanted)}` in {visible(memory.dump.title)}{hint}"
