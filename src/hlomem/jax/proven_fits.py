"""A program that fits a number by the plan of its own compiler, found by trying.

In: a module as a compiler handed it over, the bytes it may take, and a way to let the compiler plan
it. Out: a `ProvenFit`. What a compiler does behind the hook moves its plan away from hlomem's: a
TPU's fills fast memory, a GPU's wraps instructions into fusions. So what hlomem finds is planned by
the compiler; where that misses, more is asked for, by as much as it missed. The cheapest that was
seen to fit is taken, else the smallest if it is smaller than what was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.api.improve import improve_stages
from hlomem.api.recompute import choose_cheapest, judge_edited, recompute_program
from hlomem.base.errors import HlomemError
from hlomem.jax.module_proto import text_of, with_edit, with_orders, with_text
from hlomem.jax.proven_orders import prove_orders
from hlomem.pipeline import in_text_order, start_stages
from hlomem.schedule.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.api.improve import BetterOrder, Rules
    from hlomem.api.recompute import Recomputed
    from hlomem.schedule.search import Effort

MAX_FITS: Mapping[Effort, int] = {"low": 2, "default": 4, "high": 10}
"""Programs that a compiler plans."""
NEAR = 1.4
"""How much more than the number a plan may take for other orders of the program to be tried."""
_MARGIN = 0.98
"""How much less is asked for than what a plan missed by."""


class ProvenFit(NamedTuple):
    """The outcome of trying."""

    answer: bytes | None
    """The module to hand back; None where the given one stays."""
    made: Recomputed | None
    temporaries: int
    """Bytes, as the compiler plans them."""
    tried: int
    problems: tuple[str, ...]


def write_recomputed(
    proto: bytes, made: Recomputed, found: BetterOrder, rules: Rules
) -> tuple[bytes, list[str]]:
    """The module with values computed again, and what judges have against it."""
    changed = with_text(proto, made.changes[-1].text) if made.changes else proto
    answer = with_edit(changed, made.edit)
    edited = hlo.parse(text_of(answer))
    return answer, judge_edited(found.stages, edited, made.temporaries, rules, made.changes)


def prove_fit(
    proto: bytes,
    found: BetterOrder,
    limit: int,
    rules: Rules,
    plan: Callable[[bytes], int],
    before: int,
) -> ProvenFit:
    """Try programs until one fits; `before` is what the compiler needs in the order at hand."""
    rest = found.stages.assignment.total_bytes - temporary_bytes(found.stages)
    room = max(limit - rest, 1)
    aim = rest + round(room * (found.total - rest) / max(before, 1))
    best = ProvenFit(None, None, before, 0, ())
    problems: list[str] = []
    tried = 0
    for _ in range(MAX_FITS[rules.effort]):
        made = choose_cheapest(recompute_program(found, aim, rules), aim)
        if made is None:
            break
        answer, objections = write_recomputed(proto, made, found, rules)
        if objections:
            problems.append(f"values computed again were rejected: {objections[0]}")
            break
        tried += 1
        try:
            size = plan(answer)
        except HlomemError as error:
            problems.append(str(error).partition("\n")[0])
            break
        if room < size <= NEAR * room:
            answer, size = _try_orders(answer, size, found, rules, plan)
        if size < best.temporaries:
            best = ProvenFit(answer, made, size, tried, ())
        if rest + size <= limit or made.total > aim:
            break
        aim = rest + round((aim - rest) * room / size * _MARGIN)
    return best._replace(tried=tried, problems=tuple(problems))


def _try_orders(
    answer: bytes, size: int, found: BetterOrder, rules: Rules, plan: Callable[[bytes], int]
) -> tuple[bytes, int]:
    """The program in the order that the compiler was seen to need least for."""
    module = hlo.parse(text_of(answer))
    stages = start_stages(module, found.stages.options, order_lists=in_text_order)
    ordered = improve_stages(module.name, stages, rules._replace(effort="low"))
    proven = prove_orders(answer, ordered, rules, plan, before=size)
    return (with_orders(answer, proven.orders), proven.after) if proven.orders else (answer, size)
