"""The strategies of the optimiser, a row each.

Proposals are planned, but not checked: `hlomem.opt.search` does that. A new strategy is a module
that makes candidates, and a row here.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from hlomem.opt.candidate import Candidate, count_instructions, edit_of, planned, start_text
from hlomem.opt.checks import Change
from hlomem.opt.constants import LEAST_STEP, MARGIN, MAX_CUTS, MAX_PLANNED_OFFLOADS
from hlomem.opt.goal import CHEAP_SHARE, Budget, Effort, Front, Goal, Offload, Order, Pieces, Share
from hlomem.opt.loops.change import iter_changed
from hlomem.opt.loops.relaid import relay_stacks
from hlomem.opt.loops.segments import segment_loops
from hlomem.opt.once import once
from hlomem.opt.orders.planned_orders import in_orders
from hlomem.opt.orders.search import find_orders, improve
from hlomem.opt.pieces.choice import in_pieces
from hlomem.opt.remat.budget_search import find_single
from hlomem.opt.remat.cheap import TRIED_WAYS, USUAL_WAY, find_cheap
from hlomem.opt.remat.copies import drop_barriers, drop_copies, without_copies
from hlomem.opt.remat.cut import cut, cut_inside
from hlomem.opt.remat.fused import compute_inside
from hlomem.opt.remat.offload import choose_moves, make_moves
from hlomem.opt.remat.parted import part_fusions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Strategy(NamedTuple):
    """A way to a program that needs less."""

    name: str
    goals: tuple[type[Goal], ...]
    propose: Callable[[Candidate, Any], Iterable[Candidate]]
    is_priced: bool = False
    """Whether it is tried for every price, going on from what the row above it came to."""
    until_fits: bool = False
    """Whether it is not tried any more once something fits a budget."""


def _order(candidate: Candidate, goal: Order) -> Iterator[Candidate]:
    given = candidate.given
    work = given.clock.order_work(goal.effort)
    found = improve(given.stages, given.rules._replace(effort=goal.effort), work)
    yield replace(
        candidate,
        temporaries=found.after,
        total=candidate.total - candidate.temporaries + found.after,
        orders=found.orders,
        stages=None if found.orders else candidate.stages,
        order=found,
        method=found.method,
    )


def _cheap(candidate: Candidate, goal: Share) -> Iterator[Candidate]:
    """Values recomputed for next to nothing, where no compiler fills fast memory after the hook."""
    ways = TRIED_WAYS if goal.is_tried else (USUAL_WAY,)
    clock = candidate.given.clock
    if goal.share and (goal.is_tried or candidate.options.machine.preset_color is None):
        clock.start(CHEAP_SHARE)
        for start in _starts(candidate):
            found = list(filter(None, (find_cheap(start, goal, way) for way in ways)))
            if not found and start is not candidate:
                found.append(start)
            yield from found
            if found:
                clock.start(CHEAP_SHARE)  # they were refused


def _starts(candidate: Candidate) -> Iterator[Candidate]:
    """The program, before it without what its loops can compute or lay out, or without copies."""
    for start in dict.fromkeys((*list(prepared(candidate))[-1:], candidate)):
        inside = compute_inside(start)
        if inside is not None:
            inside = reordered(inside)
            if inside.temporaries <= start.temporaries:
                yield from drop_copies_in_order(inside)
                yield inside
        yield from drop_copies_in_order(start)
        yield start


def prepared(candidate: Candidate) -> Iterator[Candidate]:
    """The program with what costs nothing and lets more be done, if it is no larger."""
    for change in (relay_stacks, part_fusions):
        made = change(candidate)
        if made is not None and (ordered := reordered(made)).total <= candidate.total:
            yield ordered
            candidate = ordered


def drop_copies_in_order(candidate: Candidate, *, or_equal: bool = False) -> Iterator[Candidate]:
    """The program without copies that are not needed, in an order of its own, if smaller."""
    given = candidate.given.start()
    starts = (candidate,) if candidate.plan is given.plan else (candidate, given)
    found = filter(None, map(_without_copies, starts))
    best = min(found, key=lambda one: one.temporaries, default=candidate)
    if best.temporaries < candidate.temporaries + (or_equal and best is not candidate):
        yield best


def _without_copies(candidate: Candidate) -> Candidate | None:
    return once(candidate, "without copies, in order", lambda: _without_any_copies(candidate))


def _without_any_copies(candidate: Candidate) -> Candidate | None:
    free = drop_barriers(candidate)
    made = without_copies(free) or free
    return None if made is candidate else reordered(made)


def reordered(candidate: Candidate, effort: Effort = "low") -> Candidate:
    """A changed program in an order of its own, if one is found, at little cost unless said."""
    return once(candidate, ("reordered", effort), lambda: _reordered(candidate, effort))


def _reordered(candidate: Candidate, effort: Effort) -> Candidate:
    stages = candidate.plan
    clock = candidate.given.clock
    clock.spend(count_instructions(stages))
    rules = candidate.given.rules._replace(effort=effort)
    orders = find_orders(stages, rules, clock.order_work(effort))
    if not orders:
        return candidate
    ordered = planned(candidate.given, in_orders(stages, orders))
    return replace(
        candidate,
        temporaries=ordered.temporaries,
        total=ordered.total,
        edit=edit_of(ordered.plan, candidate.edit),
        stages=ordered.stages,
    )


def _loops(candidate: Candidate, goal: Budget | Front) -> Iterator[Candidate]:
    """Loops that stack less, and recompute it in the loop that reads it."""
    found: list[Candidate] = []
    for made in iter_changed(candidate, goal.price):
        found.append(drop_copies(made) or made)
        if isinstance(goal, Budget) and found[-1].total <= goal.limit:
            break  # another pair would cost more
    if isinstance(goal, Budget) and found and found[-1].total <= goal.limit:
        yield from _with_cheaper(candidate, found[:-1], goal)
    yield from found[-1:]


def _with_cheaper(
    candidate: Candidate, found: Sequence[Candidate], goal: Budget
) -> Iterator[Candidate]:
    """The fewest pairs of loops changed for a price that fit with all others for a lower one."""
    lower = [price for price in candidate.prices if price and price < (goal.price or inf)]
    for start in found if lower else ():
        for made in deque(iter_changed(start, lower[-1]), maxlen=1):
            last = drop_copies(made) or made
            if last.total <= goal.limit:
                yield last
                return


def _segments(candidate: Candidate, goal: Budget | Front) -> Iterator[Candidate]:
    """Stacks of states kept by segments, for any price."""
    made = segment_loops(candidate) if not goal.price else None
    yield from [] if made is None else [drop_copies(made) or made]


def _cut(candidate: Candidate, goal: Budget | Front) -> Iterator[Candidate]:
    """Values dropped together at the peak: of a loop's body for a budget, for a front of all."""
    for _ in range(MAX_CUTS if isinstance(goal, Front) else 1):
        made = cut(candidate, goal.price) if isinstance(goal, Front) else None
        made = made or cut_inside(candidate, goal.price)
        if made is None:
            return
        candidate = made
        yield made


