"""What was placed before: the answer of memory-space assignment reaches the plan unchanged."""

from __future__ import annotations

from hlomem.assign.allocation import OffsetSize
from hlomem.assign.preset import NO_PRESET, Preset
from hlomem.base.quantities import ByteCount, Color, Offset
from hlomem.hlo.shape import ROOT_INDEX
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import run_stages
from tests.assign.programs import module_of

TEXT = module_of(
    "%fast = f32[64]{0:S(1)} copy(%a)",
    "%slow = f32[64]{0} reverse(%fast), dimensions={0}",
    "ROOT %r = f32[64]{0} add(%slow, %b)",
)


def _place_of(name: str, preset: Preset) -> OffsetSize:
    allocations = run_stages(parse(TEXT), preset=preset).assignment.allocations
    [place] = [
        place
        for allocation in allocations
        for value, place in allocation.slices.items()
        if value.instruction.name == name
    ]
    return place


def test_a_given_place_is_kept_and_others_do_not_move() -> None:
    place = OffsetSize(Offset(640), ByteCount(256))
    preset = Preset({Color(1): ByteCount(1024)}, {("fast", ROOT_INDEX): place})
    assert _place_of("fast", NO_PRESET) == (0, 256)
    assert _place_of("fast", preset) == place
    assert _place_of("slow", preset) == _place_of("slow", NO_PRESET)
