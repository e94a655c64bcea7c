"""The loop of the optimiser: propose, write, read back, check, plan, keep.

Strategies propose (`strategies.py`); the compiler writes and reads back a candidate, and plans it
where hlomem's own plan is not its plan. What checkers reject is not returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem import hlo
from hlomem.base.errors import EditError
from hlomem.base.gc_pause import collector_off
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.dump.eras import NEWEST
from hlomem.dump.parts import Part, Wrapping
from hlomem.hlo.text.printer import format_module
from hlomem.opt.candidate import (
    Program,
    Written,
    choose_cheapest,
    edit_of,
    room_for,
    start_text,
    with_schedule,
)
from hlomem.opt.checks import Allowed, Change, find_problems
from hlomem.opt.constants import MAX_INSIDE_STARTS, MAX_NEARLY, MAX_REJECTED, NEAR, NEARLY
from hlomem.opt.goal import FITS_SHARE, Budget, Effort, Front, Goal, Order, Pieces, WorkLeft
from hlomem.opt.loops.change import has_pairs
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.inside import lower_inside
from hlomem.opt.strategies import (
    drop_copies_in_order,
    prepared,
    propose,
    propose_priced,
    reordered,
    strategies_for,
)
from hlomem.write.build import build_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.opt.candidate import Candidate
    from hlomem.pipeline import Stages

REJECTED = "recomputation was found and rejected"
REJECTED_ORDER = "an order was found and rejected"


class Compiler(NamedTuple):
    """The compiler that takes a program back."""

    write: Callable[[Candidate], bytes]
    read: Callable[[bytes], HloModule]
    plan: Callable[[bytes], int] | None = None
    """Bytes of temporaries that it plans, where hlomem's own plan is not the same."""


OURS = Compiler(
    write=lambda candidate: format_module(candidate.module).encode(),
    read=lambda data: hlo.parse(data.decode()),
)


# Write, read back, check.


def write(candidate: Candidate, compiler: Compiler = OURS) -> tuple[Candidate, list[str]]:
    """The candidate as its compiler reads it, and the problems that checkers see in that."""
    try:
        data = compiler.write(candidate)
    except EditError as error:  # as of a type that new constants are not written of
        return candidate, [str(error)]
    module = compiler.read(data)
    given, allowed = candidate.given, _allowed(candidate)
    *before, last = (*candidate.changes, Change(module, "clones"))
    if candidate.moves:
        before, last = [], Change(module, "offload")
    problems = find_problems(given.stages.module, (*before, last), allowed)
    if not problems and given.rules.exact:
        problems = replace(candidate, written=Written(data, module)).rounding_problems()
    stages = start_text(module, candidate.options)
    if not problems and (size := temporary_bytes(stages)) != candidate.temporaries:
        problems = [f"it is planned in {size} bytes, not {candidate.temporaries}"]
    problems = problems or _new_findings(stages, given.stages)
    return replace(candidate, written=Written(data, module)), problems


def find_order_problems(candidate: Candidate) -> list[str]:
    """Problems of an order, then of its plan, unless the program was rebuilt from a dump."""
    if not candidate.orders:
        return []
    stages = candidate.given.stages
    try:
        given, module = with_schedule(stages, {}), candidate.module
    except EditError as error:
        return [str(error)]
    problems = find_problems(given, [Change(module, "order")], _allowed(candidate))
    if problems or candidate.given.is_rebuilt:
        return problems
    return new_findings(module, given, stages.options)


def _allowed(candidate: Candidate) -> Allowed:
    return candidate.given.rules.allowed(candidate.options.machine.host_color)


def new_findings(new: HloModule, given: HloModule, options: Options) -> list[str]:
    """Findings of the verifier in the plan of one module that the plan of another does not have."""
    return _new_findings(start_text(new, options), start_text(given, options))


def _new_findings(new: Stages, given: Stages) -> list[str]:
    found = _findings(new)
    known = _findings(given) if found else {}
    return [message for rule, message in found.items() if rule not in known]


def _findings(stages: Stages) -> dict[str, str]:
    """Findings of the verifier in a plan, one for each rule."""
    contents = build_contents(stages, NEWEST.features)
    part = Part("plan", "combined", contents, NEWEST.features, Wrapping())
    dump = Dump("plan", (part,), (NEWEST,))
    verdict = verify(dump, module=stages.module, machine=stages.options.machine)
    return {finding.rule: finding.message for finding in verdict.findings}


# An order.


def find_order(
    program: Program, effort: Effort | None = None, *, is_checked: bool = True
) -> Candidate:
    """The program in the best order that is found, if checkers accept it; else as given."""
    [found] = propose(program.start(), Order(effort or program.rules.effort))
    problems = find_order_problems(found) if is_checked else []
    if not problems:
        return found
    return without_order(found, f"{REJECTED_ORDER}: {problems[0]}")


