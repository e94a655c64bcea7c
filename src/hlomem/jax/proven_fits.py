"""A program that fits a number by the plan of its own compiler, found by trying.

In: a module as a compiler handed it over, the bytes it may take, and a way to let the compiler plan
it. Out: a `ProvenFit`. What a compiler does behind the hook moves its plan away from hlomem's: a
TPU's fills fast memory, a GPU's wraps instructions into fusions. So what hlomem finds is planned by
the compiler; where that misses, more is asked for, by as much as it missed, and where it leaves
room, less. The cheapest that was seen to fit is taken, else the smallest if it is smaller than what
was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.jax.module_proto import text_of, with_edit, with_module, with_orders
from hlomem.jax.proven_orders import prove_orders
from hlomem.opt.budget import choose_cheapest, judge_edited, recompute_program
from hlomem.opt.order_search import improve_stages
from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.opt.budget import Recomputed
    from hlomem.opt.order_search import BetterOrder, Rules
    from hlomem.opt.orders.search import Effort

MAX_FITS: Mapping[Effort, int] = {"low": 2, "default": 6, "high": 12}
"""Programs that a compiler plans, beside other orders of one."""
NEAR = 1.4
"""How much more than the number a plan may take for other orders of the program to be tried."""
_MARGIN = 0.98
"""How much less is asked for than what a plan missed by."""
_LEAST_RATIO = 0.94
"""How much less is asked for at once: a plan may be far off for one program, not for the next."""
_NEARLY = 1.03
"""How much more than the number a plan may take for other orders to be tried at once."""
_MAX_OTHERS = 2
"""Programs tried in the place of one that misses before more is asked for."""
_SAME = 0.995
"""The share of another's bytes above which a program for as many operations is the same."""
_CLOSE = 0.97
"""The share of the number above which a plan that fits is not bettered."""


class ProvenFit(NamedTuple):
    """The outcome of trying."""

    answer: bytes | None
    """The module to hand back; None where the given one stays."""
    made: Recomputed | None
    temporaries: int
    """Bytes, as the compiler plans them."""
    tried: int
    problems: tuple[str, ...]

    @property
    def flops(self) -> int:
        """Operations more than in the given program."""
        return self.made.flops if self.made is not None else 0


def write_recomputed(
    proto: bytes, made: Recomputed, found: BetterOrder, rules: Rules
) -> tuple[bytes, list[str]]:
    """The module with values computed again, and what judges have against it."""
    changed = with_module(proto, made.changes[-1].module) if made.changes else proto
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
    """Try programs until one fits and none that is cheaper does.

    `before` is what the compiler needs in the order at hand.
    """
    return _Trials(proto, found, limit, rules, plan).run(before)


