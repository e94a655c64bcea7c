"""The rules of XLA's algorithm that may differ between two plans of a program: one frozen object.

Every field says what it changes, what XLA does by default, and since when. Machines are tables in
files of their own; here are the rules of the algorithm that changed between versions of XLA.
"""

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
    """Sizes, alignments, memory spaces and alias rules."""
    release: Release | None = None
    """The XLA whose rules these are, for rules a machine has by release; None is the newest."""
    allocate_constants: bool = True
    """Whether constants get allocations (`allocate_buffers_for_constants`; CPU: yes)."""
    sorts_computations_incrementally: bool = True
    """Whether XLA keeps its computations sorted as they are made (`online_topsort.h`, since jaxlib
    0.5.3) instead of sorting them when asked. Decides the order of value ids."""
    sorts_computations_by_content: bool = False
    """Whether values are numbered from small computations to large ones
    (`content_aware_computation_sorting`; TPU until January 2025)."""
    rewrites_reductions_last: bool = False
    """Whether the rewriters of reductions clone computations after all other passes (until jaxlib
    0.9.0.1). Decides the order of value ids."""
    flattens_calls_late: bool = False
    """Whether computations that are called twice are copied after gathers and scatters have been
    normalized (TPU 7x), or before. Decides the order of value ids."""
    shares_at_any_position: bool = True
    """Whether a value may take the place of an operand whichever of the operand's positions it
    reads (since jaxlib 0.11.1), or only if it reads the last one (`LiveRangeInterferes`)."""
    sorts_thread_local_buffers: bool = False
    """Whether thread-local buffers are assigned large ones first, like all others (until jaxlib
    0.11), or by id."""
    calls_extend_operands: bool = False
    """Whether a call keeps its operands alive until it returns (until jaxlib 0.4.23), or only what
    it calls does (`HloLiveRange::GetLastUsageTime`)."""
    async_updates_in_place: bool = False
    """Whether the start of an asynchronous update in place holds what is to be updated (libtpu
    0.0.51; openxla/xla a79e7be839 of August 2026), or what is computed."""
    async_results_begin_late: bool = False
    """Whether the result of what an async-start runs begins to live with the start (libtpu 0.0.51),
    or where it is computed, before."""
    fast_merge: bool = False
    """Whether buffers are assigned in the order in which they begin to live (`FAST_MERGE`; TPU
    since libtpu 0.0.51), or large ones first."""
    fast_merge_colors: frozenset[int] = frozenset()
    """The colors whose heaps are packed in that order as well."""
    schedules_breadth_first: bool = True
    """Whether instructions run as they become ready (`BFScheduler`; CPU since jaxlib 0.5.1), or
    depth first. Matters for programs without a schedule alone."""

    def plans_like(self, other: Options) -> bool:
        """Whether both plan alike, whatever release each is of."""
        return replace(self, release=None) == replace(
            other, release=None
        ) and self.machine.alias_rules(self) == other.machine.alias_rules(other)


def jaxlib_options(machine: Machine, release: Release) -> Options:
    """The options of the XLA in a jaxlib, on every machine it plans for."""
    jaxlib = release.version
    return Options(
        machine=machine,
        release=release,
        sorts_computations_incrementally=jaxlib >= (0, 5, 3),
        rewrites_reductions_last=jaxlib < (0, 9, 1),
        shares_at_any_position=jaxlib >= (0, 11, 1),
        sorts_thread_local_buffers=jaxlib < (0, 12),
        calls_extend_operands=jaxlib < (0, 4, 24),
        schedules_breadth_first=jaxlib >= (0, 5, 1),
    )


def options_for(machine: Machine, release: Release) -> Options:
    """The options of a release on a machine; for a TPU, of the libtpu of a jaxlib's time."""
    return machine.make_options(machine, own_release(machine, release))


def own_release(machine: Machine, release: Release) -> Release:
    """A release of the package a machine's XLA comes in."""
    if machine.package == LIBTPU:
        return nearest_libtpu(release)
    if release.package != machine.package:
        problem = f"{release} does not plan for {machine.platform}"
        raise CommandError(f"{problem}, whose XLA comes in {machine.package}")
    return release


def notes_on_release(machine: Machine, release: Release) -> list[str]:
    """Notes on a release not known for a machine, and on the rules used instead."""
    own = own_release(machine, release)
    notes = list[str]()
    if own != release:
        notes.append(f"planned as {own}, the XLA for {machine.platform} nearest to {release}")
    known = machine.known_releases
    if not known or known[0] <= own.version <= known[-1]:
        return notes
    is_newer = own.version > known[-1]
    nearest = Release(own.package, known[-1] if is_newer else known[0])
    if len(known) == 1:
        which = "the only release known"
    else:
        which = "the newest known" if is_newer else "the oldest known"
    problem = f"what {own} does differently on {machine.name} is not known"
    return [*notes, f"{problem}: planned with {machine.platform} rules of {nearest}, {which}"]
