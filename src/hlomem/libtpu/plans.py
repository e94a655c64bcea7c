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
    name_of, our_name_of = _names(theirs), _names(ours)
    packed_of = {_values(one, our_name_of): one for one in _temporaries(ours)}
    for allocation in _temporaries(theirs):
        other = packed_of.pop(_values(allocation, name_of), None)
        if other is None:
            return None
        if other.size < allocation.size:
            allocation.size = other.size
            offset_of = dict(_offsets(other, our_name_of))
            for one in allocation.assigned:
                one.offset = offset_of[name_of[one.logical_buffer_id]]
    moved: bytes = theirs.SerializeToString(deterministic=True)
    return moved if not packed_of and temporary_bytes(moved) < temporary_bytes(plan) else None


def _names(plan: Any) -> dict[int, tuple[int, tuple[int, ...]]]:
    """The values of a plan by their ids, each as the instruction and the part of its result."""
    return {
        buffer.id: (buffer.defined_at.instruction_id, tuple(buffer.defined_at.shape_index))
        for buffer in plan.logical_buffers
    }


def _values(allocation: Any, name_of: dict[int, Any]) -> frozenset[Any]:
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
    """The dump of a plan; `PlanError` where the checker finds anything, or cannot look."""
    dump = make_dump(read_module(module, "libtpu"), parse_message("BufferAssignment", plan))
    verdict = verify(dump, module=dump.module, machine=machine)
    if verdict.findings:
        count = len(verdict.findings)
        raise PlanError(f"the checker rejects it, {count} findings: {verdict.findings[0]}")
    unseen = [one for one in verdict.not_checked if one.rules == BY_MODULE]
    if unseen:
        raise PlanError(f"the checker cannot check it: {unseen[0].reason}")
    return dump


def check_executable(executable: bytes, plan: bytes, machine: Machine) -> None:
    """Raises `PlanError` where an executable does not hold this plan, or the checker rejects it."""
    found = open_programs(executable, "the executable", _LIMIT)[0]
    if found.assignment is None:
        raise PlanError("the executable has no plan to read back")
    if _outline(found.assignment) != _outline(parse_message("BufferAssignment", plan)):
        raise PlanError(f"`{visible(found.name)}` was linked with another plan than it was given")
    checked(found.module, found.assignment.SerializeToString(), machine)


def _outline(plan: Any) -> list[Any]:
    """The allocations, each with its values and their offsets."""
    name_of = _names(plan)
    allocations = plan.buffer_allocations
    return [(one.index, one.color, one.size, _offsets(one, name_of)) for one in allocations]


def _offsets(allocation: Any, name_of: dict[int, Any]) -> list[Any]:
    return sorted((name_of[at.logical_buffer_id], at.offset) for at in allocation.assigned)
