"""The pipeline stops where it is asked to, and takes another packer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.packing import BufferInterval, Packing
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import STAGES, run_stages, start_stages
from tests.analysis.programs import DONATE_SWAP

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_stage_computes_what_it_needs_and_no_more() -> None:
    stages = start_stages(parse(DONATE_SWAP))
    assert stages.live_ranges.end == 7
    assert {name for name in STAGES if name in vars(stages)} == set(STAGES[:5])


def test_the_packer_can_be_replaced() -> None:
    def pack_apart(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
        offset_by_id: dict[int, int] = {}
        end = 0
        for buffer in buffers:
            offset_by_id[buffer.id] = end
            end += -(-buffer.size // alignment) * alignment
        return Packing(offset_by_id, end)

    plain = run_stages(parse(DONATE_SWAP)).assignment
    apart = run_stages(parse(DONATE_SWAP), pack=pack_apart).assignment
    assert apart.allocations[-1].size == plain.allocations[-1].size
    places = [place.offset for place in apart.allocations[-1].slices.values()]
    assert sorted(places) == [0, 360000]
