"""The lists of instructions that libtpu leaves.

Until 0.0.34 by the steps of the CPU compiler. 0.0.51 writes the module out and reads it again
before its last passes, so that lists stand in post-order. Memory-space assignment comes after both
(docs/tpu-rules.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.history.instructions.cpu import CPU_STEPS
from hlomem.history.instructions.steps import Arrangement
from hlomem.history.rules import OBSERVED

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

_MADE_BY_MSA = frozenset({"copy-start", "copy-done", "async-start", "async-done"})
_MADE_ANEW = frozenset({"bitcast", "get-tuple-element", "tuple"})
"""Opcodes that memory-space assignment makes again for what it has moved."""


def _read_anew(_listed: list[HloInstruction], trace: Trace) -> list[HloInstruction]:
    return trace.module.call_graph.post_order(trace.computation)


def _with_copies_last(listed: list[HloInstruction], _trace: Trace) -> list[HloInstruction]:
    made = {instruction for instruction in listed if instruction.opcode in _MADE_BY_MSA}
    if not made:
        return listed
    for instruction in listed:
        is_anew = instruction.opcode in _MADE_ANEW and not instruction.is_root
        if is_anew and not made.isdisjoint(instruction.operands):
            made.add(instruction)
    return sorted(listed, key=made.__contains__)


_OLD, _NEW = "libtpu-0.0.17/tpu-v5e", "libtpu-0.0.51/tpu-v6e"
_GOLDEN_OF = {"bitcasts made of reshapes": "sort_argsort_topk"}
_OF_CPU = frozenset({"calls of the ParallelTaskAssigner", "SmallWhileLoopHoistingPass"})

TPU_STEPS = tuple(
    replace(
        step,
        evidence=OBSERVED,
        source="positions of libtpu 0.0.2 to 0.0.34",
        golden=f"{_OLD}/{_GOLDEN_OF.get(step.name, 'nested_while')}",
        until=(0, 0, 34) if step.opcodes else None,
        option="not reparses_module" if step.opcodes else "",
    )
    for step in CPU_STEPS
    if step.name not in _OF_CPU
)
TPU_ARRANGEMENTS = (
    Arrangement(
        "module read anew",
        OBSERVED,
        "positions of libtpu 0.0.51",
        f"{_NEW}/recsys",
        since=(0, 0, 51),
        option="reparses_module",
        arrange=_read_anew,
    ),
    Arrangement(
        "memory-space assignment",
        OBSERVED,
        "positions of libtpu 0.0.2 to 0.0.51",
        f"{_OLD}/nested_while",
        arrange=_with_copies_last,
    ),
)
