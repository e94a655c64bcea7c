"""The contexts of operations on another core: where they lie, and when their places are free.

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


def _with_place(problem: Problem, size: int) -> tuple[Contexts, BufferAllocation]:
    contexts = Contexts(problem)
    [context] = contexts.buffers
    allocation = BufferAllocation(AllocationIndex(0), ByteCount(size), Color(0))
    contexts.allocations[allocation.index] = allocation
    contexts.note_use(allocation, context)
    return contexts, allocation


def test_contexts_are_what_an_update_defines_beside_its_tables() -> None:
    problem = _problem()
    contexts = Contexts(problem)
    [context] = contexts.buffers
    assert [(value.instruction.name, tuple(value.index)) for value in context.values] == [
        ("update", (2,))
    ]
    assert contexts.values == set(context.values)
    assert buffer_named(problem, "later") not in contexts.buffers


def test_only_the_first_part_of_a_context_is_one() -> None:
    both = "(u8[32]{0}, u8[64]{0})"
    lines = [line.replace("u8[32]{0}", both) for line in LINES]
    contexts = Contexts(state(module_of(*lines, before=WRAPPED), Options(fast_merge=True)))
    [context] = contexts.buffers
    assert [tuple(value.index) for value in context.values] == [(2, 0)]


def test_a_place_is_free_for_what_begins_after_the_context() -> None:
    problem = _problem()
    later = buffer_named(problem, "later")
    contexts, allocation = _with_place(problem, 32)
    assert contexts.free(later) == [allocation]
    contexts.note_use(allocation, later)
    assert contexts.free(later) == []  # it is taken until that ends


def test_it_must_be_large_enough() -> None:
    problem = _problem()
    contexts, _ = _with_place(problem, 8)
    assert contexts.free(buffer_named(problem, "later")) == []


def test_what_begins_before_the_context_ends_does_not_get_it() -> None:
    problem = _problem()
    contexts, _ = _with_place(problem, 1 << 10)
    assert contexts.free(buffer_named(problem, "a")) == []


def test_a_result_of_the_program_does_not_get_it() -> None:
    problem = _problem()
    contexts, _ = _with_place(problem, 16)
    assert contexts.free(buffer_named(problem, "r")) == []


def test_of_several_free_places_the_smallest_comes_first() -> None:
    problem = _problem()
    contexts, large = _with_place(problem, 64)
    small = BufferAllocation(AllocationIndex(1), ByteCount(32), Color(0))
    contexts.allocations[small.index] = small
    contexts.note_use(small, next(iter(contexts.buffers)))
    assert contexts.free(buffer_named(problem, "later")) == [small, large]


def test_without_contexts_nothing_is_free() -> None:
    problem = state(module_of("ROOT %r = f32[64]{0} add(%a, %b)"))
    contexts = Contexts(problem)
    assert not contexts.buffers
    assert contexts.free(buffer_named(problem, "r")) == []
