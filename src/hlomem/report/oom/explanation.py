"""An out-of-memory message explained: the missing bytes, the buffers by role, what to do next."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.hlo.opcodes import Opcode, as_opcode
from hlomem.hlo.padding import padded_dimensions
from hlomem.hlo.text.attributes import read_metadata
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.registry import platform_machine
from hlomem.report.data import roles
from hlomem.report.data.lines import Lines
from hlomem.report.data.roles import role_of_argument
from hlomem.report.oom.kernel import (
    KernelFailure,
    kernel_findings,
    read_kernel_failure,
    steps_of_kernel,
)
from hlomem.report.oom.log import BreakdownPart, Failure, NamedBuffer, OomLog, Pool
from hlomem.report.oom.verdict import Situation, Verdict, diagnose
from hlomem.report.screens.text import percent
from hlomem.view.instruction_line import parse_instruction_line

if TYPE_CHECKING:
    from collections.abc import Iterator

DUMP_FLAGS = "--xla_dump_to=xla_dump --xla_dump_hlo_as_text"
_LARGE = 0.5
"""Fraction of memory above which a single buffer is rarely intended (OpenXLA, error E1000)."""
_WORTH_SAYING = 0.05
_POOL_SHARE, _MAX_SHARE = 0.75, 0.95
"""The fraction of a GPU that JAX reserves by default, and the most it can."""


class BufferGroup(Record, frozen=True, kw_only=True):
    """Similar buffers of a message; sizes are totals."""

    size: int
    count: int
    role: str
    shape: str | None
    padding: int
    op_name: str | None
    source: str | None
    label: str | None


class NextStep(Record, frozen=True, kw_only=True):
    text: str
    command: str = ""


class Oom(Record, frozen=True, kw_only=True):
    """An out-of-memory error, explained."""

    failure: Failure
    """The one that ended the program."""
    missing: int | None
    groups: tuple[BufferGroup, ...]
    """The named buffers, largest first."""
    roles: tuple[BreakdownPart, ...]
    """The same by role, and padding; they add up to `named`."""
    named: int
    """Bytes of the named buffers."""
    findings: tuple[str, ...]
    steps: tuple[NextStep, ...]
    log: OomLog
    verdict: Verdict | None = None
    """Why memory ran out while running; None when compiling."""
    kernel: KernelFailure | None = None
    """The kernel whose own memory ran out; None where it was the device's."""


def build_oom(log: OomLog) -> Oom | None:
    """The explanation of a log; None if it does not mention memory."""
    if not log.failures:
        return None
    failure = _principal(log)
    groups = tuple(_groups(log.buffers))
    return Oom(
        failure=failure,
        missing=_missing(failure, log),
        groups=groups,
        roles=tuple(_roles(groups)),
        named=sum(group.size for group in groups),
        findings=tuple(_findings(failure, log, groups)),
        steps=tuple(_steps(failure, log)),
        log=log,
        verdict=diagnose(situation_of(failure, log)) if failure.moment == "run" else None,
        kernel=read_kernel_failure(failure, log),
    )


def situation_of(failure: Failure, log: OomLog) -> Situation:
    """The state of the memory, as far as a log tells, when a request failed."""
    pool = log.pool or Pool()
    return Situation(
        needed=failure.needed,
        is_tuner=log.is_tuner,
        program=failure.module or "",
        limit=pool.limit or _limit_by_rematerialization(log),
        in_use=pool.in_use,
        largest_free=pool.largest_free,
        occupancy=log.occupancy,
    )


_AIM = 0.95
"""The share of a GPU's pool that rematerialization aims at (gpu_compiler.cc)."""


def _limit_by_rematerialization(log: OomLog) -> int | None:
    """The pool a warning of rematerialization implies, a little less than it is."""
    aims = [one.available for one in log.failures if one.moment == "rematerialization"]
    return round(max(aim for aim in aims if aim) / _AIM) if any(aims) else None


def _principal(log: OomLog) -> Failure:
    """The last error that tells most, or else the last warning."""
    errors = [failure for failure in log.failures if failure.moment != "rematerialization"]
    last = (errors or list(log.failures))[-1]
    same = [failure for failure in errors if failure.needed == last.needed and failure.available]
    return same[-1] if same else last


def _missing(failure: Failure, log: OomLog) -> int | None:
    if failure.needed is None:
        return None
    available = failure.available
    if available is None and log.pool is not None:
        available = log.pool.largest_free
    return None if available is None else max(0, failure.needed - available)


