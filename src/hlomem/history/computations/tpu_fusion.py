"""Fusions that libtpu merged, which moved the computation they were in.

In: the computations of a module, the oldest first. Out: those that were there for a while. After
main fusion a producer may be taken into its consumer, which keeps both results; the producer's body
is copied for that, and the copy goes. The incremental order puts the caller of what is new last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.incremental_order import NONE_VANISHED, Vanished
from hlomem.history.names import CLONE, split_number

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace, Traces
    from hlomem.hlo.ir import HloComputation


def merged_fusions(created: list[HloComputation], traces: Traces) -> Vanished:
    """The copies of producers' bodies, by the numbers of the fusions that took them in.

    Only loops and branches that no later pass made anew can have been moved by them for good.
    """
    older_count = _main_fusion_end([traces[computation] for computation in created])
    merged: list[tuple[int, HloComputation]] = []
    for computation in created[:older_count]:
        trace = traces[computation]
        if trace.is_in_flow and trace is not traces.entry:
            bodies = [callee for callee in trace.callees if callee.is_fused]
            merged += [(body.number, computation) for body in bodies if _has_taken_producer(body)]
    merged.sort(key=lambda entry: entry[0])
    return Vanished(older_count, [caller for _, caller in merged]) if merged else NONE_VANISHED


def _main_fusion_end(created: list[Trace]) -> int:
    """The number of computations made before producers were taken in.

    After that come fusions that are made of two which stood side by side, and have no names that
    tell of their work, and those of bitcasts and copies.
    """
    for rank in range(len(created), 0, -1):
        trace = created[rank - 1]
        is_main = trace.is_fused and not trace.is_clone and trace.name.startswith(_MAIN_FUSION)
        if is_main and not _is_made_of_siblings(trace):
            return rank
    return 0


def _is_made_of_siblings(body: Trace) -> bool:
    names = (split_number(site.name)[0] for site in body.sites)
    return _has_several_results(body) and all(name == _NAMELESS_FUSION for name in names)


def _has_several_results(body: Trace) -> bool:
    return any(site.shape.is_tuple for site in body.sites)


def _has_taken_producer(body: Trace) -> bool:
    """True if a fusion has several results, one of them made of another that was cloned into it."""
    return _has_several_results(body) and any(
        CLONE in result.name and any(user.opcode != "tuple" for user in result.users)
        for result in body.computation.root.operands
    )


_MAIN_FUSION = "fused_computation"
_NAMELESS_FUSION = "fusion"
