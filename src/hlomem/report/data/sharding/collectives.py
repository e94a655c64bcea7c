"""Collectives: what each one makes, over which axes, of which argument, and how long it stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.hlo.opcodes import SAME_DATA, communicates
from hlomem.hlo.sharding import group_axes
from hlomem.report.data import roles
from hlomem.report.data.phases import is_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.data.sharding.layouts import Layouts

_MAX_HOPS = 64
_GATHERS = "all-gather"
_HANDS_ON = frozenset(
    {"dynamic-slice", "slice", "convert", "transpose", "reshape", "broadcast", "copy-start",
     "copy-done", "slice-start", "slice-done", "opt-barrier", "reduce-precision"}
)  # fmt: skip


class Collective(Record, frozen=True, kw_only=True):
    """An instruction by which devices exchange data, in one memory space."""

    name: str
    opcode: str
    size: int
    """Bytes of its result on each device."""
    axes: tuple[str, ...] | None
    """The axes of the mesh it runs over; None if unknown."""
    argument: str | None
    """The argument whose parts it moves; None for computed values."""
    role: str | None
    """The role of that argument."""
    start: int | None
    end: int | None
    """The last step at which its result is needed."""
    is_kept_for_backward: bool
    """Whether the forward pass makes it and the backward pass still reads it."""
    op_name: str | None
    source: str | None


def build_collectives(layouts: Layouts, space: Space) -> tuple[Collective, ...]:
    """Every collective with a result in a space, largest first."""
    memory = layouts.memory
    if memory.module is None:
        return ()
    found = [
        _collective(layouts, one, inner, buffer)
        for one, inner in iter_collectives(memory)
        if (buffer := _result_of(memory, one, space)) is not None
    ]
    return tuple(sorted(found, key=lambda row: (-row.size, row.name)))


def iter_collectives(memory: MemoryView) -> Iterator[tuple[HloInstruction, HloInstruction]]:
    """Instructions that communicate, and the collective itself, which may be in a fusion."""
    assert memory.module is not None
    for one in memory.module.iter_outer_instructions():
        if one.opcode == "fusion":
            for inner in one.called_computations[0].instructions:
                if communicates(inner.opcode):
                    yield one, inner
                    break
        elif communicates(one.opcode) and not one.opcode.endswith(("-done", "-update")):
            yield one, one


def _result_of(memory: MemoryView, one: HloInstruction, space: Space) -> Buffer | None:
    """The largest array that an instruction defines in a space."""
    joined = memory.joined
    buffers = [
        memory.buffer_of(placed)
        for index in joined.indices_at.get(one.name, ())
        for placed in joined.values_at[one.name, index]
        if placed.value.name == one.name and not placed.value.shape.startswith("(")
    ]
    here = [buffer for buffer in buffers if buffer.color == space.color]
    return max(here, key=lambda buffer: buffer.size, default=None)


def _collective(
    layouts: Layouts, one: HloInstruction, inner: HloInstruction, buffer: Buffer
) -> Collective:
    memory = layouts.memory
    groups = inner.attributes.get("replica_groups", "")
    axes = group_axes(groups, layouts.mesh) if layouts.mesh is not None else None
    argument = find_argument(memory, one)
    return Collective(
        name=one.name,
        opcode=inner.opcode.removesuffix("-start"),
        size=buffer.size,
        axes=None if axes is None else tuple([axis.name + axis.part for axis in axes]),
        argument=argument.parameter if argument else None,
        role=argument.role if argument else None,
        start=buffer.start,
        end=buffer.end,
        is_kept_for_backward=is_kept(memory, buffer),
        op_name=buffer.op_name,
        source=buffer.source,
    )


def is_kept(memory: MemoryView, buffer: Buffer) -> bool:
    """Whether the forward pass makes a value that the backward pass reads."""
    if is_backward(buffer.op_name):
        return False
    printed = memory.joined.printed
    names = memory.joined.placed_by_id[buffer.id].users
    return any(is_backward(printed[name].op_name) for name in names if name in printed)


def find_argument(
    memory: MemoryView, one: HloInstruction, *, through_gathers: bool = False
) -> Buffer | None:
    """The argument, a model's or another, that all arrays an instruction reads are parts of."""
    found: Buffer | None = None
    pending, seen = [one], {one}
    if through_gathers and not (_hands_on(one) or gathers(one)):
        return None
    for _ in range(_MAX_HOPS):
        if not pending:
            return found
        for operand in _arrays(pending.pop()):
            argument = _as_argument(memory, operand)
            if argument is not None:
                if found is not None and argument.id != found.id:
                    return None
                found = argument
            elif not (_hands_on(operand) or (through_gathers and gathers(operand))):
                return None
            elif operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return None


