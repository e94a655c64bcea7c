"""Computations that the partitioner cloned, in the order in which it met what applies them.

In: claims. Out: the key of a clone. The partitioner (`service/spmd/spmd_partitioner.cc`) goes
through a computation at a time, callees first, and counts the channels of the collectives it makes;
of a scatter, which has none, the position in the program tells when it was met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.history.computations.engine import Claims, Priority, when_met

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace

APPLIED_ACROSS_DEVICES = ("all-reduce", "all-reduce-start", "reduce-scatter")
_NO_CHANNEL = 1 << 62


class _Clone(NamedTuple):
    """A clone, and what is known about the operation that applies it."""

    trace: Trace
    channel: int | None
    region: int
    """The position of the original in the program; -1 if the partitioner made that, too."""
    position: int
    """In a walk through the caller."""


def is_cloned_for_partitions(trace: Trace) -> bool:
    """True if the partitioner cloned it for a scatter or for a collective."""
    return (
        trace.module.is_partitioned
        and trace.is_clone
        and trace.application is not None
        and trace.application.opcode in (*APPLIED_ACROSS_DEVICES, "scatter")
    )


def when_partitioned(trace: Trace, claims: Claims) -> Priority:
    """The key of a clone: its caller, the channel, then the position in the program."""
    return *claims.once(_places_of_clones)[trace], *when_met(trace, claims)


def _places_of_clones(claims: Claims) -> dict[Trace, Priority]:
    by_caller: dict[Trace, list[_Clone]] = {}
    channels = _first_channels(list(filter(is_cloned_for_partitions, claims.traces.values())))
    for trace, channel in channels.items():
        flow, position = trace.site_in_flow
        by_caller.setdefault(flow, []).append(_Clone(trace, channel, trace.region, position))
    places: dict[Trace, Priority] = {}
    for flow, clones in by_caller.items():
        for clone in clones:
            places[clone.trace] = *flow.time_by_regions, *_place_in_caller(clone, clones)
    return places


def _first_channels(clones: list[Trace]) -> dict[Trace, int | None]:
    """The channels that clones were made for; later passes give collectives others."""
    last_of: dict[str, int] = {}
    channels: dict[Trace, int | None] = {}
    for clone in sorted(clones, key=lambda trace: trace.parameter_number):
        channel = clone.channel
        if channel is not None and clone.parameter is not None:
            channel = max(channel, last_of.get(clone.parameter.base, channel))
            last_of[clone.parameter.base] = channel
        channels[clone] = channel
    return channels


def _place_in_caller(clone: _Clone, clones: list[_Clone]) -> Priority:
    """By channel; without one, before the first that is applied later in the program."""
    if clone.channel is not None:
        return clone.channel, 1, clone.region
    later = (
        other.channel
        for other in clones
        if other.channel is not None
        and (clone.position < other.position if other.region < 0 else clone.region <= other.region)
    )
    return min(later, default=_NO_CHANNEL), 0, clone.region
