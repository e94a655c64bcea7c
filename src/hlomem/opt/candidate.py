"""A program that computes the same as a given one: how it was made, its plan and its price.

The only record of a better program that strategies, checkers, compilers and reports exchange.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.schedule import running_computations
from hlomem.opt.checks import Change, Kind
from hlomem.opt.checks.rounding import find_rounding_problems
from hlomem.opt.constants import AIM_PRICE, CHEAP, PRICES, TIME_PRICES
from hlomem.opt.goal import Clock, Kernels
from hlomem.opt.orders.cost import model_time, module_time, program_flops
from hlomem.opt.orders.effects import takes_time
from hlomem.opt.orders.planned_orders import in_orders, needed_bytes, other_bytes, temporary_bytes
from hlomem.opt.orders.speeds import speeds_of
from hlomem.opt.remat.edit import Edit, apply_edit, orders_by_name
from hlomem.pipeline import Stages, in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.machines.options import Options
    from hlomem.opt.goal import Rules
    from hlomem.opt.orders.search import Improvement, Orders
    from hlomem.opt.remat.offload import Move


class Program(Struct, frozen=True, dict=True, eq=False):
    """A program as it was given, and what may be done to it."""

    stages: Stages
    rules: Rules
    data: bytes = b""
    """As its compiler handed it over; empty where there is none."""
    is_rebuilt: bool = False
    """Whether the program was made of a dump, and is not the text XLA had."""

    @cached_property
    def flops(self) -> int:
        return program_flops(self.stages)

    @cached_property
    def time(self) -> int:
        """Its modelled time, in the given order."""
        return model_time(self.stages, {}).before

    @cached_property
    def clock(self) -> Clock:
        """The work of planning that it is worth."""
        kernels = count_kernels(self.stages.module)
        return Clock(self.stages.options.machine.platform, kernels, self.rules.effort)

    def start(self) -> Candidate:
        return self._start

    @cached_property
    def _start(self) -> Candidate:
        return planned(self, self.stages)


class Slowdown(NamedTuple):
    """A program that would be possible."""

    total: int
    """Bytes of all its allocations."""
    ratio: float
    """Its modelled time, divided by that of the given program."""


class Written(Struct, frozen=True, eq=False):
    """A candidate in the form its compiler takes."""

    data: bytes
    module: HloModule
    """The same, read back."""


class Candidate(Struct, frozen=True, dict=True, eq=False, kw_only=True):
    """A program that computes the same as a given one."""

    given: Program
    temporaries: int
    """Bytes, as planned."""
    total: int
    """Bytes it needs in main memory, as planned."""
    changes: tuple[Change, ...] = ()
    """Programs on the way, each of which keeps less than the one before."""
    orders: Orders = field(default_factory=dict)
    """The instructions of computations whose order is another, where nothing else is."""
    edit: Edit | None = None
    """Clones and the order of all, made to the last of the changes."""
    stages: Stages | None = None
    """Of the candidate in its order; None where they are not kept."""
    order: Improvement | None = None
    """The findings about the order, where one was looked for."""
    flops: int = 0
    """Operations more than in the given program."""
    foreseen_time: int | None = None
    """Modelled time more than in the given program, where that of its clones was added up."""
    stacks: int = 0
    """Stacks of loops that are gone, less those that replaced them."""
    clones: int = 0
    """Other instructions that are recomputed."""
    moves: tuple[Move, ...] = ()
    """Values that wait in the memory of the host."""
    method: str = "as given"
    written: Written | None = None
    """None until it was written and checked."""
    notes: tuple[str, ...] = ()

    @property
    def base(self) -> HloModule:
        """The module that `edit` is made to."""
        return self.changes[-1].module if self.changes else self.given.stages.module

    @cached_property
    def module(self) -> HloModule:
        """The program, scheduled."""
        if self.edit is not None:
            return apply_edit(self.base, self.edit)
        if self.changes:
            return self.base
        return with_schedule(self.given.stages, self.orders)

    @cached_property
    def plan(self) -> Stages:
        if self.stages is not None:
            return self.stages
        if self.orders:
            return in_orders(self.given.stages, self.orders)
        return start_text(self.module, self.options)

    @property
    def changes_so_far(self) -> tuple[Change, ...]:
        """All that led to its plan, its order and clones as a last change."""
        if self.edit is not None:
            return (*self.changes, Change(self.module, "clones"))
        if self.orders:
            return (*self.changes, Change(self.module, "order"))
        return self.changes

    @property
    def pieces(self) -> int:
        """Regions that are computed in pieces."""
        return sum(change.kind == "pieces" for change in self.changes)

    def rounding_problems(self) -> list[str]:
        """Instructions that may round otherwise than in the given program."""
        return find_rounding_problems(
            self.given.stages.module,
            self.read_back,
            is_whole=self.options.machine.changed_after_hook == "fusions",
        )

    @property
    def options(self) -> Options:
        return self.given.stages.options

    @cached_property
    def time(self) -> int:
        """Modelled time more than that of the given program."""
        if self.foreseen_time is not None:
            return self.foreseen_time
        if self.stages is not None or self.orders:
            return model_time(self.plan, {}).before - self.given.time
        return module_time(self.read_back, self.options.machine) - self.given.time

    @property
    def read_back(self) -> HloModule:
        """The program as it was written and read, else as it was made."""
        return self.module if self.written is None else self.written.module

    @property
    def has_clock(self) -> bool:
        """Whether the speeds of its machine are known."""
        return speeds_of(self.options.machine) is not None

    @property
    def has_measured_clock(self) -> bool:
        """Whether they were measured on one."""
        speeds = speeds_of(self.options.machine)
        return speeds is not None and speeds.is_measured

    @property
    def price(self) -> int:
        """The cost above the given program's: time where speeds are known, or operations."""
        return self.time if self.has_clock else self.flops

    @property
    def prices(self) -> tuple[int, ...]:
        """The time or operations that a byte may be worth, rising."""
        return TIME_PRICES if self.has_clock else PRICES

    @property
    def slowdown(self) -> float:
        """Its modelled time, divided by that of the given program."""
        return 1 + self.time / max(self.given.time, 1)

    @property
    def is_cheap(self) -> bool:
        """Whether it costs next to nothing."""
        return self.price <= CHEAP * self.whole_price

    @property
    def whole_price(self) -> int:
        """The cost of the given program, as prices are counted."""
        return self.given.time if self.has_clock else self.given.flops