class _Trials:
    """Programs found for more and less, and what the compiler needs for them."""

    def __init__(
        self,
        proto: bytes,
        found: BetterOrder,
        limit: int,
        rules: Rules,
        plan: Callable[[bytes], int],
    ) -> None:
        self._proto = proto
        self._found = found
        self._rules = rules
        self._plan = plan
        self._rest = other_bytes(found.stages)
        self._room = max(limit - self._rest, 1)
        self._problems: list[str] = []
        self._points: list[Recomputed] = []
        self._aims: set[int] = set()
        self._tried: list[ProvenFit] = []
        self._sizes: dict[tuple[int, int], int] = {}
        """By operations and bytes of what was found: bytes by the compiler's plan."""

    def run(self, before: int) -> ProvenFit:
        """Ask for less where a plan leaves room, for more where it misses; the cheapest that fits.

        `fits` is the most that was asked for and enough, `misses` the least that was not.
        """
        fits, misses, others = 0.0, float("inf"), _MAX_OTHERS
        aim = self._room * (self._found.total - self._rest) / max(before, 1)
        for _ in range(MAX_FITS[self._rules.effort]):
            made = self._find(round(aim))
            if made is None:
                break
            if self._has_missed(made):
                misses = min(misses, aim)
                aim = _between(fits, misses, aim * _LEAST_RATIO)
                continue
            size = self._try(made)
            if size is None:
                break
            if size <= self._room:
                fits = max(fits, aim)
                if size >= _CLOSE * self._room or made.is_cheap:
                    break
            elif made.total - self._rest > aim:
                break  # nothing smaller was found
            elif others > 0 and self._others(round(aim)):
                others -= 1
                continue
            else:
                misses = min(misses, aim)
            ratio = self._room / max(size, 1)
            if ratio < 1:
                ratio = max(ratio * _MARGIN, _LEAST_RATIO)
            aim = _between(fits, misses, aim * ratio)
            if misses - fits < (1 - _MARGIN) * fits:
                break
        best = self._best(before)
        return best._replace(tried=len(self._sizes), problems=tuple(self._problems))

    def _find(self, aim: int) -> Recomputed | None:
        """The cheapest program that needs no more than so much by hlomem's own plan, of all."""
        limit = self._rest + aim
        if aim not in self._aims:
            self._aims.add(aim)
            self._points += recompute_program(self._found, limit, self._rules)
        return choose_cheapest(self._others(aim) or self._points, limit)

    def _others(self, aim: int) -> list[Recomputed]:
        """Programs that were found for so much and have not been seen to miss."""
        limit = self._rest + aim
        return [one for one in self._points if one.total <= limit and not self._has_missed(one)]

    def _has_missed(self, made: Recomputed) -> bool:
        """Whether the same, or as good as the same, was planned by the compiler and misses."""
        return any(
            size > self._room and flops == made.flops and made.temporaries >= _SAME * forecast
            for (flops, forecast), size in self._sizes.items()
        )

    def _try(self, made: Recomputed) -> int | None:
        """Bytes by the compiler's plan; None where it has none, or a judge objects."""
        key = made.flops, made.temporaries
        if key in self._sizes:
            return self._sizes[key]
        answer, objections = write_recomputed(self._proto, made, self._found, self._rules)
        if objections:
            self._problems.append(f"values computed again were rejected: {objections[0]}")
            return None
        try:
            size = self._sizes[key] = self._plan(answer)
        except HlomemError as error:
            self._problems.append(str(error).partition("\n")[0])
            return None
        if self._room < size <= _NEARLY * self._room:
            low = self._rules._replace(effort="low")
            answer, size = _try_orders(answer, size, self._found, low, self._plan)
            self._sizes[key] = size
        self._tried.append(ProvenFit(answer, made, size, 0, ()))
        return size

    def _best(self, before: int) -> ProvenFit:
        """The cheapest that fits, else the smallest, in other orders where it is near."""
        fitting = [one for one in self._tried if one.temporaries <= self._room]
        if fitting:
            return min(fitting, key=lambda one: (one.flops, one.temporaries))
        given = ProvenFit(None, None, before, 0, ())
        best = min([given, *self._tried], key=lambda one: one.temporaries)
        if best.answer is not None and best.temporaries <= NEAR * self._room:
            answer, size = _try_orders(
                best.answer, best.temporaries, self._found, self._rules, self._plan
            )
            best = best._replace(answer=answer, temporaries=size)
        return best


def _between(fits: float, misses: float, aim: float) -> float:
    """The bytes to ask for next: as a plan says, or the middle where that is known to be wrong."""
    if fits < aim < misses:
        return aim
    return (fits + misses) / 2


def _try_orders(
    answer: bytes, size: int, found: BetterOrder, rules: Rules, plan: Callable[[bytes], int]
) -> tuple[bytes, int]:
    """The program in the order that the compiler was seen to need least for."""
    module = hlo.parse(text_of(answer))
    stages = start_stages(module, found.stages.options, order_lists=in_text_order)
    ordered = improve_stages(module.name, stages, rules._replace(effort="low"))
    proven = prove_orders(answer, ordered, rules, plan, before=size)
    return (with_orders(answer, proven.orders), proven.after) if proven.orders else (answer, size)
