"""Values that wait in the host's memory until a program fits by the plan of its own compiler.

In: a module as it would be handed back, the bytes its temporaries may take, and a way to let the
compiler plan it. Out: `ProvenMoves`. What hlomem moves (`hlomem.opt.remat.offload`) is judged, then
planned by the compiler; where that misses, more is moved, by as much as it missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.hlo.text.printer import format_module
from hlomem.jax.module_proto import text_of, with_text
from hlomem.opt.checks.offload import find_move_problems
from hlomem.opt.order_search import new_findings
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.offload import choose_moves, make_moves, model_moves
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.opt.order_search import Rules
    from hlomem.opt.orders.search import Effort
    from hlomem.opt.remat.offload import Move
    from hlomem.pipeline import Stages

MAX_TRIED: Mapping[Effort, int] = {"low": 2, "default": 4, "high": 10}
"""Programs that a compiler plans."""
MAX_PLANNED = 12
"""Choices of values that are planned here before a compiler is asked."""
_MAX_STEP = 0.9
"""The smallest share of what was wanted that is wanted next."""
_MARGIN = 0.98
"""How much less is asked for than what a plan missed by."""


class ProvenMoves(NamedTuple):
    """The outcome of trying."""

    answer: bytes | None
    """The module to hand back; None where the given one stays."""
    moves: tuple[Move, ...]
    temporaries: int
    """Bytes, as the compiler plans them."""
    tried: int
    problems: tuple[str, ...]
    time_ratio: float = 1.0
    """The time of a run divided by that without moves, by a rough model."""


def prove_moves(
    proto: bytes,
    options: Options,
    room: int,
    rules: Rules,
    plan: Callable[[bytes], int],
    before: int,
) -> ProvenMoves:
    """Move values until the temporaries fit; `before` is what the compiler needs without."""
    space = options.machine.host_color
    best = ProvenMoves(None, (), before, 0, ())
    if space is None:
        return best
    stages = start_stages(hlo.parse(text_of(proto)), options, order_lists=in_text_order)
    aim = round(temporary_bytes(stages) * room / max(before, 1))
    problems: list[str] = []
    tried: list[tuple[Move, ...]] = []
    for _ in range(MAX_TRIED[rules.effort]):
        moves, edited = _find_moves(stages, aim, space)
        if moves in tried:  # what was missing is less than a value
            aim = round(aim * _MAX_STEP)
            moves, edited = _find_moves(stages, aim, space)
        if not moves or moves in tried:
            break
        tried.append(moves)
        answer = with_text(proto, format_module(edited))
        objections = _judge(stages.module, hlo.parse(text_of(answer)), space, rules, options)
        if objections:
            problems.append(f"values in the host's memory were rejected: {objections[0]}")
            break
        try:
            size = plan(answer)
        except HlomemError as error:
            problems.append(str(error).partition("\n")[0])
            break
        if size < best.temporaries:
            best = ProvenMoves(answer, moves, size, 0, (), model_moves(stages, moves))
        if size <= room:
            break
        aim = round(aim * room / size * _MARGIN)
    return best._replace(tried=len(tried), problems=tuple(problems))


def _find_moves(stages: Stages, aim: int, space: int) -> tuple[tuple[Move, ...], HloModule]:
    """Moves after which our own plan takes no more than a number of bytes, else the smallest.

    Moves are chosen by bytes alive; what packing loses of these is asked for in addition.
    """
    best: tuple[int, tuple[Move, ...], HloModule] = (temporary_bytes(stages), (), stages.module)
    wanted = aim
    for _ in range(MAX_PLANNED):
        moves = tuple(choose_moves(stages, wanted))
        if not moves:
            break
        module = make_moves(stages.module, moves, space)
        planned = start_stages(module, stages.options, order_lists=in_text_order)
        size = temporary_bytes(planned)
        best = min(best, (size, moves, module), key=lambda found: found[0])
        if size <= aim:
            break
        wanted = round(wanted * max(aim / size, _MAX_STEP) * _MARGIN)
    return best[1:]


def _judge(
    given: HloModule, edited: HloModule, space: int, rules: Rules, options: Options
) -> list[str]:
    """Problems of a module with values in the host's memory, as the compiler will read it."""
    problems = find_move_problems(
        given,
        edited,
        space,
        may_reorder_collectives=rules.may_reorder_collectives,
        may_lose_overlap=bool(rules.max_slowdown),
    )
    return problems or new_findings(edited, given, options)
