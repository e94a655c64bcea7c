"""Memory against operations; after the hook, the compiler's plans determine the sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.opt.remat.origins import find_kept, find_origins, find_tensors
from hlomem.opt.search import OURS, Compiler, find_fits, find_front, settle
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
    """All points, cheapest first; with a compiler, those on the front, by its plans.

    Without a compiler, the points that fit `limit` and shares of the temporaries are among them.
    `before` is the compiler's plan of the given program.
    """
    points = [_planned(one, compiler, before) for one in find_front(found.ordered, compiler)]
    if compiler.plan is None:
        made = found.recomputed
        points += [] if made is None else [_recomputed(made, made.read_back, ", almost free")]
        points += [] if limit is None else find_fit(found.ordered, limit)
        for share in shares:
            points += _find_share(found.ordered, share)
    return sort_front(points)


def find_fit(ordered: Candidate, limit: int, why: str = ", for this budget") -> list[FrontPoint]:
    """The point of `hlomem.jax.optimize(fit=…)`; empty if reordering is enough."""
    if ordered.total <= limit:
        return []
    made, _ = settle(find_fits(ordered, limit), OURS, limit, tries=1)
    return [] if made is None else [_recomputed(made, made.module, why)]


def _find_share(ordered: Candidate, share: float) -> list[FrontPoint]:
    """The point for a share of the temporaries; empty where nothing can be so small."""
    stages = ordered.given.stages
    room = int(share * ordered.given.start().temporaries)
    if find_floor(stages).size > room:
        return []
    found = find_fit(ordered, other_bytes(stages) + room, f", for {share:.0%}")
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
    if compiler.plan is None:
        return point
    size = before if point.kind == "given" else compiler.plan(compiler.write(candidate))
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
