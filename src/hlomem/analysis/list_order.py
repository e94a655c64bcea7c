"""The order of a module's lists of computations, instructions and users.

XLA numbers values, and lists positions and uses, in the order of its lists in memory, which text
does not show. It affects ids, never offsets. `hlomem.history.order` infers XLA's order,
`text_order` is that of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction


class ListOrder(Struct, frozen=True, eq=False):
    computations: Sequence[HloComputation]
    """`HloModule::MakeComputationPostOrder`: callees before callers."""
    instructions: Sequence[HloInstruction]
    """The instructions outside fusions, in the order of `computations()` and `instructions()`."""
    users: Mapping[HloInstruction, list[HloInstruction]]
    """`HloInstruction::users()`, if not in the order of the text."""


def text_order(call_graph: CallGraph) -> ListOrder:
    """The order of the text: offsets are the same as in XLA's order, ids differ."""
    computations = call_graph.module.computations
    return ListOrder(computations, listed_instructions(computations, call_graph), {})


def listed_instructions(
    computations: Iterable[HloComputation], call_graph: CallGraph
) -> list[HloInstruction]:
    """The instructions of computations outside fusions, in the order of the text."""
    return [
        instruction
        for computation in computations
        if not call_graph.is_fused(computation)
        for instruction in computation.instructions
    ]
