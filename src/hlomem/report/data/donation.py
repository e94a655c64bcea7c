"""Donated arguments, and those some result of the same bytes, space and layout allows."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Allocation, Record
from hlomem.hlo.opcodes import MOVES
from hlomem.report.data.buffers import iter_results
from hlomem.report.data.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.view.joined import JoinedDump, PlacedValue

State: TypeAlias = Literal["used", "lost", "possible", "read later", "no match"]


_TOP_LEVEL = re.compile(r"([A-Za-z_]\w*)")
_ORDER: tuple[State, ...] = ("lost", "possible", "read later", "used", "no match")


class Argument(Record, frozen=True, kw_only=True):
    """An argument of the program and the fate of its memory."""

    name: str
    """The path from JAX, or the parameter number."""
    number: int
    size: int
    shape: str
    state: State
    """`used`: donated and reused. `lost`: donated, but not reused. `possible`: not donated, though
    a result could reuse it. `read later`: the same, but the result is written before the argument's
    last read. `no match`: no result could reuse it."""
    result: str | None
    """The result that reuses it, or could."""
    output_index: tuple[int, ...] | None = None
    """The index of that result; None if its memory is not free to be paired."""
    copied_size: int = 0
    """Bytes of a copy made because a donated argument is read later."""
    why: str


class Donation(Record, frozen=True, kw_only=True):
    """Every argument in a memory space."""

    name: str
    space: str
    used_size: int
    possible_size: int
    """An upper bound of what donating the `possible` arguments saves."""
    is_declared_known: bool
    """Whether the module is known, which declares donations."""
    rows: tuple[Argument, ...]


class _Partner(NamedTuple):
    output_index: tuple[int, ...]
    buffer: Buffer


class _Matcher:
    """Pairs each argument with a result that could reuse its memory.

    Like JAX, in order among equal shapes. Whole trees come first: an argument (`params`) whose
    leaves equal a run of results is paired with that run.
    """

    def __init__(self, memory: MemoryView, arguments: Sequence[tuple[Allocation, Buffer]]) -> None:
        self._memory = memory
        self._live_out: dict[int, Allocation] = {
            allocation.index: allocation
            for allocation in memory.joined.allocations
            if allocation.maybe_live_out
        }
        self._results = list(_results(memory))
        self._partner: dict[int, _Partner] = {}
        """By the id of an argument's value."""
        free = [partner for partner in self._results if not self._is_taken(partner.buffer)]
        left = [buffer for allocation, buffer in arguments if not allocation.maybe_live_out]
        for group in _trees(left):
            self._pair_tree(group, free)
        for argument in left:
            self._pair_leaf(argument, free)

    def _is_taken(self, result: Buffer) -> bool:
        allocation = self._live_out.get(result.allocation)
        return allocation is not None and allocation.parameter is not None

    def _pair_tree(self, leaves: list[Buffer], free: list[_Partner]) -> None:
        wanted = [argument.elements for argument in leaves]
        offered = [partner.buffer.elements for partner in free]
        for start in range(len(offered) - len(wanted) + 1):
            if offered[start : start + len(wanted)] == wanted:
                for leaf, partner in zip(leaves, free[start : start + len(wanted)], strict=True):
                    self._partner[leaf.id] = partner
                del free[start : start + len(wanted)]
                return

    def _pair_leaf(self, argument: Buffer, free: list[_Partner]) -> None:
        if argument.id in self._partner:
            return
        for partner in free:
            if partner.buffer.elements == argument.elements:
                self._partner[argument.id] = partner
                free.remove(partner)
                return

    def match(self, argument: Buffer) -> tuple[State, _Partner | None, str]:
        """The state of an argument, the result that could reuse its memory, and the reason."""
        partner = self._partner.get(argument.id)
        if partner is None:
            same = any(other.buffer.elements == argument.elements for other in self._results)
            taken = "the results of its shape reuse other arguments"
            return "no match", None, taken if same else "no result has its shape"
        result = partner.buffer
        if result.color != argument.color:
            there = self._memory.space_name(result.color)
            return "no match", partner, f"{result.name} has its shape, but lies in {there} memory"
        if result.shape != argument.shape:
            layout = "{" + result.shape.partition("{")[2] if "{" in result.shape else "none"
            return "no match", partner, f"{result.name} has its shape, but layout {layout}"
        last_read, reader = self._last_read(argument)
        if result.start is None or result.start >= last_read:
            why = f"{result.name} has its shape and layout, and is written after its use"
            return "possible", partner, why
        why = f"{result.name} has its shape and layout, but is written at instruction"
        why = f"{why} {result.start}, and {reader} reads the argument at {last_read}"
        return "read later", partner, why

    def _last_read(self, argument: Buffer) -> tuple[int, str]:
        """The last step at which an argument is read, and its reader; a loop reads at its end."""
        joined = self._memory.joined
        names = _readers(joined, argument)
        if len(names) == 1 and _opcode(joined, names[0]) == "copy":
            return 0, ""  # the copy is not needed once the argument is donated
        return max([(joined.time_of.get(name, 0), name) for name in names], default=(0, ""))


def _results(memory: MemoryView) -> Iterator[_Partner]:
    for part in iter_results(memory.joined, memory.module):
        yield _Partner(part.output_index, memory.buffer_by_id(part.placed.id))


def _trees(arguments: Iterable[Buffer]) -> list[list[Buffer]]:
    """The leaves of each argument of the user's function that has several."""
    trees: dict[str, list[Buffer]] = {}
    for argument in arguments:
        trees.setdefault(top_level_name(argument.parameter or ""), []).append(argument)
    return [leaves for name, leaves in trees.items() if name and len(leaves) > 1]


