"""Values → memory spaces.

Mirrors `BufferAssigner::DefaultColorer` of `service/buffer_assignment.h`: a value's color is the
memory space of its layout. The color of tuple tables of other cores is inferred from TPU dumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.quantities import Color
from hlomem.hlo.ir import MAIN_THREAD

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import Aliasing
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.values import HloValue
    from hlomem.machines.machine import Machine

ColorOf = dict["HloValue", "Color"]


def color_values(aliasing: Aliasing, call_graph: CallGraph, machine: Machine) -> ColorOf:
    color_of = {
        value: value.shape.memory_space for buffer in aliasing.buffers for value in buffer.values
    }
    if machine.far_table_color is not None:
        color = Color(machine.far_table_color)
        color_of.update({value: color for value in color_of if _is_far_table(value, call_graph)})
    return color_of


def _is_far_table(value: HloValue, call_graph: CallGraph) -> bool:
    """Whether a value is a tuple table that another core writes."""
    if not value.shape.is_tuple:
        return False
    home = value.instruction.parent
    return home.execution_thread != MAIN_THREAD and call_graph.is_in_flow(home)
