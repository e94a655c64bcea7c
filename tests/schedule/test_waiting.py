"""The modelled time of a program in another order."""

from __future__ import annotations

from hlomem import hlo
from hlomem.pipeline import in_text_order, start_stages
from hlomem.schedule.cost import TRANSFER_FACTOR
from hlomem.schedule.waiting import ModelledTime, model_time
from tests.schedule.test_cost import TEXT, WORK


def test_a_transfer_that_is_no_longer_hidden_is_waited_for() -> None:
    stages = start_stages(hlo.parse(TEXT), order_lists=in_text_order)
    entry = stages.module.entry
    p, q, start, work, done, root = entry.instructions
    assert model_time(stages, {}) == ModelledTime(WORK, 0, 0)
    late = model_time(stages, {entry: [p, q, start, done, work, root]})
    assert late == ModelledTime(WORK, 0, TRANSFER_FACTOR * 4096)
    assert late.ratio == (WORK + TRANSFER_FACTOR * 4096) / WORK


def test_a_program_that_does_nothing_takes_no_longer() -> None:
    assert ModelledTime(0, 0, 0).ratio == 1.0