def _offload(candidate: Candidate, goal: Offload) -> Iterator[Candidate]:
    """Values in the host's memory: the best by our own plan, what packing loses asked for, too."""
    stages, best = candidate.plan, candidate
    space = stages.options.machine.host_color
    wanted = goal.room
    for _ in range(MAX_PLANNED_OFFLOADS if space is not None else 0):
        moves = tuple(choose_moves(stages, wanted))
        if not moves:
            break
        module = make_moves(stages.module, moves, space or 0)
        made = planned(candidate.given, start_text(module, stages.options))
        if made.temporaries < best.temporaries:
            best = replace(made, changes=(Change(module, "offload"),), moves=moves)
        if made.temporaries <= goal.room:
            break
        wanted = round(wanted * max(goal.room / made.temporaries, LEAST_STEP) * MARGIN)
    yield from [best] if best.moves else []


def _pieces(candidate: Candidate, goal: Pieces) -> Iterator[Candidate]:
    """Regions at the peak computed in pieces, one more in each program."""
    yield from in_pieces(candidate, goal.limit)


STRATEGIES = (
    Strategy("order", (Order,), _order),
    Strategy("cheap", (Share,), _cheap),
    Strategy("single", (Budget,), find_single),
    Strategy("loops", (Budget, Front), _loops, is_priced=True),
    Strategy("segments", (Budget, Front), _segments, is_priced=True, until_fits=True),
    Strategy("cut", (Budget, Front), _cut, is_priced=True, until_fits=True),
    Strategy("pieces", (Pieces,), _pieces),
    Strategy("offload", (Offload,), _offload),
)


def propose(candidate: Candidate, goal: Goal) -> Iterator[Candidate]:
    """Candidates of all strategies for a goal that have no price."""
    for strategy in strategies_for(goal, is_priced=False):
        yield from strategy.propose(candidate, goal)


def propose_priced(candidate: Candidate, goal: Goal) -> Iterator[Candidate]:
    """Candidates of the strategies for the price of a goal, one going on where another ended."""
    for strategy in strategies_for(goal, is_priced=True):
        for made in strategy.propose(candidate, goal):
            candidate = made
            yield made


def strategies_for(goal: Goal, *, is_priced: bool) -> list[Strategy]:
    return [one for one in STRATEGIES if isinstance(goal, one.goals) and one.is_priced == is_priced]
