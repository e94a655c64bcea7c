"""The pass itself: a scheduled module in, one that needs less memory out, or None.

It runs in any thread of the compiler, and no exception leaves it. The same module gets the same
answer, from memory the second time, from JAX's cache on disk in another process.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from functools import partial
from itertools import chain
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.barriers import has_barriers, without_barriers
from hlomem.hlo.schedule import running_computations
from hlomem.jax.pass_.answer_cache import Answer, AnswerStore
from hlomem.jax.pass_.log import Outcome, logger, record
from hlomem.machines.budget import NO_BUDGET, MemoryBudget
from hlomem.opt.candidate import (
    Candidate,
    Program,
    find_slowdowns,
    room_for,
    start_text,
    with_schedule,
)
from hlomem.opt.constants import (
    AFTER_HOOK,
    AFTER_HOOK_SHARE,
    FAST_MEMORY,
    LEAST_SAVING,
    MAX_SLOWDOWN,
    MAX_SLOWDOWN_BY_DATA_SHEET,
)
from hlomem.opt.goal import Rules, Share
from hlomem.opt.once import once
from hlomem.opt.orders.cost import model_time, module_time
from hlomem.opt.orders.planned_orders import needed_bytes, other_bytes, temporary_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.offload import choose_moves, model_moves
from hlomem.opt.remat.origins import find_origins
from hlomem.opt.search import (
    REJECTED_ORDER,
    Compiler,
    find_accepted,
    find_fits,
    find_order,
    find_order_problems,
    settle,
)
from hlomem.opt.strategies import propose
from hlomem.opt.trials import try_cheap, try_fits, try_offloads, try_orders
from hlomem.proto.edit import write_module, write_orders
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.pipeline import Stages

MAX_REMEMBERED = 256
"""Modules whose answers are kept."""
UNNAMED = "a module"


def compiler_of(plan: Callable[[bytes], int] | None = None) -> Compiler:
    """The compiler that calls a hook; `plan` asks it what a module needs."""
    return Compiler(write_candidate, read_module, plan)


def write_candidate(candidate: Candidate) -> bytes:
    """A candidate as the module that was handed over, changed."""
    if candidate.changes or candidate.edit is not None:
        return write_module(candidate.module)
    return write_orders(candidate.given.stages.module, candidate.orders)


class Limits(NamedTuple):
    min_bytes: int
    """Temporaries below which a program is not worth it."""
    max_instructions: int
    """Instructions, outside fusions, above which the search would take long."""
    budget: MemoryBudget = NO_BUDGET
    """Bytes that all allocations may take, with recomputation if orders do not suffice."""
    max_slowdown: float | None = None
    """How many times as long it may take then, as modelled; None leaves it to what is known of the
    machine: where its speeds are not, any time will do."""
    offload: bool = True
    """Whether values may wait in the host's memory where recomputing them is not enough."""
    keeps_donations: bool = True
    """Whether the compiler keeps donations of a module handed back; else such are left alone."""

    @property
    def is_budget(self) -> bool:
        return self.budget != NO_BUDGET


