"""The place of a value, apart from what it is: the kind of its allocation.

In: an allocation. Out: its kind, of which each has exactly one. An activation may lie in memory
that is reserved for a result, and a result in an argument's memory, which the caller has donated.
"""

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

WORDS = {
    DONATED: "in an argument's memory (donated)",
    RESULTS: "in memory reserved for a result",
}
"""Words for a value that lies where its role does not make one expect it."""
HELD_WHOLE = frozenset({ARGUMENTS, DONATED, RESULTS, CONSTANTS})
"""Kinds that are held from the first instruction to the last, whether or not a value is in them."""


def kind_of(allocation: Allocation) -> str:
    """The purpose of an allocation."""
    if allocation.parameter is not None:
        return DONATED if allocation.maybe_live_out else ARGUMENTS
    if allocation.maybe_live_out:
        return RESULTS
    if allocation.is_constant:
        return CONSTANTS
    if allocation.is_thread_local:
        return THREAD_LOCAL
    return TEMPORARIES if allocation.is_preallocated_temp else OTHER
