"""Values must be inside their allocation, aligned, as large as their shape, and of its color."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.evidence import value_finding
from hlomem.check.findings import Finding
from hlomem.view.guess_machine import MachineGuess, size_on
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import ByteCount, Color
    from hlomem.view.joined import JoinedDump, PlacedValue


def check_geometry(joined: JoinedDump, guess: MachineGuess) -> Iterator[Finding]:
    for allocation in joined.allocations:
        if allocation.size < 0:
            yield Finding(
                "geometry/negative-size",
                f"allocation {allocation.index} has {allocation.size} bytes",
                allocations=(allocation.index,),
            )
    sound: set[tuple[str, ByteCount, Color | None]] = set()
    alignment_of = {
        color: guess.machine.alignment(color)
        for color in {allocation.color for allocation in joined.allocations}
    }
    for placed in joined.placed:
        value, allocation = placed.value, placed.allocation
        key = (value.shape, value.size, value.color)
        if (
            key in sound
            and value.color == allocation.color
            and 0 <= placed.start <= placed.end <= allocation.size
            and not placed.start % (alignment_of[allocation.color] or 1)
        ):
            continue
        found = list(_check_value(placed, guess))
        if not found:
            sound.add(key)  # size and layout agree at any offset
        yield from found


def _check_value(placed: PlacedValue, guess: MachineGuess) -> Iterator[Finding]:
    offset, size, room = placed.value.offset, placed.value.size, placed.allocation.size
    if offset < 0 or size < 0:
        rule = "geometry/negative-size" if size < 0 else "geometry/negative-offset"
        yield value_finding(placed, rule, f"has a negative {rule.rpartition('-')[2]}")
    elif offset + size > room:
        problem = f"ends {offset + size - room} bytes past its allocation of {room}"
        yield value_finding(placed, "geometry/out-of-bounds", problem)
    yield from _check_alignment(placed, guess)
    yield from _check_size(placed, guess)
    yield from _check_color(placed)


def _check_alignment(placed: PlacedValue, guess: MachineGuess) -> Iterator[Finding]:
    machine, color = guess.machine, placed.allocation.color
    alignment = machine.alignment(color)
    if alignment is not None and placed.value.offset % alignment:
        problem = f"has offset {placed.value.offset}, not a multiple of {alignment}"
        fact = f"{machine.name} aligns color {color} to {alignment} bytes"
        yield value_finding(placed, "geometry/misaligned", problem, fact)


def _check_size(placed: PlacedValue, guess: MachineGuess) -> Iterator[Finding]:
    if parse_shape_or_none(placed.value.shape) is None:
        problem = f"has an invalid shape: {placed.value.shape}"
        yield value_finding(placed, "geometry/unreadable-shape", problem)
    expected = size_on(guess.machine, placed)
    if expected is None or expected == placed.value.size:
        return
    if not guess.explains_sizes:
        # On every machine an array takes at least its unpadded bytes.
        is_padded = guess.machine.pads_tiles or placed.value.shape.startswith("(")
        if is_padded or placed.value.size >= expected:
            return
    problem = f"has {placed.value.size} bytes, its shape takes {expected}"
    fact = f"{placed.value.shape} takes {expected} bytes on {guess.machine.name}"
    yield value_finding(placed, "geometry/size-not-of-shape", problem, fact)


def _check_color(placed: PlacedValue) -> Iterator[Finding]:
    """Colors agree, unless reused across colors (`BufferAssigner::MaybeAssignBuffer`)."""
    value, allocation = placed.value, placed.allocation
    guests = {guest.id for guest in allocation.reused_across_colors or ()}
    if value.color != allocation.color and value.id not in guests:
        problem = f"has color {value.color}, its allocation {allocation.color}"
        yield value_finding(placed, "geometry/color-differs", problem)
    shape = parse_shape_or_none(value.shape)
    if shape is not None and shape.is_array and shape.memory_space != value.color:
        problem = f"has color {value.color}, its layout says S({shape.memory_space})"
        yield value_finding(placed, "geometry/color-not-of-layout", problem)
