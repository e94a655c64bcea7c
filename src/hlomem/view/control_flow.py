"""Loops and conditionals, found in a dump alone.

In the flattened sequence, the condition and body of a loop and the branches of a conditional
directly precede the instruction that runs them (`HloLiveRange::FlattenSchedule`):

    tuple   P  ...  Q  ...  T   W           a loop W: condition from P, body from Q, root T
            P  ... R  Q ... T   C           a conditional C: branches from P and Q, roots R and T

A root is recognized by its shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.quantities import Step
from hlomem.view.computations import CallNest, Computation, find_computations

if TYPE_CHECKING:
    from hlomem.view.joined import JoinedDump


class Loop(Struct, frozen=True):
    """A while, the parameters of its condition and body, and the body's root."""

    instruction: str
    condition_parameter: str
    body_parameter: str
    body_root: str | None
    """None if the dump does not show it."""


class Branch(Struct, frozen=True):
    start: Step
    end: Step
    """One past the last step."""
    root: str | None


class Conditional(Struct, frozen=True):
    instruction: str
    branches: tuple[Branch, ...]

    def branch_at(self, moment: Step) -> int | None:
        for number, branch in enumerate(self.branches):
            if branch.start <= moment < branch.end:
                return number
        return None


class Structure(Struct, frozen=True):
    loops: tuple[Loop, ...] = ()
    conditionals: tuple[Conditional, ...] = ()
    unknown: tuple[str, ...] = ()
    """Loops and conditionals whose parts were not found."""

    def are_exclusive(self, one: Step, two: Step) -> bool:
        for conditional in self.conditionals:
            branches = {conditional.branch_at(one), conditional.branch_at(two)}
            if None not in branches and len(branches) > 1:
                return True
        return False


def find_structure(joined: JoinedDump) -> Structure:
    opcodes = joined.names_of_opcode
    branching = {*opcodes.get("while", ()), *opcodes.get("conditional", ())}
    callers = [name for name in joined.time_of if name in branching]
    if not callers:
        return Structure()
    nest = find_computations(joined)
    called = {computation.name: computation for computation in nest.computations}
    loops: list[Loop] = []
    conditionals: list[Conditional] = []
    unknown: list[str] = []
    for name in callers:
        callees = [called.get(callee) for callee in nest.drafts[name].callees]
        found = [callee for callee in callees if callee is not None and callee.caller == name]
        if not found or len(found) < len(callees):
            unknown.append(name)
        elif joined.printed[name].opcode == "conditional":
            branches = [_branch(joined, computation) for computation in found]
            conditionals.append(Conditional(name, tuple(branches)))
        elif (loop := _loop(joined, nest, found)) is not None:
            loops.append(loop)
        else:
            unknown.append(name)
    return Structure(tuple(loops), tuple(conditionals), tuple(unknown))


def _loop(joined: JoinedDump, nest: CallNest, callees: list[Computation]) -> Loop | None:
    """A loop whose condition and body show their parameter."""
    firsts = [
        next((name for name in computation.instructions if nest.is_parameter(name)), None)
        for computation in callees
    ]
    match firsts:
        case [str() as condition, str() as body]:
            return Loop(callees[0].caller, condition, body, _root(joined, callees[1]))
    return None


def _branch(joined: JoinedDump, computation: Computation) -> Branch:
    moments = [joined.time_of[name] for name in computation.instructions]
    return Branch(min(moments), Step(max(moments) + 1), _root(joined, computation))


def _root(joined: JoinedDump, computation: Computation) -> str | None:
    """The last instruction whose result has the shape of the caller's."""
    wanted = _shapes(joined, computation.caller)
    names = reversed(computation.instructions)
    return next((name for name in names if _shapes(joined, name) & wanted), None)


def _shapes(joined: JoinedDump, name: str) -> set[str]:
    return {placed.value.shape for placed in joined.values_at.get((name, ()), ())}