def count_kernels(module: HloModule) -> Kernels:
    """The kernels that a compiler makes of a module."""
    count, parts = 0, dict[tuple[object, ...], int]()
    for body in running_computations(module):
        for one in filter(takes_time, body.instructions):
            inside = one.called_computations if one.opcode == "fusion" else ()
            looks = [_look(part) for fused in inside for part in fused.instructions]
            parts[(_look(one), *looks)] = len(looks) or 1
            count += 1
    return Kernels(count, len(parts), sum(parts.values()))


def _look(one: HloInstruction) -> tuple[str, ...]:
    return one.opcode, one.shape.text, *[operand.shape.text for operand in one.operands]


def count_instructions(stages: Stages) -> int:
    """The instructions that a plan puts in order."""
    return int(stages.live_ranges.end)


def planned(given: Program, stages: Stages) -> Candidate:
    if not stages.is_planned:
        given.clock.spend(count_instructions(stages))
    size, total = temporary_bytes(stages), needed_bytes(stages)
    return Candidate(given=given, temporaries=size, total=total, stages=stages)


def changed(
    candidate: Candidate, module: HloModule, kind: Kind, *, stacks: int = 0, clones: int = 0
) -> Candidate:
    """A program that was changed once more, planned; with so many stacks gone and clones made."""
    made = planned(candidate.given, start_text(module, candidate.options))
    return replace(
        made,
        changes=(*candidate.changes_so_far, Change(module, kind)),
        flops=program_flops(made.plan) - candidate.given.flops,
        stacks=candidate.stacks + stacks,
        clones=candidate.clones + clones,
    )


def start_text(module: HloModule, options: Options) -> Stages:
    """The stages of a module, lists in the order of its text: how a compiler reads it."""
    return start_stages(module, options, order_lists=in_text_order)


def with_schedule(stages: Stages, orders: Orders) -> HloModule:
    """The module in the order of its plan, but for other orders of some computations."""
    rewriter = Rewriter(stages.module)
    rewriter.schedule(
        {
            computation: orders.get(computation) or stages.schedule.sequence(computation)
            for computation in running_computations(stages.module)
        }
    )
    return rewriter.finish()


def edit_of(stages: Stages, edit: Edit | None = None) -> Edit:
    """The edit that leads to stages in their order, with the clones of another."""
    made = edit or Edit(stages.module.entry.name, (), {}, {})
    return made._replace(orders=orders_by_name(stages))


def choose_cheapest(candidates: Sequence[Candidate], limit: int) -> Candidate | None:
    """The cheapest that fits, else the smallest; None where there is none."""
    fitting = [one for one in candidates if one.total <= limit]
    return min(
        fitting or candidates,
        key=lambda one: (one.price, one.total) if fitting else (one.total, one.price),
        default=None,
    )


def choose_limit(candidates: Sequence[Candidate], aim: int, limit: int) -> int:
    """The aim, below a limit, where something fits it for hardly more; else the limit."""
    ahead = choose_cheapest(candidates, aim)
    cheapest = choose_cheapest(candidates, limit)
    if ahead is None or cheapest is None or ahead.total > aim:
        return limit
    is_near = ahead.price <= cheapest.price + AIM_PRICE * cheapest.whole_price
    return aim if is_near else limit


def find_slowdowns(candidates: Sequence[Candidate], below: float) -> tuple[Slowdown, ...]:
    """The fastest for every number of bytes below one, the fastest first."""
    front: list[Slowdown] = []
    for one in sorted(candidates, key=lambda one: (one.time, one.total)):
        if one.total < min([below, *(total for total, _ in front)]):
            front.append(Slowdown(one.total, one.slowdown))
    return tuple(front)


def room_for(stages: Stages, limit: int) -> int:
    """Bytes that temporaries may take if all allocations take no more than a limit."""
    return max(limit - other_bytes(stages), 0)
