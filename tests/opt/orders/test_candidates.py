"""Candidates are right orders of the whole program, each another, the same list every time."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from hlomem.opt.candidate import Candidate, Program
from hlomem.opt.checks.order import check_orders
from hlomem.opt.goal import Rules
from hlomem.opt.orders.planned_orders import needed_bytes
from hlomem.opt.search import find_order
from hlomem.opt.trials import iter_orders
from tests.opt.orders.programs import CPU, GPU, HOMES, name_of, stages_of


def _names(candidate: Candidate) -> list[tuple[str, ...]]:
    return [
        (computation.name, *(instruction.name for instruction in order))
        for computation, order in candidate.orders.items()
    ]


@pytest.mark.parametrize("home", HOMES[::4], ids=name_of)
def test_every_candidate_may_be_run_and_is_another_order(home: Path) -> None:
    stages = stages_of(home)
    candidates = list(iter_orders(Program(stages, Rules()).start()))
    for candidate in candidates:
        assert candidate.orders
        assert not check_orders(stages.module, candidate.orders)
    assert len({str(_names(candidate)) for candidate in candidates}) == len(candidates)


def test_what_the_search_found_comes_first_and_the_list_is_the_same_every_time() -> None:
    for home in (CPU / "g_cholesky_solve", GPU / "tf_scan_layers"):
        stages = stages_of(home)
        found = find_order(Program(stages, Rules()), is_checked=False)
        first, again = (list(islice(iter_orders(found), 6)) for _ in range(2))
        assert [*map(_names, first)] == [*map(_names, again)]
        if found.orders:
            assert first[0].orders == found.orders
            assert needed_bytes(first[0].plan) == found.total