class Transform:
    """The function a platform's compiler calls."""

    def __init__(
        self,
        platform: str,
        options: Options,
        rules: Rules,
        limits: Limits,
        plan: Callable[[bytes], int] | None = None,
        *,
        foresees_orders: bool = False,
        store: AnswerStore | None = None,
    ) -> None:
        """`plan` asks the compiler what a module needs, unless that is foreseen for its order."""
        self._platform = platform
        self._options = options
        self._rules = rules
        self._limits = limits
        self._compiler = compiler_of(plan)
        self._is_exact = plan is None
        self._planning = self._compiler._replace(plan=plan or self._foresee)
        self._foresees_orders = foresees_orders or plan is None
        self._store = store
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        self._lock = Lock()

    def _foresee(self, proto: bytes) -> int:
        """Bytes of temporaries, by our own plan."""
        return temporary_bytes(start_text(read_module(proto), self._options))

    def __call__(self, proto: bytes) -> bytes | None:
        """The module in a better order; None to leave it as it is."""
        try:
            return self._answer(bytes(proto))
        except Exception as error:  # noqa: BLE001 - an exception would end the user's compile
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            record(Outcome(UNNAMED, self._platform, "failed", reason=reason))
            return None

    def _answer(self, proto: bytes) -> bytes | None:
        fingerprint = hashlib.sha256(proto).digest()
        with self._lock:
            known = self._known.get(fingerprint)
        if known is None:
            known = self._find_or_make(proto)
            with self._lock:
                self._known[fingerprint] = known
                if len(self._known) > MAX_REMEMBERED:
                    self._known.popitem(last=False)
        record(known.outcome)
        return known.proto

    def _find_or_make(self, proto: bytes) -> Answer:
        """The answer that another process found, else one of our own."""
        found = self._store.find(proto) if self._store is not None else None
        if found is not None:
            return found
        with collector_off():  # it would look through all that JAX holds, a fifth of the time
            made = self._transform(proto)
        if self._store is not None:
            self._store.keep(proto, made)
        return made

    def _transform(self, proto: bytes) -> Answer:
        start = time.thread_time()
        module = read_module(proto)
        refusal = self._refuse(module)
        if refusal is not None:
            return Answer(None, refusal)
        program = Program(start_text(module, self._options), self._rules, proto)
        outcome = Outcome(module.name, self._platform, "skipped")
        before = program.start().temporaries
        if before < self._limits.min_bytes:
            return Answer(None, outcome._replace(before=before, after=before, reason="small"))
        found = find_order(program, is_checked=False)
        limit = self._limits.budget.limit_of(other_bytes(program.stages), before)
        if self._is_exact and limit is not None:
            answer = self._fit_exactly(found, outcome, limit)
            answer = answer._replace(outcome=answer.outcome._replace(limit=limit))
        else:
            answer = self._change(found, outcome, has_budget=self._limits.is_budget)
        seconds = time.thread_time() - start
        return answer._replace(outcome=answer.outcome._replace(seconds=seconds))

    def _margin(self, limit: int) -> int:
        """Bytes that the compiler may need more than foreseen."""
        is_changed = self._options.machine.changed_after_hook == "fusions"
        return min(AFTER_HOOK, limit // AFTER_HOOK_SHARE) if is_changed else 0

    def _fit_exactly(self, found: Candidate, outcome: Outcome, limit: int) -> Answer:
        """The program that fits, else at least as good as without a number, and for no more."""
        margin = self._margin(limit)
        limit -= margin
        rest = other_bytes(found.given.stages)
        floor = find_floor(found.given.stages)
        answer: Answer | None = None
        is_possible = rest + floor.size <= limit
        is_tried = is_possible or not self._rules.exact
        cheap, proposed = self._propose_cheap(found)
        foreseen = min(self._foresee_total(one) for one in (found, cheap) if one is not None)
        # Checkers are asked about what is handed on alone.
        plain = self._change(found, outcome, proposed=proposed) if foreseen <= limit else None
        if is_tried and (plain is None or rest + plain.outcome.after > limit):
            answer = self._change(found, outcome, limit, below=foreseen)
            if not answer.outcome.missing:
                return answer
        if answer is None or not is_possible or answer.outcome.total >= foreseen:
            plain = plain or self._change(found, outcome, proposed=proposed)
            total = rest + plain.outcome.after
            least = (rest + floor.size, floor.instruction) if total > limit else (0, "")
            slower = () if answer is None else answer.outcome.slower
            told = plain.outcome._replace(total=total, limit=limit, slower=slower)
            answer = Answer(plain.proto, told._replace(floor=least[0], hungriest=least[1]))
        if self._may_move and answer.outcome.missing:
            moved = self._offload(found.given.data, [answer])
            if _is_worth_it(moved, answer, margin):
                return moved
            answer = answer._replace(outcome=answer.outcome._replace(reason=moved.outcome.reason))
        return answer

    def _foresee_total(self, candidate: Candidate) -> int:
        """Bytes of all allocations once the compiler has dropped barriers."""
        stages = candidate.plan
        if not has_barriers(stages.module):
            return candidate.total
        return needed_bytes(_without_barriers(with_schedule(stages, {}), stages.options))

    def _change(
        self,
        found: Candidate,
        outcome: Outcome,
        limit: int | None = None,
        *,
        has_budget: bool = False,
        below: float = inf,
        proposed: Iterable[Candidate] | None = None,
    ) -> Answer:
        """The program in the order found, and with values recomputed, some as proposed before.

        What misses the limit must take less than `below` bytes to be worth checking.
        """
        found, ordered = self._reorder(found, outcome)
        if has_budget:
            limit = self._limits.budget.limit_of(
                other_bytes(found.given.stages), ordered.outcome.before
            )
        answer = self._recompute(found, ordered, limit, below, proposed)
        # Else checkers were asked about all of it.
        return _check_order(found, answer) if answer.proto is ordered.proto else answer

    def _refuse(self, module: HloModule) -> Outcome | None:
        """The outcome for a module that is not looked at; None for any other."""
        outcome = Outcome(module.name, self._platform, "skipped")
        if not module.is_scheduled:
            return outcome._replace(kind="failed", reason="the module has no schedule")
        if module.input_output_alias and not self._limits.keeps_donations:
            reason = "this jax would lose that its arguments are donated; jax 0.11 keeps it"
            return outcome._replace(kind="kept", reason=reason)
        count = sum(len(computation.instructions) for computation in running_computations(module))
        if count > self._limits.max_instructions:
            return outcome._replace(reason=f"{count} instructions")
        return None

    def _reorder(self, found: Candidate, outcome: Outcome) -> tuple[Candidate, Answer]:
        """The program in the order that is handed on; checkers are asked later."""
        if self._foresees_orders:
            outcome = _foreseen(outcome, found)
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
    ) -> Answer:
        """Fit the memory budget, if any; else recompute what is almost free."""
        if limit is not None:
            tried = other_bytes(found.given.stages) + answer.outcome.after
            total = found.total if self._is_exact else tried
            answer = answer._replace(outcome=answer.outcome._replace(total=total, limit=limit))
            if not self._is_exact:
                return self._fit_by_trying(found, answer, limit)
            if total > limit:
                change = partial(self._fit, found, answer, limit, below)
                return self._with_floor(_attempt(change, answer), found.given.stages)
        return _attempt(partial(self._cheapen, found, answer, proposed), answer)

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
        return noted(answer, *notes) if made is None else _with_values(answer, made)

    def _cheapen_by_trying(self, found: Candidate, answer: Answer) -> Answer:
        """The same where the compiler itself says what a program needs."""
        share, before = self._rules.recompute, answer.outcome.after
        tried = try_cheap(found, share, self._compiler, before)
        notes = [f"{tried.tried} with cheap values recomputed"] if tried.tried else []
        answer = noted(answer, *notes, *tried.problems)
        return answer if tried.best is None else _as_tried(answer, tried.best, tried.after)

    def _fit(self, found: Candidate, answer: Answer, limit: int, below: float) -> Answer:
        """The fastest that fits, else the smallest, of those that do not take too long."""
        fits = quick = find_fits(found, limit)
        most, is_missed = self._most(found), all(one.total > limit for one in fits)
        if most < inf:
            quick = [one for one in fits if one.slowdown <= most]
        elif is_missed:
            most_flops = (MAX_SLOWDOWN - 1) * found.given.flops
            quick = [one for one in fits if one.flops <= most_flops]
        if is_missed and find_floor(found.given.stages).size > room_for(found.plan, limit):
            return answer  # nothing is paid for a number that cannot be met
        below = min(answer.outcome.total, below)
        made, notes = settle(quick, self._compiler, limit, below=below)
        answer = noted(answer, *notes)
        answer = answer if made is None else _with_values(answer, made)
        if answer.outcome.missing and len(quick) < len(fits):
            told = fits if found.has_clock else [min(fits, key=lambda one: one.total)]
            front = find_slowdowns(told, min(answer.outcome.total, below))
            answer = answer._replace(outcome=answer.outcome._replace(slower=front))
        return answer

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
        answer = _attempt(partial(self._cheapen, found, ordered), ordered)
        if answer.proto is ordered.proto:
            answer = _check_order(found, answer)
        least = self._with_floor(answer, found.given.stages, FAST_MEMORY)
        if least.outcome.floor > limit or not answer.outcome.missing:
            return least
        fitted = _attempt(partial(self._try_fits, found, ordered, answer, limit), answer)
        if self._may_move and fitted.outcome.missing:
            starts = list(dict.fromkeys((fitted, answer)))
            moved = _attempt(partial(self._offload, found.given.data, starts), fitted)
            fitted = moved if _is_worth_it(moved, fitted) else fitted
        return self._with_floor(fitted, found.given.stages, FAST_MEMORY)

    def _try_fits(self, found: Candidate, ordered: Answer, answer: Answer, limit: int) -> Answer:
        """The answer, or a program that fits, or comes nearer, and does not take too long."""
        before, most = ordered.outcome.after, self._most(found)
        tried = try_fits(found, limit, self._compiler, before, most)
        answer = noted(answer, f"{tried.tried} programs tried", *tried.problems)
        if tried.best is not None:
            made = _as_tried(answer, tried.best, tried.after)
            answer = made if _is_worth_it(made, answer) else answer
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


