"""The order in which XLA prints computations, callees first.

Mirrors `HloModule::MakeComputationPostOrder` and `MakeEmbeddedComputationsList`: the callees of an
instruction are marked as seen before any of them is entered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloComputation

Calls = dict["HloComputation", list[tuple["HloComputation", ...]]]
"""The callees of the instructions of each computation, in the order of its list."""


def printed_order(calls: Calls) -> list[HloComputation]:
    """The computations in the order of a text; given in the order of the module's list."""
    called = {callee for groups in calls.values() for group in groups for callee in group}
    order: dict[HloComputation, None] = {}
    for computation in calls:
        if computation not in called:
            order.update(dict.fromkeys(_embedded(computation, calls)))
            order[computation] = None
    return list(order)


def _embedded(computation: HloComputation, calls: Calls) -> list[HloComputation]:
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