def find_gathered(memory: MemoryView, one: HloInstruction) -> Buffer | None:
    """The argument whose parts a value is, if they were gathered on the way."""
    pending, seen = [one], {one}
    while pending:
        here = pending.pop()
        if gathers(here):
            return find_argument(memory, one, through_gathers=True)
        more = [operand for operand in _arrays(here) if operand not in seen]
        if _hands_on(here) and len(seen) < _MAX_HOPS:
            seen.update(more)
            pending += more
    return None


def gather_stored(memory: MemoryView, buffer: Buffer) -> list[HloInstruction]:
    """The way from what a loop writes into a stack to the all-gather it is of; empty if none."""
    for placed in memory.family(memory.joined.placed_by_id[buffer.id]):
        one = memory.instruction_by_name.get(placed.value.name)
        for update in _updates_of(one) if one is not None else ():
            way: list[HloInstruction] = []
            here: HloInstruction | None = update
            while here is not None and len(way) < _MAX_HOPS:
                way.append(here)
                if gathers(here):
                    return way
                more = _arrays(here) if _hands_on(here) else []
                here = more[0] if len(more) == 1 else None
    return []


def _updates_of(one: HloInstruction) -> Iterator[HloInstruction]:
    """The value that an instruction, or the fusion it is, writes into a part of an array."""
    if one.opcode == "dynamic-update-slice":
        yield one.operands[1]
    if one.opcode != "fusion":
        return
    for part in one.called_computations[0].instructions:
        here = part.operands[1] if part.opcode == "dynamic-update-slice" else None
        while here is not None and here.opcode != "parameter":
            more = _arrays(here) if _hands_on(here) and not gathers(here) else []
            here = more[0] if len(more) == 1 else None
        if here is not None:
            yield one.operands[here.parameter_number]


def gathers(one: HloInstruction) -> bool:
    """Whether an instruction is an all-gather, or a fusion with one."""
    if one.opcode == "fusion":
        inner = one.called_computations[0].instructions
        return any(part.opcode.startswith(_GATHERS) for part in inner)
    return one.opcode.startswith(_GATHERS)


def _arrays(one: HloInstruction) -> list[HloInstruction]:
    """The operands that are more than numbers."""
    return [operand for operand in one.operands if _is_large(operand)]


def _is_large(one: HloInstruction) -> bool:
    dimensions = one.shape.dimensions if one.shape.is_array else (2,)
    return any(size > 1 for size in dimensions) and one.opcode not in ("constant", "iota")


def _hands_on(one: HloInstruction) -> bool:
    if one.opcode == "fusion":
        inner = one.called_computations[0].instructions
        return all(
            part.opcode in _HANDS_ON or part.opcode in SAME_DATA or not _is_large(part)
            for part in inner
            if part.opcode != "parameter"
        )
    return one.opcode in _HANDS_ON or one.opcode in SAME_DATA


def _as_argument(memory: MemoryView, one: HloInstruction) -> Buffer | None:
    """The argument in whose memory a value lies, such as the part of a loop's carry."""
    index: tuple[int, ...] = ()
    holder = one
    if one.opcode == "get-tuple-element":
        index, holder = (one.tuple_index,), one.operands[0]
    for placed in memory.joined.values_at.get((holder.name, index), ()):
        owner = memory.owner(placed.allocation)
        if owner is not None and owner.role in roles.OF_ARGUMENTS and owner.opcode == "parameter":
            return owner
    return None


_FEW_HOPS = 4


def find_resharded(memory: MemoryView, space: Space) -> dict[ValueId, HloInstruction]:
    """Values gathered whole of which each device then takes its part, by id, with the taker."""
    found: dict[ValueId, HloInstruction] = {}
    for one, inner in iter_collectives(memory) if memory.module is not None else ():
        buffer = _result_of(memory, one, space) if inner.opcode.startswith(_GATHERS) else None
        taker = _taker(one) if buffer is not None else None
        argument = find_argument(memory, one) if taker is not None else None
        is_weight = argument is not None and argument.role != roles.INPUTS
        if buffer is not None and taker is not None and not is_weight:
            found[buffer.id] = taker
    return found


def _taker(one: HloInstruction) -> HloInstruction | None:
    """The user of a gathered value that takes the part of its own device."""
    pending = [(user, 0) for user in one.users]
    while pending:
        user, hops = pending.pop(0)
        if _slices(user) and _reads_partition(user, _FEW_HOPS):
            return user
        if hops < _FEW_HOPS and user.opcode in ("copy", "bitcast", "transpose", "all-gather"):
            pending += [(other, hops + 1) for other in user.users]
    return None


def _slices(one: HloInstruction) -> bool:
    if one.opcode == "fusion":
        return any(_slices(part) for part in one.called_computations[0].instructions)
    return one.opcode == "dynamic-slice"


def _reads_partition(one: HloInstruction, hops: int) -> bool:
    """Whether an instruction depends on the number of its device, within a few steps."""
    level, seen = [one], {one}
    for _ in range(hops + 1):
        if any(here.opcode == "partition-id" for here in level):
            return True
        level = [operand for here in level for operand in here.operands if operand not in seen]
        seen.update(level)
    return False
