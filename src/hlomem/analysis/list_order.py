"""The order of a module's lists: of its computations, of their instructions, of users.

XLA numbers values and lists positions and uses in the order its lists have in memory, which text
does not show. It decides names and numbers, never a place. An order is therefore an argument of
the analyses: `hlomem.history.order` infers the one XLA had, `text_order` takes the text's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction


class ListOrder(Struct, frozen=True, eq=False):
    """The order of a module's lists."""

    computations: Sequence[HloComputation]
    """`HloModule::MakeComputationPostOrder`: callees before callers."""
    instructions: Sequence[HloInstruction]
    """The instructions outside fusions, in the order of `computations()` and `instructions()`."""
    users: Mapping[HloInstruction, list[HloInstruction]]
    """`HloInstruction::users()`, where it is not in the order of the text."""


def text_order(call_graph: CallGraph) -> ListOrder:
    """The order of the text: every value gets its place as in XLA's order, but another id."""
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
