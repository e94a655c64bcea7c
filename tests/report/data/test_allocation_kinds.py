"""Where values lie is the kind of their allocation."""

from __future__ import annotations

from hlomem.report.data import allocation_kinds
from tests.trials import trial


def test_every_buffer_has_the_place_of_its_allocation() -> None:
    memory = trial("tpu/gpt_donate")
    kinds: dict[int, str] = {
        each.index: allocation_kinds.kind_of(each) for each in memory.joined.allocations
    }
    assert all(buffer.place == kinds[buffer.allocation] for buffer in memory.buffers)
    assert allocation_kinds.DONATED in kinds.values()
