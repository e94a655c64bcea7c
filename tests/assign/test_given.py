"""Step 0: what an earlier pass has placed stays there (`BufferAssigner::AssignPresetBuffers`)."""

from __future__ import annotations

from hlomem.assign.allocation import BufferAllocation, OffsetSize
from hlomem.assign.preset import NO_PRESET, Preset, assign_preset_buffers, assign_private_stacks
from hlomem.base.quantities import ByteCount, Color, Offset
from hlomem.hlo.shape import ROOT_INDEX
from tests.assign.programs import buffer_named, module_of, state

FAST = Color(1)
TEXT = module_of(
    "%fast = f32[64]{0:S(1)} copy(%a)",
    "%slow = f32[64]{0} negate(%fast)",
    "ROOT %r = f32[64]{0} add(%slow, %b)",
)
PLACE = OffsetSize(Offset(128), ByteCount(256))


def test_a_given_value_gets_its_place_in_the_allocation_of_its_color() -> None:
    problem = state(TEXT)
    preset = Preset({FAST: ByteCount(1024)}, {("fast", ROOT_INDEX): PLACE})
    allocations: list[BufferAllocation] = []
    taken = assign_preset_buffers(problem, preset, allocations)
    assert taken == {buffer_named(problem, "fast")}
    [allocation] = allocations
    assert (allocation.color, allocation.size) == (FAST, 1024)
    assert list(allocation.slices.values()) == [PLACE]


def test_a_place_for_a_value_of_another_color_is_not_taken() -> None:
    problem = state(TEXT)
    preset = Preset({FAST: ByteCount(1024)}, {("slow", ROOT_INDEX): PLACE})
    allocations: list[BufferAllocation] = []
    assert assign_preset_buffers(problem, preset, allocations) == set()
    assert allocations[0].slices == {}


def test_without_a_preset_nothing_is_made() -> None:
    allocations: list[BufferAllocation] = []
    problem = state(TEXT)
    assert assign_preset_buffers(problem, NO_PRESET, allocations) == set()
    assert assign_private_stacks(problem, set(), allocations) == set()
    assert allocations == []
