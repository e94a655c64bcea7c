"""Findings on results that loops stack: less split than the argument whose steps they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.sizes import format_bytes
from hlomem.report.data.sharding.argument_findings import alike_in, code_of, tree_of
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.promise import promise
from hlomem.report.data.sharding.values import WORTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.sharding import Sharding
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.subject import Subject


class Steps(NamedTuple):
    """A result with one part for each step of a loop, and the argument that a part is like."""

    name: str
    buffer: Buffer
    layout: Layout
    argument: str
    part: Sharding
    wanted: Sharding

    @property
    def left(self) -> float:
        """The share of its bytes that is left."""
        assert self.layout.sharding is not None
        return self.wanted.replication / self.layout.sharding.replication


def find_stacked_results(
    subject: Subject, known: Sequence[ShardingFinding]
) -> Iterator[ShardingFinding]:
    """Results of a whole argument's shape for each step, without an axis that splits this.

    Those that one line returns in one tree, in one sharding, are one.
    """
    told = {name for finding in known for name in (*finding.names, *finding.change.results)}
    groups: dict[tuple[str | None, str, str], list[Steps]] = defaultdict(list)
    for name, buffer, layout in subject.results:
        steps = _steps(subject, name, buffer, layout) if name not in told else None
        if steps is not None and buffer.parameter is None:
            key = subject.result_line(name), tree_of(name), steps.part.spec()
            groups[key].append(steps)
    for (line, _, _), group in groups.items():
        group.sort(key=lambda one: -one.buffer.size)
        if sum(one.buffer.size * (1 - one.left) for one in group) >= WORTH * subject.space.size:
            yield _finding(subject, line, group)


def _steps(subject: Subject, name: str, buffer: Buffer, layout: Layout) -> Steps | None:
    sharding = layout.sharding
    if sharding is None or len(layout.whole) < 2:
        return None
    for argument, its_buffer, its in subject.arguments:
        part = its.sharding
        if part is None or its.whole != layout.whole[1:]:
            continue
        if subject.is_trained and not subject.is_input(argument, its_buffer):
            continue
        ahead = tuple([axis for axis in sharding.dimensions[0] if axis not in part.used])
        wanted = type(part)(part.mesh, (ahead, *part.dimensions))
        if set(sharding.used) < set(wanted.used):
            return Steps(name, buffer, layout, argument, part, wanted)
    return None


def _finding(subject: Subject, line: str | None, group: Sequence[Steps]) -> ShardingFinding:
    first = group[0]
    now = first.layout.sharding
    assert now is not None
    share: dict[ValueId, float] = {}
    for one in group:
        share |= alike_in(subject, one.buffer, one.layout, one.left)
    size = sum(one.buffer.size for one in group)
    specs = {one.name: one.wanted.spec() for one in group}
    used = {axis.name for axis in now.used}
    lost = tuple([axis.name for axis in first.wanted.used if axis.name not in used])
    return ShardingFinding(
        kind="stack",
        title=f"{first.name}: {format_bytes(size)} on each device,"
        f" the same along {', '.join(lost)}",
        why=f"{first.name} {list(first.layout.whole)} is {now.spec()};"
        f" {first.argument}, of which it has one for each step, is {first.part.spec()}",
        size=size,
        promised=promise(subject.memory, subject.space, share),
        source=line,
        names=tuple(specs),
        axes=lost,
        how=code_of({}, specs),
        change=ShardingChange(
            results=specs, constraint=first.part.spec(), dimensions=first.layout.whole[1:]
        ),
    )
