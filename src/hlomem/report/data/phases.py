"""The phases of a training step: forward pass, backward pass, and what the latter recomputes.

In: a `MemoryView`. Out: runs of steps, in order. JAX's differentiation writes it into the names of
operations (`jvp(…)`, `transpose(jvp(…))`, `rematted_computation`); a step whose operation has none
of these belongs to no phase, unless the steps before and after it belong to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView

REMATTED = "rematted_computation"
"""The scope JAX puts around what `jax.checkpoint` computes again."""
FORWARD = "forward"
BACKWARD = "backward"
RECOMPUTED = "recomputed"


class Phase(Record, frozen=True, kw_only=True):
    """Consecutive steps of one pass over the model."""

    name: str
    start: int
    end: int
    """Its last step."""


def is_recomputed(operation: str | None) -> bool:
    """The operation is one of the forward pass, done again for the backward pass."""
    return bool(operation) and REMATTED in (operation or "")


def is_forward(operation: str | None) -> bool:
    """The operation is one of the forward pass, and not recomputed."""
    if not operation or is_recomputed(operation):
        return False
    return "jvp(" in operation and "transpose(jvp(" not in operation


def is_backward(operation: str | None) -> bool:
    """The operation is one of the backward pass."""
    return bool(operation) and "transpose(jvp(" in (operation or "")


def phase_of(operation: str | None) -> str | None:
    """The phase an operation belongs to; None where its name does not tell."""
    if not operation or ("jvp(" not in operation and REMATTED not in operation):  # most often
        return None
    if is_recomputed(operation):
        return RECOMPUTED
    if is_forward(operation):
        return FORWARD
    return BACKWARD if is_backward(operation) else None


def build_phases(memory: MemoryView) -> tuple[Phase, ...]:
    """The phases of a training step, first to last; none of a program without a backward pass."""
    names: dict[int, str] = {}
    for buffer in memory.buffers:
        if buffer.start is not None and (name := phase_of(buffer.op_name)) is not None:
            names.setdefault(buffer.start, name)
    if BACKWARD not in names.values():
        return ()
    runs: list[tuple[str, int, int]] = []
    for step in sorted(names):
        if runs and runs[-1][0] == names[step]:
            runs[-1] = (*runs[-1][:2], step)
        else:
            runs.append((names[step], step, step))
    return tuple(Phase(name=name, start=start, end=end) for name, start, end in runs)
