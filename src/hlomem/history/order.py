"""What XLA's module remembers and its text does not: the order of its lists.

Value ids follow the order of computations; the positions of a value follow the order in which
computations and instructions stand in XLA's lists. Newer versions keep computations sorted
incrementally, so their order depends on the order in which they were made, and that on the passes
of the compiler.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.list_order import ListOrder
from hlomem.history.computations.cpu_derived import sort_derivates
from hlomem.history.computations.creation import creation_order
from hlomem.history.computations.incremental_order import NONE_PASSING, sorted_incrementally
from hlomem.history.instructions.cpu import instructions_by_age, reordered_users

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.computations.incremental_order import Passing
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.machines.options import Options


def infer_order(call_graph: CallGraph, options: Options) -> ListOrder:
    """The order XLA had, as far as ids, or else text and names, tell."""
    passes = _passes_of(options)
    if call_graph.module.creation is not None:
        return _order_of_ids(call_graph, passes, options)
    created = passes.creation_order(call_graph)
    computations: Sequence[HloComputation] = call_graph.module.computations
    if options.sorts_computations_incrementally:
        passing = passes.find_passing(created, call_graph)
        computations = sorted_incrementally(
            created, call_graph, delta=passes.delta, passing=passing
        )
    elif options.sorts_computations_by_content:
        from hlomem.history.computations.by_content import sorted_by_content  # noqa: PLC0415 - start-up

        computations = sorted_by_content(call_graph)
    listed = _read_anew(computations, call_graph) if options.reads_module_anew else created
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for computation in listed:
        if not call_graph.is_fused(computation):
            instructions += passes.instructions_by_age(computation, call_graph)
            users.update(passes.reordered_users(computation, call_graph))
    return ListOrder(computations, instructions, users)


def _order_of_ids(call_graph: CallGraph, passes: _Passes, options: Options) -> ListOrder:
    """The order that ids settle; users have none, so that theirs is inferred all the same."""
    creation = call_graph.module.creation
    assert creation is not None
    computations = list(creation.computations)
    listed = sorted(computations, key=creation.computations.__getitem__)
    if options.reads_module_anew:
        listed = _read_anew(computations, call_graph)
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for computation in listed:
        if not call_graph.is_fused(computation):
            instructions += sorted(computation.instructions, key=creation.instructions.__getitem__)
            users.update(passes.reordered_users(computation, call_graph))
    return ListOrder(computations, instructions, users)


def _read_anew(
    computations: Sequence[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """The computations of a module that was read callees first, then what was made afterwards."""

    def is_late(computation: HloComputation) -> bool:
        return any(site.opcode == "async-start" for site in call_graph.callsites[computation])

    return sorted(computations, key=is_late)


def _none_passing(_created: list[HloComputation], _call_graph: CallGraph) -> Passing:
    return NONE_PASSING


class _Passes(NamedTuple):
    """How the passes of a compiler leave the lists of a module and of its computations."""

    creation_order: Callable[[CallGraph], list[HloComputation]]
    instructions_by_age: Callable[[HloComputation, CallGraph], list[HloInstruction]]
    reordered_users: Callable[
        [HloComputation, CallGraph], Mapping[HloInstruction, list[HloInstruction]]
    ]
    delta: int = 0
    """How far searches for an order go already, because of computations that are gone."""
    find_passing: Callable[[list[HloComputation], CallGraph], Passing] = _none_passing
    """Which computations are gone that others called for a while."""


def _passes_of(options: Options) -> _Passes:
    platform = options.machine.platform
    if platform == "gpu":
        return _gpu_passes()
    if platform == "tpu":
        return _tpu_passes(options)
    sort = partial(sort_derivates, rewrites_reductions_last=options.rewrites_reductions_last)
    make = partial(creation_order, sort_derived=sort)
    return _Passes(make, instructions_by_age, reordered_users)


# The modules of other platforms are imported here, so that the CPU's start sooner.


def _gpu_passes() -> _Passes:
    from hlomem.history.computations.gpu_collectives import synchronized_collectives  # noqa: PLC0415
    from hlomem.history.computations.gpu_since_fusion import gpu_creation_order  # noqa: PLC0415
    from hlomem.history.instructions.gpu import gpu_instructions_by_age  # noqa: PLC0415
    from hlomem.history.users.gpu import gpu_reordered_users  # noqa: PLC0415

    return _Passes(
        gpu_creation_order,
        gpu_instructions_by_age,
        gpu_reordered_users,
        _GPU_DELTA,
        synchronized_collectives,
    )


def _tpu_passes(options: Options) -> _Passes:
    from hlomem.history.computations.tpu_passes import tpu_creation_order  # noqa: PLC0415
    from hlomem.history.instructions import tpu as lists  # noqa: PLC0415

    by_age = lists.tpu_instructions_by_age
    if options.reads_module_anew:
        by_age = lists.tpu_instructions_read_anew
    return _Passes(tpu_creation_order, by_age, lists.tpu_reordered_users, _TPU_DELTA)


_GPU_DELTA = 8
"""Functions were inlined, and clones of their loops became one again."""

_TPU_DELTA = 16
"""Every loop is cloned several times, so that XLA has seen many more computations than are left."""
