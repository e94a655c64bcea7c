"""The stack-trace breakdown: bytes alive at the peak, summed up along calls and names.

Mirrors `hlo/utils/hlo_stack_trace.cc`. The path of a value leads from the entry computation through
calling instructions to its own; instructions appear by the name the program gave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import UnsupportedError
from hlomem.base.named_tuples import NamedTuple
from hlomem.dump.trace_names import split_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction

_MAX_NAMES = 10_000_000
"""On all paths together, those that lead to a path counted, too; programs of note need 1 %."""


class TraceEntry(NamedTuple):
    """A node of the breakdown."""

    name: str
    depth: int
    total: int
    """Bytes of the node and of all below it."""
    own: int
    remaining: int
    """Bytes of the nodes that follow."""


class _Node:
    """A name on some path; `own` bytes end here, `total` counts what lies below, too."""

    __slots__ = ("children", "name", "own", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = 0
        self.total = 0
        self.children: dict[str, _Node] = {}


def break_down(alive: Sequence[tuple[int, HloValue]], call_graph: CallGraph) -> list[TraceEntry]:
    """The breakdown of values and their bytes: a tree, depth first, the largest child first."""
    root = _Node("")
    room = _MAX_NAMES
    for size, value in alive:
        paths, room = _paths(value.instruction, call_graph, room)
        share, remainder = divmod(size, len(paths))
        for number, path in enumerate(paths):
            if value.index:
                path[-1] += str(value.index)
            _insert(root, path, share + (number < remainder))
    return _flatten(root)


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


def _flatten(root: _Node) -> list[TraceEntry]:
    entries: list[TraceEntry] = []
    remaining = root.total
    pending = [(0, node) for node in reversed(_in_order(root))]
    while pending:
        depth, node = pending.pop()
        remaining -= node.own
        entries.append(TraceEntry(node.name, depth, node.total, node.own, remaining))
        pending += [(depth + 1, child) for child in reversed(_in_order(node))]
    return entries


def _in_order(node: _Node) -> list[_Node]:
    """The children, the largest first; what has no bytes is left out."""
    children = [child for child in node.children.values() if child.total]
    return sorted(children, key=lambda child: (-child.total, child.name))


def _paths(
    instruction: HloInstruction, call_graph: CallGraph, room: int
) -> tuple[list[list[str]], int]:
    """Every way from the entry computation to an instruction, as names, and the room left.

    n computations that call each other twice make 2^n ways: refused when there is no room for them.
    """
    paths: list[list[str]] = []
    pending: list[tuple[HloInstruction, list[str]]] = [(instruction, [])]
    while pending:
        current, below = pending.pop()
        path = [current.parent.name, *split_name(_shown_name(current)), *below]
        room -= len(path)
        if room < 0:
            problem = f"the calls that lead here make a tree of over {_MAX_NAMES} names"
            raise instruction.error(problem, kind=UnsupportedError)
        callers = call_graph.callsites[current.parent]
        if not callers:
            paths.append(path)
        pending += [(caller, path) for caller in reversed(callers)]
    return paths, room


def _shown_name(instruction: HloInstruction) -> str:
    return instruction.metadata.op_name or instruction.name
