"""The kind of an allocation; values of other roles may lie in it for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.dump.records import Allocation

ARGUMENTS = "arguments"
DONATED = "donated arguments"
RESULTS = "results"
CONSTANTS = "constants"
THREAD_LOCAL = "thread-local"
TEMPORARIES = "temporaries"
OTHER = "other"

WORDS = {DONATED: "in an argument's memory (donated)", RESULTS: "in memory reserved for a result"}
"""Descriptions of unexpected locations."""
HELD_WHOLE = frozenset({ARGUMENTS, DONATED, RESULTS, CONSTANTS})
"""Kinds that are reserved from the first instruction to the last, even while unused."""


def kind_of(allocation: Allocation) -> str:
    if allocation.parameter is not None:
        return DONATED if allocation.maybe_live_out else ARGUMENTS
    if allocation.maybe_live_out:
        return RESULTS
    if allocation.is_constant:
        return CONSTANTS
    if allocation.is_thread_local:
        return THREAD_LOCAL
    return TEMPORARIES if allocation.is_preallocated_temp else OTHER
