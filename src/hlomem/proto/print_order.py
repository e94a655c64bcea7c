"""The order in which XLA prints computations, which is not the order a proto has them in.

In: the ids that tell the order of a module's lists. Out: its computations, callees first, as a text
has them. Mirrors `HloModule::MakeComputationPostOrder` with `dfs_postorder`, and
`HloComputation::MakeEmbeddedComputationsList`, quirks included: what one instruction calls is
marked as seen before any of it is entered.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import Creation, HloComputation

_Calls = dict["HloComputation", list[tuple["HloComputation", ...]]]
"""What the instructions of each computation call, in the order of its list."""


def printed_order(creation: Creation) -> list[HloComputation]:
    """The computations in the order of a text."""
    listed = sorted(creation.computations, key=creation.computations.__getitem__)
    calls: _Calls = {computation: [] for computation in listed}
    for instruction, _ in sorted(creation.instructions.items(), key=itemgetter(1)):
        if instruction.called_computations:
            calls[instruction.parent].append(instruction.called_computations)
    called = {callee for groups in calls.values() for group in groups for callee in group}
    order: dict[HloComputation, None] = {}
    for computation in listed:
        if computation not in called:
            order.update(dict.fromkeys(_embedded(computation, calls)))
            order[computation] = None
    return list(order)


def _embedded(computation: HloComputation, calls: _Calls) -> list[HloComputation]:
    """What a computation calls, directly or not, in post order."""
    seen: set[HloComputation] = set()
    order: list[HloComputation] = []
    stack: list[tuple[HloComputation, Iterator[tuple[HloComputation, ...]]]] = []

    def push(callees: Sequence[HloComputation]) -> None:
        for callee in reversed(callees):
            if callee not in seen:
                seen.add(callee)
                stack.append((callee, iter(calls[callee])))

    for group in calls[computation]:
        push(group)
        while stack:
            current, rest = stack[-1]
            callees = next(rest, None)
            if callees is not None:
                push(callees)
            else:
                stack.pop()
                order.append(current)
    return order
