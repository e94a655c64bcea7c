"""The tables of a store: every column, its DuckDB type and its meaning; printed in docs/fleet.md.

Changing the meaning of a column requires a new `SCHEMA`; a new column reads as NULL in older files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "fleet.json"
"""The file that marks a folder as a store."""
SCHEMA = 1
OLDEST = 1
"""The oldest version that can be read."""


class Column(NamedTuple):
    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    name: str
    meaning: str
    columns: tuple[Column, ...]
    is_of_programs: bool = True
    """Whether its rows describe programs and begin with the COMMON columns."""

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of its files; the partition's are in their paths."""
        return COMMON + self.columns if self.is_of_programs else self.columns


PARTITION = (
    Column("run", "VARCHAR", "the run of the scan, as `--run` names it"),
    Column("date", "DATE", "the day of the scan, UTC"),
)
"""Of every table, in the paths of its files: `modules/run=nightly-41/date=2026-11-15/….parquet`."""
COMMON = (
    Column("id", "VARCHAR", "the program within its run: the same for the same source and program"),
    Column("unit", "VARCHAR", "the files the program was read from"),
    Column("segment", "VARCHAR", "the piece of the store the row is in"),
    Column("name", "VARCHAR", "the program's name: `train_step`"),
)
"""Of every table but `units`."""

