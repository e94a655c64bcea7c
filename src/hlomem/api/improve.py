"""`hlomem.improve`: a better order, then cheap rematerialization, as in `hlomem.jax`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.api.pack import Buffer, pack
from hlomem.api.plan import plan
from hlomem.api.replan import replan
from hlomem.assign.packing import Packing as Heap
from hlomem.base.errors import UnsupportedError
from hlomem.dump.dump import Dump
from hlomem.hlo.text.printer import format_module
from hlomem.opt.candidate import Candidate, Program, start_text, with_schedule
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Effort, Rules, Share, check_rules
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.origins import find_origins
from hlomem.opt.search import find_accepted, find_order
from hlomem.report.data.improvement import (
    ComputationOrder,
    ComputedAgain,
    ImprovementReport,
    TightPacking,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.assign.packing import BufferInterval
    from hlomem.hlo.ir import HloModule
    from hlomem.opt.orders.search import Improvement, Orders
    from hlomem.packer.buffers import Packing
    from hlomem.pipeline import Stages


class BetterOrder(NamedTuple):
    """A program that was found, checked and verified."""

    report: ImprovementReport
    ordered: Candidate
    """The program in the order that was found."""
    recomputed: Candidate | None = None
    """The same with values recomputed; None where there are none."""

    @property
    def stages(self) -> Stages:
        """Of the program in the given order."""
        return self.ordered.given.stages

    @property
    def orders(self) -> Orders:
        """The instructions of every computation whose order is another."""
        return self.ordered.orders

    @property
    def is_rebuilt(self) -> bool:
        """Whether the program was made of a dump, and is not the text XLA had."""
        return self.ordered.given.is_rebuilt

    def text(self) -> str:
        """The program's text in the new order, scheduled, with its recomputed values."""
        made = None if self.recomputed is None else self.recomputed.written
        return format_module(self.ordered.module) if made is None else made.data.decode()

    def given_text(self) -> str:
        """The program's text in the order it came in."""
        return format_module(with_schedule(self.stages, {}))


def improve(
    subject: Dump | HloModule | str,
    *,
    module: HloModule | None = None,
    backend: str = "",
    chip: str = "",
    era: str = "",
    effort: Effort = "default",
    may_reorder_collectives: bool = False,
    max_slowdown: float = 1.0,
    recompute: float = RECOMPUTE,
) -> BetterOrder:
    """An order that needs less memory, of a program (HLO text or a module) or a dump's program.

    `module` is the dump's program, if known; else it is rebuilt from the dump. `backend`
    is `cpu` for a program, and inferred for a dump. `may_reorder_collectives` is for programs of
    which every device gets the same order. `max_slowdown` is how many times as long the program
    may take, by a rough model, for transfers that are no longer hidden. `recompute` is the share of
    the program's operations, and of its modelled time, that recomputation may add; 0 leaves the
    instructions as they are, in another order.
    """
    rules = check_rules(Rules(effort, may_reorder_collectives, max_slowdown, recompute))
    notes: list[str] = []
    is_rebuilt = isinstance(subject, Dump) and module is None
    if isinstance(subject, Dump):
        name = subject.name
        stages = _stages_of_dump(subject, module, backend, chip, notes)
    else:
        program = hlo.parse(subject) if isinstance(subject, str) else subject
        name = program.name
        made = plan(program, backend=backend, chip=chip, era=era, order="text")
        stages = made.stages
        notes += made.notes
    _refuse_fixed(stages)
    ordered = find_order(Program(stages, rules, is_rebuilt=is_rebuilt))
    return with_cheap(name, ordered, notes, has_packing=True)


def with_cheap(
    name: str, ordered: Candidate, notes: Iterable[str] = (), *, has_packing: bool = False
) -> BetterOrder:
    """The program with cheap values recomputed, and its report."""
    recomputed, rejected = None, list[str]()
    if not ordered.given.is_rebuilt:
        start = _scheduled(ordered)
        recomputed, rejected = find_accepted(start, Share(start.given.rules.recompute))
    report = build_report(
        name, ordered, recomputed, [*notes, *ordered.notes, *rejected], has_packing=has_packing
    )
    return BetterOrder(report, ordered, recomputed)


def _scheduled(ordered: Candidate) -> Candidate:
    """The same of a text that carries its schedule, in the order that was found."""
    given = ordered.given
    if given.stages.module.is_scheduled:
        return ordered
    module = hlo.parse(format_module(ordered.module))
    return Program(start_text(module, ordered.options), given.rules).start()


# The report.


