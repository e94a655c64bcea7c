"""The order that the tables of a platform give to a text, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.call_graph import CallGraph
from hlomem.history.computations.engine import creation_order
from hlomem.history.evidence import Traces
from hlomem.history.order import tables_of
from hlomem.hlo.text.parser import parse
from hlomem.machines.options import Options

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation

NEWEST = Options()


def traces_of(text: str) -> Traces:
    """The traces of a module."""
    return Traces(CallGraph(parse(text)))


def created(platform: str, traces: Traces, options: Options = NEWEST) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    stages = tables_of(platform).in_force(options).stages
    return [trace.computation for trace in creation_order(traces, stages)]


def created_names(platform: str, text: str, options: Options = NEWEST) -> list[str]:
    """Their names."""
    return [computation.name for computation in created(platform, traces_of(text), options)]
