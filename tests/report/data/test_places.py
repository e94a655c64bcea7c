"""Where values lie is the kind of their allocation."""

from __future__ import annotations

from hlomem.report.data import places
from tests.trials import trial


def test_every_buffer_has_the_place_of_its_allocation() -> None:
    memory = trial("tpu/gpt_donate")
    kinds: dict[int, str] = {each.index: places.kind_of(each) for each in memory.joined.allocations}
    assert all(buffer.place == kinds[buffer.allocation] for buffer in memory.buffers)
    assert places.DONATED in kinds.values()
