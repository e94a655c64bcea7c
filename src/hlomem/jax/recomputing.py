"""Answers with values computed again: until a program fits a number, or where it is almost free.

In: a module as a compiler handed it over, the order that was found for it, and the answer with that
order. Out: an `Answer`: the module with values computed again, if that needs less and no judge
objects to what was written, read back from its bytes; else the answer as it was, with a note. Where
a number is not met by that, values wait in the host's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.hlo.barriers import has_barriers, without_barriers
from hlomem.jax.kept_answers import Answer
from hlomem.jax.module_proto import text_of
from hlomem.jax.proven_fits import prove_fit, write_recomputed
from hlomem.jax.proven_moves import prove_moves
from hlomem.opt.budget import choose_cheapest
from hlomem.opt.cheap_remat import find_recomputed
from hlomem.opt.orders.latency import model_time, module_time
from hlomem.opt.orders.planned_orders import needed_bytes, temporary_bytes
from hlomem.opt.remat.origins import find_origins
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.opt.budget import Recomputed
    from hlomem.opt.order_search import BetterOrder, Rules
    from hlomem.pipeline import Stages

MAX_REJECTED = 3
"""Programs with values computed again that judges are asked about."""
_REJECTED = "values computed again were rejected"


def recompute_freely(proto: bytes, found: BetterOrder, answer: Answer, rules: Rules) -> Answer:
    """Compute again what is almost free, by the share that the rules name."""
    made = find_recomputed(found, rules)
    if made is None:
        return answer
    written, problems = write_recomputed(proto, made, found, rules)
    if problems:
        return noted(answer, f"{_REJECTED}: {problems[0]}")
    return _with_values(answer, written, found, made)


def fit(
    proto: bytes,
    found: BetterOrder,
    answer: Answer,
    rules: Rules,
    limit: int,
    points: Sequence[Recomputed],
) -> Answer:
    """The program with values computed again that fits a number for least, else the smallest.

    `points` are those that were found for the number.
    """
    for _ in range(MAX_REJECTED):
        made = choose_cheapest(points, limit)
        if made is None or made.total >= answer.outcome.total:
            break
        written, problems = write_recomputed(proto, made, found, rules)
        if not problems:
            return _with_values(answer, written, found, made)
        answer = noted(answer, f"{_REJECTED}: {problems[0]}")
        points = [point for point in points if point.changes != made.changes]
    return answer


def fit_by_trying(
    proto: bytes,
    found: BetterOrder,
    answer: Answer,
    rules: Rules,
    limit: int,
    plan: Callable[[bytes], int],
) -> Answer:
    """The same where the compiler itself says what a program needs."""
    needed = answer.outcome.after
    proven = prove_fit(proto, found, limit, rules, plan, needed)
    answer = noted(answer, f"{proven.tried} programs tried", *proven.problems)
    if proven.answer is None or proven.made is None:
        return answer
    changed = _with_values(answer, proven.answer, found, proven.made)
    total = answer.outcome.total - needed + proven.temporaries
    outcome = changed.outcome._replace(after=proven.temporaries, total=total)
    return changed._replace(outcome=outcome)


def offload(
    proto: bytes,
    starts: Sequence[Answer],
    options: Options,
    rules: Rules,
    plan: Callable[[bytes], int],
) -> Answer:
    """Let values wait in the host's memory until one of several answers fits, else the smallest."""
    found: list[Answer] = []
    for start in starts:
        found.append(_with_moves(proto, start, options, rules, plan))
        if not found[-1].outcome.missing:
            break
    best = min(found, key=lambda answer: answer.outcome.total)
    others = [answer.outcome.reason for answer in found if answer is not best]
    return noted(best, *(f"before: {reason}" for reason in others if reason))


def _with_moves(
    proto: bytes, answer: Answer, options: Options, rules: Rules, plan: Callable[[bytes], int]
) -> Answer:
    outcome = answer.outcome
    assert outcome.limit is not None
    room = outcome.limit - outcome.total + outcome.after
    proven = prove_moves(answer.proto or proto, options, room, rules, plan, outcome.after)
    tried = [f"{proven.tried} programs with values on the host tried"] if proven.tried else []
    answer = noted(answer, *tried, *proven.problems)
    if proven.answer is None:
        return answer
    outcome = answer.outcome._replace(
        kind="improved",
        total=outcome.total - outcome.after + proven.temporaries,
        after=proven.temporaries,
        moves=len(proven.moves),
        moved_bytes=sum(move.size for move in proven.moves),
        time_ratio=outcome.time_ratio * proven.time_ratio,
    )
    return Answer(proven.answer, outcome)


def noted(answer: Answer, *notes: str) -> Answer:
    """The answer with more to say about it."""
    reason = "; ".join(filter(None, (answer.outcome.reason, *notes)))
    return answer._replace(outcome=answer.outcome._replace(reason=reason))


def forecast(module: HloModule, options: Options) -> int:
    """Bytes of temporaries as the compiler is going to report them; barriers are gone by then."""
    return temporary_bytes(_without_barriers(module, options))


def _without_barriers(module: HloModule, options: Options) -> Stages:
    module = without_barriers(module) if has_barriers(module) else module
    return start_stages(module, options, order_lists=in_text_order)


def _with_values(answer: Answer, written: bytes, found: BetterOrder, made: Recomputed) -> Answer:
    """The module with values computed again, and the outcome that says what it costs."""
    module = hlo.parse(text_of(written))
    options = found.stages.options
    after, total = made.temporaries, made.total
    if has_barriers(module):
        stages = _without_barriers(module, options)
        after, total = temporary_bytes(stages), needed_bytes(stages)
    time = model_time(found.stages, {}).before
    outcome = answer.outcome._replace(
        kind="improved",
        after=after,
        total=total if answer.outcome.limit is not None else 0,
        clones=made.clones,
        stacks=made.stacks,
        flops=made.flops,
        program_flops=made.program_flops,
        again=find_origins(module),
        time_ratio=module_time(module, options.machine) / time if time else 1.0,
    )
    return answer._replace(proto=written, outcome=outcome)
