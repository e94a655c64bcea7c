"""Candidates are right orders of the whole program, each another, the same list every time."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from hlomem.opt.checks.order import find_problems
from hlomem.opt.orders.candidates import CandidateOrder, iter_candidates
from hlomem.opt.orders.search import improve
from tests.opt.orders.programs import CPU, GPU, HOMES, name_of, stages_of


def _names(candidate: CandidateOrder) -> list[tuple[str, ...]]:
    return [
        (computation.name, *(instruction.name for instruction in order))
        for computation, order in candidate.orders.items()
    ]


@pytest.mark.parametrize("home", HOMES[::4], ids=name_of)
def test_every_candidate_may_be_run_and_is_another_order(home: Path) -> None:
    stages = stages_of(home)
    candidates = list(iter_candidates(stages, {}))
    for candidate in candidates:
        assert candidate.orders
        assert not find_problems(stages.module, candidate.orders)
    assert len({str(_names(candidate)) for candidate in candidates}) == len(candidates)


def test_what_the_search_found_comes_first_and_the_list_is_the_same_every_time() -> None:
    for home in (CPU / "g_cholesky_solve", GPU / "tf_scan_layers"):
        stages = stages_of(home)
        found = improve(stages)
        first, again = (list(islice(iter_candidates(stages, found.orders), 6)) for _ in range(2))
        assert [*map(_names, first)] == [*map(_names, again)]
        if found.orders:
            assert first[0].orders == found.orders
            assert first[0].size == found.after
