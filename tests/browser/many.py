"""A page of very many buffers, made without a dump."""

from __future__ import annotations

from msgspec.structs import replace

import hlomem
from hlomem.report.data.memory import build_memory
from hlomem.report.page.page import Columns, Page, build_page

ONE = """\
HloModule one, is_scheduled=true

ENTRY %main (p: f32[1024]) -> f32[512] {
  %p = f32[1024]{0} parameter(0)
  %n = f32[1024]{0} negate(%p)
  ROOT %s = f32[512]{0} slice(%n), slice={[0:512]}
}
"""
_ROWS = 1000


def many_buffers(count: int) -> Page:
    """The page of a small plan, whose one temporary became `count` of all sizes and lengths."""
    dump = hlomem.plan(ONE, backend="cpu").dump
    page = build_page(build_memory(dump))
    space = page.spaces[0]
    shared = next(each for each in space.allocations if each.is_shared_over_time)
    numbers = range(count)
    columns = {name: [-1] * count for name in Columns.__struct_fields__} | {
        "id": list(numbers),
        "name": list(numbers),
        "role": [number % 12 for number in numbers],
        "rank": list(numbers),
        "allocation": [shared.index] * count,
        "offset": [number % _ROWS * 64 for number in numbers],
        "size": [64] * count,
        "padding": [0] * count,
        "start": [number // _ROWS * 1000 + number % 7 for number in numbers],
        "end": [number // _ROWS * 1000 + 900 + number % 90 for number in numbers],
    }
    grown = replace(shared, size=64 * _ROWS)
    rest = tuple(each for each in space.allocations if each is not shared)
    return replace(
        page,
        sequence=tuple(f"step{number}" for number in range(count)),
        texts=[f"buffer{number}" for number in numbers],
        buffers=Columns(**columns),
        spaces=(replace(space, size=64 * _ROWS, allocations=(grown, *rest)),),
    )
