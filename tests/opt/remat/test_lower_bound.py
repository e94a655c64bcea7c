"""The least that a program's temporaries take: named, and never more than a plan needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Program
from hlomem.opt.goal import Budget, Rules
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.remat.budget_search import find_single
from hlomem.opt.remat.floor import find_floor
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import stages_of
from tests.opt.remat.programs import HOMES, WIDE


def test_the_floor_is_what_the_hungriest_instruction_reads_and_makes() -> None:
    floor = find_floor(start_stages(hlo.parse(WIDE), order_lists=in_text_order))
    assert floor.instruction == "wide"
    assert floor.size == 4 * (4096 + 4096 + 8192)


@pytest.mark.parametrize("home", HOMES[::2], ids=lambda home: home.name)
def test_nothing_is_found_below_the_floor(home: Path) -> None:
    stages = stages_of(home)
    floor = find_floor(stages).size
    assert floor <= temporary_bytes(stages)
    start = Program(stages, Rules()).start()
    found = find_single(start, Budget(other_bytes(stages) + floor))
    assert all(one.temporaries >= floor for one in found)
