"""A memory budget as people name it: bytes, a size, a chip, or a share of what is needed now."""

from __future__ import annotations

from typing import NamedTuple

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.machines.capacity import parse_capacity


class MemoryBudget(NamedTuple):
    """Bytes that all allocations may take, or the share of its temporaries that a program may."""

    size: int | None = None
    share: float | None = None

    def limit_of(self, others: int, temporaries: int) -> int | None:
        """Bytes that all allocations may take of a program that needs so many; None for any."""
        if self.share is None:
            return self.size
        return others + int(self.share * temporaries)


NO_BUDGET = MemoryBudget()


def parse_budget(fit: float | str | None) -> MemoryBudget:
    """`"48 MiB"`, `"v5e"`, bytes, `"50%"`, or a float up to 1.0, which is a share as well."""
    if fit is None:
        return NO_BUDGET
    if isinstance(fit, str):
        if fit.strip().endswith("%"):
            return MemoryBudget(share=_parse_percent(fit))
        return MemoryBudget(parse_capacity(fit).size)
    if isinstance(fit, float) and 0 < fit <= 1:
        return MemoryBudget(share=fit)
    if fit <= 0 or fit != int(fit):
        raise CommandError(f"a program cannot fit {fit} bytes; a share is between 0 and 1")
    return MemoryBudget(int(fit))


def _parse_percent(text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise CommandError(f"not a share of memory: `{visible(text)}`; give one as in `50%`")
    return share
