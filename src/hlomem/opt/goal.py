"""Goals, rules and limits of the optimiser, which count steps, never seconds: reproducible."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.opt.checks import Allowed
from hlomem.opt.constants import MOVED_NODES, PLANNED_AGAIN, PLANS_OF_ORDER, STEPS_OF_PLAN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloInstruction

Effort: TypeAlias = Literal["low", "default", "high"]
EFFORTS: tuple[Effort, ...] = ("low", "default", "high")


class Scopes(NamedTuple):
    """Parts of the user's code, by names of `jax.named_scope`, of functions and of modules."""

    within: tuple[str, ...] = ()
    """Those that count; all where none is named."""
    without: tuple[str, ...] = ()
    """Those that do not."""

    def has(self, instruction: HloInstruction) -> bool:
        """Whether an instruction comes from one of these parts."""
        if not self.within and not self.without:
            return True
        path = f"/{instruction.metadata.op_name}/"
        if any(_is_in(path, scope) for scope in self.without):
            return False
        return not self.within or any(_is_in(path, scope) for scope in self.within)


ALL_SCOPES = Scopes()


def _is_in(path: str, scope: str) -> bool:
    """Whether a name is on a path; JAX wraps it in `transpose(jvp(…))` where it differentiates."""
    scope = scope.strip("/")
    return f"/{scope}/" in path or f"({scope})" in path


class Rules(NamedTuple):
    """How a better program is looked for, and what it may do."""

    effort: Effort = "default"
    may_reorder_collectives: bool = False
    """For programs of which every device runs the same, and gets the same order."""
    max_slowdown: float = 1.0
    """How many times as long transfers may make it take that are no longer hidden, as modelled
    (`orders/cost.py`); 1 keeps all that XLA overlapped."""
    recompute: float = 0.0
    """The share of operations and modelled time that recomputation may add."""
    exact: bool = False
    """Whether no kernel may round otherwise (`checks/rounding.py`)."""
    scopes: Scopes = ALL_SCOPES
    """The parts of the user's code whose values may be recomputed."""

    def allowed(self, host_color: int | None = None) -> Allowed:
        """The rules as checkers know them."""
        return Allowed(self.may_reorder_collectives, self.max_slowdown > 1, host_color or 0)


DEFAULT_RULES = Rules()


def check_rules(rules: Rules) -> Rules:
    """The rules, if they make sense; `CommandError` where one does not."""
    effort = rules.effort
    if effort not in EFFORTS:
        raise CommandError(f"unknown effort `{visible(effort)}`; known are {', '.join(EFFORTS)}")
    check_slowdown(rules.max_slowdown)
    share = rules.recompute
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        raise CommandError(f"`recompute` is a share between 0 and 1, not {visible(str(share))}")
    return rules


def check_slowdown(ratio: float) -> float:
    """The ratio, if it is one; `CommandError` where it is not."""
    if not isinstance(ratio, int | float) or not 1 <= ratio < float("inf"):
        said = visible(str(ratio))
        raise CommandError(f"`max_slowdown` is a ratio of 1 or more, 1.1 for +10%; not {said}")
    return ratio


# Goals.


class Order(NamedTuple):
    """An order that needs less; nothing else is changed."""

    effort: Effort = "default"


class Share(NamedTuple):
    """As little memory as a share of the program's operations and of its modelled time buys."""

    share: float
    is_tried: bool = False
    """Whether the compiler plans what is proposed, which fills fast memory after the hook."""


class Budget(NamedTuple):
    """A number of bytes that all allocations together may take, for as little as possible."""

    limit: int
    price: int = 0
    """Operations and bytes touched that a byte is worth; 0 stands for any number."""
    max_price: int | None = None
    """The price beyond which it is not worth it."""
    work: WorkLeft | None = None


class Front(NamedTuple):
    price: int = 0


class Pieces(NamedTuple):
    """A number of bytes that all allocations together may take, with regions in pieces."""

    limit: int


class Offload(NamedTuple):
    """A number of bytes that temporaries may take, with values in the memory of the host."""

    room: int


Goal: TypeAlias = Order | Share | Budget | Front | Pieces | Offload


# The work of an effort.


class OrderWork(NamedTuple):
    moves_per_node: int
    """Nodes that local search evaluates, for every node of a computation."""
    moved_nodes: int
    """The same, at most, in all computations together."""
    steps_per_node: int
    """Steps of branch and bound, for every node of a computation."""
    planned_nodes: int
    """Nodes of the programs that are planned to compare orders."""
    max_plans: int


ORDER_WORK: Mapping[Effort, OrderWork] = {
    "low": OrderWork(0, 0, 0, 0, 3),
    "default": OrderWork(400, 500_000, 40, 16_000, 60),
    "high": OrderWork(10_000, 25_000_000, 2_000, 1_000_000, 4_000),
}
AS_IS = -1
"""Instead of a price: nothing is cut to begin with."""


class Start(NamedTuple):
    price: int
    """For which it is cut at its peak, or `AS_IS`."""
    is_lowered: bool = False
    """Whether it is in the order of `remat/budget_search.lower_all`."""


class Work(NamedTuple):
    starts: tuple[Start, ...]
    rounds: int
    """Plans of what comes of a start, each with what the last was wrong by."""
    detours: tuple[float, ...]
    """How much more than the number is allowed on the way to something cheaper."""
    steps: int
    """Values that are recomputed at most, or several at once, over all starts."""
    plans: int
    """Exact plans, and searches for an order, which are several."""


