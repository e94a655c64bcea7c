"""Rematerialization (`checkpoint/rematted_computation` in names), donation and offload."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import (
    Comparison,
    at_line,
    is_model,
    listed,
    name_arguments,
)
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.loops import recomputes_alone
from hlomem.report.data.causes.program import ComparedProgram, ProgramArgument, array_of_buffer
from hlomem.report.data.lines import Frame, users_frame
from hlomem.report.data.names import short_line
from hlomem.report.data.phases import REMATTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.report.data.causes.operations import Array, Operation
    from hlomem.report.data.memory import Buffer


_KEPT = frozenset({roles.ACTIVATIONS, roles.STACKED, roles.CARRIED, roles.COPIES})


def find_recomputation(comparison: Comparison) -> Iterator[Finding]:
    """Checkpoints that were added, removed, or keep other values, but for those of new loops."""
    before, after = comparison.programs
    old, new = before.rematted, after.rematted
    more, fewer = (new, old) if not old or not new else (frozenset[str](), frozenset[str]())
    words = ("", "")
    if old and new and not comparison.has_other_era:
        more, fewer = _computed_once(new - old, before), _computed_once(old - new, after)
        words = (f", no longer kept: {listed(sorted(more))}", f": {listed(sorted(fewer))}")
    if more and not recomputes_alone(comparison, AFTER, _operations(after, more)):
        yield _finding(after, more, BEFORE, f"recomputed in the backward pass{words[0]}")
    if fewer and not recomputes_alone(comparison, BEFORE, _operations(before, fewer)):
        yield _finding(before, fewer, AFTER, f"kept, no longer recomputed{words[1]}")


_MOST = 0.5
"""Share of the difference that makes what is kept its cause."""


def find_policies(comparison: Comparison) -> Iterator[Finding]:
    """Another policy of a checkpoint: the same operations, of which other values are kept."""
    if not all(program.rematted for program in comparison.programs):
        return
    total = sum(entry.size for entry in comparison.entries)
    kept = [entry for entry in comparison.entries if _is_kept(entry.buffer)]
    new = [entry for entry in kept if entry.partner is None and entry.size * total > 0]
    if sum(entry.size for entry in kept) * total < _MOST * total**2 or not new:
        return
    largest = max(new, key=lambda entry: abs(entry.size)).buffer
    name = (largest.op_name or "").rpartition("/")[2]
    word = "kept" if total > 0 else "no longer kept"
    yield Finding(
        kind="recomputation",
        text=f"{word} for the backward pass{_named(name, largest.source)}: another policy of"
        " jax.checkpoint",
        claims=lambda entry: _is_kept(entry.buffer),
        source=largest.source,
        is_certain=False,
    )


def _named(name: str, line: str | None) -> str:
    where = f" ({short_line(line)})" if line else ""
    return f", {name}{where}" if name else where


def _operations(program: ComparedProgram, names: frozenset[str]) -> Iterator[Operation]:
    """The recomputed operations of these names."""
    for operation in program.operations:
        if operation.name.partition(f"{REMATTED}/")[2] in names:
            yield operation


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
    for operation in _operations(program, names):
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


def find_carried(comparison: Comparison) -> Iterator[Finding]:
    """Arguments, such as caches, that one program updates in a loop's carry.

    The other reads them as xs and stacks them again as ys, an array of the same shape.
    """
    if not comparison.has_same_arguments:
        return
    stacks = [_stacks(comparison, side) for side in (BEFORE, AFTER)]
    for side, text in (
        (BEFORE, "updated in the carry of a loop{}, no longer"),
        (AFTER, "no longer updated in the carry of a loop{}, but"),
    ):
        arrays = set(stacks[side] - stacks[1 - side])
        arguments = comparison.programs[side].arguments.items()
        names = sorted(n for n, one in arguments if one.array in arrays and not is_model(one))
        if names:
            line = _carried_at(comparison, 1 - side, arrays)
            words = f"{text.format(at_line(line, ' at '))} stacked as a scan's results"
            yield Finding(
                kind="carry",
                text=f"{listed(names)}: {words}",
                claims=lambda entry, at=(side, arrays): _is_stacked_at(entry, *at),  # type: ignore[misc]
                source=line,
                adds_operations=True,
            )


def _stacks(comparison: Comparison, side: int) -> Counter[Array]:
    """How many arrays of each kind loops stack."""
    stacked = (
        array_of_buffer(entry.buffer)
        for entry in comparison.entries
        if entry.side == side and entry.buffer.role == roles.STACKED
    )
    return Counter(array for array in stacked if array is not None)


def _is_stacked_at(entry: Entry, side: int, arrays: set[Array]) -> bool:
    is_stacked = entry.side == side and entry.buffer.role == roles.STACKED
    return is_stacked and array_of_buffer(entry.buffer) in arrays


def _carried_at(comparison: Comparison, side: int, arrays: set[Array]) -> str | None:
    for buffer in comparison.programs[side].memory.buffers:
        if buffer.source and buffer.opcode != "parameter" and array_of_buffer(buffer) in arrays:
            return buffer.source
    return None


def find_offload(comparison: Comparison) -> Iterator[Finding]:
    before, after = comparison.programs
    for there, here, side, text in (
        (after, before, BEFORE, "kept in the host's memory now"),
        (before, after, AFTER, "no longer kept in the host's memory"),
    ):
        if moved := _only_in(there, here):
            yield _offload_finding(comparison, moved, side, text)


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


def _offload_finding(comparison: Comparison, moved: list[Buffer], side: int, text: str) -> Finding:
    """On `side` the values are on the device; a policy that moves them recomputes others, too.

    Where none is seen there, or the program without them there needs more, the rest follows from
    it whatever else changed.
    """
    waiting = Counter(map(array_of_buffer, moved))
    is_shown = any(
        entry.side == side and waiting[array_of_buffer(entry.buffer)]
        for entry in comparison.entries
    )
    total = sum(entry.size for entry in comparison.entries)
    is_against = total > 0 if side == BEFORE else total < 0
    if is_against:
        text += ", at the cost of more on the device" if side == BEFORE else ", which needs less"
    here, there = comparison.programs[side], comparison.programs[1 - side]
    if there.rematted and not here.rematted:
        gone = ", and nothing recomputed any more"
        text += ", others recomputed in the backward pass" if side == BEFORE else gone

    def claims(entry: Entry) -> bool:
        array = array_of_buffer(entry.buffer)
        if entry.side != side or not waiting[array]:
            return False
        waiting[array] -= 1
        return True

    line = next((buffer.source for buffer in moved if buffer.source), None)
    line = line or _line_on_device(moved, here)
    size = format_bytes(sum(buffer.size for buffer in moved))
    where = f" ({short_line(line)})" if line else ""
    return Finding(
        kind="offload",
        text=f"{text}: {size}{where}",
        claims=claims,
        source=line,
        explains_anything=is_against or not is_shown,
        adds_operations=True,
    )


def _line_on_device(moved: list[Buffer], device: ComparedProgram) -> str | None:
    arrays = set(map(array_of_buffer, moved))
    for buffer in device.memory.buffers:
        if buffer.source and array_of_buffer(buffer) in arrays:
            return buffer.source
    return None
