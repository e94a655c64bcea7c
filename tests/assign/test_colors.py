"""A value lies in the memory space its layout names (`BufferAssigner::DefaultColorer`)."""

from __future__ import annotations

from hlomem.assign.colors import color_values
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import start_stages

TEXT = """HloModule m, is_scheduled=true

ENTRY %e {
  %a = f32[8]{0} parameter(0)
  %fast = f32[8]{0:S(1)} copy(%a)
  %slow = f32[8]{0} copy(%fast)
  ROOT %t = (f32[8]{0:S(5)}, f32[8]{0}) custom-call(%slow), custom_call_target="f"
}
"""


def test_every_value_has_the_color_of_its_layout() -> None:
    stages = start_stages(parse(TEXT))
    colors = color_values(stages.aliasing, stages.call_graph, stages.options.machine)
    named = {f"{value.instruction.name}{value.index or ''}": c for value, c in colors.items()}
    assert {name: color for name, color in named.items() if color} == {"fast": 1, "t{0}": 5}
    assert len(named) == 6
