"""Loops and branches, found in a dump alone.

XLA flattens a program into one sequence: condition and body of a loop, and the branches of a
conditional one after another, stand directly before the instruction that runs them
(`HloLiveRange::FlattenSchedule`). A dump does not print which computation an instruction belongs
to; its parameters tell:

    tuple   P  ...  Q  ...  T   W           a loop W: condition from P, body from Q, root T
            P  ... R  Q ... T   C           a conditional C: branches from P and Q, roots R and T

The parameters of a loop carry the shape of the loop and are phi values, so reading the sequence
with a stack finds them. Those of a branch are positions of the conditional's operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.view.joined import JoinedDump


@dataclass(frozen=True, slots=True)
class Loop:
    """A while, the parameters of its condition and body, and what the body returns."""

    instruction: str
    condition_parameter: str
    body_parameter: str
    body_root: str | None
    """None where the dump does not tell."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a conditional: the moments it takes, and what it returns."""

    start: int
    end: int
    """One past its last moment."""
    root: str | None


@dataclass(frozen=True, slots=True)
class Conditional:
    """A conditional and its branches in order."""

    instruction: str
    branches: tuple[Branch, ...]

    def branch_at(self, moment: int) -> int | None:
        """Which branch runs at a moment."""
        for number, branch in enumerate(self.branches):
            if branch.start <= moment < branch.end:
                return number
        return None


@dataclass(frozen=True, slots=True)
class Structure:
    """The control flow of a program, as far as it is known."""

    loops: tuple[Loop, ...] = ()
    conditionals: tuple[Conditional, ...] = ()
    unknown: tuple[str, ...] = ()
    """Loops and conditionals whose parts were not found."""

    def are_exclusive(self, one: int, two: int) -> bool:
        """Whether two moments lie in different branches of one conditional."""
        for conditional in self.conditionals:
            branches = {conditional.branch_at(one), conditional.branch_at(two)}
            if None not in branches and len(branches) > 1:
                return True
        return False


def find_structure(joined: JoinedDump) -> Structure:
    """The loops and conditionals a dump shows."""
    loops, unknown = _find_loops(joined)
    conditionals: list[Conditional] = []
    inside = [
        (joined.time_of[each.condition_parameter], joined.time_of[each.instruction])
        for each in loops
    ]
    branching = {name for name, text in joined.printed.items() if text.opcode == "conditional"}
    for name in sorted(branching & joined.time_of.keys(), key=joined.time_of.__getitem__):
        taken = {branch.start for each in conditionals for branch in each.branches}
        found = _find_branches(joined, name, inside, taken)
        if found is None:
            unknown.append(name)
        else:
            conditionals.append(found)
    return Structure(tuple(loops), tuple(conditionals), tuple(unknown))


def _find_loops(joined: JoinedDump) -> tuple[list[Loop], list[str]]:
    phis = {placed.value.name for placed in joined.placed if placed.value.is_phi}
    open_parameters: list[str] = []
    loops: list[Loop] = []
    unknown: list[str] = []
    for name in joined.time_of if phis else ():
        text = joined.printed.get(name) if name in phis else None
        if text is None:
            continue
        if text.opcode == "parameter":
            open_parameters.append(name)
        elif text.opcode == "while":
            mine = [
                each
                for each in open_parameters
                if joined.printed[each].shape_text == text.shape_text
            ][-2:]
            if len(mine) < 2:
                unknown.append(name)
                continue
            del open_parameters[open_parameters.index(mine[0]) :]
            span = (joined.time_of[mine[1]], joined.time_of[name])
            nested = [
                (joined.time_of[x.condition_parameter], joined.time_of[x.instruction])
                for x in loops
            ]
            root = _last_of_shape(joined, name, span, nested)
            loops.append(Loop(name, mine[0], mine[1], root))
    return loops, unknown


def _last_of_shape(
    joined: JoinedDump, name: str, span: tuple[int, int], nested: Iterable[tuple[int, int]]
) -> str | None:
    """The last instruction in a span whose result has the shape of `name`'s, outside loops."""
    wanted = {placed.value.shape for placed in joined.values_at.get((name, ()), ())}
    within = [each for each in nested if span[0] < each[0] and each[1] < span[1]]
    for moment in range(span[1] - 1, span[0] - 1, -1):
        if any(start <= moment < end for start, end in within):
            continue
        instruction = joined.sequence[moment]
        shapes = {placed.value.shape for placed in joined.values_at.get((instruction, ()), ())}
        if shapes & wanted:
            return instruction
    return None


def _find_branches(
    joined: JoinedDump, name: str, nested: Iterable[tuple[int, int]], taken: set[int]
) -> Conditional | None:
    """The branches of a conditional; those of conditionals inside it begin at what is `taken`."""
    operands = joined.printed[name].operands[1:]
    end = joined.time_of[name]
    after = max((joined.time_of.get(each, end) for each in operands), default=end)
    starts = set()
    for operand in operands:
        for placed in joined.values_at.get((operand, ()), ()):
            assert placed.used is not None
            moments = [
                joined.time_of.get(position.instruction, -1)
                for position in placed.used.positions
                if not position.index and position.instruction not in joined.users
            ]
            starts |= {moment for moment in moments if after < moment < end}
    starts -= taken
    if len(starts) != len(operands):
        return None
    bounds = [*sorted(starts), end]
    return Conditional(
        name,
        tuple(
            Branch(start, stop, _last_of_shape(joined, name, (start, stop), nested))
            for start, stop in pairwise(bounds)
        ),
    )
