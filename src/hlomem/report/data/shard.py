"""The report on shardings: what lies on each device, what is gathered, what is there twice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.hints import Hint
from hlomem.report.data.sharding.argument_findings import (
    find_in_arguments,
    find_in_results,
    find_lost_donations,
)
from hlomem.report.data.sharding.batch_findings import find_whole_batches, find_whole_inputs
from hlomem.report.data.sharding.collectives import Collective, build_collectives
from hlomem.report.data.sharding.constraint_findings import find_odd_constraints
from hlomem.report.data.sharding.finding import ShardingFinding  # noqa: TC001 - msgspec reads it
from hlomem.report.data.sharding.gather_findings import find_full_reshards, find_kept_gathers
from hlomem.report.data.sharding.stack_findings import find_stacked_results
from hlomem.report.data.sharding.subject import Subject
from hlomem.report.data.sharding.value_findings import find_padding, find_whole_values
from hlomem.report.data.sharding.values import WORTH, split_further

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.data.sharding.layouts import Layout

_NOT_PARTITIONED = "the program runs on one device: nothing is split"
_NO_WHOLE = (
    "without *before_optimizations.txt, which XLA writes next to the dump, whole shapes and"
    " shardings are not known"
)


class ShardedArray(Record, frozen=True, kw_only=True):
    """An array on each device."""

    name: str
    role: str
    size: int
    """Bytes on each device, as planned."""
    whole: tuple[int, ...] | None
    """The dimensions of the whole array; None if unknown."""
    local: tuple[int, ...] | None
    """The dimensions on one device."""
    spec: str | None
    """Its sharding as JAX writes it, `P('data', None)`; None if unknown."""
    replication: int | None
    """Devices that hold the same part."""
    split_size: int | None
    """Bytes if it were split along the other axes of the mesh, too; None if none divides it."""
    split_spec: str | None
    source: str | None


class ShardReport(Record, frozen=True, kw_only=True):
    name: str
    space: str
    size: int
    """Bytes reserved on each device."""
    device_count: int
    mesh: str
    """`data=4, model=2`; empty if unknown."""
    target: str = ""
    """The machine it was compiled for; empty for a dump."""
    findings: tuple[ShardingFinding, ...]
    """By the bytes that are saved."""
    arguments: tuple[ShardedArray, ...]
    results: tuple[ShardedArray, ...]
    values: tuple[ShardedArray, ...]
    """Other values of at least a hundredth of the memory."""
    collectives: tuple[Collective, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The screen of `hlomem shard`; imported by name, since data must not import screens."""
        return str(import_module("hlomem.report.screens.shard_text").format_shard(self))

    def __repr__(self) -> str:
        size, count = format_bytes(self.size), len(self.findings)
        return f"<ShardReport {self.name[-80:]!r}: {size} on each device, {count} findings>"


def build_shard(memory: MemoryView, space: Space) -> ShardReport:
    """The shardings of a program in a memory space."""
    return report_on(Subject(memory, space))


def report_on(subject: Subject, *, is_tried: bool = False) -> ShardReport:
    """The same of a program of which more is known than its dump.

    With `is_tried` changes are to be compiled, so that findings are told at each likely place.
    """
    memory, space = subject.memory, subject.space
    mesh = subject.layouts.mesh
    is_known = subject.whole is not None and mesh is not None
    found = _Found(subject) if is_known else None
    return ShardReport(
        name=memory.dump.title,
        space=space.name,
        size=space.size,
        device_count=memory.device_count,
        mesh=mesh.describe() if mesh is not None and is_known else "",
        findings=tuple([one for one in found.findings if not one.is_other or is_tried])
        if found
        else (),
        arguments=_rows(subject.arguments) if is_known else _unknown(subject),
        results=_rows(subject.results) if is_known else (),
        values=_values(subject) if is_known else (),
        collectives=build_collectives(subject.layouts, space),
        notes=(*_notes(subject), *(found.notes if found else ())),
    )


