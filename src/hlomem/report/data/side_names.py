"""Names for two compiles that are compared: what differs between their paths.

In: two paths as they were typed. Out: two names. `runs/gpt/module_0004.jit_train_step` and
`runs/gpt_donate/module_0004.jit_train_step` are `gpt` and `gpt_donate`.
"""

from __future__ import annotations

import re

_SEPARATOR = re.compile(r"[/\\]+")


def distinct_names(one: str, other: str) -> tuple[str, str]:
    """The parts of two paths from the first to the last that differ; the whole of equal paths."""
    first, second = (_SEPARATOR.split(path.rstrip("/\\")) for path in (one, other))
    if first == second:
        return one, other
    shortest = min(len(first), len(second))
    start = next((n for n in range(shortest) if first[n] != second[n]), shortest)
    start = min(start, shortest - 1)  # of a folder and what is in it both have a name
    end = next(n for n in range(shortest) if n == shortest - start - 1 or _differ(first, second, n))
    names = ["/".join(parts[start : len(parts) - end]) for parts in (first, second)]
    return names[0], names[1]


def _differ(one: list[str], other: list[str], from_end: int) -> bool:
    return one[-1 - from_end] != other[-1 - from_end]