def _groups(buffers: tuple[NamedBuffer, ...]) -> list[BufferGroup]:
    """Buffers of one role, shape and origin as one."""
    described = sorted(map(_describe, buffers), key=_likeness)
    groups = []
    for _, members in groupby(described, key=_likeness):
        alike = list(members)
        size, padding = sum(one.size for one in alike), sum(one.padding for one in alike)
        groups.append(replace(alike[0], size=size, count=len(alike), padding=padding))
    return sorted(groups, key=lambda group: (-group.size, _likeness(group)))


def _likeness(group: BufferGroup) -> tuple[str, ...]:
    return (group.role, group.shape or "", group.op_name or "", group.source or "")


def _describe(buffer: NamedBuffer) -> BufferGroup:
    origin = Lines(None).origin(buffer.metadata)
    padding = 0 if buffer.unpadded is None else max(0, buffer.size - buffer.unpadded)
    return BufferGroup(
        size=buffer.size,
        count=1,
        role=role_of(buffer),
        shape=buffer.shape,
        padding=padding,
        op_name=_without_parameters(origin.op_name),
        source=origin.line,
        label=buffer.label,
    )


def _without_parameters(op_name: str | None) -> str | None:
    """`jit(f)/dot_general[dimension_numbers=… precision=None]` without the brackets."""
    return None if op_name is None else re.sub(r"\[[^/\n]*\]?$", "", op_name)


def role_of(buffer: NamedBuffer) -> str:
    operation = read_metadata(buffer.metadata).op_name or None
    if buffer.kind == "parameter":
        return role_of_argument(operation or "")
    name, opcode = _name_and_opcode(buffer.label or "")
    return roles.role_by_name(name, opcode, buffer.shape or "", operation)


def _name_and_opcode(label: str) -> tuple[str, Opcode]:
    """Of an instruction's text; on GPU the label is the opcode alone."""
    printed = parse_instruction_line(label)
    return (printed.name, printed.opcode) if printed else ("", as_opcode(label))


def _roles(groups: tuple[BufferGroup, ...]) -> Iterator[BreakdownPart]:
    sizes: dict[str, int] = {}
    for group in groups:
        sizes[group.role] = sizes.get(group.role, 0) + group.size - group.padding
        sizes[roles.PADDING] = sizes.get(roles.PADDING, 0) + group.padding
    for role, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        if size:
            yield BreakdownPart(name=role, size=size)


def _findings(failure: Failure, log: OomLog, groups: tuple[BufferGroup, ...]) -> Iterator[str]:
    kernel = read_kernel_failure(failure, log)
    if kernel is not None:
        yield from kernel_findings(kernel)
        return
    yield from _about_large(failure, groups)
    yield from _about_padding(failure, log, groups)
    yield from _about_arguments(failure, log)
    yield from _about_copies(groups)
    yield from _about_fragmentation(log)
    yield from _about_pool(failure, log)
    yield from _about_rematerialization(log)


def _about_large(failure: Failure, groups: tuple[BufferGroup, ...]) -> Iterator[str]:
    if failure.shape and failure.needed and failure.space == "hbm":
        what = f" ({failure.subject})" if failure.subject else ""
        yield f"one buffer alone does not fit: {failure.shape}{what}"
        if grown := ", ".join(_grown_dimensions(failure.shape)):
            yield f"padding makes it larger: {grown}"
        return
    for group in groups[:1]:
        one = (group.size - group.padding) // group.count
        if failure.available and one > _LARGE * failure.available:
            share = percent(one, failure.available)
            yield f"one buffer alone takes {share} of the memory: {group.shape}; is it sharded?"


def _about_padding(failure: Failure, log: OomLog, groups: tuple[BufferGroup, ...]) -> Iterator[str]:
    parts = [
        part
        for breakdown in log.breakdowns
        for part in breakdown.parts
        if part.unpadded is not None
    ]
    lost = sum((part.padded or part.size) - (part.unpadded or 0) for part in parts)
    total = sum(part.size for part in parts)
    if not parts:
        lost, total = sum(one.padding for one in groups), sum(one.size for one in groups)
    if lost <= _WORTH_SAYING * total:
        return
    missing = _missing(failure, log)
    fits = "; without it the program would fit" if missing is not None and missing <= lost else ""
    yield f"padding takes {format_bytes(lost)} of {format_bytes(total)}{fits}"
    for group in sorted(groups, key=lambda member: -member.padding)[:1]:
        if grown := ", ".join(_grown_dimensions(group.shape or "")):
            yield f"{group.shape} grows: {grown}"


def _grown_dimensions(shape: str) -> Iterator[str]:
    try:
        dimensions = padded_dimensions(parse_shape_text(shape))
    except HlomemError:
        return
    for number, size, padded in dimensions:
        if padded != size:
            what = "an extra dimension" if number is None else f"dimension {number}"
            yield f"{what} from {size} to {padded}"


