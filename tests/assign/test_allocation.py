"""The kinds of allocations: `BufferAllocation` of service/buffer_assignment.h."""

from __future__ import annotations

import pytest

from hlomem.assign.allocation import BufferAllocation, BufferAssignment, EntryParameter
from hlomem.base.quantities import AllocationIndex, ByteCount, Color, ParameterNumber
from hlomem.hlo.shape import ROOT_INDEX


def _allocation(
    *,
    is_constant: bool = False,
    is_thread_local: bool = False,
    is_tuple: bool = False,
    maybe_live_out: bool = False,
    aliased: bool | None = None,
) -> BufferAllocation:
    parameter = None
    if aliased is not None:
        parameter = EntryParameter(ParameterNumber(0), ROOT_INDEX, aliased)
    return BufferAllocation(
        AllocationIndex(0),
        ByteCount(8),
        Color(0),
        is_constant=is_constant,
        is_tuple=is_tuple,
        is_thread_local=is_thread_local,
        maybe_live_out=maybe_live_out,
        parameter=parameter,
    )


@pytest.mark.parametrize(
    ("allocation", "is_temporary", "is_readonly"),
    [
        (_allocation(), True, False),
        (_allocation(maybe_live_out=True), False, False),
        (_allocation(is_constant=True), False, True),
        (_allocation(is_thread_local=True), False, False),
        (_allocation(is_tuple=True), True, False),
        (_allocation(aliased=False), False, True),
        (_allocation(aliased=True), False, False),
    ],
)
def test_the_kind_follows_from_what_it_holds(
    allocation: BufferAllocation, is_temporary: bool, is_readonly: bool
) -> None:
    """`IsPreallocatedTempBuffer` and `is_readonly`."""
    assert allocation.is_preallocated_temp == is_temporary
    assert allocation.is_readonly == is_readonly


def test_the_total_counts_every_allocation_once() -> None:
    assert BufferAssignment([_allocation(), _allocation(is_constant=True)]).total_bytes == 16
    assert BufferAssignment([]).total_bytes == 0
