"""The rules of XLA's algorithm that differ between its releases, as one frozen object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from hlomem.base.errors import CommandError
from hlomem.machines.releases import LIBTPU, Release, nearest_libtpu

if TYPE_CHECKING:
    from hlomem.machines.machine import Machine


def _default_machine() -> Machine:
    from hlomem.machines.cpu import CPU  # noqa: PLC0415 - which has options to give, too

    return CPU


class Options(Struct, frozen=True):
    """The rules to plan by; the defaults are those of the newest XLA for CPU."""

    machine: Machine = field(default_factory=_default_machine)
    release: Release | None = None
    """The release these rules are of; None is the newest."""
    allocate_constants: bool = True
    """Whether constants get allocations (`allocate_buffers_for_constants`; CPU: yes)."""
    sorts_computations_incrementally: bool = True
    """Whether XLA keeps its computations sorted as they are created (`online_topsort.h`, since
    jaxlib 0.5.3) instead of sorting them on demand. Determines the order of value ids."""
    sorts_computations_by_content: bool = False
    """Values by size of computation (`content_aware_computation_sorting`; TPU to January 2025)."""
    rewrites_reductions_last: bool = False
    """Whether the reduction rewriters clone computations after all other passes (until jaxlib
    0.9.0.1). Determines the order of value ids."""
    flattens_calls_late: bool = False
    """Whether computations with several callers are cloned after gathers and scatters are
    normalized (TPU 7x), or before. Determines the order of value ids."""
    shares_at_any_position: bool = True
    """Whether a value may overwrite an operand at any position that it reads (since jaxlib 0.11.1),
    or only at the operand's last one (`LiveRangeInterferes`)."""
    sorts_thread_local_buffers: bool = False
    """Whether thread-local buffers are assigned by decreasing size (until jaxlib 0.11), not id."""
    calls_extend_operands: bool = False
    """Whether a call keeps its operands alive until it returns (until jaxlib 0.4.23), or only their
    uses in the callee do (`HloLiveRange::GetLastUsageTime`)."""
    forwards_call_markers: bool = True
    """Whether the custom calls that mark inlined functions forward their operands (since jaxlib
    0.12 and libtpu 0.0.50), or return new values."""
    async_updates_in_place: bool = False
    """Whether the start of an asynchronous in-place update holds its operand (libtpu 0.0.51;
    openxla/xla a79e7be839 of August 2026), or its result."""
    async_results_begin_late: bool = True
    """Whether the results of an async-start's computation are live from the start (since jaxlib
    0.12.0.1 and libtpu 0.0.51), or from their definitions, which are earlier."""
    fast_merge: bool = False
    """Whether buffers are assigned by start of live range (`FAST_MERGE`; TPU since libtpu 0.0.46),
    or by decreasing size."""
    fast_merge_colors: frozenset[int] = frozenset()
    """The colors whose heaps are packed by start of live range (TPU since libtpu 0.0.43)."""
    plans_barriers: bool = False
    """Whether optimization barriers are there while memory is planned (GPU until jaxlib 0.11.2), or
    are dropped before (`OptimizationBarrierExpander`)."""
    schedules_breadth_first: bool = True
    """Whether unscheduled programs run breadth first (`BFScheduler`; CPU since jaxlib 0.5.1)."""

    def plans_like(self, other: Options) -> bool:
        return replace(self, release=None) == replace(other, release=None)


def jaxlib_options(machine: Machine, release: Release) -> Options:
    jaxlib = release.version
    return Options(
        machine=machine,
        release=release,
        sorts_computations_incrementally=jaxlib >= (0, 5, 3),
        rewrites_reductions_last=jaxlib < (0, 9, 1),
        shares_at_any_position=jaxlib >= (0, 11, 1),
        sorts_thread_local_buffers=jaxlib < (0, 12),
        calls_extend_operands=jaxlib < (0, 4, 24),
        forwards_call_markers=jaxlib >= (0, 12),
        async_results_begin_late=jaxlib >= (0, 12, 0, 1),
        schedules_breadth_first=jaxlib >= (0, 5, 1),
    )


def options_for(machine: Machine, release: Release) -> Options:
    """The options of a release on a machine; on a TPU, those of the libtpu nearest to a jaxlib."""
    return machine.make_options(machine, own_release(machine, release))


def own_release(machine: Machine, release: Release) -> Release:
    if machine.package == LIBTPU:
        return nearest_libtpu(release)
    if release.package != machine.package:
        problem = f"{release} does not plan for {machine.platform}"
        raise CommandError(f"{problem}, whose XLA comes in {machine.package}")
    return release


def notes_on_release(machine: Machine, release: Release) -> list[str]:
    """Notes on a release that is unknown for a machine, and on the rules used instead."""
    own = own_release(machine, release)
    notes = list[str]()
    if own != release:
        notes.append(f"planned as {own}, the XLA for {machine.platform} nearest to {release}")
    known = machine.known_releases
    if not known or known[0] <= own.version <= known[-1]:
        return notes
    is_newer = own.version > known[-1]
    nearest = Release(own.package, known[-1] if is_newer else known[0])
    which = "the newest known" if is_newer else "the oldest known"
    if len(known) == 1:
        which = "the only release known"
    problem = f"what {own} does differently on {machine.name} is not known"
    return [*notes, f"{problem}: planned with {machine.platform} rules of {nearest}, {which}"]
