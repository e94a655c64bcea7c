"""The bytes alive at each step, by role: layers that add up to the timeline.

In: a `Memory` and a space. Out: for each role the steps at which its bytes change, and by how much.
A byte that several values hold at once counts for the one `Memory.share_out` gives it to.

    role                  time  0    1    2    3    4
    parameters                 +8                            8  8  8  8  8
    temporaries                     +4   +4        -8        0  4  8  8  0
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.check.sweep import iter_sharing
from hlomem.dump.records import Record
from hlomem.report import roles
from hlomem.report.timeline import merge_lives, occupied, sharing_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.check.plan import Placed
    from hlomem.report.memory import Memory

_ORDER = list(roles.MEANING)


class Layer(Record, frozen=True, kw_only=True):
    """One role's bytes over time."""

    role: str
    steps: tuple[int, ...]
    """Where the bytes change, ascending."""
    changes: tuple[int, ...]
    """By how much, at each of them."""


def build_skyline(memory: Memory, color: int) -> tuple[Layer, ...]:
    """The layers of a memory space, in the order of the roles; none where lives are not known."""
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for allocation in memory.plan.allocations:
        if allocation.color == color:
            for role, start, stop, size in _uses(memory, allocation.index):
                changes[role][start] += size
                changes[role][stop] -= size
    return tuple(_layer(role, changes[role]) for role in sorted(changes, key=_ORDER.index))


_Use = tuple[str, int, int, int]
"""A role, from one step up to another, and the bytes it has."""


def _uses(memory: Memory, index: int) -> Iterator[_Use]:
    """What the values of an allocation add to their roles; those of one role and place are one."""
    values: dict[str, list[Placed]] = defaultdict(list)
    for buffer in memory.buffers_in(index):
        if buffer.start is not None:
            values[buffer.role].append(memory.placed_by_id[buffer.id])
    role_of = {run: role for role, all_ in values.items() for run in merge_lives(all_)}
    groups = sharing_groups(iter_sharing(role_of)) if len(role_of) > 1 else []
    in_group = {run for group in groups for run in group}
    for run, role in role_of.items():
        if run not in in_group:
            assert run.life is not None
            yield role, run.life.start, run.life.end + 1, run.value.size
    for group in groups:
        yield from _shared_uses(group, role_of)


def _shared_uses(group: list[Placed], role_of: dict[Placed, str]) -> Iterator[_Use]:
    """Values that share bytes: between two moments at which one begins or ends, whose each is."""
    begins: dict[int, list[Placed]] = defaultdict(list)
    ends: dict[int, list[Placed]] = defaultdict(list)
    for run in group:
        assert run.life is not None
        begins[run.life.start].append(run)
        ends[run.life.end + 1].append(run)
    alive: set[Placed] = set()
    for start, stop in pairwise(sorted({*begins, *ends})):
        alive.difference_update(ends.get(start, ()))
        alive.update(begins.get(start, ()))
        counted: list[Placed] = []
        taken = 0
        for role in sorted({role_of[run] for run in alive}, key=roles.rank):
            counted += [run for run in alive if role_of[run] == role]
            size = occupied(counted)
            yield role, start, stop, size - taken
            taken = size


def _layer(role: str, changes: dict[int, int]) -> Layer:
    steps = sorted(step for step, change in changes.items() if change)
    return Layer(role=role, steps=tuple(steps), changes=tuple(changes[step] for step in steps))


def heights(layers: Iterable[Layer], length: int) -> list[int]:
    """The layers' sum at each step."""
    at = [0] * (length + 1)
    for layer in layers:
        for step, change in zip(layer.steps, layer.changes, strict=True):
            at[step] += change
    total = 0
    return [total := total + change for change in at[:length]]
