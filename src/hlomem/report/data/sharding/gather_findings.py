"""Findings on collectives: weights kept gathered, and values resharded through a full copy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern
from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.phases import is_backward
from hlomem.report.data.sharding.collectives import find_argument
from hlomem.report.data.sharding.finding import ShardingChange, ShardingFinding
from hlomem.report.data.sharding.promise import Steps, promise
from hlomem.report.data.sharding.values import WORTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.sharding.subject import Subject
    from hlomem.report.data.sharding.whole_program import WholeValue

_SMALL = 0.001
_WARNING = "Involuntary full rematerialization"
_OPERATION = lazy_pattern(r"HLO operation:? %?([\w.-]++) = ([^\n]*+)")
_NAME = lazy_pattern(r'op_name="((?:[^"\\\n]|\\.)*+)"')
_FROM_TO = lazy_pattern(r"from sharding (\{[^\n]*?\}) to (\{[^\n]*?\}) (?:efficiently|without)")
_MAX_HOPS = 16


def find_kept_gathers(subject: Subject) -> Iterator[ShardingFinding]:
    """Weights that are gathered once for both passes."""
    kept = list(_kept(subject))
    lives = {buffer.id: steps for buffer, _, steps in kept}
    saved = promise(subject.memory, subject.space, {}, lives) if kept else 0
    if saved < WORTH * subject.space.size:
        return
    by_line: dict[str | None, int] = defaultdict(int)
    for buffer, _, _ in kept:
        by_line[buffer.source] += buffer.size
    line = max(by_line, key=lambda one: (by_line[one], one or ""))
    names = tuple(dict.fromkeys([argument for _, argument, _ in kept]))
    size = sum(buffer.size for buffer, _, _ in kept)
    first = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
    yield ShardingFinding(
        kind="gathered",
        title=f"{first}: {format_bytes(size)} gathered by the forward pass, kept for the backward",
        why=f"{len(kept)} gathered values stay on each device from the forward pass until the"
        " backward pass reads them; gathering them again needs only the parts",
        size=size,
        promised=saved,
        source=line,
        names=names,
        axes=(),
        how="jax.checkpoint around the layers, with a policy that drops what is gathered",
        change=ShardingChange(drops_gathered=True),
    )


def _kept(subject: Subject) -> Iterator[tuple[Buffer, str, Steps]]:
    """Gathered values that the backward pass reads, and when they are read."""
    memory = subject.memory
    for buffer in memory.buffers:
        is_small = buffer.size < _SMALL * subject.space.size
        if is_small or buffer.color != subject.space.color or is_backward(buffer.op_name):
            continue
        one = memory.instruction_by_name.get(buffer.name.partition("{")[0])
        if one is None or one.opcode in ("parameter", "while", "get-tuple-element", "tuple"):
            continue
        argument = find_argument(memory, one, through_gathers=True)
        if argument is None or argument.role != roles.WEIGHTS or buffer.size <= argument.size:
            continue
        if (steps := _read_at(subject, buffer)) is not None:
            yield buffer, argument.parameter or argument.name, steps


def _read_at(subject: Subject, buffer: Buffer) -> Steps | None:
    """The steps of the forward reads and of the backward reads; None if it is not kept."""
    memory = subject.memory
    if buffer.start is None:
        return None
    printed, times = memory.joined.printed, memory.joined.time_of
    forward: list[int] = [buffer.start]
    backward: list[int] = []
    for name in memory.joined.placed_by_id[buffer.id].users:
        if name in printed and name in times:
            is_late = is_backward(printed[name].op_name)
            (backward if is_late else forward).append(times[name])
    late = [step for step in backward if step > max(forward)]
    if not late:
        return None
    return ((buffer.start, max(forward)), *[(step, step) for step in late])


def partitioner_warnings(log: str) -> list[str]:
    """The lines of a log by which the partitioner warns of full copies."""
    return [line for line in log.split("\n") if _WARNING in line]


def find_full_reshards(subject: Subject) -> Iterator[ShardingFinding]:
    """Values that are gathered whole, of which each device then takes another part."""
    told = {name: text for text in subject.warnings for name in _NAME.findall(text)}
    found = [(subject.memory.buffer_by_id(one), by) for one, by in subject.resharded.items()]
    share = {buffer.id: _share_left(subject) for buffer, _ in found}
    saved = promise(subject.memory, subject.space, share) if found else 0
    if saved < WORTH * subject.space.size:
        return
    buffer, taker = max(found, key=lambda one: (one[0].size, -(one[0].start or 0)))
    yield _reshard(subject, buffer, taker, saved, told)


def _share_left(subject: Subject) -> float:
    mesh = subject.layouts.mesh
    return 1 / mesh.size if mesh is not None else 1.0


def _reshard(
    subject: Subject, buffer: Buffer, taker: HloInstruction, saved: int, told: dict[str, str]
) -> ShardingFinding:
    names = [taker.metadata.op_name, buffer.op_name or ""]
    value = next((one for name in names for one in _whole_of(subject, name)), None)
    warning = next((told[name] for name in names if name in told), next(iter(told.values()), ""))
    line = subject.whole.line(value) if value is not None and subject.whole else buffer.source
    kept = _source_sharding(subject, value)
    return ShardingFinding(
        kind="reshard",
        title=f"{format_bytes(buffer.size)} on each device: gathered whole, then split again",
        why=f"{buffer.name} is the whole array; each device then keeps one part of it"
        + (": XLA calls this an involuntary full rematerialization" if warning else ""),
        size=buffer.size,
        promised=saved,
        source=line,
        names=(buffer.name,),
        axes=(),
        how=f"jax.lax.with_sharding_constraint(…, NamedSharding(mesh, {kept}))"
        if kept
        else "ask for a sharding that splits the same dimension as before",
        change=ShardingChange(constraint=kept, place=subject.place(value) if value else None),
        warning=warning.strip(),
    )


def _whole_of(subject: Subject, name: str) -> list[WholeValue]:
    return subject.whole.by_name.get(name, [])[:1] if subject.whole is not None and name else []


def _source_sharding(subject: Subject, value: WholeValue | None) -> str:
    """The sharding that the value's first operand has, where one is written."""
    if value is None or subject.whole is None:
        return ""
    pending, hops = list(value.instruction.operands), 0
    while pending and hops < 16:
        one, hops = pending.pop(0), hops + 1
        sharding = subject.whole.sharding_of(one)
        if sharding is not None and len(one.shape.dimensions) == len(value.dimensions):
            return sharding.spec()
        pending += list(one.operands)[:2]
    return ""
