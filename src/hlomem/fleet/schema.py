"""The tables of a store: every column, its DuckDB type and its meaning; printed in docs/fleet.md.

Changing the meaning of a column requires a new `SCHEMA`; a new column reads as NULL in older files.
"""

from __future__ import annotations

from typing import NamedTuple

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

_SPACE = Column("space", "VARCHAR", "the memory space: hbm, vmem, host, …")

_TABLES = (
    Table(
        "modules",
        "one row per program, and one for every unreadable input",
        (
            Column("status", "VARCHAR", "`ok` or `error`"),
            Column(
                "error_kind",
                "VARCHAR",
                "`unreadable`, `unsupported`, `timeout`, `memory`, `crash` or `bug`; NULL if ok",
            ),
            Column("error", "VARCHAR", "the message; NULL if ok"),
            Column("source", "VARCHAR", "the first file: a path or an address; `ARCHIVE!/MEMBER`"),
            Column("program", "VARCHAR", "its name in a file of several programs; else NULL"),
            Column("place", "VARCHAR", "the source relative to the scanned path: joins runs"),
            Column("kind", "VARCHAR", "`dump`, `module` (text, planned by hlomem) or `proto`"),
            Column("key", "VARCHAR", "hash of the content, of hlomem's version and of the options"),
            Column("input_bytes", "BIGINT", "bytes of all its files on disk"),
            Column("is_planned", "BOOLEAN", "whether hlomem made the plan, not XLA"),
            Column("has_module", "BOOLEAN", "whether the HLO module was found"),
            Column("backend", "VARCHAR", "cpu, gpu, tpu"),
            Column("era", "VARCHAR", "the XLA release, as far as the files tell"),
            Column("device_count", "INTEGER", "number of partitions; sizes are per device"),
            Column("space", "VARCHAR", "the main memory space: hbm, or the CPU's"),
            Column("needs", "BIGINT", "bytes reserved in the main memory space: what must fit"),
            Column("peak", "BIGINT", "the most of it in use at once; NULL without live ranges"),
            Column("peak_step", "BIGINT", "the instruction of the peak, by number"),
            Column("steps", "BIGINT", "number of instructions in the schedule"),
            Column("peak_instruction", "VARCHAR", "the instruction of the peak"),
            Column("peak_line", "VARCHAR", "its source line"),
            Column("argument_bytes", "BIGINT", "of `needs`: arguments that are not donated"),
            Column("donated_bytes", "BIGINT", "of `needs`: arguments reused by results"),
            Column("result_bytes", "BIGINT", "of `needs`: results with memory of their own"),
            Column("constant_bytes", "BIGINT", "of `needs`: constants"),
            Column("temporary_bytes", "BIGINT", "of `needs`: the rest"),
            Column("padding_bytes", "BIGINT", "padding at the peak, as `hlomem padding`"),
            Column("copy_bytes", "BIGINT", "copies at the peak, as `hlomem copies`"),
            Column(
                "donatable_bytes", "BIGINT", "arguments that could be donated (`hlomem donate`)"
            ),
            Column("lost_bytes", "BIGINT", "donated, but not reused (`hlomem donate`)"),
            Column("fragmentation_bytes", "BIGINT", "reserved, but free at the peak"),
            Column("code_bytes", "BIGINT", "the program's code; NULL if unknown"),
            Column("arguments", "VARCHAR", "hash of the arguments' shapes, by number"),
            Column(
                "is_clean", "BOOLEAN", "whether `verify` found nothing; NULL without `--verify`"
            ),
            Column("cpu_seconds", "DOUBLE", "CPU time spent on it"),
            Column("hlomem", "VARCHAR", "the version of hlomem that read it"),
            Column("scanned_at", "TIMESTAMP", "UTC"),
        ),
    ),
    Table(
        "spaces",
        "one row for each memory space of a program",
        (
            _SPACE,
            Column("color", "INTEGER", "XLA's number of it"),
            Column("size", "BIGINT", "bytes reserved in it"),
            Column("peak", "BIGINT", "the most in use at once; NULL without live ranges"),
            Column("allocation_count", "BIGINT", "number of allocations"),
            Column("thread_local_bytes", "BIGINT", "thread-local bytes, not in `size`"),
        ),
    ),
    Table(
        "roles",
        "bytes of the main memory space by role; they add up to `needs`",
        (
            Column("role", "VARCHAR", "as in `hlomem summary`"),
            Column("size", "BIGINT", "bytes"),
            Column("count", "BIGINT", "number of buffers; 0 for padding and the like"),
        ),
    ),
    Table(
        "allocations",
        "every allocation of every memory space",
        (
            _SPACE,
            Column("index", "BIGINT", "XLA's number of it"),
            Column("size", "BIGINT", "bytes"),
            Column("kind", "VARCHAR", "arguments, donated arguments, results, constants, …"),
            Column("parameter", "VARCHAR", "the argument's path or number; NULL for others"),
            Column("shape", "VARCHAR", "of the argument; NULL for others"),
            Column("role", "VARCHAR", "of the argument, result or constant; NULL for temporaries"),
        ),
    ),
    Table(
        "buffers",
        "bytes at the main memory's peak, by role and source line; they add up to `peak`",
        (
            _SPACE,
            Column("role", "VARCHAR", "as in `hlomem summary`"),
            Column("line", "VARCHAR", "`file:line`; `(arguments)`, `(no source line)`"),
            Column("size", "BIGINT", "bytes"),
            Column("count", "BIGINT", "buffers"),
            Column("largest", "VARCHAR", "the largest buffer, as XLA prints it"),
            Column("largest_size", "BIGINT", "its bytes"),
            Column("shape", "VARCHAR", "its shape"),
            Column("op_name", "VARCHAR", "its operation, with scopes"),
        ),
    ),
    Table(
        "padding",
        "padded shapes of the main memory space, as `hlomem padding`",
        (
            _SPACE,
            Column("shape", "VARCHAR", "with its layout"),
            Column("size", "BIGINT", "bytes of one buffer"),
            Column("padding", "BIGINT", "of them, bytes that hold no element"),
            Column("count", "BIGINT", "buffers of this shape"),
            Column("count_at_peak", "BIGINT", "of them, alive at the peak"),
            Column("padding_at_peak", "BIGINT", "padding of those"),
            Column("fix", "VARCHAR", "a change that helps; empty if none is known"),
            Column("example", "VARCHAR", "one of the buffers"),
            Column("line", "VARCHAR", "its source line"),
        ),
    ),
    Table(
        "donations",
        "arguments in the main memory space, as `hlomem donate`",
        (
            _SPACE,
            Column("argument", "VARCHAR", "JAX's path, or its number"),
            Column("number", "BIGINT", "of the parameter"),
            Column("size", "BIGINT", "bytes"),
            Column("shape", "VARCHAR", "with its layout"),
            Column("state", "VARCHAR", "`used`, `lost`, `possible`, `read later`, `no match`"),
            Column("result", "VARCHAR", "the result that reuses it, or could"),
            Column("copied_bytes", "BIGINT", "a copy made of a donated argument"),
            Column("why", "VARCHAR", "in words"),
        ),
    ),
    Table(
        "copies",
        "copies in the main memory space, as `hlomem copies`",
        (
            _SPACE,
            Column("buffer", "VARCHAR", "as XLA prints it"),
            Column("size", "BIGINT", "bytes"),
            Column("shape", "VARCHAR", "with its layout"),
            Column("of", "VARCHAR", "the copied value"),
            Column("cause", "VARCHAR", "`layout`, `memory space`, `kept value`, `unknown`"),
            Column("why", "VARCHAR", "in words"),
            Column("is_at_peak", "BOOLEAN", "whether it is alive at the peak"),
            Column("line", "VARCHAR", "its source line"),
        ),
    ),
    Table(
        "findings",
        "findings of `hlomem verify`; only with `scan --verify`",
        (
            Column("rule", "VARCHAR", "of docs/verifier.md"),
            Column("severity", "VARCHAR", "`error` or `warning`"),
            Column("message", "VARCHAR", "in words"),
        ),
    ),
    Table(
        "advice",
        "advice of `hlomem advise`; only with `scan --advise`",
        (
            Column("rule", "VARCHAR", "of docs/advice.md"),
            Column("title", "VARCHAR", "in words"),
            Column("argument", "VARCHAR", "the part of the program it is about"),
            Column("least", "BIGINT", "lower bound of bytes saved; NULL if not planned"),
            Column("most", "BIGINT", "upper bound of bytes saved; NULL if not planned"),
            Column("method", "VARCHAR", "`re-planned` or `possible`"),
            Column("confidence", "VARCHAR", "`high`, `medium`, `low`"),
            Column("how", "VARCHAR", "code to write or a command"),
        ),
    ),
    Table(
        "units",
        "the inputs as they were found, for incremental scans",
        (
            Column("unit", "VARCHAR", "the group of files"),
            Column("segment", "VARCHAR", "the piece of the store its rows are in"),
            Column("source", "VARCHAR", "the first file"),
            Column("archive", "VARCHAR", "its archive, or NULL"),
            Column("is_archive", "BOOLEAN", "whether it is an archive that was read completely"),
            Column("stamp", "VARCHAR", "changes with its files or its archive"),
            Column("key", "VARCHAR", "hash of its content; NULL if it could not be read"),
            Column("names", "VARCHAR", "of its files"),
            Column("bytes", "BIGINT", "of its files"),
            Column("recipe", "VARCHAR", "hlomem's version and options"),
            Column("modules", "INTEGER", "programs in it"),
            Column("errors", "INTEGER", "of them, those that could not be read"),
            Column("committed", "TIMESTAMP", "UTC; the last row of a source counts"),
        ),
        is_of_programs=False,
    ),
)
TABLES = {table.name: table for table in _TABLES}
"""By name, in the order of the documentation."""


def describe() -> str:
    """The tables, column by column, as docs/fleet.md shows them."""
    lines = ["Every table has the columns of its partition:", "", *_rows(PARTITION)]
    lines += ["", "and all but `units` begin with these:", "", *_rows(COMMON)]
    for table in TABLES.values():
        lines += ["", f"### {table.name}", "", f"{table.meaning}", "", *_rows(table.columns)]
    return "\n".join(lines) + "\n"


def _rows(columns: tuple[Column, ...]) -> list[str]:
    head = ["| column | type | meaning |", "|---|---|---|"]
    return head + [f"| `{name}` | {type_} | {meaning} |" for name, type_, meaning in columns]
