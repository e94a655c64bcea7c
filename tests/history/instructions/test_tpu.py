"""Instructions as memory-space assignment leaves them."""

from __future__ import annotations

from hlomem.machines.options import Options
from tests.history.orders import listed

MODULE = """\
HloModule m, is_scheduled=true

%body (p.0: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %p.0 = f32[8] parameter(0)
  ROOT %r.0 = (f32[8], f32[8], f32[8], f32[8]) tuple(%p.0, %p.0, %p.0, %p.0)
}

ENTRY %main (a: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %a = f32[8] parameter(0)
  %copy-start = (f32[8]{0:S(1)}, f32[8], u32[]{:S(2)}) copy-start(%a)
  %copy-done = f32[8]{0:S(1)} copy-done(%copy-start)
  %b = f32[8] negate(%copy-done)
  %c = f32[8] add(%b, %a)
  %fusion = (f32[8], f32[8], f32[8], f32[8]) fusion(%c), kind=kLoop, calls=%body
  %part.3 = f32[8] get-tuple-element(%fusion), index=3
  %part.2 = f32[8] get-tuple-element(%fusion), index=2
  %part.0 = f32[8] get-tuple-element(%fusion), index=0
  ROOT %result = (f32[8], f32[8], f32[8], f32[8]) tuple(%part.0, %part.2, %part.3, %a)
}
"""


def test_copies_are_made_last() -> None:
    names = listed("tpu", MODULE, options=Options(reparses_module=True))
    assert names[-2:] == ["copy-start", "copy-done"]
    assert names[0] == "a"
