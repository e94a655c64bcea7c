"""`chunks`: recompute a long scan chunk by chunk; a possibility.

Applies if a scan of many steps stacks values for the backward pass: with chunks of about the square
root of its length, only the carries between chunks and the values of one chunk are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.code import SCAN_IN_CHUNKS
from hlomem.advice.functions import find_loops, last_parts
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.advice.functions import Loop

LINK = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"
_LONG = 64
"""Steps from which on chunks help."""
_WORTH = 0.05
"""Smallest fraction of the space that the stacked values must have."""


def advise_chunks(subject: Case) -> Iterator[Advice]:
    """One advice for the loop that stacks most."""
    for loop in long_loops(find_loops(subject.memory), subject.space.size)[:1]:
        code = SCAN_IN_CHUNKS.strip("\n")
        yield Advice(
            rule="chunks",
            title=describe_loop(loop),
            method="possible",
            confidence="low",
            cost="time: one more forward pass of the loop",
            how=f"import jax\n\n{code}\n\n# scan_in_chunks(…) instead of jax.lax.scan(…)",
            link=LINK,
        )


def long_loops(loops: list[Loop], size: int) -> list[Loop]:
    """The loops that are worth it: long, not of a prime length, with much to stack."""
    return [
        loop
        for loop in loops
        if loop.length >= _LONG
        and loop.size >= _WORTH * size
        and any(loop.length % d == 0 for d in range(4, int(loop.length**0.5) + 1))
    ]


def describe_loop(loop: Loop) -> str:
    """The title of an advice to recompute a loop chunk by chunk."""
    where = f"{last_parts(loop.file)}:{loop.line}"
    return f"recompute the {loop.length} steps of the scan at {where} chunk by chunk"
