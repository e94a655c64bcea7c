"""The contexts of operations on another core: one allocation, free when all of them are done.

The form of the program is that of libtpu's dumps: a start hands its context on to an update.
"""

from __future__ import annotations

from hlomem.assign.allocation import BufferAllocation
from hlomem.assign.contexts import Contexts
from hlomem.assign.problem import Problem
from hlomem.base.quantities import AllocationIndex, ByteCount, Color
from hlomem.machines.options import Options
from tests.assign.programs import buffer_named, module_of, state

WRAPPED = """%wrapped (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  ROOT %y = f32[64]{0} negate(%x)
}

"""
LINES = (
    "%start = ((f32[64]{0}), f32[64]{0}, u8[32]{0}) async-start(%a), calls=%wrapped",
    "%update = ((f32[64]{0}), f32[64]{0}, u8[32]{0}) async-update(%start)",
    "%done = f32[64]{0} async-done(%update)",
    "%later = f32[4]{0} slice(%done), slice={[0:4]}",
    "ROOT %r = f32[4]{0} reverse(%later), dimensions={0}",
)


def _problem() -> Problem:
    return state(module_of(*LINES, before=WRAPPED), Options(fast_merge=True))


def _assigned(problem: Problem, size: int) -> tuple[Contexts, BufferAllocation]:
    contexts = Contexts(problem)
    allocation = BufferAllocation(AllocationIndex(0), ByteCount(size), Color(0))
    contexts.assign(allocation)
    return contexts, allocation


def test_contexts_are_what_an_update_defines_beside_its_tables() -> None:
    problem = _problem()
    contexts = Contexts(problem)
    [context] = contexts.by_size()
    assert [(each.instruction.name, tuple(each.index)) for each in context.values] == [
        ("update", (2,))
    ]
    assert context in contexts.buffers
    assert buffer_named(problem, "later") not in contexts.buffers


def test_the_allocation_is_free_for_what_begins_after_the_last_context() -> None:
    problem = _problem()
    later = buffer_named(problem, "later")
    contexts, allocation = _assigned(problem, 32)
    assert contexts.is_assigned
    assert contexts.free_allocation(later) is allocation
    contexts.note_reuse(allocation, later)
    assert contexts.free_allocation(later) is None  # it is taken until that ends


def test_it_must_be_large_enough() -> None:
    problem = _problem()
    contexts, _ = _assigned(problem, 8)
    assert contexts.free_allocation(buffer_named(problem, "later")) is None


def test_what_begins_before_the_contexts_end_does_not_get_it() -> None:
    problem = _problem()
    contexts, _ = _assigned(problem, 1 << 10)
    assert contexts.free_allocation(buffer_named(problem, "a")) is None


def test_without_contexts_nothing_is_free() -> None:
    problem = state(module_of("ROOT %r = f32[64]{0} add(%a, %b)"))
    contexts = Contexts(problem)
    assert contexts.by_size() == []
    assert not contexts.is_assigned
    assert contexts.free_allocation(buffer_named(problem, "r")) is None
