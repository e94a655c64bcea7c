"""What may differ between two plans of the same program: one frozen object.

Every field says what it changes, what XLA does by default, and since when. Backends are tables in
`hlomem.machines.machine`; here are the rules of the algorithm that changed between versions of XLA.
"""

from __future__ import annotations

from msgspec import Struct

from hlomem.machines.machine import CPU, Backend


class Options(Struct, frozen=True):
    """How to plan; the defaults are those of the newest XLA for CPU."""

    backend: Backend = CPU
    """Sizes, alignments and memory spaces."""
    allocate_constants: bool = True
    """Whether constants get allocations (`allocate_buffers_for_constants`; CPU: yes)."""
    sorts_computations_incrementally: bool = True
    """Whether XLA keeps its computations sorted as they are made (`online_topsort.h`, since jaxlib
    0.5.3) instead of sorting them when asked. Decides the order of value ids."""
    sorts_computations_by_content: bool = False
    """Whether values are numbered from small computations to large ones
    (`content_aware_computation_sorting`; TPU until January 2025)."""
    reads_module_anew: bool = False
    """Whether the module was written out and read again before its last passes (libtpu 0.0.51), so
    that its computations stand callees first. Decides the order of positions."""
    rewrites_reductions_last: bool = False
    """Whether the rewriters of reductions clone computations after all other passes (until jaxlib
    0.9.0.1). Decides the order of value ids."""
    shares_at_any_position: bool = True
    """Whether a value may take the place of an operand whichever of the operand's positions it
    reads (since jaxlib 0.11.1), or only if it reads the last one (`LiveRangeInterferes`)."""
    sorts_thread_local_buffers: bool = False
    """Whether thread-local buffers are assigned large ones first, like all others (until jaxlib
    0.11), or by id."""
    calls_use_operands: bool = False
    """Whether a call keeps its operands alive until it returns (until jaxlib 0.4.23), or only what
    it calls does (`HloLiveRange::GetLastUsageTime`)."""
    async_results_begin_late: bool = False
    """Whether the result of what an async-start runs begins to live with the start (libtpu 0.0.51),
    or where it is computed, before."""
    merges_fast: bool = False
    """Whether buffers are assigned in the order in which they begin to live (`FAST_MERGE`; TPU
    since libtpu 0.0.51), or large ones first."""
    packs_by_time: frozenset[int] = frozenset()
    """The colors whose heaps are packed in that order, too."""
    schedules_breadth_first: bool = True
    """Whether instructions run as they become ready (`BFScheduler`; CPU since jaxlib 0.5.1), or
    depth first. Matters for programs without a schedule alone."""


def options_for(backend: Backend, jaxlib: tuple[int, ...]) -> Options:
    """How the XLA in a jaxlib of some version plans."""
    return Options(
        backend=backend,
        sorts_computations_incrementally=jaxlib >= (0, 5, 3),
        rewrites_reductions_last=jaxlib < (0, 9, 1),
        shares_at_any_position=jaxlib >= (0, 11, 1),
        sorts_thread_local_buffers=jaxlib < (0, 12),
        calls_use_operands=jaxlib < (0, 4, 24),
        schedules_breadth_first=jaxlib >= (0, 5, 1),
    )


def options_for_libtpu(backend: Backend, libtpu: tuple[int, ...]) -> Options:
    """How the XLA in a libtpu of some version plans; docs/tpu-rules.md has the evidence."""
    merges_fast = libtpu >= (0, 0, 51)
    return Options(
        backend=backend,
        sorts_computations_incrementally=libtpu >= (0, 0, 9),
        sorts_computations_by_content=libtpu < (0, 0, 9),
        reads_module_anew=libtpu >= (0, 0, 51),
        shares_at_any_position=libtpu >= (0, 0, 51),
        sorts_thread_local_buffers=libtpu < (0, 0, 51),
        async_results_begin_late=libtpu >= (0, 0, 51),
        merges_fast=merges_fast,
        packs_by_time=_SIZED_SPACES if merges_fast else frozenset(),
    )


_SIZED_SPACES = frozenset({0, 6})
