"""One body that is not as XLA prints it, in a module whose other bodies were read.

In: a computation whose text is not read yet, while those above it are. Out: its lines as XLA prints
them, with their locations, after those of the computations nested in its instructions, which are
added to the module. Names stay as they are: the rest of the module is known by its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.source import Span
from hlomem.hlo.ir import HloComputation
from hlomem.hlo.text.freeform.instructions import BodyReader
from hlomem.hlo.text.freeform.records import DraftComputation, DraftInstruction
from hlomem.hlo.text.freeform.tokens import Tokens
from hlomem.hlo.text.freeform.writing import Written, write_instructions

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.base.source import Source
    from hlomem.hlo.ir import HloInstruction


def rewrite_body(
    computation: HloComputation, body: tuple[int, int]
) -> list[tuple[HloComputation, Written]]:
    """The lines of a body as XLA prints them, after those of nested computations.

    `body` is the text between the braces of the computation.
    """
    start = body[0] - 1
    tokens = Tokens(computation.source, start, body[1] + 2)
    reader = BodyReader(tokens, _finder(computation))
    draft = DraftComputation(computation.name, Span(start, start + 1))
    reader.read_body(draft)
    inner = [nested for nested in reader.computations if nested is not draft]
    made = [_add(nested, computation) for nested in inner]
    return [
        (target, _written(its, computation.source))
        for target, its in zip([*made, computation], [*inner, draft], strict=True)
    ]


def _written(draft: DraftComputation, source: Source) -> Written:
    written = Written(source)
    write_instructions(written, draft.instructions, draft.root)
    return written


def _finder(caller: HloComputation) -> Callable[[str], DraftComputation | None]:
    """Finds the computations above another, known by their parameters and results."""

    def find(name: str) -> DraftComputation | None:
        found = caller.module.computation_by_name.get(name)
        if found is None or found.index >= caller.index or not found.is_open:
            return None
        parameters = [_stand_in(parameter) for parameter in found.parameters]
        return DraftComputation(name, Span(0, 1), parameters, _stand_in(found.root))

    return find


def _stand_in(instruction: HloInstruction) -> DraftInstruction:
    name, shape, opcode = instruction.name, instruction.shape, instruction.opcode
    return DraftInstruction(name, shape, opcode, [], instruction.payload, {}, Span(0, 1))


def _add(draft: DraftComputation, caller: HloComputation) -> HloComputation:
    """A computation of the module for a draft, above the one that calls it."""
    module = caller.module
    name, number = draft.name, 0
    while draft.name in module.computation_by_name:
        number += 1
        draft.name = f"{name}.{number}"
    made = HloComputation(module, draft.name, caller.index, False, draft.thread)
    module.computations.insert(caller.index, made)
    module.computation_by_name[draft.name] = made
    for computation in module.computations[caller.index + 1 :]:
        computation.index += 1
    return made
