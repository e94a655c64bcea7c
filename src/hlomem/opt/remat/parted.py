"""Values made of nothing by one fusion, as the zeros that loops begin with: each by its own.

XLA:GPU makes them by one kernel, so that all are there as soon as one is needed. By themselves each
is made where it is read, and may be made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.schedule import running_computations
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.constants import LEAST_PARTED, MAX_SEED
from hlomem.opt.loops.fusion_edit import FusionEdits, LoopDraft
from hlomem.opt.loops.offsets import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.pipeline import Stages

_LOOP = "kLoop"
_WRITE = "dynamic-update-slice"
_ALIASING = "output_to_operand_aliasing"


def part_fusions(candidate: Candidate) -> Candidate | None:
    """The program whose large values that are made of nothing are made one by one."""
    stages = candidate.plan
    if stages.options.machine.changed_after_hook != "fusions":
        return None
    draft = LoopDraft(stages.module)
    draft.moved = HERE
    fusions = FusionEdits(draft)
    least = LEAST_PARTED * candidate.temporaries
    found = list(_find(stages, least))
    try:
        for fusion, groups in found:
            fusions.part(draft.body(fusion.parent), fusion, groups)
        module = draft.finish() if found else None
    except EditError:
        return None
    return None if module is None else changed(candidate, module, "loops")


def _find(stages: Stages, least: float) -> Iterator[tuple[HloInstruction, list[list[int]]]]:
    """Fusions, and numbers of results that stay together: those that are small."""
    size_of = stages.options.machine.size_of
    for computation in running_computations(stages.module):
        awaited = {one for other in computation.instructions for one in other.control_predecessors}
        for one in computation.instructions:
            if one.opcode != "fusion" or one in awaited or not _may_part(one):
                continue
            if sum(size_of(operand.shape) for operand in one.operands) > MAX_SEED:
                continue
            sizes = [size_of(shape) for shape in one.shape.elements]
            small = [number for number, size in enumerate(sizes) if size < least]
            large = [[number] for number, size in enumerate(sizes) if size >= least]
            if len(large) + bool(small) > 1 and large:
                yield one, [*large, *([small] if small else [])]


def _may_part(fusion: HloInstruction) -> bool:
    """Whether each result is a value of its own, which takes no operand's memory."""
    if not fusion.shape.is_tuple or not all(one.shape.is_array for one in fusion.operands):
        return False
    if fusion.attributes.get("kind") != _LOOP:
        return False
    if _ALIASING in fusion.attributes or fusion.is_root or fusion.control_predecessors:
        return False
    if any(user.opcode != "get-tuple-element" for user in fusion.users):
        return False
    [body] = fusion.called_computations
    root = body.root
    if root.opcode != "tuple" or len(set(root.operands)) < len(root.operands):
        return False
    return not any(one.opcode == "parameter" for one in root.operands) and not any(
        one.opcode == _WRITE for one in body.instructions
    )
