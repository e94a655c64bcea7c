"""Sums over a corpus: every report of every dump held against the dump itself.

    python -m tools.check_reports [--corpus ../shared] [--json FILE]

Of each dump and memory space: the roles add up to XLA's allocations, and those to `Total bytes
used`; the peak is the union of the live values' bytes and no step has more; groups, holes and the
way from XLA's own peak add up; every screen fits 80 columns. Prints what does not hold and exits 1
where there is any.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import hlomem
from hlomem.base.quantities import Step
from hlomem.report.data.allocation_kinds import HELD_WHOLE, kind_of
from hlomem.report.data.explain import explain
from hlomem.report.data.holes import build_holes
from hlomem.report.data.memory import build_memory
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.data.peak import KEYS, build_snapshot
from hlomem.report.data.summary import build_summary
from hlomem.report.registry import REPORTS
from hlomem.report.screens.explain_text import draw_explanation
from hlomem.report.screens.peak_text import draw_snapshot
from hlomem.report.screens.summary_text import draw_summary
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.screens.text import Line

WIDTH = 80
_EXPLAINED = 20
"""How many buffers of a dump are explained."""


def check_dump(path: Path) -> list[str]:
    """What does not hold in the reports of one dump."""
    memory = build_memory(hlomem.load(path))
    problems = [
        f"{path}: {space.name}: {problem}"
        for space in memory.spaces
        for problem in (*_sums(memory, space), *_screens(memory, space))
    ]
    values = memory.dump.values
    total = sum(space.size + space.thread_local for space in memory.spaces)
    if values is not None and total != values.total_bytes:
        problems.append(f"{path}: the memory spaces do not add up to `Total bytes used`")
    return problems


def _sums(memory: MemoryView, space: Space) -> Iterator[str]:
    shares = build_role_shares(memory, space.color)
    here = [a for a in memory.joined.allocations if a.color == space.color]
    reserved = sum(a.size for a in here if not a.is_thread_local)
    if sum(share.size for share in shares) != reserved:
        yield "roles do not add up"
    if any(share.size < 0 for share in shares):
        yield "a role has less than nothing"
    timeline = memory.timeline(space.color)
    if timeline is None:
        yield "no timeline"
        return
    if timeline.peak.size != max(timeline.sizes) or timeline.peak.size > space.size:
        yield "the peak is not the most"
    if timeline.peak.size != bytes_in_use(memory, space.color, timeline.peak.step):
        yield "the peak is not what is alive then"
    for key in KEYS:
        alive = build_snapshot(memory, space, by=key)
        if sum(row.size for row in alive.rows) != timeline.peak.size:
            yield f"groups by {key} do not add up"
    printed = build_snapshot(memory, space).printed
    if printed is not None:
        if printed.size + sum(each.size for each in printed.reasons) != timeline.peak.size:
            yield "the way from XLA's peak does not add up"
        if any("without a place" in each.why for each in printed.reasons):
            yield "XLA's peak holds values that have no place"
    for allocation in build_holes(memory, space).allocations:
        if allocation.most_alive + sum(h.size for h in allocation.holes) != allocation.size:
            yield f"holes of allocation {allocation.index} do not add up"


def bytes_in_use(memory: MemoryView, color: int, step: int) -> int:
    """The bytes in use at a step: what is held whole, and values between all their boundaries."""
    total = 0
    live = memory.dump.live_ranges
    assert live is not None
    alive = {(r.instruction, r.index) for r in live.ranges if r.is_live_at(Step(step))}
    for allocation in memory.joined.allocations:
        if allocation.color != color:
            continue
        if kind_of(allocation) in HELD_WHOLE:
            total += allocation.size
            continue
        here = [
            (value.offset, value.offset + value.size)
            for value in allocation.values
            if (value.name, value.index or ()) in alive
        ]
        bounds = sorted({bound for span in here for bound in span})
        total += sum(
            high - low
            for low, high in pairwise(bounds)
            if any(start <= low and high <= end for start, end in here)
        )
    return total


def _screens(memory: MemoryView, space: Space) -> Iterator[str]:
    screens: dict[str, list[Line]] = {
        "summary": draw_summary(build_summary(memory, space), WIDTH),
        **{
            name: report.draw(report.build(memory, space), WIDTH)
            for name, report in REPORTS.items()
        },
    }
    for key in KEYS:
        screens[f"peak --by {key}"] = draw_snapshot(
            build_snapshot(memory, space, by=key, top=9), WIDTH
        )
    here = [each for each in memory.buffers if each.color == space.color]
    for buffer in sorted(here, key=lambda each: (-each.size, each.id))[:_EXPLAINED]:
        told = explain(memory, buffer)
        screens[f"explain {buffer.name}"] = draw_explanation(told, WIDTH)
    for name, screen in screens.items():
        if any(len("".join(text for text, _ in line)) > WIDTH for line in screen):
            yield f"`{name}` is wider than {WIDTH} columns"


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints."""
    options = parse_arguments(__doc__, arguments)
    paths = [path.parent for path in sorted(options.corpus.glob("*/*/*/buffer-assignment.txt"))]
    paths += sorted(options.corpus.glob("seeds/*.txt"))
    problems = [problem for found in check_all(check_dump, paths) for problem in found]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{len(paths)} dumps, {len(problems)} problems\n")
    write_counts(options.json, {"dumps": len(paths), "problems": len(problems)})
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
