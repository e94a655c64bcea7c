"""Phis: values that merge at loops and conditionals.

Most phis turn out redundant: a loop that forwards a value unchanged merges it with itself. Mirrors
`service/hlo_phi_graph.cc` in its order and its omissions, because a phi that XLA fails to remove
keeps its id and appears in the dump.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.base.quantities import ValueId


class _Node:
    """A value in the graph; a phi merges its `operands`."""

    __slots__ = ("is_dead", "is_phi", "operands", "users", "value_id", "value_ids")

    def __init__(self, value_id: ValueId) -> None:
        self.value_id = value_id
        self.value_ids = [value_id]  # its own, and those of the phis it replaced
        self.is_phi = False
        self.is_dead = False
        self.operands: list[_Node] = []
        self.users: list[_Node] = []


class PhiGraph:
    def __init__(self) -> None:
        self._node_of: dict[ValueId, _Node] = {}
        self._nodes: list[_Node] = []

    def register(self, phi: ValueId, inputs: Iterable[ValueId]) -> None:
        """Set the values a phi merges, replacing earlier ones."""
        node = self._node(phi)
        node.is_phi = True
        node.operands = [self._node(value_id) for value_id in inputs]

    def inputs_equal(self, phi: ValueId, inputs: Sequence[ValueId]) -> bool:
        """Whether a phi merges exactly these values."""
        return {node.value_id for node in self._node_of[phi].operands} == set(inputs)

    def optimize(self) -> dict[ValueId, ValueId]:
        """The replacement of every redundant phi; called once, at the end.

        A phi is redundant if it merges one value other than itself (`phi(A, A)`, `phi(A, self)`),
        or if it and the phis it depends on together merge one value that is not a phi.
        """
        for node in self._nodes:
            for operand in node.operands:
                operand.users.append(node)
        while self._optimize_once():
            pass
        return {
            value_id: node.value_id
            for value_id, node in self._node_of.items()
            if node.value_id != value_id
        }

    def _node(self, value_id: ValueId) -> _Node:
        node = self._node_of.get(value_id)
        if node is None:
            node = self._node_of[value_id] = _Node(value_id)
            self._nodes.append(node)
        return node

    def _optimize_once(self) -> bool:
        changed = False
        checked: set[_Node] = set()
        for node in self._nodes:
            if not node.is_phi or node.is_dead:
                continue
            node.operands = [operand for operand in node.operands if operand is not node]
            node.users = [user for user in node.users if user is not node]
            first = node.operands[0]
            if all(operand is first for operand in node.operands):
                self._replace(node, first)
                changed = True
            elif node not in checked:
                closure, source = _closure(node)
                checked.update(closure)
                if source is not None:
                    for phi in closure:
                        if phi.is_phi:
                            self._replace(phi, source)
                    changed = True
        return changed

    def _replace(self, node: _Node, by: _Node) -> None:
        while by.is_dead:
            by = self._node_of[by.value_id]
        if node.is_dead:
            return
        for user in node.users:
            user.operands = [by if operand is node else operand for operand in user.operands]
        # As in XLA, the users of `node` do not become users of `by`.
        for operand in node.operands:
            operand.users = [by if user is node else user for user in operand.users]
        for value_id in node.value_ids:
            self._node_of[value_id] = by
        by.value_ids += node.value_ids
        node.value_ids = []
        node.is_dead = True


def _closure(node: _Node) -> tuple[list[_Node], _Node | None]:
    """The nodes a phi depends on, and the only one that is not a phi, if there is one."""
    source: _Node | None = None
    closure: dict[_Node, None] = {}
    pending = deque([node])
    while pending:
        current = pending.popleft()
        if current in closure:
            continue
        closure[current] = None
        pending += current.operands
        if current.is_phi:
            continue
        if source is not None and source is not current:
            return list(closure), None
        source = current
    return list(closure), source
