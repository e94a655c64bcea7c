"""The computations of a dump: their instructions and their callers.

XLA prints the schedule flattened: a callee's instructions stand before the caller's own line. Read
backwards, it is a nest: after a caller come its callees, the last one first, each whole. The
instructions of one computation are recognised by operands, and by ids: XLA numbers the values of
one computation in one stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.base.named_tuples import NamedTuple
from hlomem.view.drafts import draft_instructions
from hlomem.view.operands import find_operands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


class Computation(Struct, eq=False):
    """Names of instructions, in the order they run."""

    name: str
    instructions: list[str] = field(default_factory=list)
    caller: str = ""
    """Empty for the entry, and for computations that no visible instruction calls."""


class CallNest(NamedTuple):
    """A dump's program, taken apart again."""

    computations: list[Computation]
    """The computations in the schedule, the entry first."""
    drafts: dict[str, Draft]
    """Every instruction, by name."""
    families: DisjointSets[str]
    """Instructions that are known to be of one computation."""
    problems: tuple[str, ...]
    """Contradictions of the dump with itself."""

    def is_parameter(self, name: str) -> bool:
        """Whether an instruction is a parameter; one without a draft is not."""
        draft = self.drafts.get(name)
        return draft is not None and draft.opcode == "parameter"


def find_computations(joined: JoinedDump, entry_name: str = "main") -> CallNest:
    """Group the instructions of a dump into computations, and find their callers."""
    families = DisjointSets[str]()
    problems: list[str] = []
    operands = find_operands(joined, families, problems)
    drafts = draft_instructions(joined, operands)
    _unite_stretches(joined, families)
    _unite_entry_parameters(joined, families)
    parameters = {draft.name for draft in drafts.values() if draft.opcode == "parameter"}
    callees = {draft.name: draft.callees for draft in drafts.values() if draft.callees}
    computations = _unflatten(joined, families, callees, parameters, entry_name)
    return CallNest(computations, drafts, families, tuple(problems))


def _unite_stretches(joined: JoinedDump, families: DisjointSets[str]) -> None:
    """Unite the instructions within one stretch of ids."""
    ordered = sorted(joined.own_id.items(), key=lambda item: item[1])
    last_of = {families.find(name): number for number, (name, _) in enumerate(ordered)}
    open_until = -1
    for number, (name, _) in enumerate(ordered):
        last = last_of[families.find(name)]
        if number <= open_until:
            families.unite(name, ordered[number - 1][0])
            last = max(last, open_until)
        open_until = last_of[families.find(name)] = last


def _unite_entry_parameters(joined: JoinedDump, families: DisjointSets[str]) -> None:
    """Unite the parameters with values of their own: those of called computations have none."""
    sequence = joined.sequence
    for name in sequence:
        line = joined.printed.get(name)
        if line is not None and line.opcode == "parameter" and name in joined.own_id:
            families.unite(name, sequence[-1])


class _Frame(Struct, eq=False):
    """A computation whose end has been read, but not yet its beginning."""

    computation: Computation
    family: str
    has_parameter: bool = False
    waiting: list[str] = field(default_factory=list)
    """Callees of the instruction read last, in the order they run."""


def _unflatten(
    joined: JoinedDump,
    families: DisjointSets[str],
    callees: Mapping[str, list[str]],
    parameters: set[str],
    entry_name: str,
) -> list[Computation]:
    """Take the flattened schedule apart; `callees` are those of each caller, as they run."""
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
        frame.has_parameter = frame.has_parameter or name in parameters
        frame.waiting = [callee for callee in callees.get(name, ()) if callee not in done]
    for computation in done.values():
        computation.instructions.reverse()
    return list(done.values())


def _open(name: str, caller: str, family: str, done: dict[str, Computation]) -> _Frame:
    computation = done[name] = Computation(name, caller=caller)
    return _Frame(computation, family)


def _is_over(frames: list[_Frame], family: str) -> bool:
    """Whether the next name to the front is not of the innermost computation."""
    *outer, frame = frames
    if family == frame.family or frame.waiting:
        return False
    if any(other.family == family for other in outer):
        return True
    return bool(outer[-1].waiting) and frame.has_parameter
