"""A checker of programs whose loops stack other values: both must compute the same terms.

Both are run on terms instead of numbers; equal operations on equal terms are one term. Known
integers are computed, so that loops that differ are gone through iteration by iteration, and a
slice of a stack is found by its index; branches that differ are all gone through. What the world
outside sees must happen to the same terms in the same order, and so must what devices do together;
other calls as often to the same terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.checks.edit import Classes, check_header
from hlomem.opt.checks.effects import compare_effects
from hlomem.opt.checks.execution import Execution, Undecided
from hlomem.opt.checks.offsets import new_slices, wrong_offset
from hlomem.opt.checks.order import STRICT, Allowed

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule


def find_meaning_problems(given: HloModule, edited: HloModule, _: Allowed = STRICT) -> list[str]:
    """Problems of an edited module; one that is too large to be checked has one, too."""
    problems = list(check_header(given, edited))
    if problems:
        return problems
    classes = Classes(of_values=True)
    execution = Execution(_other_bodies(given, edited, classes), classes)
    try:
        before, after = execution.run(given), execution.run(edited)
    except Undecided as reason:
        return [str(reason)]
    new = new_slices(given, edited)
    problems += [wrong_offset(one) for one in new if not execution.begins_as_said(one)]
    problems += compare_effects(before[1], after[1])
    problems += [
        f"result {number} is a different value"
        for number, (one, other) in enumerate(zip(before[0], after[0], strict=True))
        if one != other
    ]
    return problems


def _other_bodies(given: HloModule, edited: HloModule, classes: Classes) -> set[str]:
    """Names of loops and branches not in both modules, with bodies that say the same."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for module in (given, edited):
        for computation in module.outer_computations:
            for instruction in computation.instructions:
                if instruction.opcode in ("conditional", "while"):
                    bodies = tuple(map(classes.of_body, instruction.called_computations))
                    found.setdefault(instruction.name, []).append(bodies)
    return {name for name, bodies in found.items() if len(bodies) < 2 or len(set(bodies)) > 1}
