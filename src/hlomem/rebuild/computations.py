"""Which instructions make up one computation, and who calls it.

XLA prints the schedule flattened: a callee's instructions stand before the caller's own line. Read
backwards, it is a nest: after a caller come its callees, the last one first, each whole. What
belongs together is known from operands, and from ids: XLA numbers the values of one computation in
one stretch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.base.disjoint_sets import DisjointSets
    from hlomem.view.joined import JoinedDump


@dataclass(slots=True, eq=False)
class Computation:
    """Names of instructions, in the order they run."""

    name: str
    instructions: list[str] = field(default_factory=list)
    caller: str = ""
    """Empty for the entry, and for what no visible instruction calls."""


def unite_stretches(joined: JoinedDump, families: DisjointSets[str]) -> None:
    """Unite what lies within one stretch of ids."""
    ordered = sorted(joined.own_id.items(), key=lambda item: item[1])
    last_of = {families.find(name): number for number, (name, _) in enumerate(ordered)}
    open_until = -1
    for number, (name, _) in enumerate(ordered):
        last = last_of[families.find(name)]
        if number <= open_until:
            families.unite(name, ordered[number - 1][0])
            last = max(last, open_until)
        open_until = last_of[families.find(name)] = last


def unite_entry_parameters(joined: JoinedDump, families: DisjointSets[str]) -> None:
    """Unite the parameters with values of their own: those of called computations have none."""
    sequence = joined.sequence
    for name in sequence:
        line = joined.printed.get(name)
        if line is not None and line.opcode == "parameter" and name in joined.own_id:
            families.unite(name, sequence[-1])


@dataclass(slots=True, eq=False)
class _Frame:
    """A computation whose end has been read, but not yet its beginning."""

    computation: Computation
    family: str
    has_parameter: bool = False
    waiting: list[str] = field(default_factory=list)
    """Callees of the instruction read last, in the order they run."""


def unflatten(
    joined: JoinedDump,
    families: DisjointSets[str],
    callees: Mapping[str, list[str]],
    parameters: set[str],
    entry_name: str,
) -> list[Computation]:
    """Take the flattened schedule apart; `callees` are those of each caller, as they run."""
    sequence = joined.sequence
    if not sequence:
        return [Computation(entry_name)]
    done: dict[str, Computation] = {}
    frames = [_open(entry_name, "", families.find(sequence[-1]), done)]
    for name in reversed(sequence):
        family = families.find(name)
        while len(frames) > 1 and _is_over(frames, family):
            frames.pop()
        frame = frames[-1]
        if family != frame.family:
            if frame.waiting:
                callee = frame.waiting.pop()
                caller = frame.computation.instructions[-1]
                frame = _open(callee, caller, family, done)
                frames.append(frame)
            else:
                families.unite(name, frame.family)
                frame.family = families.find(name)
        frame.computation.instructions.append(name)
        frame.has_parameter = frame.has_parameter or name in parameters
        frame.waiting = [each for each in callees.get(name, ()) if each not in done]
    for computation in done.values():
        computation.instructions.reverse()
    return list(done.values())


def _open(name: str, caller: str, family: str, done: dict[str, Computation]) -> _Frame:
    computation = done[name] = Computation(name, caller=caller)
    return _Frame(computation, family)


def _is_over(frames: list[_Frame], family: str) -> bool:
    """Whether the next name to the front is not of the innermost computation."""
    *outer, frame = frames
    if family == frame.family or frame.waiting:
        return False
    if any(each.family == family for each in outer):
        return True
    return bool(outer[-1].waiting) and frame.has_parameter


def embedded_computations(
    joined: JoinedDump, families: DisjointSets[str], operands: Mapping[str, list[str]]
) -> list[Computation]:
    """What runs inside reductions, sorts and the like: no part of the schedule. By ids."""

    def rank(name: str) -> tuple[int, int]:
        """By id; what has none comes right after its operands."""
        own = joined.own_id.get(name)
        if own is not None:
            return own, 0
        last, steps = max(map(rank, operands[name]), default=(-1, 0))
        return last, steps + 1

    members: dict[str, list[str]] = {}
    for name in sorted((name for name in joined.held if name not in joined.time_of), key=rank):
        members.setdefault(families.find(name), []).append(name)
    computations: list[list[str]] = []
    for group in reversed(members.values()):
        # A parameter nobody reads stands alone, before the computation it belongs to.
        if computations and _is_missing_parameter(group, computations[-1], joined):
            computations[-1][:0] = group
        else:
            computations.append(group)
    return [Computation("", group) for group in reversed(computations)]


def _is_missing_parameter(group: list[str], others: list[str], joined: JoinedDump) -> bool:
    """Whether a group is nothing but a parameter with a number no other has."""
    printed = joined.printed
    number = printed[group[0]].number if len(group) == 1 and group[0] in printed else None
    return number is not None and all(
        printed[name].number != number for name in others if name in printed
    )
