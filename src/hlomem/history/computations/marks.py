"""The marks that passes leave on what they make, on every platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.walks import wrapped_bodies
from hlomem.history.names import PARTITIONED, TOP_K_COMPARATOR

if TYPE_CHECKING:
    from hlomem.history.computations.engine import Claims
    from hlomem.history.evidence import Trace


def is_own(trace: Trace) -> bool:
    """True if the program came with it."""
    return not trace.is_fused and not trace.is_derived and not is_partitioned(trace)


def is_partitioned(trace: Trace) -> bool:
    """True if the partitioner made it of one of the program's own."""
    return trace.name.endswith(PARTITIONED)


def is_fused(trace: Trace) -> bool:
    """True if it is the body of a fusion."""
    return trace.is_fused


def is_clone(trace: Trace) -> bool:
    """True if a pass copied another one."""
    return trace.is_clone


def is_derived(trace: Trace) -> bool:
    """True if a pass made it, of another one or anew."""
    return trace.is_derived


def is_promoted(trace: Trace) -> bool:
    """True if `AllReducePromotion` made it."""
    return "_promoted" in trace.name


def is_top_k_comparator(trace: Trace) -> bool:
    """True if `TopkDecomposer` made it, or the original of it."""
    return trace.name.startswith(TOP_K_COMPARATOR)


def is_first_top_k_comparator(trace: Trace) -> bool:
    """True if `TopkDecomposer` made it."""
    return is_top_k_comparator(trace) and not trace.is_clone


def find_wrapped(claims: Claims) -> list[Trace]:
    """Bodies around one instruction, as the program is walked through."""
    return wrapped_bodies(claims.traces)
