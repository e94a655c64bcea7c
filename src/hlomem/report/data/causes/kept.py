"""Rematerialization (`checkpoint/rematted_computation` in names), donation and offload."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line, listed, name_arguments
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import ComparedProgram, ProgramArgument, array_of_buffer
from hlomem.report.data.lines import Frame, users_frame
from hlomem.report.data.names import short_line
from hlomem.report.data.phases import REMATTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.report.data.memory import Buffer


_KEPT = frozenset({roles.ACTIVATIONS, roles.STACKED, roles.CARRIED, roles.COPIES})


def find_recomputation(comparison: Comparison) -> Iterator[Finding]:
    """Checkpoints that were added, removed, or keep other values."""
    old, new = comparison.before.rematted, comparison.after.rematted
    if new and not old:
        yield _finding(comparison.after, new, BEFORE, "recomputed in the backward pass")
    elif old and not new:
        yield _finding(comparison.before, old, AFTER, "kept, no longer recomputed")
    elif not comparison.has_other_era:
        before, after = comparison.programs
        more = _computed_once(after.rematted - before.rematted, before)
        fewer = _computed_once(before.rematted - after.rematted, after)
        if more:
            text = f"recomputed in the backward pass, no longer kept: {listed(sorted(more))}"
            yield _finding(after, more, BEFORE, text)
        if fewer:
            text = f"kept, no longer recomputed: {listed(sorted(fewer))}"
            yield _finding(before, fewer, AFTER, text)


def _computed_once(names: Iterable[str], program: ComparedProgram) -> frozenset[str]:
    """The operations a program has but does not recompute, so that it keeps their values."""
    plain = {name for name in program.operation_names if REMATTED not in name}
    return frozenset(name for name in names if any(has.endswith(f"/{name}") for has in plain))


def _finding(program: ComparedProgram, names: frozenset[str], side: int, text: str) -> Finding:
    """`side` keeps the values that the other recomputes."""
    line = _line(program, names)
    return Finding(
        kind="recomputation",
        text=f"{text} (jax.checkpoint{at_line(line)})",
        claims=lambda entry: _is_kept(entry.change.after if side else entry.change.before),
        source=line,
        adds_operations=True,
    )


def _is_kept(buffer: Buffer | None) -> bool:
    if buffer is None or buffer.role not in _KEPT:
        return False
    return "transpose(jvp" not in (buffer.op_name or "")


def _line(program: ComparedProgram, names: frozenset[str]) -> str | None:
    common: list[Frame] | None = None
    for operation in program.operations:
        if operation.name.partition(f"{REMATTED}/")[2] not in names:
            continue
        if frames := program.frames(operation):
            path = list(reversed(frames))
            common = path if common is None else _common_start(common, path)
    frame = users_frame(tuple(reversed(common))) if common else None
    return frame.location if frame else None


def _common_start(one: list[Frame], other: list[Frame]) -> list[Frame]:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return one[:count]


def find_donation(comparison: Comparison) -> Iterator[Finding]:
    pairs = comparison.arguments
    added = [pair.before for pair in pairs if pair.after.is_donated > pair.before.is_donated]
    dropped = [pair.after for pair in pairs if pair.before.is_donated > pair.after.is_donated]
    if added:
        names = name_arguments(added, comparison.before.arguments.values())
        text = f"now donated: {names}; their memory is reused by results"
        yield _donation_finding(comparison, added, BEFORE, text)
    if dropped:
        names = name_arguments(dropped, comparison.after.arguments.values())
        text = f"no longer donated: {names}; results take memory of their own"
        yield _donation_finding(comparison, dropped, AFTER, text)


def _donation_finding(
    comparison: Comparison, arguments: Sequence[ProgramArgument], side: int, text: str
) -> Finding:
    """On `side` the arguments are not donated and results have memory of their own."""
    waiting = Counter(argument.size for argument in arguments)

    def claims(entry: Entry) -> bool:
        size = abs(entry.size)
        if entry.side != side or entry.is_lodged or not waiting[size]:
            return False
        if not comparison.is_result(entry):
            return False
        waiting[size] -= 1
        return True

    return Finding(kind="donation", text=text, claims=claims, takes_rest=False)


def find_offload(comparison: Comparison) -> Iterator[Finding]:
    before, after = comparison.programs
    for there, here, side, text in (
        (after, before, BEFORE, "kept in the host's memory now"),
        (before, after, AFTER, "no longer kept in the host's memory"),
    ):
        if moved := _only_in(there, here):
            yield _offload_finding(moved, here, side, text)


def _only_in(one: ComparedProgram, other: ComparedProgram) -> list[Buffer]:
    known = Counter(map(array_of_buffer, other.host_buffers))
    found = []
    for buffer in one.host_buffers:
        array = array_of_buffer(buffer)
        if known[array]:
            known[array] -= 1
        elif array is not None:
            found.append(buffer)
    return found


def _offload_finding(moved: list[Buffer], device: ComparedProgram, side: int, text: str) -> Finding:
    waiting = Counter(map(array_of_buffer, moved))

    def claims(entry: Entry) -> bool:
        array = array_of_buffer(entry.buffer)
        if entry.side != side or not waiting[array]:
            return False
        waiting[array] -= 1
        return True

    line = next((buffer.source for buffer in moved if buffer.source), None)
    line = line or _line_on_device(moved, device)
    size = format_bytes(sum(buffer.size for buffer in moved))
    where = f" ({short_line(line)})" if line else ""
    return Finding(
        kind="offload", text=f"{text}: {size}{where}", claims=claims, source=line, takes_rest=False
    )


def _line_on_device(moved: list[Buffer], device: ComparedProgram) -> str | None:
    arrays = set(map(array_of_buffer, moved))
    for buffer in device.memory.buffers:
        if buffer.source and array_of_buffer(buffer) in arrays:
            return buffer.source
    return None