def _notes(subject: Subject) -> tuple[str, ...]:
    if subject.memory.device_count == 1:
        return (_NOT_PARTITIONED,)
    return (_NO_WHOLE,) if subject.whole is None else ()


class _Found:
    """Findings of rules; one that fails is left out with a note."""

    def __init__(self, subject: Subject) -> None:
        self.findings: list[ShardingFinding] = []
        self.notes: list[str] = []
        rules = (
            find_in_arguments,
            find_whole_batches,
            find_whole_inputs,
            lambda given: find_lost_donations(given, self.findings),
            lambda given: find_in_results(given, self.findings),
            lambda given: find_stacked_results(given, self.findings),
            find_whole_values,
            find_padding,
            find_kept_gathers,
            find_full_reshards,
            lambda given: _new(find_odd_constraints(given), self.findings),
        )
        for rule in rules:
            self._ask(rule, subject)
        self.findings.sort(key=lambda one: -one.promised)

    def _ask(self, rule: Callable[[Subject], Iterator[ShardingFinding]], subject: Subject) -> None:
        try:
            self.findings += rule(subject)
        except HlomemError as error:
            self.notes.append(f"a rule could not be applied: {error}")


def _new(
    found: Iterator[ShardingFinding], known: Sequence[ShardingFinding]
) -> Iterator[ShardingFinding]:
    """Findings at places of which nothing was found yet."""
    places = {one.change.place for one in known}
    yield from [one for one in found if one.change.place not in places]


def _rows(found: list[tuple[str, Buffer, Layout]]) -> tuple[ShardedArray, ...]:
    rows = [_row(name, buffer, layout) for name, buffer, layout in found]
    return tuple(sorted(rows, key=lambda row: (-row.size, row.name)))


def _row(name: str, buffer: Buffer, layout: Layout) -> ShardedArray:
    sharding = layout.sharding
    further = None if sharding is None else split_further(sharding, layout.whole)
    left = None
    if sharding is not None and further is not None:
        left = buffer.size * further.replication // sharding.replication
    return ShardedArray(
        name=name,
        role=buffer.role,
        size=buffer.size,
        whole=layout.whole,
        local=layout.local,
        spec=None if sharding is None else sharding.spec(),
        replication=layout.replication,
        split_size=left,
        split_spec=None if further is None else further.spec(),
        source=buffer.source,
    )


def _unknown(subject: Subject) -> tuple[ShardedArray, ...]:
    """Arguments of a program whose shardings are not known."""
    rows = []
    for allocation in subject.memory.allocations_of(subject.space.color):
        owner = subject.memory.owner(allocation)
        if owner is not None and allocation.parameter is not None:
            rows.append(
                ShardedArray(
                    name=owner.parameter or owner.name,
                    role=owner.role,
                    size=allocation.size,
                    whole=None,
                    local=None,
                    spec=None,
                    replication=None,
                    split_size=None,
                    split_spec=None,
                    source=None,
                )
            )
    return tuple(sorted(rows, key=lambda row: (-row.size, row.name)))


def _values(subject: Subject) -> tuple[ShardedArray, ...]:
    """Large values at the peak whose layouts are known."""
    memory, space = subject.memory, subject.space
    step = memory.fullest_step(space.color)
    if step is None:
        return ()
    found = []
    for buffer, size in memory.alive(space.color, step):
        is_other = buffer.role in roles.OF_ARGUMENTS or buffer.role == roles.RESULTS
        if is_other or size < WORTH * space.size:
            continue
        layout = subject.layouts.of(buffer)
        if layout is not None:
            found.append((buffer.name, buffer, layout))
    return _rows(found)


def hint_of(report: ShardReport) -> Hint | None:
    if not report.findings:
        return None
    first = report.findings[0]
    return Hint(size=first.promised, what=first.title, command="shard")
