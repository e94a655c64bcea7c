"""The same program compiled differently: another backend, another XLA release, other fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.machines.releases import LIBTPU
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import ComparedProgram, array_of_buffer
from hlomem.report.data.matching import operation_key
from hlomem.report.data.names import short_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.causes.comparison import Comparison


def find_backends(comparison: Comparison) -> Iterator[Finding]:
    old, new = (program.memory.machine.platform for program in comparison.programs)
    if old != new:
        text = f"compiled for {new} instead of {old}"
        yield Finding(kind="backend", text=text, adds_operations=True, explains_anything=True)


def find_versions(comparison: Comparison) -> Iterator[Finding]:
    if comparison.has_other_era:
        eras = [_releases(program) for program in comparison.programs]
        same = comparison.is_same_program
        program = "the same program, compiled by" if same else "compiled by"
        text = f"{program} another version of XLA: {eras[0]} became {eras[1]}"
        yield Finding(
            kind="version",
            text=text,
            is_certain=same,
            adds_operations=True,
            explains_anything=True,
        )


def _releases(program: ComparedProgram) -> str:
    eras = program.memory.dump.eras
    if program.memory.machine.package == LIBTPU and (libtpu := eras[-1].libtpu):
        return f"libtpu {' or '.join(libtpu)}"
    first, last = eras[0].jaxlib, eras[-1].jaxlib
    if first is None or last is None:
        return "an unknown release"
    return f"jaxlib {first[0]} to {last[1]}" if first[0] != last[1] else f"jaxlib {first[0]}"


def find_recompiled(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding, for equal programs; the last resort."""
    if not comparison.is_same_program:
        return
    if not comparison.is_fused_alike:
        text = "the same operations, fused differently: a barrier, other flags, another XLA"
        yield Finding(kind="fusion", text=text, is_certain=False)
    else:
        text = "the same program, compiled differently: another version of XLA or other flags"
        yield Finding(kind="version", text=text, is_certain=False)


def find_fusions(comparison: Comparison) -> Iterator[Finding]:
    """Arrays that moved out of a fusion into memory of their own, or back into one."""
    if comparison.has_other_era or not comparison.has_same_arguments:
        return
    for side, text in (
        (AFTER, "is no longer fused into what reads it and needs memory of its own"),
        (BEFORE, "is fused into what reads it now and needs no memory"),
    ):
        found = [e for e in comparison.entries if e.side == side and _was_fused(comparison, e)]
        if found:
            largest = max(found, key=lambda entry: abs(entry.size))
            yield _finding(found, f"{_named(largest)} {text}", largest.buffer.source)


def _named(entry: Entry) -> str:
    name = (entry.buffer.op_name or "").rpartition("/")[2]
    line = entry.buffer.source
    return f"{name} ({short_line(line)})" if line else name


def _was_fused(comparison: Comparison, entry: Entry) -> bool:
    """Whether the other program has the operation only inside a fusion."""
    if entry.partner is not None or not entry.buffer.op_name:
        return False
    other = comparison.programs[BEFORE if entry.side == AFTER else AFTER]
    key = (operation_key(entry.buffer.op_name), array_of_buffer(entry.buffer))
    return key in other.fused_arrays


def _finding(entries: list[Entry], text: str, line: str | None) -> Finding:
    ids = {id(entry.change) for entry in entries}
    return Finding(
        kind="fusion", text=text, claims=lambda entry: id(entry.change) in ids, source=line
    )
