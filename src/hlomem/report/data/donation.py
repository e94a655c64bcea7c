"""Which arguments give their memory to the result, and which could.

In: a `MemoryView` and a space. Out: a row per argument: whether its memory is taken over (donated
and used), whether a result could take it, and what stands in the way. A result needs the same bytes
in the same memory space with the same layout, and nobody may read the argument once it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data.hints import Hint

if TYPE_CHECKING:
    from hlomem.dump.records import Allocation
    from hlomem.report.data.memory import Buffer, MemoryView, Space

State: TypeAlias = Literal["used", "lost", "possible", "read later", "no match"]


_ORDER: tuple[State, ...] = ("lost", "possible", "read later", "used", "no match")


class Argument(Record, frozen=True, kw_only=True):
    """An argument of the program and what becomes of its memory."""

    name: str
    """JAX's, or its number."""
    number: int
    size: int
    shape: str
    state: State
    """`used`: donated, a result takes it. `lost`: donated, but no result does. `possible`: not
    donated, though a result could take it. `read later`: one could, were it not written before the
    argument's last use. `no match`: no result could."""
    result: str | None
    """The result that takes it, or could."""
    why: str


class Donation(Record, frozen=True, kw_only=True):
    """Every argument in a memory space."""

    name: str
    space: str
    used_size: int
    possible_size: int
    """What donating the arguments that are `possible` would save at most."""
    is_declared_known: bool
    """Whether the module is at hand, which says what was donated in vain."""
    rows: tuple[Argument, ...]


class _Matcher:
    """Finds results that could take an argument's memory, each for one argument."""

    def __init__(self, memory: MemoryView) -> None:
        self._memory = memory
        live_out = [each for each in memory.joined.allocations if each.maybe_live_out]
        self._results: dict[str, list[Buffer]] = {}
        self._taken: set[int] = set()
        for each in live_out:
            values = [v for v in memory.buffers_in(each.index) if not v.shape.startswith("(")]
            if values:
                result = max(values, key=_last)  # what is there last is what the caller gets
                self._results.setdefault(_elements(result), []).append(result)
                if each.parameter is not None:
                    self._taken.add(result.id)

    def match(self, argument: Buffer) -> tuple[State, Buffer | None, str]:
        """Whether a result could take an argument's memory, which one, and why."""
        same = self._results.get(_elements(argument))
        if same is None:
            return "no match", None, "no result has its shape"
        here = [each for each in same if each.color == argument.color]
        if not here:
            there = self._memory.space_name(same[0].color)
            return "no match", None, f"{same[0].name} has its shape, but lies in {there} memory"
        laid_out = [each for each in here if each.shape == argument.shape]
        if not laid_out:
            return "no match", None, f"{here[0].name} has its shape, but layout {_layout(here[0])}"
        free = [each for each in laid_out if each.id not in self._taken]
        if not free:
            taken = "the results of its shape take the memory of other arguments"
            return "no match", None, taken
        # Donated together, arguments of one shape can trade results.
        last_read, reader = self._last_read(argument)
        fitting = [each for each in laid_out if each.start is None or each.start >= last_read]
        result = next((each for each in free if each in fitting), free[0])
        self._taken.add(result.id)
        if fitting:
            named = result if result in fitting else fitting[0]
            why = f"{named.name} has its shape and layout, and is written after its use"
            return "possible", result, why
        why = f"{result.name} has its shape and layout, but is written at step {result.start}"
        return "read later", result, f"{why}, and {reader} reads the argument at {last_read}"

    def _last_read(self, argument: Buffer) -> tuple[int, str]:
        """The last step at which an argument is read, and who reads it; a loop at its end."""
        placed = self._memory.joined.placed_by_id[argument.id]
        times = self._memory.joined.time_of
        uses = (placed.used.uses if placed.used else None) or ()
        reads = [(times.get(use.instruction, 0), use.instruction) for use in uses]
        return max(reads, default=(0, "nobody"))


def build_donation(memory: MemoryView, space: Space) -> Donation:
    """Every argument in a space, those with something to win first."""
    matcher = _Matcher(memory)
    declared = _declared(memory)
    arguments = [
        (allocation, buffer)
        for allocation in memory.joined.allocations
        if allocation.color == space.color and allocation.parameter is not None
        for buffer in [_held(memory, allocation)]
        if buffer is not None
    ]
    arguments.sort(key=lambda each: (-each[1].size, each[0].index))
    rows = [_row(matcher, memory, *each, declared) for each in arguments]
    rows.sort(key=lambda row: (_ORDER.index(row.state), -row.size, row.number))
    return Donation(
        name=memory.dump.title,
        space=space.name,
        used_size=sum(row.size for row in rows if row.state == "used"),
        possible_size=sum(row.size for row in rows if row.state == "possible"),
        is_declared_known=memory.module is not None,
        rows=tuple(rows),
    )


def hint_of(donation: Donation) -> Hint | None:
    """What donating more would save."""
    if not donation.possible_size:
        return None
    first = next(row for row in donation.rows if row.state == "possible")
    what = f"arguments that could be donated: first {first.name}"
    return Hint(size=donation.possible_size, what=what, command="donate")


def _declared(memory: MemoryView) -> frozenset[tuple[int, tuple[int, ...]]]:
    """The arguments the module says may be overwritten."""
    if memory.module is None:
        return frozenset()
    aliased = {(e.parameter_number, e.parameter_index) for e in memory.module.input_output_alias}
    donated = {(e.parameter_number, e.parameter_index) for e in memory.module.buffer_donor}
    return frozenset(aliased | donated)


def _held(memory: MemoryView, allocation: Allocation) -> Buffer | None:
    """The argument itself among the values of its allocation."""
    values = memory.buffers_in(allocation.index)
    parameters = [each for each in values if each.opcode == "parameter"]
    return min(parameters or values, key=lambda each: each.id, default=None)


def _row(
    matcher: _Matcher,
    memory: MemoryView,
    allocation: Allocation,
    argument: Buffer,
    declared: frozenset[tuple[int, tuple[int, ...]]],
) -> Argument:
    assert allocation.parameter is not None
    number = allocation.parameter.number
    state, result, why = _fate(matcher, memory, allocation, argument, declared)
    return Argument(
        name=argument.parameter or f"parameter {number}",
        number=number,
        size=allocation.size,
        shape=argument.shape,
        state=state,
        result=result.name if result else None,
        why=why,
    )


def _fate(
    matcher: _Matcher,
    memory: MemoryView,
    allocation: Allocation,
    argument: Buffer,
    declared: frozenset[tuple[int, tuple[int, ...]]],
) -> tuple[State, Buffer | None, str]:
    assert allocation.parameter is not None
    if allocation.maybe_live_out:
        values = memory.buffers_in(allocation.index)
        taker = max(values, key=_last)
        return "used", taker, "its memory is the result's"
    state, result, why = matcher.match(argument)
    is_donated = (allocation.parameter.number, allocation.parameter.index) in declared
    return "lost" if is_donated else state, result, why


def _last(buffer: Buffer) -> tuple[int, int, int]:
    return (buffer.end or 0, buffer.start or 0, buffer.id)


def _elements(buffer: Buffer) -> str:
    """A shape without its layout."""
    return buffer.shape.partition("{")[0]


def _layout(buffer: Buffer) -> str:
    return "{" + buffer.shape.partition("{")[2] if "{" in buffer.shape else "none"
