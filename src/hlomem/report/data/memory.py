"""One dump, seen by memory space, by moment, by role and by line: what every report looks at.

In: a dump and, where at hand, its HLO module, whose tables name source lines. Out: `Memory`. Its
numbers are exact: the bytes alive at a step are those that belong to a value alive then, each
counted once; the roles of a memory space add up to the sum of its allocations.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.buffers import Buffer, BufferBuilder
from hlomem.report.data.lines import Lines
from hlomem.report.data.occupancy import Owned, alignment_gaps, share_out
from hlomem.report.data.timeline import Timeline, build_timeline, bytes_over_time
from hlomem.report.data.uses import iter_uses
from hlomem.view.guess_machine import choose_machine
from hlomem.view.joined import build_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.dump.dump import Dump
    from hlomem.dump.records import Allocation
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine
    from hlomem.report.data.lines import Frame
    from hlomem.report.data.occupancy import ByteRange
    from hlomem.report.data.uses import InUse
    from hlomem.view.control_flow import Structure
    from hlomem.view.joined import Placed, Plan

__all__ = ["Buffer", "Memory", "Owned", "RoleShare", "Space", "build_memory"]

_SUGGESTED = 5


class RoleShare(Record, frozen=True, kw_only=True):
    """The bytes of a memory space that are for one thing."""

    role: str
    size: int
    count: int
    """How many buffers; 0 for what is no buffer."""


class Space(Record, frozen=True, kw_only=True):
    """A memory space of a dump."""

    color: int
    name: str
    size: int
    """The sum of its allocations: what XLA reserves."""
    allocation_count: int


def build_memory(
    dump: Dump,
    module: HloModule | None = None,
    machine: Machine | None = None,
    *,
    is_planned: bool = False,
) -> Memory:
    """What there is to say about a dump, XLA's or ours; without allocations there is nothing."""
    if dump.assignment is None:
        where = visible(dump.name)
        raise InputError(f"{where}: no allocations; they are in the file *-buffer-assignment.txt")
    return Memory(dump, module, machine, is_planned)


