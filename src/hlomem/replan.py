"""`hlomem.replan`: a dump in; the plan of its program out, made anew.

The program is rebuilt from the dump (`hlomem.rebuild`); values are taken as the dump lists them,
everything from aliasing on is planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hlomem.assign.packing import pack_best
from hlomem.check.plan import build_plan
from hlomem.check.platform import choose_platform
from hlomem.dump.build import build_contents
from hlomem.dump.eras import find_release
from hlomem.hlo.schedule import Schedule
from hlomem.pipeline import STAGES, Stages, collector_off
from hlomem.planning import Plan, _dump, _options, _preset_of
from hlomem.rebuild.dataflow import recorded_dataflow, recorded_order
from hlomem.rebuild.module import rebuild

if TYPE_CHECKING:
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.module_order import ModuleOrder
    from hlomem.dump.dump import Dump
    from hlomem.dump.records import Values


@dataclass(frozen=True, eq=False)
class RecordedStages(Stages):
    """The stages of a plan whose values a dump lists."""

    values: Values = None

    @cached_property
    def order(self) -> ModuleOrder:
        """The order of the lists the dump shows."""
        return recorded_order(self.values, self.call_graph)

    @cached_property
    def dataflow(self) -> Dataflow:
        """The values of the dump."""
        return recorded_dataflow(self.values, self.call_graph, self.order)


def replan(dump: Dump, release: str = "") -> Plan:
    backend = choose_platform(build_plan(dump), None).backend
    kind, _, chip = backend.name.partition("-")
    package = "libtpu" if kind == "tpu" else "jaxlib"
    rel = find_release(release or dump.era.letter, package)
    if rel.package != package: rel = find_release(dump.era.letter, package)
    options = _options(kind, chip, rel)
    rebuilt = rebuild(dump, is_listed_by_id=not (options.sorts_computations_incrementally or options.sorts_computations_by_content))
    assert dump.values
    stages = RecordedStages(rebuilt.module, Schedule({}), options, preset=_preset_of(dump, options.backend), values=dump.values)
    with collector_off():
        for name in STAGES:
            getattr(stages, name)
        contents = build_contents(stages, dump.era.features)
    return Plan(stages, _dump(dump.name, contents, dump.era, rel), {})
