"""Calls that counted in the search for an order of computations, and are gone.

In: traces. Out: a number. `xla/online_topsort.h` counts every call it was ever told of, and goes
the further the more there were: also those of functions that were inlined since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.marks import is_own
from hlomem.history.names import CLONE, SUNK, WIDENED

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace, Traces

_CALLS_OF_FUNCTION = 2
"""Into a function, and out of it: what it calls is called again where it was inlined."""


def count_lost_calls(traces: Traces) -> int:
    """The calls of functions that were inlined, and of loops before passes made them anew.

    The program numbers all its computations, and the entry comes last.
    """
    kept = [trace.number for trace in traces.values() if is_own(trace)]
    inlined = max(traces.entry.number - min(kept, default=0) + 1 - len(kept), 0)
    callsites = traces.call_graph.callsites
    of_loops = {
        computation: None
        for computation, sites in callsites.items()
        for site in sites
        if site.opcode == "while"
    }
    remade = sum(_lost_by_loop(traces[computation]) for computation in of_loops)
    return _CALLS_OF_FUNCTION * inlined + remade


def _lost_by_loop(trace: Trace) -> int:
    """The calls of a loop's computation, once for each time it was made anew."""
    times = sum(trace.name.count(mark) for mark in (CLONE, SUNK, WIDENED))
    return times * (1 + len(trace.callees))
