"""The pass itself: a scheduled module in, one that needs less memory out, or nothing.

In: bytes of an `HloModuleProto`, from any thread of the compiler. Out: other bytes, in a better
order and with values computed again where that is almost free or a number is to be met; or None
where XLA's program stays: it is small or too large, nothing is better, or anything at all went
wrong. No exception leaves it. The same module gets the same answer, from memory the second time,
from JAX's cache on disk in another process.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.hlo.barriers import has_barriers
from hlomem.hlo.schedule import running_computations
from hlomem.jax.kept_answers import Answer
from hlomem.jax.log import Outcome, logger, record
from hlomem.jax.module_proto import text_of, with_orders
from hlomem.jax.proven_orders import prove_orders
from hlomem.jax.recomputing import fit, fit_by_trying, forecast, noted, offload, recompute_freely
from hlomem.opt.budget import choose_cheapest, recompute_program
from hlomem.opt.order_search import Rules, find_objections, improve_stages
from hlomem.opt.orders.latency import model_time
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.remat.lower_bound import find_floor
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloModule
    from hlomem.jax.kept_answers import AnswerStore
    from hlomem.machines.options import Options
    from hlomem.opt.budget import Recomputed
    from hlomem.opt.order_search import BetterOrder
    from hlomem.pipeline import Stages

MAX_REMEMBERED = 256
"""Modules whose answers are kept."""
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
        made = self._transform(proto)
        if self._store is not None:
            self._store.keep(proto, made)
        return made

    def _transform(self, proto: bytes) -> Answer:
        start = time.thread_time()
        module = hlo.parse(text_of(proto))
        refusal = self._refuse(module)
        if refusal is not None:
            return Answer(None, refusal)
        stages = start_stages(module, self._options, order_lists=in_text_order)
        outcome = Outcome(module.name, self._platform, "skipped")
        before = temporary_bytes(stages)
        if before < self._limits.min_bytes:
            return Answer(None, outcome._replace(before=before, after=before, reason="small"))
        found, points = self._find_order(stages)
        found, ordered = self._reorder(proto, found, outcome)
        answer = self._compute_again(proto, found, ordered, points)
        if answer.proto is ordered.proto:  # else judges were asked about all of it
            answer = self._judge_order(found, answer)
        seconds = time.thread_time() - start
        return answer._replace(outcome=answer.outcome._replace(seconds=seconds))

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

    def _find_order(self, stages: Stages) -> tuple[BetterOrder, list[Recomputed]]:
        """The order that is handed on, and programs that fit in it, where they were looked for.

        Where no order fits the number, or next to nothing has to be computed again for that, little
        is spent on the order.
        """
        name, limit = stages.module.name, self._limits.fit
        if limit is not None:
            found = improve_stages(name, stages, self._rules._replace(effort="low"), judges=False)
            bound = found.report.bound
            if bound is not None and other_bytes(stages) + bound > limit:
                return found, []
            if found.total > limit and self._plan is None:
                points = recompute_program(found, limit, self._rules)
                made = choose_cheapest(points, limit)
                if made is not None and made.total <= limit and made.is_cheap:
                    return found, points
        return improve_stages(name, stages, self._rules, judges=False), []

    def _reorder(
        self, proto: bytes, found: BetterOrder, outcome: Outcome
    ) -> tuple[BetterOrder, Answer]:
        """The order that is handed on, and the module in it, of which judges are asked later."""
        stages = found.stages
        if self._foresees_orders:
            outcome = _foreseen(outcome, found)
        else:
            found, outcome = self._prove(proto, found, outcome)
        outcome = outcome._replace(kind="kept", ordered=outcome.after)
        if not found.orders:
            return found, Answer(None, outcome)
        ratio = model_time(stages, found.orders).ratio
        outcome = outcome._replace(kind="improved", time_ratio=ratio)
        return found, Answer(with_orders(proto, found.orders), outcome)

    def _prove(
        self, proto: bytes, found: BetterOrder, outcome: Outcome
    ) -> tuple[BetterOrder, Outcome]:
        """The order the compiler itself was seen to need least for."""
        assert self._plan is not None
        proven = prove_orders(proto, found, self._rules, self._plan)
        notes = [f"{proven.tried} orders tried", *proven.problems[:1], *proven.objections]
        return found._replace(orders=proven.orders), outcome._replace(
            before=proven.before, after=proven.after, reason="; ".join(notes)
        )

    def _judge_order(self, found: BetterOrder, answer: Answer) -> Answer:
        """The answer, if nobody objects to its order; else XLA's order stays."""
        problems = find_objections(found.stages, found.orders, self._rules) if found.orders else []
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
        return noted(Answer(None, outcome), f"an order was found and rejected: {problems[0]}")

    def _compute_again(
        self, proto: bytes, found: BetterOrder, answer: Answer, points: list[Recomputed]
    ) -> Answer:
        """Fit the number that was named, if any; else compute again what is almost free."""
        limit = self._limits.fit
        if limit is not None:
            tried = other_bytes(found.stages) + answer.outcome.after
            total = found.total if self._plan is None else tried
            outcome = answer.outcome._replace(total=total, limit=limit)
            answer = answer._replace(outcome=outcome)
            if total > limit:
                change = partial(self._fit, proto, found, answer, limit, points)
                fitted = _with_floor(_attempt(change, answer), found.stages)
                if fitted.proto is not answer.proto:
                    return fitted
                answer = fitted
        if not self._foresees_orders:
            return answer
        return _attempt(partial(recompute_freely, proto, found, answer, self._rules), answer)

    def _fit(
        self,
        proto: bytes,
        found: BetterOrder,
        answer: Answer,
        limit: int,
        points: list[Recomputed],
    ) -> Answer:
        if self._plan is None:
            points = points or recompute_program(found, limit, self._rules)
            return fit(proto, found, answer, self._rules, limit, points)
        fitted = fit_by_trying(proto, found, answer, self._rules, limit, self._plan)
        if self._limits.offload and fitted.outcome.missing:
            starts = [] if fitted.proto is answer.proto else [fitted]
            starts.append(self._judge_order(found, fitted if not starts else answer))
            fitted = offload(proto, starts, self._options, self._rules, self._plan)
        return fitted


def _attempt(change: Callable[[], Answer], answer: Answer) -> Answer:
    """The changed answer; whatever goes wrong leaves the one with the order that was found."""
    try:
        return change()
    except Exception as error:  # noqa: BLE001 - the order is right without it
        reason = f"nothing was computed again: {type(error).__name__}: {error}"
        reason = reason.partition("\n")[0]
        logger.warning("%s: %s", answer.outcome.program, reason)
        return noted(answer, reason)


def _with_floor(answer: Answer, stages: Stages) -> Answer:
    """The answer with the least that the program can take, if it takes too much."""
    if not answer.outcome.missing:
        return answer
    floor = find_floor(stages)
    least = other_bytes(stages) + floor.size
    outcome = answer.outcome._replace(floor=least, hungriest=floor.instruction)
    return answer._replace(outcome=outcome)


def _foreseen(outcome: Outcome, found: BetterOrder) -> Outcome:
    """The outcome as the compiler is going to report it."""
    report = found.report
    before, after = report.before, report.after
    if has_barriers(found.stages.module):
        options = found.stages.options
        before = forecast(found.stages.module, options)
        after = forecast(hlo.parse(found.text()), options) if found.orders else before
    return outcome._replace(
        before=before,
        after=after,
        bound=report.bound,
        verdict=report.verdict,
        reason="; ".join(report.notes),
    )
