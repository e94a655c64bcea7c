"""The scoped memory of a program: kernels and fusions by what they use, next to their limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern
from hlomem.dump.records import Record
from hlomem.machines.registry import CHIPS
from hlomem.machines.tpu import CODE_NAMES
from hlomem.report.data.lines import Lines, bare_op_name
from hlomem.view.scoped import LIMIT_FLAG, SHARED, ScopedRecords, ScopedUse, read_scoped

if TYPE_CHECKING:
    from hlomem.machines.machine import Chip
    from hlomem.report.data.memory import MemoryView

VMEM = 1
SHARED_MEMORY = "shared memory"
_NOT_WORD = lazy_pattern(r"\W")


class ScopedRow(Record, frozen=True, kw_only=True):
    """One kernel or fusion."""

    name: str
    """The kernel, or the instruction."""
    instruction: str
    kind: str
    """`kernel`, or XLA's opcode: `fusion`, `reduce-window`."""
    space: str
    used: int
    limit: int | None
    """Bytes it may use; None if that is not known."""
    is_own_limit: bool
    """Whether the kernel asked for this limit itself."""
    source: str | None
    op_name: str | None


class ScopedMemory(Record, frozen=True, kw_only=True):
    rows: tuple[ScopedRow, ...]
    """By use, largest first."""
    limit: int | None
    """Bytes of VMEM for each that asks for none itself; None if not known."""
    limit_from: str
    """`xla_tpu_scoped_vmem_limit_kib`, or the chip whose default it is; empty if not known."""
    reserved_beyond: int
    """Bytes of the flag's limit that no kernel or fusion under it uses; 0 without the flag."""


def build_scoped(memory: MemoryView) -> ScopedMemory | None:
    """The scoped memory of a program; None where the dump does not tell it."""
    records = read_scoped(memory.dump)
    if records is None:
        return None
    if records.uses[0].color == SHARED:
        return _build_shared(memory, records)
    limit, origin = _limit_of(memory, records)
    lines = Lines(memory.module)
    rows = [_row(memory, lines, use, limit) for use in records.uses]
    largest = max((row.used for row in rows if _is_under(row)), default=0)
    is_flag = records.limit is not None and limit is not None
    return ScopedMemory(
        rows=tuple(sorted(rows, key=lambda row: (-row.used, row.instruction))),
        limit=limit,
        limit_from=origin,
        reserved_beyond=max(0, limit - largest) if is_flag and limit is not None else 0,
    )


def _build_shared(memory: MemoryView, records: ScopedRecords) -> ScopedMemory:
    """The shared memory of a GPU's kernels, which XLA names after their instructions."""
    instructions = memory.module.outer_instruction_by_name if memory.module else {}
    by_symbol = {_NOT_WORD.sub("_", name): name for name in instructions}
    lines = Lines(memory.module)
    rows = []
    for use in records.uses:
        name = by_symbol.get(use.instruction, use.instruction)
        origin = lines.origin_in(instructions[name]) if name in instructions else None
        rows.append(
            ScopedRow(
                name=use.kernel or name,
                instruction=name,
                kind="kernel" if use.kernel else use.opcode,
                space=SHARED_MEMORY,
                used=use.used,
                limit=records.limit,
                is_own_limit=False,
                source=origin.line if origin else None,
                op_name=origin.op_name if origin else None,
            )
        )
    return ScopedMemory(
        rows=tuple(sorted(rows, key=lambda row: (-row.used, row.instruction))),
        limit=records.limit,
        limit_from="" if records.limit is None else "what a block of threads may have",
        reserved_beyond=0,
    )


_MEBIBYTE = 1 << 20


def lower_limit(scoped: ScopedMemory, chip: Chip | None) -> int | None:
    """The limit that does for the kernels of a program, if that is less than its flag's.

    Fusions are tiled for any limit, so only kernels count; it is never below the chip's default.
    """
    if scoped.limit is None or scoped.limit_from != LIMIT_FLAG or chip is None:
        return None
    used = max(
        (row.used for row in scoped.rows if row.kind == "kernel" and _is_under(row)), default=0
    )
    lower = max(chip.scoped_vmem_bytes, -(-used // _MEBIBYTE) * _MEBIBYTE)
    return lower if chip.scoped_vmem_bytes and lower < scoped.limit else None


def find_scoped(scoped: ScopedMemory | None, instruction: str | None) -> ScopedRow | None:
    """The row of an instruction; None if it uses no scoped memory, or that is not known."""
    rows = scoped.rows if scoped is not None else ()
    return next((row for row in rows if row.instruction == instruction), None)


def _is_under(row: ScopedRow) -> bool:
    return row.space == "vmem" and not row.is_own_limit


def _limit_of(memory: MemoryView, records: ScopedRecords) -> tuple[int | None, str]:
    if records.limit is not None:
        return records.limit, LIMIT_FLAG
    chip = _noted_chip(memory, records)
    if chip is None or not chip.scoped_vmem_bytes:
        return None, ""
    return chip.scoped_vmem_bytes, chip.name


def chip_of(memory: MemoryView) -> Chip | None:
    """The chip of a program, as libtpu noted it, or as it was given."""
    records = read_scoped(memory.dump)
    return None if records is None else _noted_chip(memory, records)


def _noted_chip(memory: MemoryView, records: ScopedRecords) -> Chip | None:
    given = memory.given_machine.chip if memory.given_machine else None
    return CHIPS.get(CODE_NAMES.get(records.chip, ""), given)


def _row(memory: MemoryView, lines: Lines, use: ScopedUse, limit: int | None) -> ScopedRow:
    origin = lines.origin(use.text)
    noted = use.limit if use.color == VMEM else None
    return ScopedRow(
        name=use.kernel or use.instruction,
        instruction=use.instruction,
        kind="kernel" if use.kernel else use.opcode,
        space=memory.space_name(use.color),
        used=use.used,
        limit=noted or (limit if use.color == VMEM else None),
        is_own_limit=bool(use.kernel) and noted not in (None, limit),
        source=origin.line,
        op_name=None if origin.op_name is None else bare_op_name(origin.op_name),
    )
