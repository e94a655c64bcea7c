"""Values of a loop's body recomputed within an iteration, until the program fits.

The entry's peak is often that of a loop it runs: then single values of the body are dropped at the
body's own peak and recomputed in the same iteration (`greedy.py`), as those of the entry are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.candidate import Candidate, room_for
from hlomem.opt.constants import INSIDE_PRICES, MAX_INSIDE, MAX_INSIDE_NODES
from hlomem.opt.goal import AS_IS
from hlomem.opt.orders.cost import Costs, costs_of
from hlomem.opt.remat.clones import relax
from hlomem.opt.remat.cut import cut_at_peak, hungriest_body, make_smaller
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.state import State, start_state

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation
    from hlomem.opt.goal import WorkLeft


def lower_inside(candidate: Candidate, limit: int, work: WorkLeft) -> list[Candidate]:
    """The program with values of its hungriest bodies recomputed, each smaller than the last."""
    found: list[Candidate] = []
    for _ in range(MAX_INSIDE):
        body = hungriest_body(candidate.plan)
        if body is None or work.is_spent or candidate.total <= limit:
            break
        made = _lower(candidate, body, limit, work)
        made = made or _lower(candidate, body, limit, work, has_awaited=True)
        if made is None:
            break
        found.append(made)
        candidate = made
    return found


def _lower(
    candidate: Candidate,
    body: HloComputation,
    limit: int,
    work: WorkLeft,
    *,
    has_awaited: bool = False,
) -> Candidate | None:
    """The program with values of one body recomputed, if it is smaller."""
    stages = candidate.plan
    given = start_state(stages, candidate.given.rules.scopes, body, has_awaited=has_awaited)
    if len(given.order) > MAX_INSIDE_NODES:
        return None
    costs = costs_of(stages.options.machine)
    missing = candidate.temporaries - room_for(stages, limit)
    wanted = max(given.levels()) - missing
    best: Candidate | None = None
    for price in INSIDE_PRICES:
        start = given if price == AS_IS else cut_at_peak(given, costs, price)
        if start is None:
            continue
        state = _descend(start, costs, wanted, work)
        for one in (relax(state, costs, max(wanted, *state.levels())), state):
            if not one.clone_nodes():
                continue
            work.take_plan()
            made = make_smaller(candidate, one)
            if made is not None and made.temporaries < (best or candidate).temporaries:
                best = made
                break  # else with the clones that the model does without
        if best is not None and best.total <= limit:
            break
    return best


def _descend(state: State, costs: Costs, wanted: int, work: WorkLeft) -> State:
    """The body after steps down to a level, as far as they help."""
    levels = state.levels()
    while work.may_step and max(levels) > wanted:
        work.take_step(len(state.order))
        choice = choose(state, levels, costs, wanted)
        if choice is None:
            break
        state, levels = choice.state, choice.levels
    return state
