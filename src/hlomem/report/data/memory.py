"""`MemoryView`: one dump by memory space, step, role and line; the basis of every report."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from hlomem.assign.footprint import footprint, reserved
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.dump.records import Allocation, LiveRange, Record
from hlomem.report.data import roles
from hlomem.report.data.allocation_kinds import HELD_WHOLE, kind_of
from hlomem.report.data.buffers import Buffer, BufferBuilder, Stay
from hlomem.report.data.occupancy import (
    ByteRange,
    OwnedBytes,
    Usage,
    iter_held,
    iter_uses,
    share_out,
)
from hlomem.report.data.timeline import Timeline, build_timeline, bytes_over_time, fullest_step_of
from hlomem.view.guess_machine import choose_machine, platform_of_names
from hlomem.view.joined import JoinedDump, PlacedValue, join_dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.machines.machine import Machine
    from hlomem.report.data.lines import Frame
    from hlomem.view.control_flow import Structure

__all__ = ["Buffer", "MemoryView", "OwnedBytes", "Space", "build_memory"]


class Space(Record, frozen=True, kw_only=True):
    color: int
    name: str
    size: int
    """The bytes that must fit: the sum of its allocations, without those of single threads."""
    allocation_count: int
    thread_local: int = 0
    """Bytes on the stack of each thread that needs them; XLA's total counts them once."""


class Moment(Record, frozen=True, kw_only=True):
    instruction: str | None
    """None after the last step."""
    op_name: str | None
    source: str | None


