"""A recorded allocator replayed by the twin.

In: the calls of one allocator from its first on. Out: the pool and its largest free block after
each, while the twin has the same address, chunk, sums and fragmentation. The kind of pool is not
recorded: the kind that agrees longest is taken.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from hlomem.job.bfc import BfcAllocator, PoolExhaustedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.job.events import Call

GROWN, AT_ONCE = "grown", "taken at once"
_DIGITS = 2e-6
"""Fragmentation is written with six digits."""


class PoolState(NamedTuple):
    """The pool after a call."""

    pool: int
    largest_free: int
    in_use: int


class Replayed(NamedTuple):
    """A replay, as far as it agrees with what was recorded."""

    kind: str
    states: list[PoolState]
    """After each call, up to the first with another address, chunk, sum or fragmentation."""


_KINDS = ((GROWN, False), (AT_ONCE, True), (AT_ONCE, False))


def replay(calls: Sequence[Call]) -> Replayed | None:
    """The replay that agrees longest; None where the trace began after the first call."""
    if not calls or calls[0].is_free or not calls[0].size == calls[0].in_use == calls[0].peak:
        return None
    best = Replayed(GROWN, [])
    for kind, is_partitioned in _KINDS:
        found = Replayed(kind, list(_follow(calls, kind == GROWN, is_partitioned)))
        best = max(best, found, key=lambda one: len(one.states))
        if len(best.states) == len(calls):
            break
    return best


def _follow(calls: Sequence[Call], grows: bool, is_partitioned: bool) -> Iterator[PoolState]:
    """The states of a pool of one kind while it agrees."""
    here = calls[0]
    twin = BfcAllocator(
        here.limit,
        grows=grows,
        is_partitioned=is_partitioned,
        region_at=lambda _: here.address,
    )
    for call in calls:
        here = call
        if call.is_free:
            if not twin.has(call.address):
                return
            twin.free(call.address)
        elif not _gives_the_same(twin, call):
            return
        if not _has_same_sums(twin, call):
            return
        yield PoolState(twin.pool, twin.largest_free, twin.in_use)


def _gives_the_same(twin: BfcAllocator, call: Call) -> bool:
    try:
        address = twin.allocate(call.asked)
    except PoolExhaustedError:
        return False
    return address == call.address and twin.chunk_at(call.address).size == call.size


def _has_same_sums(twin: BfcAllocator, call: Call) -> bool:
    if (twin.in_use, twin.peak) != (call.in_use, call.peak):
        return False
    return isnan(call.fragmentation) or abs(twin.fragmentation - call.fragmentation) < _DIGITS
