"""What begins in the background ends where something waits for it."""

from __future__ import annotations

from hlomem import hlo
from hlomem.opt.orders.effects import find_end

TEXT = """HloModule m, is_scheduled=true

%wrapped {
  %w = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%w)
}

ENTRY %e {
  %p = f32[8] parameter(0)
  %start = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%wrapped
  %update = ((f32[8]), f32[8], u32[]) async-update(%start)
  %done = f32[8] async-done(%update)
  %lost = ((f32[8]), f32[8], u32[]) copy-start(%done)
  ROOT %r = f32[8] negate(%done)
}
"""


def _find(name: str) -> hlo.HloInstruction:
    found = hlo.parse(TEXT).entry.find(name)
    assert found is not None
    return found


def test_an_end_is_found_behind_updates() -> None:
    end = find_end(_find("start"))
    assert end is not None
    assert end.name == "done"


def test_what_nobody_waits_for_has_no_end() -> None:
    assert find_end(_find("lost")) is None
