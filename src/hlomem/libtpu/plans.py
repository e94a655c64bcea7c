"""Plans between phases: another packing put into libtpu's plan, and every plan checked.

Only offsets of temporaries in HBM, and the size of what holds them, are changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.assign.footprint import footprint
from hlomem.base.errors import HlomemError
from hlomem.base.quantities import MAIN_MEMORY
from hlomem.base.source import visible
from hlomem.check.verify import BY_MODULE, verify
from hlomem.proto.dump import make_dump
from hlomem.proto.module import read_module
from hlomem.proto.programs import open_programs
from hlomem.proto.schema import parse_message

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.machines.machine import Machine

_LIMIT = 1 << 31
_FIXED = ("is_entry_computation_parameter", "maybe_live_out", "is_thread_local", "is_constant")
"""Fields of allocations that are not temporary (`IsPreallocatedTempBuffer`)."""


class PlanError(HlomemError):
    """A plan that must not be linked; names the checker's finding."""


def with_packing(plan: bytes, packed: bytes) -> bytes | None:
    """libtpu's plan with the temporaries of HBM at the offsets of another, if that is smaller.

    None where it is not, or where the two do not hold the same values.
    """
    theirs, ours = (parse_message("BufferAssignment", data) for data in (plan, packed))
    places = {_values(one, ours): one for one in _temporaries(ours)}
    name_of = _names(theirs)
    for allocation in _temporaries(theirs):
        other = places.pop(_values(allocation, theirs), None)
        if other is None:
            return None
        if other.size < allocation.size:
            _move(allocation, other, name_of, _names(ours))
    moved: bytes = theirs.SerializeToString(deterministic=True)
    return moved if not places and temporary_bytes(moved) < temporary_bytes(plan) else None


def _move(allocation: Any, other: Any, name_of: dict[int, Any], their_name: dict[int, Any]) -> None:
    offset_of = {their_name[one.logical_buffer_id]: one.offset for one in other.assigned}
    for one in allocation.assigned:
        one.offset = offset_of[name_of[one.logical_buffer_id]]
    allocation.size = other.size


def _names(plan: Any) -> dict[int, tuple[int, tuple[int, ...]]]:
    """The values of a plan by their ids, each as the instruction and the part of its result."""
    return {
        buffer.id: (buffer.defined_at.instruction_id, tuple(buffer.defined_at.shape_index))
        for buffer in plan.logical_buffers
    }


def _values(allocation: Any, plan: Any) -> frozenset[Any]:
    name_of = _names(plan)
    return frozenset((*name_of[one.logical_buffer_id], one.size) for one in allocation.assigned)


def _temporaries(plan: Any) -> list[Any]:
    return [
        allocation
        for allocation in plan.buffer_allocations
        if allocation.color == MAIN_MEMORY and not any(getattr(allocation, n) for n in _FIXED)
    ]


def temporary_bytes(plan: bytes) -> int:
    """Bytes of temporaries in HBM."""
    return footprint(_temporaries(parse_message("BufferAssignment", plan)))


def hbm_bytes(plan: bytes) -> int:
    """Bytes a plan needs in HBM."""
    return footprint(parse_message("BufferAssignment", plan).buffer_allocations)


def checked(module: bytes, plan: bytes, machine: Machine) -> Dump:
    """The dump of a plan that the checker accepts; `PlanError` for any other."""
    dump = make_dump(read_module(module, "libtpu"), parse_message("BufferAssignment", plan))
    check(dump, machine)
    return dump


def check(dump: Dump, machine: Machine) -> None:
    """Raises `PlanError` for a plan in which the checker finds anything, or cannot look."""
    verdict = verify(dump, module=dump.module, machine=machine)
    if verdict.findings:
        count = len(verdict.findings)
        raise PlanError(f"the checker rejects it, {count} findings: {verdict.findings[0]}")
    unseen = [one for one in verdict.not_checked if one.rules == BY_MODULE]
    if unseen:
        raise PlanError(f"the checker cannot check it: {unseen[0].reason}")


def check_executable(executable: bytes, plan: bytes, machine: Machine) -> None:
    """Raises `PlanError` where an executable does not hold this plan, or the checker rejects it."""
    found = open_programs(executable, "the executable", _LIMIT)[0]
    if found.assignment is None:
        raise PlanError("the executable has no plan to read back")
    held = {place for place in _outline(found.assignment) if place[-1]}
    wanted = {place for place in _outline(parse_message("BufferAssignment", plan)) if place[-1]}
    if held != wanted:
        raise PlanError(f"`{visible(found.name)}` was linked with another plan than it was given")
    check(make_dump(read_module(found.module, "the executable"), found.assignment), machine)


def _outline(plan: Any) -> set[tuple[Any, ...]]:
    """Every value with its offset in its allocation, and the allocations."""
    name_of = _names(plan)
    allocations = plan.buffer_allocations
    placed = {
        (one.index, *name_of[place.logical_buffer_id], place.offset, place.size)
        for one in allocations
        for place in one.assigned
    }
    return placed | {(one.index, one.color, one.size) for one in allocations}