_TEXT = """
modules: one row per program, and one for every unreadable input
  status VARCHAR `ok` or `error`
  error_kind VARCHAR `unreadable`, `unsupported`, `timeout`, `memory`, `crash` or `bug`; NULL if ok
  error VARCHAR the message; NULL if ok
  source VARCHAR the first file: a path or an address; `ARCHIVE!/MEMBER`
  program VARCHAR its name in a file of several programs; else NULL
  place VARCHAR the source relative to the scanned path: joins runs
  kind VARCHAR `dump`, `module` (text, planned by hlomem) or `proto`
  key VARCHAR hash of the content, of hlomem's version and of the options
  input_bytes BIGINT bytes of all its files on disk
  is_planned BOOLEAN whether hlomem made the plan, not XLA
  has_module BOOLEAN whether the HLO module was found
  backend VARCHAR cpu, gpu, tpu
  era VARCHAR the XLA release, as far as the files tell
  device_count INTEGER number of partitions; sizes are per device
  space VARCHAR the main memory space: hbm, or the CPU's
  needs BIGINT bytes reserved in the main memory space: what must fit
  peak BIGINT the most of it in use at once; NULL without live ranges
  peak_step BIGINT the instruction of the peak, by number
  steps BIGINT number of instructions in the schedule
  peak_instruction VARCHAR the instruction of the peak
  peak_line VARCHAR its source line
  argument_bytes BIGINT of `needs`: arguments that are not donated
  donated_bytes BIGINT of `needs`: arguments reused by results
  result_bytes BIGINT of `needs`: results with memory of their own
  constant_bytes BIGINT of `needs`: constants
  temporary_bytes BIGINT of `needs`: the rest
  padding_bytes BIGINT padding at the peak, as `hlomem padding`
  copy_bytes BIGINT copies at the peak, as `hlomem copies`
  donatable_bytes BIGINT arguments that could be donated (`hlomem donate`)
  lost_bytes BIGINT donated, but not reused (`hlomem donate`)
  fragmentation_bytes BIGINT reserved, but free at the peak
  code_bytes BIGINT the program's code; NULL if unknown
  arguments VARCHAR hash of the arguments' shapes, by number
  is_clean BOOLEAN whether `verify` found nothing; NULL without `--verify`
  cpu_seconds DOUBLE CPU time spent on it
  hlomem VARCHAR the version of hlomem that read it
  scanned_at TIMESTAMP UTC
spaces: one row for each memory space of a program
  space VARCHAR the memory space: hbm, vmem, host, …
  color INTEGER XLA's number of it
  size BIGINT bytes reserved in it
  peak BIGINT the most in use at once; NULL without live ranges
  allocation_count BIGINT number of allocations
  thread_local_bytes BIGINT thread-local bytes, not in `size`
roles: bytes of the main memory space by role; they add up to `needs`
  role VARCHAR as in `hlomem summary`
  size BIGINT bytes
  count BIGINT number of buffers; 0 for padding and the like
allocations: every allocation of every memory space
  space VARCHAR the memory space: hbm, vmem, host, …
  index BIGINT XLA's number of it
  size BIGINT bytes
  kind VARCHAR arguments, donated arguments, results, constants, …
  parameter VARCHAR the argument's path or number; NULL for others
  shape VARCHAR of the argument; NULL for others
  role VARCHAR of the argument, result or constant; NULL for temporaries
buffers: bytes at the main memory's peak, by role and source line; they add up to `peak`
  space VARCHAR the memory space: hbm, vmem, host, …
  role VARCHAR as in `hlomem summary`
  line VARCHAR `file:line`; `(arguments)`, `(no source line)`
  size BIGINT bytes
  count BIGINT buffers
  largest VARCHAR the largest buffer, as XLA prints it
  largest_size BIGINT its bytes
  shape VARCHAR its shape
  op_name VARCHAR its operation, with scopes
padding: padded shapes of the main memory space, as `hlomem padding`
  space VARCHAR the memory space: hbm, vmem, host, …
  shape VARCHAR with its layout
  size BIGINT bytes of one buffer
  padding BIGINT of them, bytes that hold no element
  count BIGINT buffers of this shape
  count_at_peak BIGINT of them, alive at the peak
  padding_at_peak BIGINT padding of those
  fix VARCHAR a change that helps; empty if none is known
  example VARCHAR one of the buffers
  line VARCHAR its source line
donations: arguments in the main memory space, as `hlomem donate`
  space VARCHAR the memory space: hbm, vmem, host, …
  argument VARCHAR JAX's path, or its number
  number BIGINT of the parameter
  size BIGINT bytes
  shape VARCHAR with its layout
  state VARCHAR `used`, `lost`, `possible`, `read later`, `no match`
  result VARCHAR the result that reuses it, or could
  copied_bytes BIGINT a copy made of a donated argument
  why VARCHAR in words
copies: copies in the main memory space, as `hlomem copies`
  space VARCHAR the memory space: hbm, vmem, host, …
  buffer VARCHAR as XLA prints it
  size BIGINT bytes
  shape VARCHAR with its layout
  of VARCHAR the copied value
  cause VARCHAR `layout`, `memory space`, `kept value`, `unknown`
  why VARCHAR in words
  is_at_peak BOOLEAN whether it is alive at the peak
  line VARCHAR its source line
kernels: kernels and fusions with memory of their own, where the dump tells it
  kernel VARCHAR the kernel, or the instruction
  instruction VARCHAR as XLA prints it
  kind VARCHAR `kernel`, or XLA's opcode
  space VARCHAR the memory space: vmem, smem, shared memory
  used BIGINT bytes its code uses while it runs
  limit BIGINT bytes it may use; NULL if not known
  is_own_limit BOOLEAN whether the kernel asks for that limit itself
  line VARCHAR its source line
  op_name VARCHAR its operation, with scopes
findings: findings of `hlomem verify`; only with `scan --verify`
  rule VARCHAR of docs/verifier.md
  severity VARCHAR `error` or `warning`
  message VARCHAR in words
advice: advice of `hlomem advise`; only with `scan --advise`
  rule VARCHAR of docs/advice.md
  title VARCHAR in words
  argument VARCHAR the part of the program it is about
  least BIGINT lower bound of bytes saved; NULL if not planned
  most BIGINT upper bound of bytes saved; NULL if not planned
  method VARCHAR `re-planned` or `possible`
  confidence VARCHAR `high`, `medium`, `low`
  how VARCHAR code to write or a command
units: the inputs as they were found, for incremental scans
  unit VARCHAR the group of files
  segment VARCHAR the piece of the store its rows are in
  source VARCHAR the first file
  archive VARCHAR its archive, or NULL
  is_archive BOOLEAN whether it is an archive that was read completely
  stamp VARCHAR changes with its files or its archive
  key VARCHAR hash of its content; NULL if it could not be read
  names VARCHAR of its files
  bytes BIGINT of its files
  recipe VARCHAR hlomem's version and options
  modules INTEGER programs in it
  errors INTEGER of them, those that could not be read
  committed TIMESTAMP UTC; the last row of a source counts
"""
"""The tables, each followed by its columns: name, type and meaning."""


def _read_tables() -> Iterator[Table]:
    for block in re.split(r"\n(?=\w)", _TEXT)[1:]:
        head, *lines = block.splitlines()
        name, _, meaning = head.partition(": ")
        columns = tuple(Column(*line.split(maxsplit=2)) for line in lines)
        yield Table(name, meaning, columns, is_of_programs=name != "units")


TABLES = {table.name: table for table in _read_tables()}
"""By name, in the order of the documentation."""


def describe() -> str:
    lines = ["Every table has the columns of its partition:", "", *_rows(PARTITION)]
    lines += ["", "and all but `units` begin with these:", "", *_rows(COMMON)]
    for table in TABLES.values():
        lines += ["", f"### {table.name}", "", f"{table.meaning}", "", *_rows(table.columns)]
    return "\n".join(lines) + "\n"


def _rows(columns: tuple[Column, ...]) -> list[str]:
    head = ["| column | type | meaning |", "|---|---|---|"]
    return head + [f"| `{name}` | {type_} | {meaning} |" for name, type_, meaning in columns]