def build_report(
    name: str,
    ordered: Candidate,
    recomputed: Candidate | None = None,
    notes: Iterable[str] = (),
    *,
    has_packing: bool = False,
) -> ImprovementReport:
    """The savings of a better program, how near to the least it is, and how it was found."""
    found = ordered.order
    assert found is not None
    best = recomputed or ordered
    return ImprovementReport(
        name=name,
        backend=ordered.options.machine.name,
        effort=ordered.given.rules.effort,
        before=found.before,
        after=best.temporaries,
        bound=found.bound,
        verdict=found.verdict,
        method=found.method,
        computations=_computations(found),
        packing=_packing(ordered, best) if has_packing else None,
        again=None if recomputed is None else _again(ordered, recomputed),
        notes=tuple(notes),
    )


def _computations(found: Improvement) -> tuple[ComputationOrder, ...]:
    return tuple(
        ComputationOrder(
            name=order.computation.name,
            instructions=len(order.computation.instructions),
            given_peak=order.given_peak,
            peak=order.peak,
            method=order.method,
            proven=order.is_proven,
        )
        for order in reversed(found.found)
        if order.computation in found.orders
    )


def _again(ordered: Candidate, recomputed: Candidate) -> ComputedAgain:
    return ComputedAgain(
        ordered=ordered.temporaries,
        instructions=recomputed.clones,
        stacks=recomputed.stacks,
        flops=recomputed.flops,
        program_flops=recomputed.given.flops,
        time=recomputed.time,
        program_time=recomputed.given.time,
        lines=find_origins(recomputed.read_back),
    )


def _packing(ordered: Candidate, best: Candidate) -> TightPacking:
    """The bytes that the best packing needs of the program as given, and of that found."""
    before = after = pack_tightly(ordered.given.stages)
    if best.written is not None:
        after = pack_tightly(start_text(best.written.module, best.options))
    elif best.orders:
        after = pack_tightly(best.plan)
    return TightPacking(
        before=before.size,
        before_proven=before.is_proven,
        after=after.size,
        after_proven=after.is_proven,
    )


def _stages_of_dump(
    dump: Dump, module: HloModule | None, backend: str, chip: str, notes: list[str]
) -> Stages:
    base = replan(dump, backend=backend, chip=chip)
    if module is None:
        notes.append("the program was rebuilt from the dump")
        return base.stages
    machine = base.stages.options.machine
    order = None if module.is_scheduled else dump
    return plan(module, backend=machine, like=dump, schedule=order, order="text").stages


def _refuse_fixed(stages: Stages) -> None:
    """Offsets that were chosen for the given order are wrong for any other."""
    color = stages.options.machine.preset_color
    is_fixed = color is not None and any(
        allocation.color == color and allocation.slices
        for allocation in stages.assignment.allocations
    )
    if is_fixed:
        source = stages.module.source
        problem = "values were already placed in fast memory for the current order"
        hint = "a TPU's program can only be reordered before that, during compilation"
        raise UnsupportedError(source, source.first_line, problem, hint)


_PROVEN = frozenset({"at the bound", "proven optimal"})
_EFFORT = 2_000
"""Steps of exact search for one heap; nearly all reach the bound without any."""


class TightHeap(NamedTuple):
    """The temporaries of an order in the best packing that was found."""

    size: int
    bound: int
    """Bytes that no packing of this order can do without."""
    is_proven: bool


def pack_tightly(stages: Stages) -> TightHeap:
    """Pack temporaries as tightly as can be found; of XLA's compilers only libtpu takes it."""
    packings: list[Packing] = []

    def place(intervals: Sequence[BufferInterval], alignment: int) -> Heap:
        packings.append(_pack(intervals, alignment))
        return _as_heap(packings[-1], intervals)

    size = temporary_bytes(stages.repacked(place))
    slack = sum(packing.height - packing.lower_bound for packing in packings)
    is_proven = all(packing.status in _PROVEN for packing in packings)
    return TightHeap(size, size if is_proven else size - slack, is_proven)


def place_tightly(intervals: Sequence[BufferInterval], alignment: int) -> Heap:
    """The best packing found, for a planner that is given one instead of XLA's."""
    return _as_heap(_pack(intervals, alignment), intervals)


def _pack(intervals: Sequence[BufferInterval], alignment: int) -> Packing:
    return pack([_as_buffer(interval, alignment) for interval in intervals], effort=_EFFORT)


def _as_heap(packing: Packing, intervals: Sequence[BufferInterval]) -> Heap:
    offsets = {interval.id: packing.offset_of[interval.id] for interval in intervals}
    return Heap(offsets, packing.height)


def _as_buffer(interval: BufferInterval, alignment: int) -> Buffer:
    """A buffer whose lives do not include their ends."""
    more = tuple((start, end + 1) for start, end in interval.colocations)
    return Buffer(interval.id, interval.start, interval.end + 1, interval.size, alignment, more)