def _is_worth_it(made: Answer, answer: Answer, margin: int = 0) -> bool:
    """Whether it fits, or would but for a margin, where another does not, or comes much nearer."""
    missing, was_missing = made.outcome.missing, answer.outcome.missing
    if missing <= margin < was_missing or not missing:
        return bool(was_missing)
    return made.outcome.after < (1 - LEAST_SAVING) * answer.outcome.after


def _attempt(change: Callable[[], Answer], answer: Answer) -> Answer:
    """The changed answer; whatever goes wrong leaves the one with the order that was found."""
    try:
        return change()
    except Exception as error:  # noqa: BLE001 - the order is right without it
        reason = f"nothing was recomputed: {type(error).__name__}: {error}"
        reason = reason.partition("\n")[0]
        logger.warning("%s: %s", answer.outcome.program, reason)
        return noted(answer, reason)


def _check_order(found: Candidate, answer: Answer) -> Answer:
    """The answer, if checkers accept its order; else XLA's order stays."""
    problems = once(found, "order problems", lambda: find_order_problems(found))
    if not problems:
        return answer
    said = answer.outcome
    outcome = said._replace(
        kind="kept",
        after=said.before,
        ordered=said.before,
        total=said.total + said.before - said.after if said.limit is not None else 0,
        time_ratio=1.0,
        verdict="open",
    )
    return noted(Answer(None, outcome), f"{REJECTED_ORDER}: {problems[0]}")


