"""A module in one screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.hlo import parse
from hlomem.report.data.module_overview import build_module_overview
from hlomem.report.screens.module_overview_text import draw_module_overview
from tests.places import GOLDENS

MODULES = sorted((GOLDENS / "xla").glob("*/*/*/module.hlo"))

DONATING = """\
HloModule step, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }, \
buffer_donor={ (0, {}) }, num_partitions=4

%fused_computation (p.0: f32[8]) -> f32[8] {
  %p.0 = f32[8]{0} parameter(0)
  ROOT %negate = f32[8]{0} negate(%p.0)
}

ENTRY %main (x: f32[3,100], y: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[3,100]{1,0:T(8,128)} parameter(0), metadata={op_name="state[\\'x\\']"}
  %y = f32[8]{0:S(1)} parameter(1)
  %loop_fusion = f32[8]{0} fusion(%y), kind=kLoop, calls=%fused_computation
  ROOT %tuple = (f32[8]{0}, f32[8]{0}) tuple(%loop_fusion, %y)
}
"""


def test_counts_arguments_donations_and_spaces() -> None:
    program = build_module_overview(parse(DONATING))
    assert (program.name, program.is_scheduled, program.num_partitions) == ("step", True, 4)
    assert (program.computation_count, program.fused_count) == (2, 1)
    assert program.instruction_count == 6
    assert program.opcodes[0] == ("parameter", 3)
    x, y = program.parameters
    assert (x.name, x.size, x.alias, x.is_donor) == ("state['x']", 8 * 128 * 4, None, True)
    assert (y.name, y.size, y.alias, y.is_donor) == ("y", 32, (0,), False)
    first, second = program.outputs
    assert (first.name, first.index, first.alias) == ("loop_fusion", (0,), (1,))
    assert (second.name, second.alias) == ("y", None)
    assert [(space.color, space.count) for space in program.spaces] == [(0, 2), (1, 1)]


def test_counting_does_not_open_fused_bodies() -> None:
    module = parse(DONATING)
    build_module_overview(module)
    assert not module.computation_by_name["fused_computation"].is_open


@pytest.mark.parametrize("path", MODULES, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_the_screen_fits_and_its_bytes_add_up(path: Path) -> None:
    program = build_module_overview(parse(path.read_text()))
    assert sum(count for _, count in program.opcodes) == program.instruction_count
    for width in (60, 80, 120):
        for line in draw_module_overview(program, width):
            assert len("".join(text for text, _ in line)) <= width
