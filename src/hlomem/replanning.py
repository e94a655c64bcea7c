"""`hlomem.replan`: a dump in; the plan of its program out, made anew.

The program is rebuilt from the dump (`hlomem.rebuild`). Values are taken as the dump lists them;
aliasing, live ranges, colors and every allocation are planned, as `hlomem.plan` does. Of places
only those are taken over that memory-space assignment fixed before XLA's buffer assignment ran.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hlomem.check.plan import build_plan
from hlomem.check.platform import choose_platform
from hlomem.dump.build import build_contents
from hlomem.dump.compare import find_differences
from hlomem.dump.eras import era_of, find_release, releases_of
from hlomem.errors import CommandError
from hlomem.hlo.schedule import Schedule
from hlomem.pipeline import STAGES, Stages, collector_off
from hlomem.planning import Plan, Watch, dump_of, options_of, preset_of
from hlomem.rebuild.dataflow import recorded_dataflow, recorded_order
from hlomem.rebuild.facts import read_facts
from hlomem.rebuild.module import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.module_order import ModuleOrder
    from hlomem.assign.simulator import Pack
    from hlomem.dump.dump import Dump
    from hlomem.dump.eras import Era, Release
    from hlomem.dump.records import Values
    from hlomem.options import Options
    from hlomem.rebuild.facts import Facts


@dataclass(frozen=True, eq=False)
class RecordedStages(Stages):
    """The stages of a plan whose values a dump lists."""

    values: Values = field(kw_only=True)

    @cached_property
    def order(self) -> ModuleOrder:
        """The order of XLA's lists, as far as the dump shows it."""
        return recorded_order(self.values, self.call_graph)

    @cached_property
    def dataflow(self) -> Dataflow:
        """The values of the dump."""
        return recorded_dataflow(self.values, self.call_graph, self.order)


def replan(
    dump: Dump,
    *,
    backend: str = "",
    chip: str = "",
    era: str = "",
    like: Dump | None = None,
    pack: Pack | None = None,
    name: str = "module",
) -> Plan:
    """What XLA's buffer assignment does with the program a dump is of.

    `backend` and `chip` are inferred where they are not given. `era` and `like` choose a release as
    they do for `plan`. Without them it is one that writes the dump's format: where such releases
    plan differently, the newest whose plan is the dump's, else the newest. `notes` of the plan say
    what was assumed.
    """
    facts = read_facts(dump)
    notes: list[str] = []
    if not backend:
        platform = choose_platform(build_plan(dump), None)
        backend, _, chip = platform.backend.name.partition("-")
        notes.append(f"planned for {platform.backend.name}: {platform.reason}")
    made = None
    for release, written in _releases(backend, era, like, dump):
        if made is not None and options_of(backend, chip, release) == made.stages.options:
            continue
        other = _plan_as(
            release, options_of(backend, chip, release), facts, dump, written, pack, name
        )
        if not find_differences(dump, other.dump):
            made = other
            break
        made = made or other
    assert made is not None, "an era has a release"
    return replace(made, notes=(*notes, *made.notes))


def _releases(
    backend: str, era: str, like: Dump | None, dump: Dump
) -> Iterator[tuple[Release, Era]]:
    """The releases to plan as, the newest first."""
    package = "libtpu" if backend == "tpu" else "jaxlib"
    if era and like is not None:
        raise CommandError("give an era or a dump like which to write, not both")
    if era:
        release = find_release(era, package)
        yield release, era_of(release)
        return
    like = like or dump
    if like.era.letter == "?":
        raise CommandError(f"{like.name}: its era is unknown; give one with --era")
    for each in reversed(like.eras):
        for release in releases_of(each, package):
            yield release, each


def _plan_as(
    release: Release,
    options: Options,
    facts: Facts,
    dump: Dump,
    era: Era,
    pack: Pack | None,
    name: str,
) -> Plan:
    watch = Watch()
    with collector_off():
        rebuilt = rebuild(facts, options)
        watch.lap("rebuild")
        preset = preset_of(dump, options.backend)
        stages = RecordedStages(
            rebuilt.module, Schedule({}), options, pack, preset, values=facts.values
        )
        for stage in STAGES:
            getattr(stages, stage)
            watch.lap(stage)
        contents = build_contents(stages, era.features)
        if dump.report is None:
            contents = contents._replace(report=None)
        watch.lap("records")
    notes = (f"planned as {release}", *rebuilt.notes)
    return Plan(stages, dump_of(name, contents, era, release), watch.seconds, notes)
