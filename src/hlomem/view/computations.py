"""The computations of a dump: their instructions and their callers.

In XLA's flattened schedule callees precede their caller: read backwards, it nests. Operands tell
the instructions of one computation, and so do ids, which are contiguous in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.view.drafts import Draft, draft_instructions
from hlomem.view.operands import find_operands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.view.joined import JoinedDump


class Computation(Struct, eq=False):
    name: str
    instructions: list[str] = field(default_factory=list)
    caller: str = ""
    """Empty for the entry, and for computations without a visible caller."""


class CallNest(NamedTuple):
    computations: list[Computation]
    """The scheduled computations, the entry first."""
    drafts: dict[str, Draft]
    families: DisjointSets[str]
    """Instructions known to be of one computation."""
    problems: tuple[str, ...]

    def is_parameter(self, name: str) -> bool:
        draft = self.drafts.get(name)
        return draft is not None and draft.opcode == "parameter"


def find_computations(joined: JoinedDump, entry_name: str = "main") -> CallNest:
    families = DisjointSets[str]()
    problems: list[str] = []
    operands = find_operands(joined, families, problems)
    drafts = draft_instructions(joined, operands)
    _unite_by_id(joined, families)
    for name in joined.sequence:  # parameters of called computations have no values of their own
        line = joined.printed.get(name)
        if line is not None and line.opcode == "parameter" and name in joined.own_id:
            families.unite(name, joined.sequence[-1])
    computations = _unflatten(joined, families, drafts, entry_name)
    return CallNest(computations, drafts, families, tuple(problems))


def _unite_by_id(joined: JoinedDump, families: DisjointSets[str]) -> None:
    """Unite the instructions whose ids are between those of one family."""
    ordered = sorted(joined.own_id.items(), key=lambda item: item[1])
    last_of = {families.find(name): number for number, (name, _) in enumerate(ordered)}
    open_until = -1
    for number, (name, _) in enumerate(ordered):
        last = last_of[families.find(name)]
        if number <= open_until:
            families.unite(name, ordered[number - 1][0])
            last = max(last, open_until)
        open_until = last_of[families.find(name)] = last


class _Frame(Struct, eq=False):
    """A computation that is partly read, from its end."""

    computation: Computation
    family: str
    has_parameter: bool = False
    waiting: list[str] = field(default_factory=list)
    """Callees of the instruction read last, in execution order."""


def _unflatten(
    joined: JoinedDump, families: DisjointSets[str], drafts: Mapping[str, Draft], entry_name: str
) -> list[Computation]:
    sequence = joined.sequence
    if not sequence:
        return [Computation(entry_name)]
    done: dict[str, Computation] = {}
    frames = [_open(entry_name, "", families.find(sequence[-1]), done)]
    for name in reversed(sequence):
        family = families.find(name)
        while len(frames) > 1 and _is_over(frames, family):
            frames.pop()
        frame = frames[-1]
        if family != frame.family:
            if frame.waiting:
                callee = frame.waiting.pop()
                caller = frame.computation.instructions[-1]
                frame = _open(callee, caller, family, done)
                frames.append(frame)
            else:
                families.unite(name, frame.family)
                frame.family = families.find(name)
        frame.computation.instructions.append(name)
        draft = drafts.get(name)
        if draft is not None and draft.opcode == "parameter":
            frame.has_parameter = True
        callees = draft.callees if draft is not None else ()
        frame.waiting = [callee for callee in callees if callee not in done]
    for computation in done.values():
        computation.instructions.reverse()
    return list(done.values())


def _open(name: str, caller: str, family: str, done: dict[str, Computation]) -> _Frame:
    computation = done[name] = Computation(name, caller=caller)
    return _Frame(computation, family)


def _is_over(frames: list[_Frame], family: str) -> bool:
    """Whether the previous instruction is not of the innermost computation."""
    *outer, frame = frames
    if family == frame.family or frame.waiting:
        return False
    if any(other.family == family for other in outer):
        return True
    return bool(outer[-1].waiting) and frame.has_parameter
