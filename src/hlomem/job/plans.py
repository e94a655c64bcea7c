"""The requests an execution of a program makes, by its plan.

In: programs with XLA's plans, of a profile, an executable or a dump. Out: `PlannedProgram`: the
allocations its executable asks the allocator for, in order. On GPUs those are all but parameters,
constants and what threads keep for themselves, by index
(`GpuExecutableBufferAllocator::GenerateBufferAllocations`); temporaries and tuple tables go back as
soon as the launch is enqueued, results live on.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import Meta, field

from hlomem.base.errors import HlomemError
from hlomem.dump.dump import Dump
from hlomem.dump.records import Record
from hlomem.report.data.memory import build_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.hlo.ir import HloModule
    from hlomem.report.data.memory import MemoryView

Bytes: TypeAlias = Annotated[int, Meta(ge=0)]
Role: TypeAlias = Literal["temporaries", "result", "tuple table"]
HOST_MEMORY = 5
"""The color of the host's memory on GPUs (`Layout::kHostMemorySpace`)."""


class Request(Record, frozen=True, kw_only=True):
    """An allocation of a plan that an execution asks for."""

    index: int
    """The allocation's number in the plan."""
    size: Bytes
    role: Role
    color: int = 0


class Tuned(Record, frozen=True, kw_only=True):
    """An instruction the autotuner tries kernels for."""

    name: str
    inputs: tuple[Bytes, ...]
    """Bytes of its operands."""
    outputs: tuple[Bytes, ...]
    """Bytes of its results."""
    workspace: Bytes = 0
    """Bytes of scratch memory the candidates of a library take."""


class ProgramPlan(Record, frozen=True, kw_only=True):
    """A program of a job."""

    name: str
    requests: tuple[Request, ...]
    """The allocations a run asks for, in order."""
    results: tuple[int | None, ...] = ()
    """For each result the allocation it lies in; None where that is not known."""
    donated: dict[int, int] = field(default_factory=dict)
    """The allocations that are arguments' memory, by the argument's number."""
    arguments: dict[int, int] = field(default_factory=dict)
    """Bytes of arguments as they are laid out, by the argument's number."""
    tuned: tuple[Tuned, ...] = ()

    @property
    def temporaries(self) -> int:
        """Bytes of its temporaries."""
        return sum(request.size for request in self.requests if request.role == "temporaries")

    @property
    def asks(self) -> int:
        """Bytes a run asks for in all."""
        return sum(request.size for request in self.requests)


class LineShare(NamedTuple):
    """Bytes of an allocation by the line they are for."""

    line: str | None
    size: int


class PlannedProgram:
    """A program and what it asks for; its lines are read when asked for."""

    def __init__(
        self, plan: ProgramPlan, open_dump: Callable[[], Dump | HloModule] | None = None
    ) -> None:
        self.plan = plan
        self.name = plan.name
        """XLA's name of the module: `jit_train_step`."""
        self.requests = plan.requests
        self._open = open_dump
        self._shares: dict[int, tuple[LineShare, ...]] = {}

    def __repr__(self) -> str:
        return f"<PlannedProgram {self.name}: {len(self.requests)} requests>"

    @cached_property
    def result_places(self) -> tuple[int | None, ...]:
        """The allocation of each result; none where the plan cannot be had."""
        memory = self.memory
        if memory is None or memory.module is None:
            return ()
        return result_places(memory.dump, memory.module)

    @cached_property
    def memory(self) -> MemoryView | None:
        """The view of its plan; None where it cannot be had."""
        if self._open is None:
            return None
        try:
            opened = self._open()
            return build_memory(opened) if isinstance(opened, Dump) else None
        except HlomemError:
            return None

    def lines_of(self, index: int, size: int) -> tuple[LineShare, ...]:
        """An allocation's bytes by line: a result's own, temporaries as they are at their peak."""
        if index not in self._shares:
            self._shares[index] = tuple(self._share_out(index, size))
        return self._shares[index]

    def _share_out(self, index: int, size: int) -> Iterable[LineShare]:
        memory = self.memory
        if memory is None:
            return [LineShare(None, size)]
        buffers = memory.buffers_in(index)
        request = next((one for one in self.requests if one.index == index), None)
        if request is None or request.role != "temporaries":
            lines = [buffer.source for buffer in buffers if buffer.source]
            return [LineShare(lines[0] if lines else None, size)]
        return _at_peak(memory, index, size, request.color)


def _at_peak(memory: MemoryView, index: int, size: int, color: int) -> list[LineShare]:
    timeline = memory.timeline(color)
    if timeline is None:
        return [LineShare(None, size)]
    sums: dict[str | None, int] = {}
    for part in memory.alive(color, timeline.peak.step):
        if part.buffer.allocation == index:
            sums[part.buffer.source] = sums.get(part.buffer.source, 0) + part.size
    shares = [LineShare(line, share) for line, share in sums.items()]
    shares.sort(key=lambda share: (-share.size, share.line or ""))
    rest = size - sum(sums.values())
    return [*shares, LineShare(None, rest)] if rest else shares


def program_of_proto(
    name: str, assignment: Any, open_dump: Callable[[], Dump | HloModule] | None = None
) -> PlannedProgram:
    """A program by its BufferAssignmentProto."""
    requests = [
        Request(
            index=allocation.index,
            size=allocation.size,
            role=_role(allocation.is_tuple, allocation.maybe_live_out),
            color=allocation.color,
        )
        for allocation in assignment.buffer_allocations
        if allocation.size
        and not allocation.is_entry_computation_parameter
        and not allocation.is_constant
        and not allocation.is_thread_local
    ]
    taken = [one for one in assignment.buffer_allocations if one.is_entry_computation_parameter]
    plan = ProgramPlan(
        name=name,
        requests=tuple(requests),
        donated={one.parameter_number: one.index for one in taken},
        arguments={one.parameter_number: one.size for one in taken},
    )
    return PlannedProgram(plan, open_dump)


def result_places(dump: Dump, module: HloModule) -> tuple[int | None, ...]:
    """The allocations of a program's results, in the order it returns them."""
    root = module.entry.root
    count = len(root.shape.elements) if root.shape.is_tuple else None
    assigned = dump.assignment.allocations if dump.assignment else ()
    home = {value.id: one.index for one in assigned for value in one.values}
    found: dict[tuple[int, ...], int | None] = {}
    for value in dump.values.values if dump.values else ():
        for position in value.positions:
            if position.instruction == root.name:
                found[position.index or ()] = home.get(value.id)
    indices: list[tuple[int, ...]] = [()] if count is None else [(n,) for n in range(count)]
    return tuple(found.get(index) for index in indices)


def _role(is_tuple: bool, maybe_live_out: bool) -> Role:
    """Temporaries may hold tables of tuples, too; one that lives on is the result's alone."""
    if not maybe_live_out:
        return "temporaries"
    return "tuple table" if is_tuple else "result"
