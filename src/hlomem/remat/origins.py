"""The lines of a user's code whose values are computed again.

In: an edited module. Out: lines, those with most bytes first, each with what is done there. They
are where `jax.checkpoint` would have to recompute for the same.
"""

from __future__ import annotations

from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.hlo.schedule import running_computations
from hlomem.remat.edit import SUFFIX
from hlomem.schedule.effects import takes_time

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction, HloModule

MAX_ORIGINS = 5


def find_origins(module: HloModule) -> tuple[str, ...]:
    """The places that most of what is computed again comes from; none where the text has none."""
    bytes_of: dict[str, int] = {}
    for computation in running_computations(module):
        for instruction in computation.instructions:
            if f".{SUFFIX}" in instruction.name and takes_time(instruction):
                place = _place(instruction)
                if place:
                    bytes_of[place] = bytes_of.get(place, 0) + _bytes(instruction)
    return tuple(sorted(bytes_of, key=lambda place: -bytes_of[place])[:MAX_ORIGINS])


def _place(instruction: HloInstruction) -> str:
    """`model.py:12 (tanh)`; empty where nothing is known."""
    metadata = instruction.metadata
    operation = metadata.op_name.rpartition("/")[2]
    file, line = metadata.source_file, metadata.source_line
    if not file and (frames := instruction.stack_frames):
        file, line = frames[0].file_name, frames[0].line
    where = f"{PurePath(file).name}:{line}" if file else ""
    return visible(f"{where} ({operation})" if where and operation else where or operation)


def _bytes(instruction: HloInstruction) -> int:
    return sum(
        prod(leaf.dimensions) * leaf.element_type.byte_width
        for _, leaf in instruction.shape.leaves()
    )
