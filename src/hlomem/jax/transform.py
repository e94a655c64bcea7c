"""The pass itself: a scheduled module in, the same in a better order out, or nothing.

In: bytes of an `HloModuleProto`, from any thread of the compiler. Out: other bytes, or None where
XLA's order stays: the program is small or too large, no order is better, or anything at all went
wrong. No exception leaves it. The same module gets the same answer, from memory the second time,
from JAX's cache on disk in another process.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.api.improve import Rules, improve_stages
from hlomem.api.recompute import choose_cheapest, recompute_program
from hlomem.hlo.barriers import has_barriers, without_barriers
from hlomem.hlo.schedule import running_computations
from hlomem.jax.kept_answers import Answer
from hlomem.jax.log import Outcome, logger, record
from hlomem.jax.module_proto import text_of, with_orders
from hlomem.jax.proven_fits import prove_fit, write_recomputed
from hlomem.jax.proven_moves import prove_moves
from hlomem.jax.proven_orders import prove_orders
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.origins import find_origins
from hlomem.schedule.planned_orders import temporary_bytes
from hlomem.schedule.waiting import model_time, module_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.api.improve import BetterOrder
    from hlomem.api.recompute import Recomputed
    from hlomem.jax.kept_answers import AnswerStore
    from hlomem.machines.options import Options
    from hlomem.schedule.search import Orders

MAX_REMEMBERED = 256
"""Modules whose answers are kept."""
MAX_REJECTED = 3
"""Programs with values computed again that judges are asked about."""
UNNAMED = "a module"


class Limits(NamedTuple):
    """Bounds on the programs that are looked at."""

    min_bytes: int
    """Temporaries below which a program is not worth it."""
    max_instructions: int
    """Instructions, outside fusions, above which the search would take long."""
    fit: int | None = None
    """Bytes that all allocations of a program may take together; values are computed again where
    an order is not enough. None where no number was named."""
    offload: bool = True
    """Whether values may wait in the host's memory where computing them again is not enough."""
    keeps_donations: bool = True
    """Whether the compiler keeps what is donated of a module that is handed back; where it does
    not, a module with donated arguments is left alone."""


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
        """`plan` asks the compiler itself what a module needs, where that cannot be foreseen.

        `foresees_orders` says that it can be for orders, and need not be asked then. `store` keeps
        answers for other processes.
        """
        self._platform = platform
        self._options = options
        self._rules = rules
        self._limits = limits
        self._plan = plan
        self._foresees_orders = foresees_orders or plan is None
        self._store = store
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        self._lock = Lock()

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
        made = Answer(*self._transform(proto))
        if self._store is not None:
            self._store.keep(proto, made)
        return made

    def _transform(self, proto: bytes) -> tuple[bytes | None, Outcome]:
        start = time.thread_time()
        module = hlo.parse(text_of(proto))
        outcome = Outcome(module.name, self._platform, "skipped")
        if not module.is_scheduled:
            return None, outcome._replace(kind="failed", reason="the module has no schedule")
        if module.input_output_alias and not self._limits.keeps_donations:
            reason = "this jax would lose that its arguments are donated; jax 0.11 keeps it"
            return None, outcome._replace(kind="kept", reason=reason)
        count = sum(len(computation.instructions) for computation in running_computations(module))
        if count > self._limits.max_instructions:
            return None, outcome._replace(reason=f"{count} instructions")
        stages = start_stages(module, self._options, order_lists=in_text_order)
        before = temporary_bytes(stages)
        if before < self._limits.min_bytes:
            return None, outcome._replace(before=before, after=before, reason="small")
        found = improve_stages(module.name, stages, self._rules)
        if self._foresees_orders:
            orders, outcome = found.orders, _forecast(outcome, found)
        else:
            orders, outcome = self._prove(proto, found, outcome)
        answer: bytes | None = None
        if orders:
            answer = with_orders(proto, orders)
            ratio = model_time(stages, orders).ratio
            outcome = outcome._replace(kind="improved", time_ratio=ratio)
        else:
            outcome = outcome._replace(kind="kept")
        if self._limits.fit is not None:
            found = found._replace(orders=orders)
            better, outcome = self._try_to_fit(proto, found, outcome, self._limits.fit)
            answer = better or answer
        return answer, outcome._replace(seconds=time.thread_time() - start)

    def _try_to_fit(
        self, proto: bytes, found: BetterOrder, outcome: Outcome, limit: int
    ) -> tuple[bytes | None, Outcome]:
        """Fit a program; whatever goes wrong leaves the order that was found."""
        fit = self._fit if self._plan is None else self._prove_fit
        try:
            return fit(proto, found, outcome, limit)
        except Exception as error:  # noqa: BLE001 - the order is right without it
            reason = f"nothing was computed again: {type(error).__name__}: {error}"
            reason = reason.partition("\n")[0]
            logger.warning("%s: %s", outcome.program, reason)
            return None, _noted(outcome._replace(total=found.total, limit=limit), reason)

    def _fit(
        self, proto: bytes, found: BetterOrder, outcome: Outcome, limit: int
    ) -> tuple[bytes | None, Outcome]:
        """Compute values again if the program is larger than a number even in the order found."""
        total = found.total
        outcome = outcome._replace(total=total, limit=limit)
        if total <= limit:
            return None, outcome
        points = recompute_program(found, limit, self._rules)
        for _ in range(MAX_REJECTED):
            made = choose_cheapest(points, limit)
            if made is None or made.total >= total:
                break
            answer, problems = write_recomputed(proto, made, found, self._rules)
            if not problems:
                outcome = outcome._replace(after=made.temporaries, total=made.total)
                return answer, _recomputed(outcome, found, answer, made)
            outcome = _noted(outcome, f"values computed again were rejected: {problems[0]}")
            points = [point for point in points if point.changes != made.changes]
        return None, outcome

    def _prove_fit(
        self, proto: bytes, found: BetterOrder, outcome: Outcome, limit: int
    ) -> tuple[bytes | None, Outcome]:
        """The same where the compiler itself says what a program needs."""
        assert self._plan is not None
        rest = found.stages.assignment.total_bytes - temporary_bytes(found.stages)
        outcome = outcome._replace(total=rest + outcome.after, limit=limit)
        if outcome.total <= limit:
            return None, outcome
        proven = prove_fit(proto, found, limit, self._rules, self._plan, outcome.after)
        outcome = _noted(outcome, f"{proven.tried} programs tried", *proven.problems)
        if proven.answer is not None and proven.made is not None:
            outcome = outcome._replace(after=proven.temporaries, total=rest + proven.temporaries)
            outcome = _recomputed(outcome, found, proven.answer, proven.made)
        if not outcome.missing or not self._limits.offload:
            return proven.answer, outcome
        given = proven.answer or (with_orders(proto, found.orders) if found.orders else proto)
        moved, outcome = self._offload(given, outcome, limit - rest)
        return moved or proven.answer, outcome

    def _offload(self, proto: bytes, outcome: Outcome, room: int) -> tuple[bytes | None, Outcome]:
        """Let values wait in the host's memory, as the compiler itself plans it."""
        assert self._plan is not None
        proven = prove_moves(proto, self._options, room, self._rules, self._plan, outcome.after)
        notes = [f"{proven.tried} programs with values on the host tried"] if proven.tried else []
        outcome = _noted(outcome, *notes, *proven.problems)
        if proven.answer is None:
            return None, outcome
        return proven.answer, outcome._replace(
            kind="improved",
            total=outcome.total - outcome.after + proven.temporaries,
            after=proven.temporaries,
            moves=len(proven.moves),
            moved_bytes=sum(move.size for move in proven.moves),
            time_ratio=outcome.time_ratio * proven.time_ratio,
        )

    def _prove(self, proto: bytes, found: BetterOrder, outcome: Outcome) -> tuple[Orders, Outcome]:
        """The order the compiler itself was seen to need least for."""
        assert self._plan is not None
        proven = prove_orders(proto, found, self._rules, self._plan)
        notes = [f"{proven.tried} orders tried", *proven.problems[:1], *proven.objections]
        return proven.orders, outcome._replace(
            before=proven.before, after=proven.after, reason="; ".join(notes)
        )