def without_order(found: Candidate, note: str) -> Candidate:
    """The given program, with what is known of its orders."""
    order = found.order
    if order is not None:
        kept = tuple(one._replace(peak=one.given_peak, is_proven=False) for one in order.found)
        order = order._replace(orders={}, after=order.before, method="as given", found=kept)
    return replace(found.given.start(), order=order, notes=(*found.notes, note))


# What is cheap, what fits.


def find_accepted(
    start: Candidate,
    goal: Goal,
    compiler: Compiler = OURS,
    proposed: Iterable[Candidate] | None = None,
) -> tuple[Candidate | None, list[str]]:
    """The first candidate for a goal that checkers accept; those rejected before it are noted.

    `proposed` are the candidates, where they were asked for before.
    """
    notes: list[str] = []
    for made in propose(start, goal) if proposed is None else proposed:
        accepted, problems = settle([made], compiler)
        if accepted is not None:
            return accepted, notes
        notes += problems
    return None, notes


def find_fits(start: Candidate, limit: int, share: float = FITS_SHARE) -> list[Candidate]:
    """Programs that need less, each planned, as they were found, for a part of the work."""
    with collector_off():
        return list(_Fits(start, limit, share).run())


def settle(
    candidates: Sequence[Candidate],
    compiler: Compiler = OURS,
    limit: int = 0,
    *,
    below: float | None = None,
    tries: int = MAX_REJECTED,
) -> tuple[Candidate | None, list[str]]:
    """The cheapest that fits a limit, else the smallest below a size, that checkers accept."""
    notes: list[str] = []
    for _ in range(tries):
        made = choose_cheapest(candidates, limit)
        if made is None or (below is not None and made.total >= below):
            break
        written, problems = write(made, compiler)
        if not problems:
            return written, notes
        notes.append(f"{REJECTED}: {problems[0]}")
        candidates = [one for one in candidates if one.changes != made.changes]
    return None, notes


