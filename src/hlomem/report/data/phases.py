"""The phases of a training step, by JAX's operation names: forward, backward, recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView

REMATTED = "rematted_computation"
"""JAX's scope of operations that `jax.checkpoint` recomputes."""
FORWARD = "forward"
BACKWARD = "backward"
RECOMPUTED = "recomputed"


class Phase(Record, frozen=True, kw_only=True):
    name: str
    start: int
    end: int
    """The last step, inclusive."""


def is_recomputed(operation: str | None) -> bool:
    """Whether an operation of the forward pass is repeated for the backward pass."""
    return bool(operation) and REMATTED in (operation or "")


def is_forward(operation: str | None) -> bool:
    if not operation or is_recomputed(operation):
        return False
    return "jvp(" in operation and "transpose(jvp(" not in operation


def is_backward(operation: str | None) -> bool:
    return bool(operation) and "transpose(jvp(" in (operation or "")


def phase_of(operation: str | None) -> str | None:
    """The phase of an operation; None if its name does not tell."""
    if not operation or ("jvp(" not in operation and REMATTED not in operation):  # most
        return None
    if is_recomputed(operation):
        return RECOMPUTED
    if is_forward(operation):
        return FORWARD
    return BACKWARD if is_backward(operation) else None


def build_phases(memory: MemoryView) -> tuple[Phase, ...]:
    """The phases of a training step in order; empty without a backward pass."""
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
