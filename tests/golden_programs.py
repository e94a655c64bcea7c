"""The programs of the goldens, and how each is planned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem
from hlomem import hlo
from hlomem.analysis.live_range import split_sequence
from hlomem.api.plan import preset_of
from hlomem.assign.preset import NO_PRESET
from hlomem.hlo.schedule import schedule_from_names
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import find_release
from hlomem.pipeline import Stages, start_stages
from tests.places import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path


class GoldenProgram(NamedTuple):
    """A module XLA printed, with XLA's dump of its plan beside it."""

    home: Path

    def __str__(self) -> str:
        return "/".join(self.home.parts[-3:])

    @property
    def text(self) -> str:
        """The module."""
        return (self.home / "module.hlo").read_text()

    @property
    def texts(self) -> list[str]:
        """The module as it is, and without lines for its get-tuple-elements as newer XLA prints it.

        What takes its schedule from a dump needs their names.
        """
        module = hlo.parse(self.text)
        style = module.style._replace(compact_gte=True)
        return [self.text, hlo.format_module(module, style)] if module.is_scheduled else [self.text]

    @property
    def _origin(self) -> dict[str, Any]:
        origin: dict[str, Any] = json.loads((self.home / "origin.json").read_text())
        return origin

    def start(self, module: hlo.HloModule) -> Stages:
        """The stages of a plan of a module, as the release plans it that the golden is of."""
        origin = self._origin
        backend = origin["backend"]
        package = "libtpu" if backend == "tpu" else "jaxlib"
        release = find_release(self.home.parts[-3], package)
        options = options_for(find_machine(backend, origin["chip"]), release)
        schedule, preset = None, NO_PRESET
        if not origin["scheduled"]:
            live_ranges = hlomem.load(self.home).live_ranges
            assert live_ranges is not None
            orders = split_sequence(module, live_ranges.sequence)
            schedule = schedule_from_names(module, orders)
        if backend == "tpu":
            preset = preset_of(module, hlomem.load(self.home), options.machine)
        return start_stages(module, options, schedule, preset=preset)


GOLDEN_PROGRAMS = [
    GoldenProgram(path.parent) for path in sorted((GOLDENS / "xla").glob("*/*/*/origin.json"))
]


def planned_values(stages: Stages) -> list[object]:
    """Every value of a plan by names and numbers: id, positions, live range and place."""
    ranges = stages.live_ranges.range_of
    places = {
        value: (allocation.index, place)
        for allocation in stages.assignment.allocations
        for value, place in allocation.slices.items()
    }
    return [
        (
            value.id,
            value.instruction.name,
            value.index,
            value.is_phi,
            [(instruction.name, index) for instruction, index in value.positions],
            ranges.get(value),
            places.get(value),
        )
        for value in stages.dataflow.values
    ]
