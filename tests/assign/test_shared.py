"""Who may be the next in an allocation: `BufferAssigner::MaybeAssignBuffer`."""

from __future__ import annotations

import pytest

from hlomem.assign.allocation import BufferAllocation, OffsetSize
from hlomem.assign.problem import Problem
from hlomem.assign.shared import SharedAllocations
from hlomem.base.quantities import AllocationIndex, Offset
from tests.assign.programs import buffer_named, module_of, state


def _watched(problem: Problem, name: str) -> tuple[SharedAllocations, BufferAllocation]:
    """Shared allocations with one that holds the buffer of an instruction."""
    buffer = buffer_named(problem, name)
    size = problem.size_of[buffer]
    slices = dict.fromkeys(buffer.values, OffsetSize(Offset(0), size))
    allocation = BufferAllocation(AllocationIndex(0), size, problem.color(buffer), slices)
    shared = SharedAllocations(problem)
    shared.watch(allocation, buffer)
    return shared, allocation


@pytest.mark.parametrize(
    ("user", "may_share"),
    [
        ("negate(%n)", True),  # elementwise
        ("reverse(%n), dimensions={0}", False),  # reads elements after writing others
        ("copy(%n)", False),  # would be no copy
        ("frobnicate(%n)", False),  # nobody knows
    ],
)
def test_a_result_takes_its_operands_place_if_the_instruction_allows(
    user: str, may_share: bool
) -> None:
    problem = state(
        module_of(
            "%n = f32[64]{0} negate(%a)",
            f"%u = f32[64]{{0}} {user}",
            "ROOT %r = f32[64]{0} reverse(%u), dimensions={0}",
        )
    )
    shared, allocation = _watched(problem, "n")
    user_buffer = buffer_named(problem, "u")
    assert list(shared.of_operands(user_buffer)) == [allocation]
    assert shared.may_hold(allocation, user_buffer) == may_share


def test_what_comes_later_may_have_an_idle_allocation() -> None:
    problem = state(
        module_of(
            "%n = f32[64]{0} reverse(%a), dimensions={0}",
            "%m = f32[64]{0} reverse(%n), dimensions={0}",
            "%k = f32[64]{0} reverse(%m), dimensions={0}",
            "ROOT %r = f32[64]{0} reverse(%k), dimensions={0}",
        )
    )
    shared, allocation = _watched(problem, "n")
    later, meanwhile = buffer_named(problem, "k"), buffer_named(problem, "m")
    assert list(shared.idle(later)) == []  # not before it is offered to all
    shared.make_reusable(allocation)
    assert list(shared.idle(later)) == [allocation]
    assert shared.may_hold(allocation, later)
    assert not shared.may_hold(allocation, meanwhile)
    shared.add(allocation, later)
    assert not shared.may_hold(allocation, buffer_named(problem, "m"))


def test_a_larger_buffer_does_not_fit_and_a_result_fits_only_exactly() -> None:
    problem = state(
        module_of(
            "%n = f32[64]{0} reverse(%a), dimensions={0}",
            "%m = f32[8]{0} slice(%n), slice={[0:8]}",
            "%k = f32[128]{0} broadcast(%m), dimensions={}",
            "ROOT %r = f32[8]{0} slice(%k), slice={[0:8]}",
        )
    )
    shared, allocation = _watched(problem, "n")
    assert not shared.may_hold(allocation, buffer_named(problem, "k"))
    assert not shared.may_hold(allocation, buffer_named(problem, "r"))
