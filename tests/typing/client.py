"""A client of hlomem as somebody else would type it; `make dist` checks it against the wheel."""

from __future__ import annotations

from pathlib import Path

import hlomem


def largest_lines(dump: str, count: int = 3) -> list[tuple[str, int]]:
    """The lines of code that hold most at the peak."""
    memory: hlomem.MemoryExplanation = hlomem.explain(dump)
    return [(row.key, row.size) for row in memory.by("line")[:count]]


def grew(before: str, after: str) -> bool:
    """Whether the second compile needs more."""
    found: hlomem.Diff = hlomem.diff(before, after)
    return found.delta > 0


def needs(text: str) -> int:
    """What a module needs on a CPU, checked."""
    plan: hlomem.Plan = hlomem.plan(text, backend="cpu")
    verdict: hlomem.Verdict = hlomem.verify(plan.dump, module=plan.stages.module)
    if verdict.findings:
        raise hlomem.HlomemError(verdict.findings[0].message)
    dump: hlomem.Dump = plan.dump
    assert dump.values is not None
    return dump.values.total_bytes


def savings(dump: Path) -> dict[str, int | None]:
    """What would save memory, and at least how much, if that was planned."""
    advised: hlomem.AdviceReport = hlomem.advise(str(dump))
    return {advice.title: advice.least for advice in advised.advice}


def smallest_heap(lives: list[tuple[int, int, int]]) -> int:
    """The smallest heap for buffers of a size that live from one time to another."""
    buffers = [
        hlomem.Buffer(id=str(number), lower=lower, upper=upper, size=size)
        for number, (lower, upper, size) in enumerate(lives)
    ]
    packing: hlomem.Packing = hlomem.pack(buffers)
    return packing.height
