"""`hlomem.replan`: plans a dump's program again, with its values and preset offsets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.api.plan import Plan, Stopwatch, both_given, files_of, preset_of, unknown_era
from hlomem.assign.preset import NO_PRESET, Preset
from hlomem.base.errors import InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.dump.compare import find_differences
from hlomem.dump.eras import Era, era_of, releases_of
from hlomem.hlo.schedule import Schedule
from hlomem.machines.options import Options, notes_on_release, options_for
from hlomem.machines.registry import given_machine
from hlomem.machines.releases import Release, find_release
from hlomem.pipeline import Stages
from hlomem.rebuild.dataflow import recorded_dataflow, recorded_order
from hlomem.rebuild.module import rebuild, require_parts
from hlomem.view.guess_machine import choose_machine
from hlomem.view.joined import JoinedDump, join_dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.list_order import ListOrder
    from hlomem.assign.simulator import Pack
    from hlomem.dump.dump import Dump
    from hlomem.dump.records import UsedValue
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine


class RecordedStages(Stages, frozen=True, eq=False, dict=True, kw_only=True):
    values: Sequence[UsedValue]

    @cached_property
    def order(self) -> ListOrder:
        """The order of XLA's lists, as far as the dump shows it."""
        return recorded_order(self.values, self.call_graph)

    @cached_property
    def dataflow(self) -> Dataflow:
        return recorded_dataflow(self.values, self.call_graph, self.order)


def replan(
    dump: Dump,
    *,
    backend: str | Machine = "",
    chip: str = "",
    era: str = "",
    like: Dump | None = None,
    pack: Pack | None = None,
    name: str = "module",
) -> Plan:
    """The plan of XLA's buffer assignment for the program of a dump.

    `backend` and `chip`, or a machine as the backend, are inferred by default. `era` and `like`
    choose a release as for `plan`; by default the newest that writes the dump's format and
    reproduces its plan, else the newest. `notes` of the plan list assumptions.
    """
    if era and like is not None:
        raise both_given()
    notes: list[str] = []
    joined = join_dump(dump)
    machine = given_machine(backend, chip)
    if machine is None:
        guess = choose_machine(joined, None)
        machine = guess.machine
        notes.append(f"planned for {machine.name}: {guess.reason}")
    releases = [
        (release, written, options_for(machine, release))
        for release, written in _releases(machine, era, like or dump)
    ]
    require_parts(joined)
    replanner = _Replanner(joined, pack, name, notes)
    try:
        return replanner.plan_as_one_of(releases)
    except (LookupError, ValueError) as error:
        problem = f"its lines do not make a program ({error!r})"
        raise InputError(f"{visible(dump.name)}: {problem}; `hlomem verify` may say why") from error


def _releases(machine: Machine, era: str, like: Dump) -> Iterator[tuple[Release, Era]]:
    """The releases to plan as, newest first: the named one, or all of a dump's format."""
    package = machine.package
    if era:
        release = find_release(era, package)
        yield release, era_of(release)
        return
    if like.era.letter == "?":
        raise unknown_era(like)
    for known in reversed(like.eras):
        for release in releases_of(known, package):
            yield release, known


class _Replanner(Struct, frozen=True, eq=False):
    joined: JoinedDump
    pack: Pack | None
    name: str
    notes: list[str]

    def plan_as_one_of(self, releases: list[tuple[Release, Era, Options]]) -> Plan:
        """The plan of the first release that reproduces the dump, else of the first."""
        plans: list[Plan] = []
        for release, era, options in releases:
            if not any(options.plans_like(plan.stages.options) for plan in plans):
                plans.append(self._plan_as(release, era, options))
                if not find_differences(self.joined.dump, plans[-1].dump):
                    return plans[-1]
        return plans[0]

    def _plan_as(self, release: Release, era: Era, options: Options) -> Plan:
        watch = Stopwatch()
        with collector_off():
            rebuilt = rebuild(self.joined, options)
            watch.lap("rebuild")
            stages = RecordedStages(
                rebuilt.module,
                Schedule({}),
                options,
                self.pack,
                self._preset(rebuilt.module, options.machine),
                values=self.joined.used,
            )
            stages.compute(watch.lap)
        files = files_of(self.name, era, release)
        if self.joined.dump.report is None:
            files = {name: kind for name, kind in files.items() if kind != "report"}
        unknown = notes_on_release(options.machine, release)
        notes = (*self.notes, f"planned as {release}", *unknown, *rebuilt.notes)
        return Plan(stages, self.name, era, files, watch.seconds, notes)

    def _preset(self, module: HloModule, machine: Machine) -> Preset:
        if machine.preset_color is None:
            return NO_PRESET
        return preset_of(module, self.joined.dump, machine)
