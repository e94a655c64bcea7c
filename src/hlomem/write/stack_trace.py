"""The stack-trace breakdown: live bytes at the peak, summed along calls and names.

Mirrors `hlo/utils/hlo_stack_trace.cc`. The path of a value leads from the entry computation through
calling instructions to its own, by their `op_name`s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import UnsupportedError
from hlomem.dump.live_range import split_name
from hlomem.dump.records import StackTrace, TraceNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction

_MAX_NAMES = 10_000_000
"""On all paths and partial paths together; known programs need 1 %."""


class _Node:
    """A name on some path; `own` bytes end here, `total` includes the children's."""

    __slots__ = ("children", "name", "own", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = 0
        self.total = 0
        self.children: dict[str, _Node] = {}


def build_stack_trace(alive: Sequence[tuple[int, HloValue]], call_graph: CallGraph) -> StackTrace:
    """The breakdown of live values with their bytes: depth first, the largest child first."""
    root = _Node("")
    room = _MAX_NAMES
    for size, value in alive:
        paths, room = _paths(value.instruction, call_graph, room)
        share, remainder = divmod(size, len(paths))
        for number, path in enumerate(paths):
            if value.index:
                path[-1] += str(value.index)
            _insert(root, path, share + (number < remainder))
    return StackTrace(total=root.total, nodes=tuple(_flatten(root)))


def _insert(root: _Node, path: list[str], size: int) -> None:
    node = root
    node.total += size
    for name in path:
        child = node.children.get(name)
        if child is None:
            child = node.children[name] = _Node(name)
        node = child
        node.total += size
    node.own += size


def _flatten(root: _Node) -> Iterator[TraceNode]:
    remaining = root.total
    pending = [(0, node) for node in reversed(_in_order(root))]
    while pending:
        depth, node = pending.pop()
        remaining -= node.own
        yield TraceNode(
            name=node.name,
            depth=depth,
            percent=100.0 * node.total / root.total,
            total=node.total,
            current=node.own,
            remaining=remaining,
        )
        pending += [(depth + 1, child) for child in reversed(_in_order(node))]


def _in_order(node: _Node) -> list[_Node]:
    children = [child for child in node.children.values() if child.total]
    return sorted(children, key=lambda child: (-child.total, child.name))


def _paths(
    instruction: HloInstruction, call_graph: CallGraph, room: int
) -> tuple[list[list[str]], int]:
    """Every path to an instruction, as names, and the room left: 2^n paths are refused."""
    paths: list[list[str]] = []
    pending: list[tuple[HloInstruction, list[str]]] = [(instruction, [])]
    while pending:
        current, below = pending.pop()
        name = current.metadata.op_name or current.name
        path = [current.parent.name, *split_name(name), *below]
        room -= len(path)
        if room < 0:
            problem = f"the calls that lead here make a tree of over {_MAX_NAMES} names"
            raise instruction.error(problem, kind=UnsupportedError)
        callers = call_graph.callsites[current.parent]
        if not callers:
            paths.append(path)
        pending += [(caller, path) for caller in reversed(callers)]
    return paths, room
