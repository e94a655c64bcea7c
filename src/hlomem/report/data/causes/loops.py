"""Loops: another number of steps, or code that runs in a loop in one program alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line, name_arguments
from hlomem.report.data.causes.ledger import AFTER, BEFORE
from hlomem.report.data.causes.sizes import is_stacked
from hlomem.report.data.phases import REMATTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.report.data.causes.operations import Operation

_OF_LOOPS = frozenset({roles.STACKED, roles.CARRIED})


class LoopChange(NamedTuple):
    """Loops that only one program has."""

    side: int
    lines: frozenset[str]
    """Their lines, as far as known."""
    first: str | None
    """The line of the outermost."""


def find_lengths(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding: a loop of more steps, or fewer."""
    if comparison.length is None:
        return
    old, new = comparison.length
    over = [p.after for p in comparison.resized if p.changed_dimensions.get(0) == (old, new)]
    names = name_arguments(over, comparison.after.arguments.values())
    yield Finding(
        kind="length",
        text=f"a loop of {old} steps became one of {new}{f' (run over {names})' if over else ''}",
        claims=is_stacked(old, new),
    )


def changed_loops(comparison: Comparison) -> LoopChange | None:
    """The loops that came or went; None if some did both, or none did.

    Lines move when a program is edited, so that loops are counted by the scopes around them, or
    only looked for there if some have no name.
    """
    paths = [[loop.path for loop in program.loops] for program in comparison.programs]
    if any(program.has_unnamed_loops for program in comparison.programs):
        paths = [list(set(side)) for side in paths]
    counts = list(map(Counter, paths))
    alone = (counts[0] - counts[1], counts[1] - counts[0])
    if bool(alone[BEFORE]) == bool(alone[AFTER]):
        return None
    side = AFTER if alone[AFTER] else BEFORE
    known = {loop.line for loop in comparison.programs[1 - side].loops}
    loops = [loop for loop in comparison.programs[side].loops if loop.path in alone[side]]
    new = [loop for loop in loops if loop.line not in known] or loops
    first = min(new, key=lambda loop: (loop.depth, loop.line or ""))
    return LoopChange(side, frozenset(loop.line for loop in new if loop.line), first.line)


def recomputes_alone(comparison: Comparison, side: int, operations: Iterable[Operation]) -> bool:
    """Whether all these operations of a side run in loops that the other program lacks."""
    change = changed_loops(comparison)
    if change is None or change.side != side or not change.lines:
        return False
    stacks = map(comparison.programs[side].frames, operations)
    return all(any(frame.location in change.lines for frame in stack) for stack in stacks)


def find_loops(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding: a loop that came or went."""
    change = changed_loops(comparison)
    if change is None:
        return
    scan = f"(lax.scan{at_line(change.first, ' at ')})"
    if change.side == AFTER:
        text = f"runs in a loop {scan}"
    else:
        text = f"no longer runs in a loop {scan}, but unrolled or at once"
    program = comparison.programs[change.side]
    again = [operation for operation in program.operations if REMATTED in operation.name]
    if again and not comparison.programs[1 - change.side].rematted:
        has_word = recomputes_alone(comparison, change.side, again)
        text += ", recomputed in the backward pass" if has_word and change.side == AFTER else ""
    yield Finding(
        kind="loop",
        text=text,
        claims=lambda entry: (
            entry.buffer.role in _OF_LOOPS or not comparison.is_known_operation(entry)
        ),
        source=change.first,
        adds_operations=True,
    )