class Memory:
    """A dump's memory; everything is computed when first asked for."""

    def __init__(
        self, dump: Dump, module: HloModule | None, machine: Machine | None, is_planned: bool
    ) -> None:
        self.dump = dump
        self.is_planned = is_planned
        self.module = module
        self.plan: Plan = build_plan(dump)
        self._builder = BufferBuilder(self.plan, Lines(module))
        self.given_machine = machine
        self._timelines: dict[int, Timeline | None] = {}
        self._alive_at: dict[tuple[int, int], list[Owned]] = {}

    @cached_property
    def machine(self) -> Machine:
        """The machine the dump is of: given, or what its layouts look like."""
        return choose_machine(self.plan, self.given_machine).machine

    @property
    def machine_name(self) -> str:
        """What to call the machine: a TPU's chip only where it was given, a dump does not tell."""
        return self.machine.name if self.given_machine else self.machine.platform

    @cached_property
    def spaces(self) -> tuple[Space, ...]:
        """The memory spaces, by color."""
        sizes: dict[int, list[int]] = {}
        for allocation in self.plan.allocations:
            sizes.setdefault(allocation.color, []).append(allocation.size)
        return tuple(
            Space(
                color=color,
                name=self.machine.space_name(color),
                size=sum(all_),
                allocation_count=len(all_),
            )
            for color, all_ in sorted(sizes.items())
        )

    def space_name(self, color: int) -> str:
        """What the memory space of a color is called."""
        return self.machine.space_name(color)

    def find_space(self, wanted: str | None = None) -> Space:
        """The space of a name or color; by default the first that holds anything."""
        if wanted is None:
            held = [space for space in self.spaces if space.size] or list(self.spaces)
            if not held:
                raise InputError(f"{visible(self.dump.name)}: no allocation in this dump")
            return held[0]
        color = self.machine.find_color(wanted.lower())
        for space in self.spaces:
            if space.color == color:
                return space
        known = ", ".join(f"{space.name} ({space.color})" for space in self.spaces)
        raise CommandError(f"no memory space `{visible(wanted)}` in this dump; there are: {known}")

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every value in its place, in the order of the dump."""
        return tuple(map(self._builder.build, self.plan.placed))

    def find_buffer(self, wanted: str) -> Buffer:
        """The buffer of a name as XLA prints it, or of an instruction that defines one."""
        for buffer in self.buffers:
            if wanted in {buffer.name, f"<{buffer.id}>"}:
                return buffer
        parts = [each for each in self.buffers if each.name.partition("{")[0] == wanted]
        if parts:
            return max(parts, key=lambda each: each.size)
        raise CommandError(self._unknown("buffer", wanted, (each.name for each in self.buffers)))

    def find_step(self, wanted: str) -> int:
        """A step by its number, or by the name of the instruction that runs then."""
        if wanted.isdecimal() and int(wanted) <= self.steps:
            return int(wanted)
        if wanted in self.plan.time_of:
            return self.plan.time_of[wanted]
        if wanted.isdecimal():
            raise CommandError(f"no step {wanted}: the last is {self.steps}")
        raise CommandError(self._unknown("instruction", wanted, self.plan.sequence))

    def _unknown(self, what: str, wanted: str, known: Iterable[str]) -> str:
        names = list(dict.fromkeys(known))
        near = [name for name in names if wanted in name][:_SUGGESTED]
        near = near or get_close_matches(wanted, names, n=_SUGGESTED, cutoff=0.5)
        hint = f"; did you mean {', '.join(map(visible, near))}?" if near else ""
        return f"no {what} `{visible(wanted)}` in {visible(self.dump.name)}{hint}"

    @cached_property
    def steps(self) -> int:
        """How many instructions the schedule has; step `steps` is after the last."""
        return len(self.plan.sequence)

    @cached_property
    def _buffers_by_allocation(self) -> dict[int, list[Buffer]]:
        found: dict[int, list[Buffer]] = {}
        for buffer in self.buffers:
            found.setdefault(buffer.allocation, []).append(buffer)
        return found

    def buffers_in(self, allocation: int) -> list[Buffer]:
        """The buffers of an allocation."""
        return self._buffers_by_allocation.get(allocation, [])

    def timeline(self, color: int) -> Timeline | None:
        """The bytes alive at each step; None where the dump has no live ranges."""
        if color not in self._timelines:
            sizes = self._bytes_over_time(self.uses(color))
            made = build_timeline(color, sizes, self.plan.sequence) if sizes else None
            self._timelines[color] = made
        return self._timelines[color]

    def fullest_step(self, color: int) -> int | None:
        """The step at which the temporaries of a space need most; it decides their allocation.

        It need not be the peak, at which parameters and outputs count too.
        """
        return self.fullest_step_of(each.index for each in self.temporary_allocations(color))

    def fullest_step_of(self, allocations: Iterable[int]) -> int | None:
        """The first step at which most of these allocations is in use."""
        sizes = self._bytes_over_time(self._uses_of(allocations))
        return sizes.index(max(sizes)) if sizes else None

    def _bytes_over_time(self, uses: Iterable[InUse]) -> list[int]:
        """The bytes in use at each step; none where the dump has no live ranges."""
        return [] if self.dump.live_ranges is None else bytes_over_time(uses, self.steps + 1)

    def alive(self, color: int, step: int) -> list[Owned]:
        """Who is alive at a step, largest first; the sizes add up to the bytes alive then."""
        if (color, step) not in self._alive_at:
            self._alive_at[color, step] = self._share_out_all(color, step)
        return self._alive_at[color, step]

    def _share_out_all(self, color: int, step: int) -> list[Owned]:
        owned = [
            each
            for allocation in self.plan.allocations
            if allocation.color == color
            for each in self.share_out(allocation, step)[0]
        ]
        return sorted(owned, key=lambda each: (-each.size, each.buffer.id))

    def roles(self, color: int) -> tuple[RoleShare, ...]:
        """What the bytes of a space are for, largest first; they add up to its size.

        Temporaries share memory over time: theirs are the roles at the step they need most.
        """
        shares: dict[str, list[int]] = {}
        step = self.fullest_step(color)
        for allocation in self.plan.allocations:
            if allocation.color == color:
                for role, size in self._roles_of(allocation, step):
                    shares.setdefault(role, []).append(size)
        no_buffers = {roles.PADDING, roles.ALIGNMENT, roles.HOLES}
        made = [
            RoleShare(role=role, size=sum(all_), count=0 if role in no_buffers else len(all_))
            for role, all_ in shares.items()
            if sum(all_) or role not in no_buffers
        ]
        return tuple(sorted(made, key=lambda each: (-each.size, each.role)))

    def _roles_of(self, allocation: Allocation, step: int | None) -> Iterator[tuple[str, int]]:
        values = self.buffers_in(allocation.index)
        role = self._builder.role_of_allocation.get(allocation.index)
        if role is not None or step is None:
            # The largest value is the one the allocation was made for.
            padding = max(values, key=lambda each: each.size).padding if values else 0
            padding = min(padding, allocation.size)
            yield role or roles.TEMPORARIES, allocation.size - padding
            yield roles.PADDING, padding
            return
        owned, taken = self.share_out(allocation, step)
        for buffer, size in owned:
            padding = size * buffer.padding // buffer.size if buffer.size else 0
            yield buffer.role, size - padding
            yield roles.PADDING, padding
        granule = self.machine.alignment(allocation.color) or 1
        alignment = sum(alignment_gaps(taken, allocation.size, granule))
        yield roles.ALIGNMENT, alignment
        in_use = sum(end - start for start, end in taken)
        yield roles.HOLES, allocation.size - in_use - alignment

    def share_out(self, allocation: Allocation, step: int) -> tuple[list[Owned], list[ByteRange]]:
        """Whose each byte of an allocation is at a step, and the byte ranges taken in all."""
        return share_out(
            each for each in self.buffers_in(allocation.index) if each.is_live_at(step)
        )

    def uses(self, color: int) -> Iterator[InUse]:
        """What the bytes of a space are in use for, and when."""
        return self._uses_of(each.index for each in self.plan.allocations if each.color == color)

    def _uses_of(self, allocations: Iterable[int]) -> Iterator[InUse]:
        return chain.from_iterable(self._uses.get(index, ()) for index in allocations)

    @cached_property
    def _uses(self) -> dict[int, list[InUse]]:
        """What each allocation is in use for over time."""
        buffers = self._buffers_by_allocation
        return {index: list(iter_uses(here)) for index, here in buffers.items()}

    def temporary_allocations(self, color: int) -> list[Allocation]:
        """The allocations of a space whose bytes different values use one after another."""
        return [
            each
            for each in self.plan.allocations
            if each.color == color and self._builder.role_of_allocation.get(each.index) is None
        ]

    @property
    def structure(self) -> Structure:
        """The loops and conditionals of the program, as far as the dump shows them."""
        return self._builder.structure

    def family(self, placed: Placed) -> list[Placed]:
        """The values that must share the storage of one, itself among them."""
        return self._builder.families.get(placed, [placed])

    def is_carried(self, buffer: Buffer) -> bool:
        """Whether a loop hands it from iteration to iteration."""
        return self.placed_by_id[buffer.id] in self._builder.loop_roles

    @cached_property
    def placed_by_id(self) -> dict[int, Placed]:
        """What the dump's files say about each value, by its number."""
        return {placed.id: placed for placed in self.plan.placed}

    @cached_property
    def buffer_by_id(self) -> dict[int, Buffer]:
        """The buffers by XLA's number of their value."""
        return {buffer.id: buffer for buffer in self.buffers}

    def operands(self, buffer: Buffer) -> list[Buffer]:
        """The buffers the instruction that defines one reads, in the order of its operands."""
        name = self.placed_by_id[buffer.id].value.name
        text = self.plan.text_of.get(name)
        count = len(text.operands) if text else 0
        return [
            self.buffer_by_id[placed.id]
            for number in range(count)
            for _, placed in self.plan.read_by.get((name, number), ())
        ]

    def frames(self, buffer: Buffer) -> tuple[Frame, ...]:
        """The calls that led to a buffer, innermost first."""
        return self._builder.frames(self.placed_by_id[buffer.id])