def _about_arguments(failure: Failure, log: OomLog) -> Iterator[str]:
    for breakdown in log.breakdowns:
        for part in breakdown.parts:
            is_input = part.name in {"arguments", "parameter allocation"}
            if is_input and failure.available and part.size > _LARGE * failure.available:
                share = percent(part.size, failure.available)
                yield f"arguments alone take {format_bytes(part.size)}, {share} of the memory"
                return


def _about_copies(groups: tuple[BufferGroup, ...]) -> Iterator[str]:
    copies = [group for group in groups if group.role == roles.COPIES]
    if copies and sum(group.size for group in copies) > _WORTH_SAYING * sum(g.size for g in groups):
        count = sum(group.count for group in copies)
        size = format_bytes(sum(group.size for group in copies))
        yield f"copies take {size} ({count} of those named): a layout or a donation may save them"


def _about_fragmentation(log: OomLog) -> Iterator[str]:
    for breakdown in log.breakdowns:
        lost = breakdown.fragmentation or 0
        total = breakdown.total or sum(part.size for part in breakdown.parts)
        if lost > _WORTH_SAYING * total:
            share = percent(lost, total)
            yield f"{format_bytes(lost)} ({share}) are holes between temporaries (fragmentation)"
            return


def _about_pool(failure: Failure, log: OomLog) -> Iterator[str]:
    pool = log.pool
    if pool is None or failure.needed is None:
        return
    if pool.limit is not None and failure.needed > pool.limit:
        yield f"more than the whole pool of {format_bytes(pool.limit)} was asked for at once"
        return
    if pool.limit is not None and pool.in_use is not None:
        free = pool.limit - pool.in_use
        yield f"{format_bytes(pool.in_use)} of {format_bytes(pool.limit)} were in use"
        if free >= failure.needed and pool.largest_free is not None:
            largest = format_bytes(pool.largest_free)
            yield f"fragmented: {format_bytes(free)} were free, the largest piece only {largest}"
    for holder in pool.holders[:3]:
        if holder.name and holder.size > _WORTH_SAYING * (pool.in_use or holder.size):
            pieces = f"{holder.count} piece{'s' if holder.count > 1 else ''}"
            yield f"{format_bytes(holder.size)} in {pieces} were allocated by {holder.name}"


def _about_rematerialization(log: OomLog) -> Iterator[str]:
    for failure in log.failures:
        if failure.moment != "rematerialization" or failure.needed is None:
            continue
        wanted = format_bytes(failure.available or 0)
        reached = format_bytes(failure.needed)
        yield f"rematerialization reached {reached}; its goal was {wanted}"
        if failure.original == failure.needed:
            yield "it found nothing to rematerialize: live values are arguments or not recomputable"
        return


def _steps(failure: Failure, log: OomLog) -> Iterator[NextStep]:
    kernel = read_kernel_failure(failure, log)
    if kernel is not None:
        for step in steps_of_kernel(kernel):
            yield NextStep(text=step.text, command=step.command)
        return
    machine = platform_machine(failure.platform)
    if failure.moment == "run" and machine is not None and machine.allocations_flag:
        yield NextStep(
            text="run again with a report of all allocations when memory runs out",
            command=f"{machine.allocations_flag} python …",
        )
    yield from _steps_of_pool(failure, log)
    yield from _steps_with_dump(failure)


def _steps_of_pool(failure: Failure, log: OomLog) -> Iterator[NextStep]:
    pool = log.pool
    if pool is None or pool.limit is None or pool.in_use is None or failure.needed is None:
        return
    short = failure.needed - (pool.limit - pool.in_use)
    if short <= 0:
        yield NextStep(
            text="an allocator that does not fragment",
            command="XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python …",
        )
    elif short <= pool.limit * (_MAX_SHARE / _POOL_SHARE - 1):
        yield NextStep(
            text=f"a larger share of the device for the pool, if it has JAX's {_POOL_SHARE}",
            command=f"XLA_PYTHON_CLIENT_MEM_FRACTION={_MAX_SHARE} python …",
        )
    if pool.in_use > _LARGE * pool.limit:
        yield NextStep(
            text="see which arrays Python keeps alive",
            command='jax.profiler.save_device_memory_profile("memory.prof")',
        )


def _steps_with_dump(failure: Failure) -> Iterator[NextStep]:
    before = "; it is written before the error" if failure.moment == "compile" else ""
    yield NextStep(
        text=f"get the memory dump, which names every buffer{before}",
        command=f'XLA_FLAGS="{DUMP_FLAGS}" python …',
    )
    module = f" --module {failure.module}" if failure.module else ""
    yield NextStep(text="see what is alive at the peak", command=f"hlomem peak xla_dump{module}")
    yield NextStep(text="see what would save most", command=f"hlomem advise xla_dump{module}")
