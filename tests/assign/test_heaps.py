"""Step 2: one heap for every memory space, in the order of their colors."""

from __future__ import annotations

from collections.abc import Sequence

from hlomem.assign.allocation import BufferAllocation
from hlomem.assign.packing import BufferInterval, Packing
from hlomem.assign.simulator import assign_heaps
from tests.assign.programs import buffer_named, module_of, state

TEXT = module_of(
    "%fast = f32[64]{0:S(1)} reverse(%a), dimensions={0}",
    "%slow = f32[64]{0} reverse(%fast), dimensions={0}",
    "ROOT %r = f32[64]{0} reverse(%slow), dimensions={0}",
)


def _stack(buffers: Sequence[BufferInterval], _alignment: int) -> Packing:
    return Packing({buffer.id: 1000 for buffer in buffers}, 2000)


def test_every_memory_space_gets_an_allocation() -> None:
    problem = state(TEXT)
    waiting = [buffer_named(problem, "fast"), buffer_named(problem, "slow")]
    allocations: list[BufferAllocation] = []
    assign_heaps(problem, waiting, None, allocations)
    assert [(each.color, each.size, each.index) for each in allocations] == [
        (0, 256, 0),
        (1, 256, 1),
    ]


def test_the_packer_says_where() -> None:
    problem = state(TEXT)
    allocations: list[BufferAllocation] = []
    assign_heaps(problem, [buffer_named(problem, "slow")], _stack, allocations)
    [allocation] = allocations
    assert allocation.size == 2000
    assert list(allocation.slices.values()) == [(1000, 256)]


def test_without_temporaries_there_is_no_heap() -> None:
    allocations: list[BufferAllocation] = []
    assign_heaps(state(TEXT), [], None, allocations)
    assert allocations == []