def _noted(outcome: Outcome, *notes: str) -> Outcome:
    return outcome._replace(reason="; ".join(filter(None, (outcome.reason, *notes))))


def _recomputed(outcome: Outcome, found: BetterOrder, answer: bytes, made: Recomputed) -> Outcome:
    """The outcome with values computed again, and what that costs."""
    module = hlo.parse(text_of(answer))
    time_before = model_time(found.stages, {}).before
    time_after = module_time(module, found.stages.options.machine)
    return outcome._replace(
        kind="improved",
        clones=made.clones,
        stacks=made.stacks,
        flops=made.flops,
        program_flops=made.program_flops,
        again=find_origins(module),
        time_ratio=time_after / time_before if time_before else 1.0,
    )


def _forecast(outcome: Outcome, found: BetterOrder) -> Outcome:
    """The outcome as the compiler is going to report it; barriers are gone by then."""
    report = found.report
    before, after = report.before, report.after
    if has_barriers(found.stages.module):
        before = _without_barriers(found._replace(orders={}))
        after = _without_barriers(found) if found.orders else before
    return outcome._replace(
        before=before,
        after=after,
        bound=report.bound,
        verdict=report.verdict,
        reason="; ".join(report.notes),
    )


def _without_barriers(found: BetterOrder) -> int:
    module = without_barriers(hlo.parse(found.text()))
    return temporary_bytes(start_stages(module, found.stages.options, order_lists=in_text_order))
