"""The line where a reviewer would edit, of all the lines that lead to a sharding.

In: the decisions of a program (`jax/compile/decisions.py`), and those of them at fault. Out: one
line, and the chain of the others. A line that innocent decisions pass through, too, is not meant;
a function that only places what it is given does what its caller asks for, so that its call is
meant, as long as that is the only one.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.sharding import bare_spec, parse_spec
from hlomem.jax.compile.call_counts import SEPARATOR
from hlomem.report.data.sharding.finding import Link

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from hlomem.hlo.sharding import Axis, Mesh
    from hlomem.jax.compile.messages import ArgumentLines
    from hlomem.report.data.sharding.decision import Decision, Frame
    from hlomem.report.data.sharding.finding import Place, ShardingFinding

_FEW = 0.02
"""The share of the largest array at fault below which another says nothing of a line."""
_MAX_LINKS = 6
_LOOPS = ("scan", "checkpoint", "hoisted")


class Lines:
    """The lines of a program's decisions."""

    def __init__(self, decisions: Sequence[Decision], placing: Container[str]) -> None:
        """`placing` are functions that only place what they are given, `file::name`."""
        self._decisions = decisions
        self._placing = placing

    def at(self, place: Place, dimensions: Sequence[int] = (), asked: str = "") -> list[Decision]:
        """The constraints that an expression leads to; on arrays of these dimensions, if any."""
        return self.through(f"{place.file}:{place.line}", tuple(dimensions), asked)

    def through(
        self, line: str, dimensions: tuple[int, ...] = (), asked: str = ""
    ) -> list[Decision]:
        """The constraints that a line leads to, the nearest; with the other leaves of a tree."""
        found = [
            (depth, one)
            for one in self._decisions
            if one.kind in ("constraint", "gather")
            and (depth := _depth(one, line)) is not None
            and (not asked or bare_spec(one.specs[0]) == bare_spec(asked))
        ]
        nearest = min([depth for depth, _ in found], default=0)
        near = [one for depth, one in found if depth == nearest]
        lines = {_lines(one) for one in near if one.shapes[0] == dimensions}
        return [one for one in near if not lines or _lines(one) in lines]

    def in_loops(self, group: Sequence[Decision]) -> list[Decision]:
        """Those of a group that loops do in each iteration; all of it where none does."""
        loops = {
            one.applied[0].line for one in self._decisions if one.kind == "scan" and one.applied
        }
        inside = [one for one in group if any(frame.line in loops for frame in one.applied[1:])]
        return inside or list(group)

    def padded_alike(self, group: Sequence[Decision], mesh: Mesh) -> list[Decision]:
        """A group, and all that pad the same size along the same axes."""
        padded = {one for decision in group for one in _padded(decision, mesh)}
        inside = {one.key for one in group}
        others = [one for one in self._decisions if one.key not in inside]
        return [*group, *[one for one in others if not padded.isdisjoint(_padded(one, mesh))]]

    def primary(self, group: Sequence[Decision]) -> str:
        """The line to edit; empty if none is known."""
        frames = self._meant(group)
        return frames[0].line if frames else ""

    def chain(self, group: Sequence[Decision], primary: str) -> tuple[Link, ...]:
        """The other lines, from where the sharding is written to who asks for it."""
        if not group:
            return ()
        first = group[0]
        links: dict[str, Link] = {}
        for frame in first.written[:1]:
            links.setdefault(frame.line, Link(what="written", line=frame.line))
        for frame in first.made[:1]:
            links.setdefault(frame.line, Link(what="made", line=frame.line))
        for number, frame in enumerate(first.applied):
            link = Link(what="called" if number else "applied", line=frame.line)
            links.setdefault(frame.line, link)
            if frame.line == primary:
                break
        return tuple([link for line, link in links.items() if line != primary][:_MAX_LINKS])

    def _meant(self, group: Sequence[Decision]) -> list[Frame]:
        """The frames that lead to the group alone, from the one where a reviewer would edit."""
        own = list(self._specific(group))
        while len(own) > 1 and self._only_places(own[0]):
            own.pop(0)
        return own

    def _specific(self, group: Sequence[Decision]) -> Iterator[Frame]:
        """The innermost frames, one after another, that no other large decision passes through.

        Without such a frame the one that the fewest others pass through.
        """
        if not group:
            return
        common = set.intersection(*[{frame.line for frame in one.applied} for one in group])
        least = _FEW * max(_size(one) for one in group)
        inside = {one.key for one in group}
        others = Counter(
            line
            for one in self._decisions
            if one.key not in inside and one.kind not in _LOOPS and _size(one) >= least
            for line in {frame.line for frame in one.applied}
        )
        is_begun = False
        for frame in group[0].applied:
            is_own = frame.line in common and frame.line not in others
            if is_begun and not is_own:
                return
            if is_own:
                is_begun = True
                yield frame
        shared = [frame for frame in group[0].applied if frame.line in common]
        if not is_begun and shared:
            yield min(shared, key=lambda frame: others[frame.line])

    def _only_places(self, frame: Frame) -> bool:
        return f"{frame.line.rpartition(':')[0]}{SEPARATOR}{frame.function}" in self._placing


def group_of(lines: Lines, finding: ShardingFinding) -> list[Decision]:
    """The decisions that a finding is about."""
    change = finding.change
    if change.place is not None and change.place.is_constraint:
        return lines.at(change.place, change.dimensions, change.asked)
    if change.drops_gathered and finding.source:
        return lines.in_loops(lines.through(finding.source))
    return []


def chain_of_argument(at: ArgumentLines, source: str | None) -> tuple[Link, ...]:
    """The other lines that lead to an argument's sharding."""
    links: dict[str, Link] = {}
    for line in at.written[:1]:
        links.setdefault(line, Link(what="written", line=line))
    for line in at.sharding[:1]:
        links.setdefault(line, Link(what="made", line=line))
    for line in at.made[:1]:
        links.setdefault(line, Link(what="applied", line=line))
    return tuple([link for line, link in links.items() if line != source])


def _lines(decision: Decision) -> tuple[str, ...]:
    return tuple([frame.line for frame in decision.applied])


def _depth(decision: Decision, line: str) -> int | None:
    own = [frame.line for frame in decision.applied]
    return own.index(line) if line in own else None


def _padded(decision: Decision, mesh: Mesh) -> Iterator[tuple[int, tuple[Axis, ...]]]:
    """The sizes that a constraint's axes do not divide, with these axes."""
    if decision.kind != "constraint":
        return
    asked = parse_spec(decision.specs[0], mesh)
    for size, axes in zip(decision.shapes[0], asked.dimensions if asked else (), strict=False):
        if size % prod(axis.size for axis in axes):
            yield size, axes


def _size(decision: Decision) -> int:
    return max(decision.sizes, default=0)
