"""The search for an answer: an order, what is cheap to recompute, and what fits a budget."""

from __future__ import annotations

from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.jax.pass_.answer_cache import Answer
from hlomem.jax.pass_.answers import (
    as_tried,
    attempt,
    check_order,
    foreseen,
    is_worth_it,
    loses_barriers,
    noted,
    plan_without_barriers,
    with_values,
)
from hlomem.jax.pass_.compiler import compiler_of, write_candidate
from hlomem.opt.candidate import (
    Candidate,
    Program,
    choose_limit,
    find_slowdowns,
    room_for,
    start_text,
    with_schedule,
)
from hlomem.opt.constants import (
    AFTER_HOOK,
    AFTER_HOOK_SHARE,
    AIM_PRICE,
    AIM_SHARE,
    FAR,
    FAST_MEMORY,
    MAX_SLOWDOWN,
    MAX_SLOWDOWN_BY_DATA_SHEET,
    NEAR_FLOOR,
)
from hlomem.opt.goal import FIRST_SHARE, FITS_SHARE, Rules, Share
from hlomem.opt.once import once
from hlomem.opt.orders.cost import model_time
from hlomem.opt.orders.planned_orders import needed_bytes, other_bytes, temporary_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.offload import choose_moves, model_moves
from hlomem.opt.search import find_accepted, find_fits, find_order, settle
from hlomem.opt.strategies import propose
from hlomem.opt.trials import try_cheap, try_fits, try_offloads, try_orders
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hlomem.jax.pass_.limits import Limits
    from hlomem.jax.pass_.log import Outcome
    from hlomem.machines.options import Options
    from hlomem.pipeline import Stages


