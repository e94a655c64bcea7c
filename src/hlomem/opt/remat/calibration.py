"""A state held against its plan: which of its buffers lie among the temporaries, and in what order.

In: a `State`, and the stages of the program that it stands for. Out: the state with the sizes that
count in that plan, and in that plan's order. Values that lay in the memory of results may lie among
the temporaries once others are computed again: no state knows that of itself. A buffer that was
once seen there counts from then on, or two plans would take turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from hlomem.opt.remat.state import State
    from hlomem.pipeline import Stages


def anchor(state: State, stages: Stages) -> State:
    """The state as it was planned; `stages` are those of its edit, in whatever order."""
    names = state.names()
    node_of = {names[node]: node for node in state.order}
    order = [node_of[one.name] for one in stages.schedule.sequence(stages.module.entry)]
    return replace(state, order=order, flow=replace(state.flow, sizes=_sizes(state, stages, names)))


def _sizes(state: State, stages: Stages, names: list[str]) -> list[int]:
    """Bytes of the buffers that lie among the temporaries of a plan, or counted before."""
    placed = {
        (value.instruction.name, value.index)
        for allocation in stages.assignment.allocations
        if allocation.is_preallocated_temp
        for value in allocation.slices
    }
    flow = state.flow
    sizes = list(state.full)
    for buffer, known in enumerate(flow.buffers):
        if not any((value.instruction.name, value.index) in placed for value in known.values):
            sizes[buffer] = flow.sizes[buffer]
    for node in state.clone_nodes():
        originals = flow.made_by[state.origin[node]]
        for value, original in zip(flow.made_by[node], originals, strict=True):
            if (names[node], flow.origins[original].index) not in placed:
                sizes[flow.values[value].buffer] = flow.sizes[flow.values[value].buffer]
    return sizes