def noted(answer: Answer, *notes: str) -> Answer:
    """The answer with more to say about it."""
    reason = "; ".join(filter(None, (answer.outcome.reason, *notes)))
    return answer._replace(outcome=answer.outcome._replace(reason=reason))


def _foreseen(outcome: Outcome, found: Candidate) -> Outcome:
    """The outcome as the compiler is going to report it; barriers are gone by then."""
    order = found.order
    assert order is not None
    before, after = order.before, order.after
    if has_barriers(found.given.stages.module):
        before = temporary_bytes(_without_barriers(found.given.stages.module, found.options))
        after = before
        if found.orders:
            after = temporary_bytes(_without_barriers(found.module, found.options))
    return outcome._replace(before=before, after=after, bound=order.bound, verdict=order.verdict)


def _without_barriers(module: HloModule, options: Options) -> Stages:
    return start_text(without_barriers(module) if has_barriers(module) else module, options)


def _as_tried(answer: Answer, made: Candidate, after: int) -> Answer:
    """The answer with values recomputed, in the bytes that its compiler planned."""
    changed = _with_values(answer, made)
    total = made.total if answer.outcome.limit is not None else 0
    return changed._replace(outcome=changed.outcome._replace(after=after, total=total))


def _with_values(answer: Answer, made: Candidate) -> Answer:
    """The module with values recomputed, and the outcome that says what it costs."""
    written = made.written
    assert written is not None
    after, total = made.temporaries, made.total
    if has_barriers(written.module):
        stages = _without_barriers(written.module, made.options)
        after, total = temporary_bytes(stages), needed_bytes(stages)
    time = made.given.time
    outcome = answer.outcome._replace(
        kind="improved",
        after=after,
        total=total if answer.outcome.limit is not None else 0,
        clones=made.clones,
        stacks=made.stacks,
        pieces=made.pieces,
        flops=made.flops,
        program_flops=made.given.flops,
        again=find_origins(written.module),
        rounding=tuple(made.rounding_problems()),
        time_ratio=module_time(written.module, made.options.machine) / time if time else 1.0,
    )
    return answer._replace(proto=written.data, outcome=outcome)