def top_level_name(path: str) -> str:
    """The function argument of a leaf: `params` for `params['embed']`; "" if unknown."""
    found = _TOP_LEVEL.match(path)
    return found[1] if found and not path.startswith("parameter ") else ""


def build_donation(memory: MemoryView, space: Space) -> Donation:
    """Every argument in a space, possible savings first."""
    declared = frozenset() if memory.module is None else declared_donations(memory.module)
    arguments = [
        (allocation, buffer)
        for allocation in memory.joined.allocations
        if allocation.color == space.color and allocation.parameter is not None
        for buffer in [_held(memory, allocation)]
        if buffer is not None
    ]
    arguments.sort(key=lambda pair: _position(pair[0]))
    matcher = _Matcher(memory, arguments)
    rows = [_row(matcher, memory, *pair, declared) for pair in arguments]
    rows.sort(key=lambda row: (_ORDER.index(row.state), -row.size, row.number))
    return Donation(
        name=memory.dump.title,
        space=space.name,
        used_size=sum(row.size for row in rows if row.state == "used"),
        possible_size=sum(row.size for row in rows if row.state == "possible"),
        is_declared_known=memory.module is not None,
        rows=tuple(rows),
    )


def _position(allocation: Allocation) -> tuple[int, tuple[int, ...]]:
    assert allocation.parameter is not None
    return allocation.parameter.number, tuple(allocation.parameter.index)


def hint_of(donation: Donation) -> Hint | None:
    """Arguments that could be donated, or that are and no result reuses, whichever is more."""
    lost = [row for row in donation.rows if row.state == "lost"]
    lost_size = sum(row.size for row in lost)
    if lost_size > donation.possible_size:
        what = f"donated, but no result reuses it: first {lost[0].name}"
        return Hint(size=lost_size, what=what, command="donate")
    if not donation.possible_size:
        return None
    first = next(row for row in donation.rows if row.state == "possible")
    what = f"arguments that could be donated: first {first.name}"
    return Hint(size=donation.possible_size, what=what, command="donate")


def declared_donations(module: HloModule) -> frozenset[tuple[int, tuple[int, ...]]]:
    """Number and index of the arguments that a module allows to be overwritten."""
    aliased = {(e.parameter_number, e.parameter_index) for e in module.input_output_alias}
    donated = {(e.parameter_number, e.parameter_index) for e in module.buffer_donor}
    return frozenset(aliased | donated)


def _held(memory: MemoryView, allocation: Allocation) -> Buffer | None:
    """The argument itself among the values of its allocation."""
    values = memory.placed_in(allocation)
    parameters = [
        placed for placed in values if _opcode(memory.joined, placed.value.name) == "parameter"
    ]
    found = min(parameters or values, key=lambda placed: placed.id, default=None)
    return None if found is None else memory.buffer_of(found)


def _row(
    matcher: _Matcher,
    memory: MemoryView,
    allocation: Allocation,
    argument: Buffer,
    declared: frozenset[tuple[int, tuple[int, ...]]],
) -> Argument:
    assert allocation.parameter is not None
    number = allocation.parameter.number
    state, result, index, why, copied = _fate(matcher, memory, allocation, argument, declared)
    return Argument(
        name=argument.parameter or f"parameter {number}",
        number=number,
        size=allocation.size,
        shape=argument.shape,
        state=state,
        result=result.name if result else None,
        output_index=index,
        copied_size=copied,
        why=why,
    )


def _fate(
    matcher: _Matcher,
    memory: MemoryView,
    allocation: Allocation,
    argument: Buffer,
    declared: frozenset[tuple[int, tuple[int, ...]]],
) -> tuple[State, Buffer | None, tuple[int, ...] | None, str, int]:
    assert allocation.parameter is not None
    if allocation.maybe_live_out:
        last = max(memory.placed_in(allocation), key=partial(_last, memory))
        taker = memory.buffer_of(last)
        copy = _copy_of(memory, argument)
        if copy is None:
            return "used", taker, None, "its memory is the result's", 0
        why = f"its memory is the result's, but it is read after that is written: {copy.name}"
        why = f"{why} copies it first, {format_bytes(copy.size)}"
        return "used", taker, None, why, copy.size
    state, partner, why = matcher.match(argument)
    is_donated = (allocation.parameter.number, allocation.parameter.index) in declared
    result, index = (partner.buffer, partner.output_index) if partner else (None, None)
    if state == "no match":
        result, index = None, None
    return "lost" if is_donated else state, result, index, why, 0


def _copy_of(memory: MemoryView, argument: Buffer) -> Buffer | None:
    """The copy that preserves a donated argument, in the same memory space."""
    for name in _readers(memory.joined, argument):
        if _opcode(memory.joined, name) not in MOVES:
            continue
        for value in memory.joined.values_at.get((name, ()), ()):
            copy = memory.buffer_by_id(value.id)
            in_result = copy.allocation == argument.allocation
            if copy.shape == argument.shape and copy.color == argument.color and not in_result:
                return copy
    return None


def _last(memory: MemoryView, placed: PlacedValue) -> tuple[int, int, int]:
    life = memory.life_of(placed)
    return (0, 0, placed.id) if life is None else (life.end, life.start, placed.id)


def _readers(joined: JoinedDump, argument: Buffer) -> list[str]:
    return [use.instruction for use in joined.placed_by_id[argument.id].uses]


def _opcode(joined: JoinedDump, name: str) -> str | None:
    text = joined.printed.get(name)
    return None if text is None else text.opcode