WORK: Mapping[Effort, Work] = {
    "low": Work((Start(AS_IS),), 3, (), 60, 8),
    "default": Work((Start(AS_IS), Start(AS_IS, is_lowered=True), Start(256)), 5, (), 240, 36),
    "high": Work(
        tuple(
            Start(price, is_lowered)
            for price in (AS_IS, 256, 16, 64, 4, 1024, 0)
            for is_lowered in (False, True)
        ),
        8,
        (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5),
        8000,
        500,
    ),
}


class Kernels(NamedTuple):
    """The kernels of a program, with which a compiler's time grows."""

    kernels: int
    """Instructions that it makes kernels of."""
    distinct: int
    """Those that differ by more than their operands: XLA:CPU compiles the others with them."""
    parts: int
    """The instructions of these, which are several in a fusion."""


class _Compiled(NamedTuple):
    """Instructions of programs that are planned in the time that a compiler takes."""

    kernel: int
    distinct: int
    """For a kernel that differs from others."""
    part: int
    """For an instruction of such a one."""

    def work(self, kernels: Kernels) -> int:
        rates = zip(self, kernels, strict=True)
        return _SMALLEST + sum(rate * count for rate, count in rates)


_COMPILED: Mapping[str, _Compiled] = {"cpu": _Compiled(0, 40, 6)}
"""By platform. Next to other work on two cores XLA:CPU took 8.1 ms for a kernel and 1.2 ms for an
instruction of it, a plan, with what is done for it, 0.2 ms for an instruction. That is 0.57 to 1.34
of the time of 9 in 10 of 75 programs; by kernels alone, alike or not, it was 0.47 to 1.57."""
_COMPILED_ELSEWHERE = _Compiled(600, 0, 0)
"""The same of other platforms. With kernels tuned on an H200, XLA took more than 12 ms for each in
19 of 20 programs, and 100 ms in half of them."""
_SMALLEST = 60
"""The same for a program, whatever it has of kernels."""
TIMES: Mapping[Effort, int] = {"low": 1, "default": 1, "high": 100}
"""How many times that much is planned."""
FITS_SHARE, CHEAP_SHARE, FIRST_SHARE = 0.4, 0.5, 0.5
"""The parts of that work for what fits a budget, and for what is cheap, at most: most programs take
half of the latter; and for what fits where it is looked for before what is cheap, whose plans it
cannot take over. Orders have a part of their own; checks are not counted."""


class Clock:
    """Instructions of programs that are still to be planned, so that a search ends with a compile.

    Seconds would give each process its own program; a compiler's time grows with the kernels that
    it makes, and a search's with the instructions of what it plans.
    """

    def __init__(self, platform: str, kernels: Kernels, effort: Effort) -> None:
        compiled = _COMPILED.get(platform, _COMPILED_ELSEWHERE)
        self._all = TIMES[effort] * compiled.work(kernels)
        self.start()

    def start(self, share: float = FITS_SHARE) -> None:
        """Begin again, with a part of all the work."""
        self.left = round(share * self._all)

    def spend(self, instructions: int) -> None:
        """Count a program of so many instructions that is planned."""
        self.left -= instructions

    @property
    def is_over(self) -> bool:
        return self.left <= 0

    def order_work(self, effort: Effort) -> OrderWork:
        """The work for an order: a plan of another order is a part of a plan, a move less still."""
        work = ORDER_WORK[effort]
        return work._replace(
            planned_nodes=min(work.planned_nodes, round(self._all * PLANNED_AGAIN)),
            moved_nodes=min(work.moved_nodes, self._all * MOVED_NODES),
        )


class WorkLeft:
    """The work that is left, of one effort, for all that is looked for in one program."""

    def __init__(self, effort: Effort, clock: Clock | None = None) -> None:
        """Without a clock steps and plans are counted, however large the program."""
        self.work = WORK[effort]
        self.steps = self.work.steps
        self.plans = self.work.plans
        self._clock = clock

    def take_step(self, nodes: int) -> None:
        """Count a choice of what to recompute, among so many instructions."""
        self.steps -= 1
        self._spend(nodes // STEPS_OF_PLAN)

    def take_plan(self) -> None:
        """Count an exact plan; its instructions are counted where it is made."""
        self.plans -= 1

    def take_order(self, nodes: int) -> None:
        """Count a search for an order without much work, which is several plans."""
        self.plans -= PLANS_OF_ORDER
        self._spend(nodes)

    def _spend(self, instructions: int) -> None:
        if self._clock is not None:
            self._clock.spend(instructions)

    @property
    def _is_late(self) -> bool:
        return self._clock is not None and self._clock.is_over

    @property
    def may_step(self) -> bool:
        return self.steps > 0 and not self._is_late

    def put_aside(self) -> WorkLeft:
        """Half of the work that is left, for what comes later."""
        other = copy(self)
        other.steps, other.plans = self.steps // 2, self.plans // 2
        self.steps -= other.steps
        self.plans -= other.plans
        return other

    @property
    def is_spent(self) -> bool:
        return self.steps <= 0 or self.plans <= 0 or self._is_late


# Trying programs by a compiler.

MAX_ORDERS: Mapping[Effort, int] = {"low": 3, "default": 8, "high": 24}
"""Orders that a compiler plans, besides its own."""
MAX_FITS: Mapping[Effort, int] = {"low": 2, "default": 6, "high": 12}
"""Programs that a compiler plans for a budget, besides other orders of one."""
MAX_CHEAP: Mapping[Effort, int] = {"low": 1, "default": 3, "high": 6}
"""Programs with cheap values recomputed that a compiler plans."""
MAX_OFFLOADS: Mapping[Effort, int] = {"low": 2, "default": 4, "high": 10}
"""Programs with values in the host's memory that a compiler plans."""