def build_memory(
    dump: Dump,
    module: HloModule | None = None,
    machine: Machine | None = None,
    *,
    is_planned: bool = False,
    results: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> MemoryView:
    """The view of a dump, which must have allocations.

    `module` is the program, by default the one next to the dump; `results` are the paths of its
    outputs, in order; `notes` are the assumptions of a plan of ours.
    """
    if dump.assignment is None:
        where = visible(dump.name)
        raise InputError(f"{where}: no allocations; they are in the file *-buffer-assignment.txt")
    return MemoryView(dump, module or dump.module, machine, is_planned, results, notes)


def share_view(before: MemoryView, after: MemoryView) -> MemoryView:
    """The view of `after`; if both hold the same records, with everything computed for `before`."""
    one, other = before.dump, after.dump
    is_same = (
        before.module is after.module
        and before.given_machine is after.given_machine
        and not (before.is_planned or after.is_planned)
        and one.eras == other.eras
        and [id(part.contents) for part in one.parts] == [id(part.contents) for part in other.parts]
        and platform_of_names(one) == platform_of_names(other)
    )
    if not is_same:
        return after
    before.machine  # noqa: B018 - found once for both
    shared = copy(before)
    shared.dump = other
    return shared


class MemoryView:
    """A dump's memory; everything is computed on demand."""

    def __init__(
        self,
        dump: Dump,
        module: HloModule | None,
        machine: Machine | None,
        is_planned: bool,
        results: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.dump = dump
        self.notes = tuple(notes)
        self.is_planned = is_planned
        self.module = module
        self.joined: JoinedDump = join_dump(dump)
        self._builder = BufferBuilder(self.joined, module, self.space_name, results)
        self.given_machine = machine
        self._built: dict[PlacedValue, Buffer] = {}
        self._buffers_in: dict[int, list[Buffer]] = {}
        self._stays_in: dict[int, list[Stay]] = {}
        self._owners: dict[int, Buffer | None] = {}
        self._uses: dict[int, list[Usage]] = {}
        self._counts: dict[int, list[Usage]] = {}
        self._timelines: dict[int, Timeline | None] = {}
        self._alive_at: dict[tuple[int, int], list[OwnedBytes]] = {}
        self._shared_out: dict[tuple[int, int], tuple[list[OwnedBytes], list[ByteRange]]] = {}

    @cached_property
    def machine(self) -> Machine:
        """The given machine, or the one inferred from the dump's layouts."""
        return choose_machine(self.joined, self.given_machine).machine

    @property
    def machine_name(self) -> str:
        """The machine's name, or its platform if it was inferred: dumps do not tell the chip."""
        return self.machine.name if self.given_machine else self.machine.platform

    @cached_property
    def spaces(self) -> tuple[Space, ...]:
        """By color."""
        found: dict[int, list[Allocation]] = {}
        for allocation in self.joined.allocations:
            found.setdefault(allocation.color, []).append(allocation)
        return tuple(self._space(color, found[color]) for color in sorted(found))

    def _space(self, color: int, allocations: list[Allocation]) -> Space:
        size = footprint(allocations, color)
        return Space(
            color=color,
            name=self.machine.space_name(color),
            size=size,
            allocation_count=len(reserved(allocations, color)),
            thread_local=sum(allocation.size for allocation in allocations) - size,
        )

    def space_name(self, color: int) -> str:
        return self.machine.space_name(color)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of all values, in the order of the dump."""
        return tuple(map(self.buffer_of, self.joined.placed))

    def buffer_of(self, placed: PlacedValue) -> Buffer:
        found = self._built.get(placed)
        if found is None:
            found = self._built[placed] = self._builder.build(placed)
        return found

    @cached_property
    def steps(self) -> int:
        """The number of instructions in the schedule; step `steps` is after the last."""
        return len(self.joined.sequence)

    @cached_property
    def _placed_in(self) -> dict[int, list[PlacedValue]]:
        found: dict[int, list[PlacedValue]] = {}
        start = 0
        for allocation in self.joined.allocations:
            end = start + len(allocation.values)
            here = self.joined.placed[start:end]
            # A damaged dump may have two allocations of one index.
            found[allocation.index] = found.get(allocation.index, []) + here
            start = end
        return found

    def placed_in(self, allocation: Allocation) -> Sequence[PlacedValue]:
        return self._placed_in.get(allocation.index, ())

    def buffers_in(self, allocation: int) -> list[Buffer]:
        found = self._buffers_in.get(allocation)
        if found is None:
            found = list(map(self.buffer_of, self._placed_in.get(allocation, ())))
            self._buffers_in[allocation] = found
        return found

    def stays_in(self, allocation: int) -> Sequence[Stay | Buffer]:
        """Locations and lifetimes of the values of an allocation; its buffers, once built."""
        if allocation in self._buffers_in:
            return self._buffers_in[allocation]
        found = self._stays_in.get(allocation)
        if found is None:
            found = list(map(self._builder.stay, self._placed_in.get(allocation, ())))
            self._stays_in[allocation] = found
        return found

    def life_of(self, placed: PlacedValue) -> LiveRange | None:
        return self._builder.life(placed)

    def is_thread_local(self, placed: PlacedValue) -> bool:
        allocation = placed.allocation
        role = roles.THREAD_LOCAL
        return allocation.is_thread_local and self.role_of_allocation(allocation) == role

    def alive_at(self, step: int) -> list[Buffer]:
        return list(map(self.buffer_of, self._placed_at(self.joined.placed, step)))

    def _placed_at(self, values: Iterable[PlacedValue], step: int) -> list[PlacedValue]:
        steps = self.steps
        return [
            placed
            for placed in values
            if (life := placed.life) is not None and 0 <= life.start <= step <= life.end <= steps
        ]

    def timeline(self, color: int) -> Timeline | None:
        """The bytes in use at each step, permanent ones always; None without live ranges."""
        if color not in self._timelines:
            sizes = self._bytes_over_time(self._counted(self.allocations_of(color)))
            made = build_timeline(color, sizes, self.joined.sequence) if sizes else None
            self._timelines[color] = made
        return self._timelines[color]

    def fullest_step(self, color: int) -> int | None:
        timeline = self.timeline(color)
        return timeline.peak.step if timeline else None

    def fullest_step_of(self, allocation: Allocation) -> int | None:
        if self.dump.live_ranges is None:
            return None
        return fullest_step_of(self._counted([allocation]))

    def _bytes_over_time(self, uses: Iterable[Usage]) -> list[int]:
        return [] if self.dump.live_ranges is None else bytes_over_time(uses, self.steps + 1)

    def alive(self, color: int, step: int) -> list[OwnedBytes]:
        """The owners of bytes at a step, largest first; they add up to the bytes in use then."""
        if (color, step) not in self._alive_at:
            self._alive_at[color, step] = self._share_out_all(color, step)
        return self._alive_at[color, step]

    def _share_out_all(self, color: int, step: int) -> list[OwnedBytes]:
        owned = [
            part
            for allocation in self.joined.allocations
            if allocation.color == color
            for part in self.share_out(allocation, step)[0]
        ]
        return sorted(owned, key=lambda part: (-part.size, part.buffer.id))

    def share_out(
        self, allocation: Allocation, step: int
    ) -> tuple[list[OwnedBytes], list[ByteRange]]:
        """The owners of an allocation's bytes at a step, and the byte ranges in use."""
        key = (id(allocation), step)
        if key not in self._shared_out:
            self._shared_out[key] = self._share_out(allocation, step)
        return self._shared_out[key]

    def _share_out(
        self, allocation: Allocation, step: int
    ) -> tuple[list[OwnedBytes], list[ByteRange]]:
        values = self._placed_in.get(allocation.index, ())
        owned, taken = share_out(map(self.buffer_of, self._placed_at(values, step)))
        owner = self.owner(allocation)
        if owner is None:
            return owned, taken
        rest = allocation.size - sum(end - start for start, end in taken)
        if rest > 0:
            mine = sum(part.size for part in owned if part.buffer is owner)
            others = [part for part in owned if part.buffer is not owner]
            return [*others, OwnedBytes(owner, mine + rest)], [(0, allocation.size)]
        return owned, taken

    def owner(self, allocation: Allocation) -> Buffer | None:
        """The argument, result or constant an allocation is reserved for; None for temporaries."""
        if kind_of(allocation) not in HELD_WHOLE:
            return None
        key = id(allocation)  # a damaged dump may have two of one index
        if key not in self._owners:
            here = self._placed_in.get(allocation.index, ())
            found = max(here, key=lambda placed: self._claim(allocation, placed), default=None)
            self._owners[key] = None if found is None else self.buffer_of(found)
        return self._owners[key]

    def _claim(self, allocation: Allocation, placed: PlacedValue) -> tuple[bool, int, int]:
        """Sort key: the owner of an allocation has the largest."""
        value = placed.value
        if allocation.parameter is not None:
            text = self.joined.printed.get(value.name)
            is_it = text is not None and text.opcode == "parameter"
        else:
            life = self.life_of(placed)
            is_it = life is not None and life.end == self.steps
        return is_it, value.size, -value.id

    def uses(self, color: int) -> Iterator[Usage]:
        return chain.from_iterable(map(self._uses_in, self.allocations_of(color)))

    def allocations_of(self, color: int) -> list[Allocation]:
        return [allocation for allocation in self.joined.allocations if allocation.color == color]

    def _counted(self, allocations: Iterable[Allocation]) -> Iterator[Usage]:
        """The same sizes and steps as `uses`, without roles, which take longer to find."""
        for allocation in allocations:
            key = id(allocation)
            if key in self._uses:
                yield from self._uses[key]
            elif not allocation.is_thread_local and self.dump.live_ranges is not None:
                if key not in self._counts:
                    self._counts[key] = self._count(allocation)
                yield from self._counts[key]

    def _count(self, allocation: Allocation) -> list[Usage]:
        stays = self.stays_in(allocation.index)
        uses = list(iter_uses(stays))
        if stays and kind_of(allocation) in HELD_WHOLE:
            uses += list(iter_held(uses, allocation.size, stays[0].role, self.steps + 1))
        return uses

    def _uses_in(self, allocation: Allocation) -> list[Usage]:
        if allocation.is_thread_local or self.dump.live_ranges is None:
            return []
        key = id(allocation)
        if key not in self._uses:
            self._uses[key] = self._find_uses(allocation)
        return self._uses[key]

    def _find_uses(self, allocation: Allocation) -> list[Usage]:
        uses = list(iter_uses(self.buffers_in(allocation.index)))
        owner = self.owner(allocation)
        if owner is None:
            return uses
        return [*uses, *iter_held(uses, allocation.size, owner.role, self.steps + 1)]

    def role_of_allocation(self, allocation: Allocation) -> str | None:
        """The role of an allocation; None for temporaries, whose values differ."""
        return self._builder.role_of_allocation.get(allocation.index)

    def temporary_allocations(self, color: int) -> list[Allocation]:
        allocations = self.allocations_of(color)
        return [found for found in allocations if self.role_of_allocation(found) is None]

    @property
    def structure(self) -> Structure:
        return self._builder.structure

    def family(self, placed: PlacedValue) -> list[PlacedValue]:
        return self._builder.families.get(placed, [placed])

    def is_carried(self, buffer: Buffer) -> bool:
        return self.joined.placed_by_id[buffer.id] in self._builder.loop_roles

    def buffer_by_id(self, number: ValueId) -> Buffer:
        return self.buffer_of(self.joined.placed_by_id[number])

    @cached_property
    def number_of_buffer(self) -> dict[int, int]:
        return {buffer.id: number for number, buffer in enumerate(self.buffers)}

    @property
    def instruction_by_name(self) -> dict[str, HloInstruction]:
        return self.module.outer_instruction_by_name if self.module else {}

    def operands(self, buffer: Buffer) -> list[Buffer]:
        """The buffers read by a buffer's defining instruction, in operand order."""
        name = self.joined.placed_by_id[buffer.id].value.name
        text = self.joined.printed.get(name)
        count = len(text.operands) if text else 0
        return [
            self.buffer_by_id(placed.id)
            for number in range(count)
            for _, placed in self.joined.read_by.get((name, number), ())
        ]

    def moment(self, step: int) -> Moment:
        sequence = self.joined.sequence
        name = sequence[step] if step < len(sequence) else None
        origin = self._builder.origin_of_instruction(name) if name else None
        return Moment(
            instruction=name,
            op_name=origin.op_name if origin else None,
            source=origin.line if origin else None,
        )

    @property
    def device_count(self) -> int:
        """The number of partitions; 1 if unknown."""
        return self.module.num_partitions if self.module else 1

    def frames(self, buffer: Buffer) -> tuple[Frame, ...]:
        return self._builder.frames(self.joined.placed_by_id[buffer.id])
