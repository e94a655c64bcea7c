"""The programs that the pass looks at, and what it may make of them."""

from __future__ import annotations

from typing import NamedTuple

from hlomem.machines.budget import NO_BUDGET, MemoryBudget


class Limits(NamedTuple):
    min_bytes: int
    """Temporaries below which a program is not worth it."""
    max_instructions: int
    """Instructions, outside fusions, above which the search would take long."""
    budget: MemoryBudget = NO_BUDGET
    """Bytes that all allocations may take, with recomputation if orders do not suffice."""
    max_slowdown: float | None = None
    """How many times as long it may take then, as modelled; None leaves it to what is known of the
    machine: where its speeds are not, any time will do."""
    offload: bool = True
    """Whether values may wait in the host's memory where recomputing them is not enough."""
    keeps_donations: bool = True
    """Whether the compiler keeps donations of a module handed back; else such are left alone."""

    @property
    def is_budget(self) -> bool:
        return self.budget != NO_BUDGET
