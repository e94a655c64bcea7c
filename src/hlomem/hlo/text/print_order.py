"""The order in which XLA prints computations, callees first.

Mirrors `HloModule::MakeComputationPostOrder` and `MakeEmbeddedComputationsList`: the callees of an
instruction are marked as seen before any of them is entered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Node = TypeVar("Node")


def printed_order(calls: Mapping[Node, Sequence[Sequence[Node]]]) -> list[Node]:
    """The computations in the order of a text.

    `calls` has the callees of the instructions of each computation, in the order of its list, the
    computations in the order of the module's.
    """
    called = {callee for groups in calls.values() for group in groups for callee in group}
    order: dict[Node, None] = {}
    for computation in calls:
        if computation not in called:
            order.update(dict.fromkeys(_embedded(computation, calls)))
            order[computation] = None
    return list(order)


def _embedded(computation: Node, calls: Mapping[Node, Sequence[Sequence[Node]]]) -> list[Node]:
    seen: set[Node] = set()
    order: list[Node] = []
    stack: list[tuple[Node, Iterator[Sequence[Node]]]] = []

    def push(callees: Sequence[Node]) -> None:
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
