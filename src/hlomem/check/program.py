"""The module a dump plans, as the checker needs it: instructions by name, and its control flow.

In: an `HloModule` and the plan. Out: a `Program`, with the loops and conditionals the module spells
out, in the terms of `hlomem.check.structure`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlomem.check.structure import Branch, Conditional, Loop, Structure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.plan import Plan
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

_RUNS_OTHERS = frozenset({"call", "conditional", "while", "async-start"})


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What runs step by step: the entry and whatever loops, branches and calls run."""

    module: HloModule
    computations: tuple[HloComputation, ...]
    instruction_by_name: dict[str, HloInstruction]
    structure: Structure


def build_program(module: HloModule, plan: Plan) -> Program:
    """The parts of a module that have a place in the sequence."""
    computations = tuple(_iter_running(module))
    by_name = {each.name: each for part in computations for each in part.instructions}
    return Program(module, computations, by_name, _structure(by_name, plan))


def _iter_running(module: HloModule) -> Iterator[HloComputation]:
    """The entry and, each once, what its control flow reaches."""
    seen = {module.entry}
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        yield computation
        for instruction in computation.instructions:
            if instruction.opcode in _RUNS_OTHERS:
                new = [each for each in instruction.called_computations if each not in seen]
                seen.update(new)
                pending += new


def _structure(by_name: dict[str, HloInstruction], plan: Plan) -> Structure:
    loops, conditionals = [], []
    for name in plan.time_of:
        instruction = by_name.get(name)
        if instruction is None:
            continue
        called = instruction.called_computations
        if instruction.opcode == "while" and len(called) == 2:
            body, condition = called
            parameters = [*condition.parameters[:1], *body.parameters[:1]]
            if all(each.name in plan.time_of for each in parameters) and len(parameters) == 2:
                loops.append(Loop(name, parameters[0].name, parameters[1].name, body.root.name))
        elif instruction.opcode == "conditional":
            branches = [_branch(each, plan) for each in called]
            conditionals.append(Conditional(name, tuple(branches)))
    return Structure(tuple(loops), tuple(conditionals))


def _branch(computation: HloComputation, plan: Plan) -> Branch:
    moments = [
        plan.time_of[each.name] for each in computation.instructions if each.name in plan.time_of
    ]
    if not moments:
        return Branch(0, 0, None)
    return Branch(min(moments), max(moments) + 1, computation.root.name)
