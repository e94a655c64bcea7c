"""What XLA's module remembers and its text does not: the order of its lists.

Value ids follow the order of computations; the positions of a value follow the order in which
computations and instructions stand in XLA's lists. Newer versions keep computations sorted
incrementally, so their order depends on the order in which they were made, and that on the passes
of the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.analysis.computation_replay import sorted_incrementally
from hlomem.analysis.content_order import sorted_by_content
from hlomem.analysis.creation_order import creation_order
from hlomem.analysis.gpu_creation_order import gpu_creation_order
from hlomem.analysis.gpu_instruction_order import gpu_instructions_by_age
from hlomem.analysis.gpu_user_order import gpu_reordered_users
from hlomem.analysis.instruction_order import instructions_by_age, reordered_users
from hlomem.analysis.tpu_creation_order import tpu_creation_order
from hlomem.analysis.tpu_instruction_order import (
    tpu_instructions_by_age,
    tpu_instructions_read_anew,
    tpu_reordered_users,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.options import Options


class ModuleOrder(Struct, frozen=True, eq=False):
    """The order of a module's lists."""

    computations: Sequence[HloComputation]
    """`HloModule::MakeComputationPostOrder`: callees before callers."""
    instructions: Sequence[HloInstruction]
    """The instructions outside fusions, in the order of `computations()` and `instructions()`."""
    users: Mapping[HloInstruction, list[HloInstruction]]
    """`HloInstruction::users()`, where it is not in the order of the text."""


def infer_order(call_graph: CallGraph, options: Options) -> ModuleOrder:
    """The order XLA had, as far as text and names tell."""
    platform = options.backend.platform
    created = _creation_order(call_graph, options)
    computations: Sequence[HloComputation] = call_graph.module.computations
    if options.sorts_computations_incrementally:
        computations = sorted_incrementally(created, call_graph, delta=_DELTA.get(platform, 0))
    elif options.sorts_computations_by_content:
        computations = sorted_by_content(call_graph)
    lists = _LISTS.get(platform, _Lists(instructions_by_age, reordered_users))
    listed = created
    if options.reads_module_anew:
        lists = _Lists(tpu_instructions_read_anew, tpu_reordered_users)
        listed = _read_anew(computations, call_graph)
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for computation in listed:
        if not call_graph.is_fused(computation):
            instructions += lists.instructions_by_age(computation, call_graph)
            users.update(lists.reordered_users(computation, call_graph))
    return ModuleOrder(computations, instructions, users)


def _read_anew(
    computations: Sequence[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """The computations of a module that was read callees first, then what was made afterwards."""

    def is_late(computation: HloComputation) -> bool:
        return any(site.opcode == "async-start" for site in call_graph.callsites[computation])

    return sorted(computations, key=is_late)


def _creation_order(call_graph: CallGraph, options: Options) -> list[HloComputation]:
    find_order = _CREATION_ORDER.get(options.backend.platform)
    if find_order is not None:
        return find_order(call_graph)
    return creation_order(call_graph, rewrites_reductions_last=options.rewrites_reductions_last)


class _Lists(NamedTuple):
    """How the passes of a compiler leave the lists of a computation."""

    instructions_by_age: Callable[[HloComputation, CallGraph], list[HloInstruction]]
    reordered_users: Callable[
        [HloComputation, CallGraph], Mapping[HloInstruction, list[HloInstruction]]
    ]


# By platform, where the passes are not those of the CPU compiler.
_CREATION_ORDER: dict[str, Callable[[CallGraph], list[HloComputation]]] = {
    "gpu": gpu_creation_order,
    "tpu": tpu_creation_order,
}
_LISTS = {
    "gpu": _Lists(gpu_instructions_by_age, gpu_reordered_users),
    "tpu": _Lists(tpu_instructions_by_age, tpu_reordered_users),
}
# How far searches for an order go already: on TPU every loop is cloned several times, so that XLA
# has seen many more computations than are left.
_DELTA = {"tpu": 16}