class AnswerSearch:
    """Answers for programs of one machine, sized by one compiler."""

    def __init__(
        self,
        options: Options,
        rules: Rules,
        limits: Limits,
        plan: Callable[[bytes], int] | None = None,
        *,
        foresees_orders: bool = False,
    ) -> None:
        """`plan` asks the compiler what a module needs, unless that is foreseen for its order."""
        self._options = options
        self._rules = rules
        self._limits = limits
        self._compiler = compiler_of(plan)
        self._is_exact = plan is None
        self._planning = self._compiler._replace(plan=plan or self._foresee)
        self._foresees_orders = foresees_orders or plan is None

    def _foresee(self, proto: bytes) -> int:
        """Bytes of temporaries, by our own plan."""
        return temporary_bytes(start_text(read_module(proto), self._options))

    def find(self, program: Program, outcome: Outcome) -> Answer:
        """The answer for a program that is worth it."""
        found = find_order(program, is_checked=False)
        before = program.start().temporaries
        limit = self._limits.budget.limit_of(other_bytes(program.stages), before)
        if self._is_exact and limit is not None:
            answer = self._fit_exactly(found, outcome, limit)
            return answer._replace(outcome=answer.outcome._replace(limit=limit))
        return self._change(found, outcome, has_budget=self._limits.is_budget)

    @property
    def _is_changed_after_hook(self) -> bool:
        return self._options.machine.changed_after_hook == "fusions"

    def _margin(self, limit: int) -> int:
        """Bytes that the compiler may need more than foreseen."""
        return min(AFTER_HOOK, limit // AFTER_HOOK_SHARE) if self._is_changed_after_hook else 0

    def _aim(self, found: Candidate, limit: int) -> int:
        """The bytes to ask for first: less, if possible, where the compiler may need more."""
        if not self._is_changed_after_hook:
            return limit
        stages = found.given.stages
        aim = limit - round(AIM_SHARE * found.given.start().temporaries)
        return aim if other_bytes(stages) + find_floor(stages).size <= aim else limit

    def _fit_exactly(self, found: Candidate, outcome: Outcome, limit: int) -> Answer:
        """The program that fits, else at least as good as without a number, and for no more."""
        margin = self._margin(limit)
        limit -= margin
        rest = other_bytes(found.given.stages)
        floor = find_floor(found.given.stages)
        answer: Answer | None = None
        is_possible, aim = rest + floor.size <= limit, self._aim(found, limit)
        is_tried = is_possible or not self._rules.exact
        room = room_for(found.plan, limit)
        is_likely = found.temporaries > FAR * room and floor.size < NEAR_FLOOR * room
        fits = self._fits_first(found, limit) if is_possible and is_likely else None
        if fits is not None and self._quick(found, fits, limit):
            answer = self._change(found, outcome, limit, fits=fits)
            if not answer.outcome.missing:
                return answer
        cheap, proposed = self._propose_cheap(found)
        foreseen = min(self._foresee_total(one) for one in (found, cheap) if one is not None)
        # Checkers are asked about what is handed on alone.
        plain = self._change(found, outcome, proposed=proposed) if foreseen <= limit else None
        total = inf if plain is None else rest + plain.outcome.after
        if is_tried and total > aim:
            answer = self._change(found, outcome, limit, below=foreseen, fits=fits)
            if not answer.outcome.missing and (
                plain is None or total > limit or _is_ahead(answer, plain, aim)
            ):
                return answer
            answer = answer if total > limit else None
        if answer is None or not is_possible or answer.outcome.total >= foreseen:
            plain = plain or self._change(found, outcome, proposed=proposed)
            total = rest + plain.outcome.after
            least = (rest + floor.size, floor.instruction) if total > limit else (0, "")
            slower = () if answer is None else answer.outcome.slower
            told = plain.outcome._replace(total=total, limit=limit, slower=slower)
            answer = Answer(plain.proto, told._replace(floor=least[0], hungriest=least[1]))
        if self._may_move and answer.outcome.missing:
            moved = self._offload(found.given.data, [answer])
            if is_worth_it(moved, answer, margin):
                return moved
            answer = answer._replace(outcome=answer.outcome._replace(reason=moved.outcome.reason))
        return answer

    def _foresee_total(self, candidate: Candidate) -> int:
        """Bytes of all allocations as the compiler is going to plan it."""
        stages = candidate.plan
        if not loses_barriers(stages.module, stages.options):
            return candidate.total
        return needed_bytes(plan_without_barriers(with_schedule(stages, {}), stages.options))

    def _change(
        self,
        found: Candidate,
        outcome: Outcome,
        limit: int | None = None,
        *,
        has_budget: bool = False,
        below: float = inf,
        proposed: Iterable[Candidate] | None = None,
        fits: list[Candidate] | None = None,
    ) -> Answer:
        """The program in the order found, and with values recomputed, some as proposed before.

        What misses the limit must take less than `below` bytes to be worth checking.
        """
        found, ordered = self._reorder(found, outcome)
        if has_budget:
            limit = self._limits.budget.limit_of(
                other_bytes(found.given.stages), ordered.outcome.before
            )
        answer = self._recompute(found, ordered, limit, below, proposed, fits)
        # Else checkers were asked about all of it.
        return check_order(found, answer) if answer.proto is ordered.proto else answer

    def _reorder(self, found: Candidate, outcome: Outcome) -> tuple[Candidate, Answer]:
        """The program in the order that is handed on; checkers are asked later."""
        if self._foresees_orders:
            outcome = foreseen(outcome, found)
        else:
            tried = try_orders(found, self._compiler)
            found = tried.best or found.given.start()
            notes = [f"{tried.tried} orders tried", *tried.problems[:1], *tried.rejections]
            outcome = outcome._replace(
                before=tried.before, after=tried.after, reason="; ".join(notes)
            )
        outcome = outcome._replace(kind="kept", ordered=outcome.after)
        if not found.orders:
            return found, Answer(None, outcome)
        ratio = model_time(found.given.stages, found.orders).ratio
        outcome = outcome._replace(kind="improved", time_ratio=ratio)
        written = once(found, "written", lambda: write_candidate(found))
        return found, Answer(written, outcome)

    def _propose_cheap(self, found: Candidate) -> tuple[Candidate | None, Iterable[Candidate]]:
        """The first program with cheap values recomputed, and all of them, to be asked for once."""
        goal = Share(self._rules.recompute)
        proposals = propose(found, goal)
        try:
            first = next(proposals, None)
        except Exception:  # noqa: BLE001 - it fails again in `_attempt`, which tells it
            return None, propose(found, goal)
        return first, chain(() if first is None else (first,), proposals)

    def _recompute(
        self,
        found: Candidate,
        answer: Answer,
        limit: int | None,
        below: float = inf,
        proposed: Iterable[Candidate] | None = None,
        fits: list[Candidate] | None = None,
    ) -> Answer:
        """Fit the memory budget, if any; else recompute what is almost free."""
        if limit is not None:
            tried = other_bytes(found.given.stages) + answer.outcome.after
            total = found.total if self._is_exact else tried
            answer = answer._replace(outcome=answer.outcome._replace(total=total, limit=limit))
            if not self._is_exact:
                return self._fit_by_trying(found, answer, limit)
            if total > self._aim(found, limit):
                change = partial(self._fit, found, answer, limit, below, fits)
                return self._with_floor(attempt(change, answer), found.given.stages)
        return attempt(partial(self._cheapen, found, answer, proposed), answer)

    def _with_floor(self, answer: Answer, stages: Stages, elsewhere: int = 0) -> Answer:
        """The answer with the least that the program can take, if it takes too much.

        So many bytes may be elsewhere, in fast memory.
        """
        if not answer.outcome.missing:
            return answer
        if answer.outcome.pieces and answer.proto is not None:  # it is another's by now
            stages = start_text(read_module(answer.proto), self._options)
        floor = find_floor(stages)
        least = other_bytes(stages) + max(floor.size - elsewhere, 0)
        outcome = answer.outcome._replace(floor=least, hungriest=floor.instruction)
        return answer._replace(outcome=outcome)

    def _cheapen(
        self, found: Candidate, answer: Answer, proposed: Iterable[Candidate] | None = None
    ) -> Answer:
        """Recompute what is almost free, up to the share that the rules name."""
        if not self._foresees_orders:
            return self._cheapen_by_trying(found, answer)
        goal = Share(self._rules.recompute)
        made, notes = find_accepted(found, goal, self._compiler, proposed)
        if made is None and notes and not self._rules.exact:  # never worse than exactly
            rules = self._rules._replace(exact=True)
            exactly = replace(found, given=replace(found.given, rules=rules))
            made, more = find_accepted(exactly, goal, self._compiler)
            notes += more
        return noted(answer, *notes) if made is None else with_values(answer, made)

    def _cheapen_by_trying(self, found: Candidate, answer: Answer) -> Answer:
        """The same where the compiler itself says what a program needs."""
        share, before = self._rules.recompute, answer.outcome.after
        tried = try_cheap(found, share, self._compiler, before)
        notes = [f"{tried.tried} with cheap values recomputed"] if tried.tried else []
        answer = noted(answer, *notes, *tried.problems)
        return answer if tried.best is None else as_tried(answer, tried.best, tried.after)

    def _fit(
        self,
        found: Candidate,
        answer: Answer,
        limit: int,
        below: float,
        fits: list[Candidate] | None,
    ) -> Answer:
        """The fastest that fits, else the smallest, of those that do not take too long."""
        fits = quick = self._find_fits(found, limit) if fits is None else fits
        most, is_missed = self._most(found), all(one.total > limit for one in fits)
        if most < inf:
            quick = [one for one in fits if one.slowdown <= most]
        elif is_missed:
            most_flops = (MAX_SLOWDOWN - 1) * found.given.flops
            quick = [one for one in fits if one.flops <= most_flops]
        if is_missed and find_floor(found.given.stages).size > room_for(found.plan, limit):
            return answer  # nothing is paid for a number that cannot be met
        below = min(answer.outcome.total, below)
        number = choose_limit(quick, self._aim(found, limit), limit)
        made, notes = settle(quick, self._compiler, number, below=below)
        answer = noted(answer, *notes)
        answer = answer if made is None else with_values(answer, made)
        if answer.outcome.missing and len(quick) < len(fits):
            told = fits if found.has_clock else [min(fits, key=lambda one: one.total)]
            front = find_slowdowns(told, min(answer.outcome.total, below))
            answer = answer._replace(outcome=answer.outcome._replace(slower=front))
        return answer

    def _fits_first(self, found: Candidate, limit: int) -> list[Candidate] | None:
        """Programs found for a number before it is known what is cheap; None where that fails."""
        try:
            return self._find_fits(found, limit, FIRST_SHARE)
        except Exception:  # noqa: BLE001 - it fails again in `_fit`, where it is told
            return None

    def _quick(self, found: Candidate, fits: Sequence[Candidate], limit: int) -> bool:
        """Whether any fits that does not take too long."""
        most = self._most(found)
        return any(one.total <= limit and one.slowdown <= most for one in fits)

    def _find_fits(
        self, found: Candidate, limit: int, share: float = FITS_SHARE
    ) -> list[Candidate]:
        """Programs found for the aim, and for the number where none of those will do."""
        aim = self._aim(found, limit)
        fits = find_fits(found, aim, share)
        if aim == limit or self._quick(found, fits, aim):
            return fits
        return [*fits, *find_fits(found, limit, share)]

    @property
    def _may_move(self) -> bool:
        return self._limits.offload and self._options.machine.host_color is not None

    def _most(self, found: Candidate) -> float:
        """How many times as long a program may take."""
        if self._limits.max_slowdown is not None:
            return self._limits.max_slowdown
        if found.has_measured_clock:
            return MAX_SLOWDOWN
        return MAX_SLOWDOWN_BY_DATA_SHEET if found.has_clock else inf

    def _fit_by_trying(self, found: Candidate, ordered: Answer, limit: int) -> Answer:
        """The same where the compiler itself says what a program needs, after what is cheap.

        At last with values on the host; nothing is paid for a number that cannot be met.
        """
        answer = attempt(partial(self._cheapen, found, ordered), ordered)
        if answer.proto is ordered.proto:
            answer = check_order(found, answer)
        least = self._with_floor(answer, found.given.stages, FAST_MEMORY)
        if least.outcome.floor > limit or not answer.outcome.missing:
            return least
        fitted = attempt(partial(self._try_fits, found, ordered, answer, limit), answer)
        if self._may_move and fitted.outcome.missing:
            starts = list(dict.fromkeys((fitted, answer)))
            moved = attempt(partial(self._offload, found.given.data, starts), fitted)
            fitted = moved if is_worth_it(moved, fitted) else fitted
        return self._with_floor(fitted, found.given.stages, FAST_MEMORY)

    def _try_fits(self, found: Candidate, ordered: Answer, answer: Answer, limit: int) -> Answer:
        """The answer, or a program that fits, or comes nearer, and does not take too long."""
        before, most = ordered.outcome.after, self._most(found)
        tried = try_fits(found, limit, self._compiler, before, most)
        answer = noted(answer, f"{tried.tried} programs tried", *tried.problems)
        if tried.best is not None:
            made = as_tried(answer, tried.best, tried.after)
            answer = made if is_worth_it(made, answer) else answer
        slower = tried.slower if answer.outcome.missing else ()
        return answer._replace(outcome=answer.outcome._replace(slower=slower))

    def _offload(self, proto: bytes, starts: list[Answer]) -> Answer:
        """Let values wait in the host's memory until one of several answers fits, else the best."""
        found: list[Answer] = []
        for start in starts:
            found.append(self._with_moves(proto, start))
            if not found[-1].outcome.missing:
                break
        best = min(found, key=lambda answer: answer.outcome.total)
        others = [answer.outcome.reason for answer in found if answer is not best]
        return noted(best, *(f"before: {reason}" for reason in others if reason))

    def _with_moves(self, proto: bytes, answer: Answer) -> Answer:
        outcome = answer.outcome
        assert outcome.limit is not None
        room = outcome.limit - outcome.total + outcome.after
        proto = answer.proto or proto
        start = Program(start_text(read_module(proto), self._options), self._rules, proto).start()
        ratio = outcome.time_ratio * model_moves(start.plan, choose_moves(start.plan, room))
        if ratio > self._most(start):
            return noted(answer, f"with values on the host it would take {ratio:.2f} times as long")
        tried = try_offloads(start, room, self._planning, outcome.after)
        notes = [f"{tried.tried} programs with values on the host tried"] if tried.tried else []
        answer = noted(answer, *notes, *tried.problems)
        if tried.best is None or tried.best.written is None:
            return answer
        moves = tried.best.moves
        ratio = outcome.time_ratio * model_moves(start.plan, moves)
        if ratio > self._most(start):
            return noted(answer, f"with values on the host it would take {ratio:.2f} times as long")
        outcome = answer.outcome._replace(
            kind="improved",
            total=outcome.total - outcome.after + tried.after,
            after=tried.after,
            moves=len(moves),
            moved_bytes=sum(move.size for move in moves),
            time_ratio=ratio,
        )
        return Answer(tried.best.written.data, outcome)


def _is_ahead(answer: Answer, plain: Answer, aim: int) -> bool:
    """Whether it meets an aim for hardly more than an answer that only fits the number."""
    most = plain.outcome.time_ratio + AIM_PRICE
    return answer.outcome.total <= aim and answer.outcome.time_ratio <= most
