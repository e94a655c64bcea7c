"""Memory against operations; after the hook, the compiler's plans determine the sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.origins import find_kept, find_origins, find_tensors
from hlomem.opt.search import OURS, Compiler, find_fits, find_front, settle
from hlomem.opt.trials import try_fits
from hlomem.report.data.code_advice import advise_code
from hlomem.report.data.front import FrontPoint, PointKind, sort_front
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.api.improve import BetterOrder
    from hlomem.hlo.ir import HloModule
    from hlomem.opt.candidate import Candidate
    from hlomem.report.data.improvement import ImprovementReport

GIVEN, ORDERED, AGAIN = "as given", "better order", "again"


def find_points(
    found: BetterOrder,
    limit: int | None = None,
    compiler: Compiler = OURS,
    before: int = 0,
    *,
    shares: Sequence[float] = (),
) -> tuple[FrontPoint, ...]:
    """All points, cheapest first, by the compiler's plans if it has any; else all on the front.

    Those that fit `limit` and shares of the temporaries are among them, where any does. `before` is
    the compiler's plan of the given program.
    """
    points = [_planned(one, compiler, before) for one in find_front(found.ordered, compiler)]
    made, start = found.recomputed, found.ordered
    if made is not None:
        point = _recomputed(made, made.read_back, ", almost free")
        points.append(_sized(point, made, compiler))
    at_first = before or start.given.start().temporaries
    fewest = min([point.temporaries for point in points if point.kind == "ordered"], default=0)
    ask = _Ask(start, compiler, fewest or at_first)
    points += [] if limit is None else ask.fit(limit)
    for share in shares:
        points += ask.share(share, at_first)
    return sort_front(points)


class _Ask(NamedTuple):
    """A program that budgets are asked of."""

    start: Candidate
    compiler: Compiler
    before: int
    """Bytes of temporaries that the compiler plans for it."""

    def fit(self, limit: int, why: str = ", for this budget") -> list[FrontPoint]:
        """The point of `hlomem.jax.optimize(fit=…)`; empty if reordering is enough."""
        if other_bytes(self.start.given.stages) + self.before <= limit:
            return []
        if self.compiler.plan is None:
            made, _ = settle(find_fits(self.start, limit), OURS, limit, tries=1)
        else:
            made = try_fits(self.start, limit, self.compiler, self.before).best
        return [] if made is None else [_recomputed(made, made.read_back, why)]

    def share(self, share: float, at_first: int) -> list[FrontPoint]:
        """The point for a share of the temporaries; empty where nothing can be so small."""
        stages, room = self.start.given.stages, int(share * at_first)
        if find_floor(stages).size > room:
            return []
        found = self.fit(other_bytes(stages) + room, f", for {share:.0%}")
        return [point for point in found if point.temporaries <= room]


def with_front(
    report: ImprovementReport,
    points: Iterable[FrontPoint],
    limit: int | None,
    notes: Sequence[str] = (),
) -> ImprovementReport:
    """A report with memory against operations, the cheapest that fits a limit, and advice."""
    marked = sort_front(points, limit)
    return replace(
        report,
        front=marked,
        limit=limit,
        advice=advise_code(marked, limit),
        notes=(*report.notes, *notes),
    )


def _planned(candidate: Candidate, compiler: Compiler, before: int) -> FrontPoint:
    """A point of the search, with the bytes its compiler plans."""
    if candidate.changes:
        point = _recomputed(candidate, candidate.base)
    elif candidate.orders:
        point = _point(candidate, ORDERED, "ordered")
    else:
        point = _point(candidate, GIVEN, "given")
    if point.kind == "given" and compiler.plan is not None:
        return _with_size(point, before)
    return _sized(point, candidate, compiler)


def _sized(point: FrontPoint, candidate: Candidate, compiler: Compiler) -> FrontPoint:
    """A point with the bytes that the compiler plans, if it does."""
    if compiler.plan is None:
        return point
    return _with_size(point, compiler.plan(compiler.write(candidate)))


def _with_size(point: FrontPoint, size: int) -> FrontPoint:
    return replace(point, temporaries=size, total=point.total - point.temporaries + size)


def _recomputed(candidate: Candidate, module: HloModule, why: str = "") -> FrontPoint:
    """A point with the lines of user code whose values it rematerializes, and keeps."""
    parts = [plural(candidate.stacks, "stack") + " of loops"] if candidate.stacks else []
    parts += [plural(candidate.clones, "instruction")] if candidate.clones else []
    name = f"{AGAIN}: {', '.join(parts) or 'other stacks of loops'}{why}"
    return replace(
        _point(candidate, name, "recomputed"),
        lines=find_origins(module),
        kept=() if candidate.stacks else find_kept(module),  # stacks are not in the entry
        tensors=find_tensors(module),
    )


def _point(candidate: Candidate, name: str, kind: PointKind) -> FrontPoint:
    return FrontPoint(
        name=name,
        kind=kind,
        temporaries=candidate.temporaries,
        total=candidate.total,
        flops=candidate.flops,
        program_flops=candidate.given.flops,
        time=candidate.time,
        program_time=candidate.given.time,
    )