class _Fits:
    """Candidates for a budget: single values, then changed loops and cuts for rising prices."""

    def __init__(self, start: Candidate, limit: int, share: float) -> None:
        self._start = start
        self._clock = start.given.clock
        self._clock.start(share)
        self._goal = Budget(limit, work=WorkLeft(start.given.rules.effort, self._clock))
        self._bodies_left = MAX_INSIDE_STARTS
        self._waiting: list[Candidate] = []
        """Changed for one price, and near enough for single values."""
        self._cheapest: int | None = None
        """The price of the cheapest that fits."""
        self._is_cheap = False
        self._has_pieces = start.given.rules.exact
        self._near: dict[tuple[int, int], Candidate] = {}
        """By operations and bytes: programs that nearly fit."""
        self._changes: list[Candidate] = []
        """Programs with changed loops; of what is near single values were recomputed."""

    def run(self) -> Iterator[Candidate]:
        """The program itself, then changed for rising prices, until that costs too much."""
        given = self._start
        for made in prepared(self._start):
            self._start = made
            yield self._note(made)
        for lighter in drop_copies_in_order(given, or_equal=True):
            yield self._note(lighter)
            self._start = lighter
        if self._cheapest is None and self._is_floored():
            yield from self._in_pieces()
            if self._cheapest is None and self._is_floored():
                return
        if self._cheapest is None:
            start = self._start
            for lower in self._inside(start):
                start = lower
                yield self._note(start)
            later = self._put_aside()
            if has_pairs(self._start.plan):
                yield from self._changed()
                if self._changes and self._cheapest is None:
                    yield from self._single(min(self._changes, key=lambda one: one.temporaries))
                self._goal = self._goal._replace(work=later)
                yield from self._single(start)
            else:
                yield from self._single(start)
                yield from self._changed()
        if given is not self._start and self._cheapest is None:
            self._goal = self._goal._replace(work=WorkLeft(given.given.rules.effort, self._clock))
            yield from self._single(given)
        if given.orders and self._cheapest is None:
            yield from self._single(given.given.start())
        near = sorted(self._near) if self._cheapest is None else []
        for key in near[:MAX_NEARLY]:
            if self._cheapest is not None or self._clock.is_over:
                break
            yield self._note(reordered(self._near[key], self._start.given.rules.effort))
        if not self._has_pieces and self._is_worth_pieces(given):
            self._start = given
            yield from self._in_pieces()

    def _is_worth_pieces(self, given: Candidate) -> bool:
        """Whether nothing fits, or costs a time that pieces may cost less of."""
        return self._cheapest is None or (given.has_clock and not self._is_cheap)

    def _is_floored(self) -> bool:
        """Whether nothing that is recomputed makes it fit; what was prepared needs no more."""
        stages = self._start.given.stages, self._start.plan
        return all(find_floor(one).size > room_for(one, self._goal.limit) for one in stages)

    def _in_pieces(self) -> Iterator[Candidate]:
        """Regions at the peak computed in pieces; what follows begins with the last program."""
        self._has_pieces = True
        for made in propose(self._start, Pieces(self._goal.limit)):
            if self._is_dear(made):
                return
            self._start = made
            yield self._note(made)
        start = reordered(self._start)
        if start is not self._start:
            self._start = start
            yield self._note(start)

    def _put_aside(self) -> WorkLeft | None:
        """The work for single values: half of it, where there are loops to be changed."""
        work = self._goal.work
        assert work is not None
        return work.put_aside() if has_pairs(self._start.plan) else work

    def _changed(self) -> Iterator[Candidate]:
        seen: set[tuple[int, int]] = set()
        prices = self._start.prices
        if has_pairs(self._start.plan):  # whether it fits at all, then for less
            prices = (prices[-1], *prices[:-1])
        for price in prices:
            last, goal = self._start, self._goal._replace(price=price)
            self._waiting.clear()
            for strategy in strategies_for(goal, is_priced=True):
                if self._clock.is_over:
                    return
                if strategy.until_fits and self._cheapest is not None:
                    continue
                for made in strategy.propose(last, goal):
                    if self._is_dear(made):
                        return
                    last = made
                    if (made.flops, made.total) not in seen:  # else the same for another price
                        seen.add((made.flops, made.total))
                        yield self._note(made)
                        yield from self._refined(made)
            for near in self._waiting:
                if not self._is_dear(near):
                    yield from self._single(near, WorkLeft("low", self._clock))

    def _refined(self, made: Candidate) -> Iterator[Candidate]:
        """A change in an order of its own; where it is near, single values are for later."""
        if self._is_dear(made) or self._clock.is_over:
            return
        start = reordered(made)
        if start is not made:
            yield self._note(start)
        for lower in self._inside(start):
            start = lower
            yield self._note(start)
        self._changes.append(start)
        room = room_for(start.plan, self._goal.limit)
        if start.temporaries <= NEAR * room:
            self._waiting.append(start)

    def _inside(self, start: Candidate) -> Iterator[Candidate]:
        """Values of the hungriest bodies made again, where it is a loop that is too large."""
        work = self._goal.work
        assert work is not None
        if start.total > self._goal.limit and self._bodies_left > 0:
            self._bodies_left -= 1
            yield from map(reordered, lower_inside(start, self._goal.limit, work))

    def _single(self, start: Candidate, work: WorkLeft | None = None) -> Iterator[Candidate]:
        most = self._cheapest
        if most is not None:
            most -= start.price
        goal = self._goal._replace(max_price=most, work=work or self._goal.work)
        for made in propose(start, goal):
            yield self._note(made)

    def _is_dear(self, made: Candidate) -> bool:
        return self._cheapest is not None and made.price >= self._cheapest

    def _note(self, made: Candidate) -> Candidate:
        if made.total <= self._goal.limit:
            known = self._cheapest
            self._cheapest = made.price if known is None else min(made.price, known)
            self._is_cheap |= made.is_cheap
        if made.edit is None:
            made = replace(made, edit=edit_of(made.plan))
        made = replace(made, stages=None, foreseen_time=made.time if made.has_clock else None)
        if made.temporaries <= NEARLY * (made.temporaries + self._goal.limit - made.total):
            self._near.setdefault((made.flops, made.temporaries), made)
        return made


# Memory against operations.


def find_front(start: Candidate, compiler: Compiler = OURS) -> list[Candidate]:
    """The program, in its order and changed for all prices, the cheapest first, as accepted."""
    given = start.given.start()
    with collector_off():
        changed = [one for price in start.prices for one in propose_priced(start, Front(price))]
        changed = [*drop_copies_in_order(start), *map(reordered, changed)]
    found = [given, *([start] if start.orders else []), *changed]
    kept: list[Candidate] = []
    for one in sorted(found, key=_size):
        is_on = all(one.temporaries < other.temporaries for other in kept)
        if is_on and find_problems(given.given.stages.module, one.changes, _allowed(one)):
            continue
        is_seen = any(_size(other) == _size(one) for other in kept)
        if not one.changes or (is_on if compiler.plan is not None else not is_seen):
            kept.append(one)
    return kept


def _size(candidate: Candidate) -> tuple[int, int]:
    return candidate.flops, candidate.temporaries
