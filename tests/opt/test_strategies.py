"""Every row of the registry proposes programs that checkers accept, and none that needs more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Candidate, Program
from hlomem.opt.goal import Budget, Front, Goal, Offload, Order, Pieces, Rules, Share
from hlomem.opt.search import find_order_problems, write
from hlomem.opt.strategies import STRATEGIES, Strategy
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.fixtures import iter_fixtures
from tests.opt.orders.programs import CPU
from tests.opt.pieces.programs import LOSS
from tests.opt.remat.programs import chain, gpu_chain, products
from tests.opt.remat.scanned import SCANNED, scanned_stages


def _stages(text: str) -> Stages:
    return start_stages(hlo.parse(text), order_lists=in_text_order)


def _solve() -> Stages:
    return _stages((CPU / "g_cholesky_solve" / "module.hlo").read_text())


def _recurrence() -> str:
    return next(one.program for one in iter_fixtures() if one.path.stem == "segments")


CASES: dict[str, tuple[Callable[[], Stages], Callable[[Candidate], Goal]]] = {
    "order": (_solve, lambda _: Order("low")),
    "cheap": (lambda: _stages(products(4)), lambda _: Share(0.02)),
    "single": (lambda: _stages(chain(12)), lambda given: Budget(given.total * 3 // 4)),
    "loops": (lambda: scanned_stages(SCANNED[-1]), lambda _: Front(64)),
    "segments": (lambda: _stages(_recurrence()), lambda _: Front(0)),
    "cut": (lambda: scanned_stages(SCANNED[-1]), lambda _: Front(64)),
    "pieces": (lambda: _stages(LOSS), lambda given: Pieces(given.total - given.temporaries // 2)),
    "offload": (gpu_chain, lambda given: Offload(given.temporaries // 2)),
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_what_a_strategy_proposes_is_accepted_and_needs_less(strategy: Strategy) -> None:
    make, aim = CASES[strategy.name]
    given = Program(make(), Rules("low")).start()
    goal = aim(given)
    assert isinstance(goal, strategy.goals)
    proposed = list(strategy.propose(given, goal))
    assert min(one.temporaries for one in proposed) < given.temporaries
    for one in proposed:
        assert not (find_order_problems(one) if one.orders else write(one)[1])
        assert one.total - one.temporaries <= given.total
        assert one.flops >= 0
