"""The least that a program's temporaries take: named, and never more than a plan needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.fit import fit
from hlomem.remat.floor import find_floor
from hlomem.schedule.planned_orders import temporary_bytes
from tests.remat.test_states import HOMES
from tests.schedule.programs import stages_of

WIDE = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[4096], q: f32[4096]) -> f32[] {
  %p = f32[4096]{0} parameter(0)
  %q = f32[4096]{0} parameter(1)
  %a = f32[4096]{0} sine(%p)
  %b = f32[4096]{0} cosine(%q)
  %wide = f32[8192]{0} concatenate(%a, %b), dimensions={0}
  %dot = f32[] dot(%wide, %wide), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %r = f32[] negate(%dot)
}
"""


def test_the_floor_is_what_the_hungriest_instruction_reads_and_makes() -> None:
    floor = find_floor(start_stages(hlo.parse(WIDE), order_lists=in_text_order))
    assert floor.instruction == "wide"
    assert floor.size == 4 * (4096 + 4096 + 8192)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_nothing_is_found_below_the_floor(home: Path) -> None:
    stages = stages_of(home)
    floor = find_floor(stages).size
    assert floor <= temporary_bytes(stages)
    found = fit(stages, floor)
    assert all(point.temporaries >= floor for point in found.points)
