"""Answers: what is said of a program that was found, and of how it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.barriers import has_barriers, without_barriers
from hlomem.jax.pass_.answer_cache import Answer
from hlomem.jax.pass_.log import Outcome, logger
from hlomem.opt.candidate import Candidate, start_text
from hlomem.opt.constants import LEAST_SAVING
from hlomem.opt.once import once
from hlomem.opt.orders.cost import module_time
from hlomem.opt.orders.planned_orders import needed_bytes, temporary_bytes
from hlomem.opt.remat.origins import find_origins
from hlomem.opt.search import REJECTED_ORDER, find_order_problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.pipeline import Stages


def foreseen(outcome: Outcome, found: Candidate) -> Outcome:
    """The outcome as the compiler is going to report it; barriers may be gone by then."""
    order = found.order
    assert order is not None
    before, after = order.before, order.after
    if loses_barriers(found.given.stages.module, found.options):
        before = temporary_bytes(plan_without_barriers(found.given.stages.module, found.options))
        after = before
        if found.orders:
            after = temporary_bytes(plan_without_barriers(found.module, found.options))
    return outcome._replace(before=before, after=after, bound=order.bound, verdict=order.verdict)


def check_order(found: Candidate, answer: Answer) -> Answer:
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


def with_values(answer: Answer, made: Candidate) -> Answer:
    """The module with values recomputed, and the outcome that says what it costs."""
    written = made.written
    assert written is not None
    after, total = made.temporaries, made.total
    if loses_barriers(written.module, made.options):
        stages = plan_without_barriers(written.module, made.options)
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


def as_tried(answer: Answer, made: Candidate, after: int) -> Answer:
    """The answer with values recomputed, in the bytes that its compiler planned."""
    changed = with_values(answer, made)
    total = made.total if answer.outcome.limit is not None else 0
    return changed._replace(outcome=changed.outcome._replace(after=after, total=total))


def attempt(change: Callable[[], Answer], answer: Answer) -> Answer:
    """The changed answer; whatever goes wrong leaves the one with the order that was found."""
    try:
        return change()
    except Exception as error:  # noqa: BLE001 - the order is right without it
        reason = f"nothing was recomputed: {type(error).__name__}: {error}"
        reason = reason.partition("\n")[0]
        logger.warning("%s: %s", answer.outcome.program, reason)
        return noted(answer, reason)


def is_worth_it(made: Answer, answer: Answer, margin: int = 0) -> bool:
    """Whether it fits, or would but for a margin, where another does not, or comes much nearer."""
    missing, was_missing = made.outcome.missing, answer.outcome.missing
    if missing <= margin < was_missing or not missing:
        return bool(was_missing)
    return made.outcome.after < (1 - LEAST_SAVING) * answer.outcome.after


def loses_barriers(module: HloModule, options: Options) -> bool:
    """Whether the compiler plans the module without barriers that it has."""
    return not options.plans_barriers and has_barriers(module)


def plan_without_barriers(module: HloModule, options: Options) -> Stages:
    return start_text(without_barriers(module) if has_barriers(module) else module, options)
