"""`jax.checkpoint` or `nn.remat`: operations that are computed again in the backward pass.

JAX puts `checkpoint/rematted_computation` into their names. Their line is that of the call whose
operations are recomputed: the innermost one they all have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line, listed
from hlomem.report.data.causes.ledger import AFTER, BEFORE
from hlomem.report.data.lines import Frame, users_frame
from hlomem.report.data.phases import REMATTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.report.data.causes.program import Program
    from hlomem.report.data.memory import Buffer

_KEPT = frozenset({roles.ACTIVATIONS, roles.STACKED, roles.CARRIED, roles.COPIES})


def find_recomputation(comparison: Comparison) -> Iterator[Finding]:
    """Checkpoints that are new or gone, or keep something else."""
    old, new = comparison.before.rematted, comparison.after.rematted
    if new and not old:
        yield _finding(comparison.after, new, BEFORE, "recomputed in the backward pass")
    elif old and not new:
        yield _finding(comparison.before, old, AFTER, "kept, no longer recomputed")
    elif not comparison.has_other_era:
        yield from _find_policy(comparison)


def _find_policy(comparison: Comparison) -> Iterator[Finding]:
    """Values that one checkpoint recomputes and the other keeps."""
    before, after = comparison.programs
    more = _computed_once(after.rematted - before.rematted, before)
    fewer = _computed_once(before.rematted - after.rematted, after)
    if more:
        text = f"recomputed in the backward pass, no longer kept: {listed(sorted(more))}"
        yield _finding(after, more, BEFORE, text)
    if fewer:
        text = f"kept, no longer recomputed: {listed(sorted(fewer))}"
        yield _finding(before, fewer, AFTER, text)


def _computed_once(names: Iterable[str], program: Program) -> frozenset[str]:
    """Those that a program has, but does not recompute: so it has to keep them."""
    plain = {name for name in program.operation_names if REMATTED not in name}
    return frozenset(name for name in names if any(has.endswith(f"/{name}") for has in plain))


def _finding(program: Program, names: frozenset[str], side: int, text: str) -> Finding:
    """`side` is where what is recomputed on the other is kept."""
    line = _line(program, names)
    return Finding(
        kind="recomputation",
        text=f"{text} (jax.checkpoint{at_line(line)})",
        claims=lambda entry: _is_kept(entry.change.after if side else entry.change.before),
        source=line,
        adds_operations=True,
    )


def _is_kept(buffer: Buffer | None) -> bool:
    """Whether it is of the forward pass and of the memory of temporaries."""
    if buffer is None or buffer.role not in _KEPT:
        return False
    return "transpose(jvp" not in (buffer.op_name or "")


def _line(program: Program, names: frozenset[str]) -> str | None:
    """The innermost call all recomputed operations have in common."""
    common: list[Frame] | None = None
    for operation in program.operations:
        if operation.name.partition(f"{REMATTED}/")[2] not in names:
            continue
        if frames := program.frames(operation):
            path = list(reversed(frames))
            common = path if common is None else _common_start(common, path)
    frame = users_frame(tuple(reversed(common))) if common else None
    return frame.place if frame else None


def _common_start(one: list[Frame], other: list[Frame]) -> list[Frame]:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return one[:count]
