"""The bytes alive at each step, by role: layers that add up to the timeline.

In: a `MemoryView` and a space. Out: for each role the steps at which its bytes change, and by how
much. A byte that several values hold at once counts for the one `MemoryView.share_out` gives it to.

    role                  time  0    1    2    3    4
    parameters                 +8                            8  8  8  8  8
    temporaries                     +4   +4        -8        0  4  8  8  0
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.report.data import roles

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView

_ORDER = list(roles.MEANING)


class Layer(Record, frozen=True, kw_only=True):
    """One role's bytes over time."""

    role: str
    steps: tuple[int, ...]
    """The steps at which the bytes change, ascending."""
    changes: tuple[int, ...]
    """By how much, at each of them."""


def build_skyline(memory: MemoryView, color: int) -> tuple[Layer, ...]:
    """The layers of a memory space, in the order of the roles; none where lives are not known."""
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for role, start, stop, size in memory.uses(color):
        changes[role][start] += size
        changes[role][stop] -= size
    return tuple(_layer(role, changes[role]) for role in sorted(changes, key=_ORDER.index))


def _layer(role: str, changes: dict[int, int]) -> Layer:
    steps = sorted(step for step, change in changes.items() if change)
    return Layer(role=role, steps=tuple(steps), changes=tuple(changes[step] for step in steps))
