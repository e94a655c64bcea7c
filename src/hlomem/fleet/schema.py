"""The tables of a store: every column, its type in DuckDB, and its meaning.

In: nothing. Out: `TABLES`, which writes and reads them, and which docs/fleet.md prints. A change of
a column's meaning raises `SCHEMA`; a column more does not, and reads as NULL from older files.
"""

from __future__ import annotations

from typing import NamedTuple

MARKER = "fleet.json"
"""The file by which a folder is a store."""
SCHEMA = 1
"""The version of the tables that are written."""
OLDEST = 1
"""The oldest version that is still read."""


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """One table of a store."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    is_of_programs: bool = True
    """Whether its rows are about a program, and so begin with the columns of all such tables."""

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns in its files; the partition's are in their paths."""
        return COMMON + self.columns if self.is_of_programs else self.columns


PARTITION = (
    Column("run", "VARCHAR", "the run of the scan, as `--run` names it"),
    Column("date", "DATE", "the day of the scan, UTC"),
)
"""Of every table, in the paths of its files: `modules/run=nightly-41/date=2026-11-15/….parquet`."""
COMMON = (
    Column("id", "VARCHAR", "the program within its run: the same for the same source and program"),
    Column("unit", "VARCHAR", "the files the program was read from, which are read as one"),
    Column("segment", "VARCHAR", "the piece of the store the row is in"),
    Column("name", "VARCHAR", "the program's name: `train_step`"),
)
"""Of every table but `units`."""

_SPACE = Column("space", "VARCHAR", "the memory space: hbm, vmem, host, …")

MODULES = Table(
    "modules",
    "one row a program, and one for every input that could not be read",
    (
        Column("status", "VARCHAR", "`ok` or `error`"),
        Column(
            "error_kind",
            "VARCHAR",
            "`unreadable`, `unsupported`, `timeout`, `memory`, `crash` or `bug`; NULL if ok",
        ),
        Column("error", "VARCHAR", "the message; NULL if ok"),
        Column("source", "VARCHAR", "the first file: a path or an address; `ARCHIVE!/MEMBER`"),
        Column("program", "VARCHAR", "of a file of several programs, the one; else NULL"),
        Column("place", "VARCHAR", "the source from the scanned path on: joins runs"),
        Column("kind", "VARCHAR", "`dump`, `module` (text, planned by us) or `proto`"),
        Column("key", "VARCHAR", "hash of the content, of hlomem's version and of the options"),
        Column("input_bytes", "BIGINT", "bytes of all its files, as they lie there"),
        Column("is_planned", "BOOLEAN", "whether the plan is hlomem's, and not XLA's"),
        Column("has_module", "BOOLEAN", "whether the HLO module was there beside the plan"),
        Column("backend", "VARCHAR", "cpu, gpu, tpu"),
        Column("era", "VARCHAR", "the XLA it is of, as far as the files tell"),
        Column("device_count", "INTEGER", "devices it is partitioned over; sizes are of one"),
        Column("space", "VARCHAR", "the main memory: hbm, or cpu's"),
        Column("needs", "BIGINT", "bytes reserved in the main memory: what must fit"),
        Column("peak", "BIGINT", "the most of it in use at once; NULL without live ranges"),
        Column("peak_step", "BIGINT", "the instruction of the peak, by number"),
        Column("steps", "BIGINT", "how many instructions the schedule has"),
        Column("peak_instruction", "VARCHAR", "the instruction of the peak"),
        Column("peak_line", "VARCHAR", "its source line"),
        Column("argument_bytes", "BIGINT", "of `needs`: arguments that are not donated"),
        Column("donated_bytes", "BIGINT", "of `needs`: arguments whose memory is a result's"),
        Column("result_bytes", "BIGINT", "of `needs`: results with memory of their own"),
        Column("constant_bytes", "BIGINT", "of `needs`: constants"),
        Column("temporary_bytes", "BIGINT", "of `needs`: the rest"),
        Column("padding_bytes", "BIGINT", "padding at the peak, as `hlomem padding`"),
        Column("copy_bytes", "BIGINT", "copies at the peak, as `hlomem copies`"),
        Column("donatable_bytes", "BIGINT", "not donated, though they could be (`hlomem donate`)"),
        Column("lost_bytes", "BIGINT", "donated in vain (`hlomem donate`)"),
        Column("fragmentation_bytes", "BIGINT", "reserved, and free when most is needed"),
        Column("code_bytes", "BIGINT", "the program's code; NULL: unknown, no dump tells it"),
        Column("arguments", "VARCHAR", "hash of the arguments' shapes, by number"),
        Column("is_clean", "BOOLEAN", "whether `verify` found nothing; NULL without `--verify`"),
        Column("cpu_seconds", "DOUBLE", "CPU time of reading and reporting"),
        Column("hlomem", "VARCHAR", "the version of hlomem that read it"),
        Column("scanned_at", "TIMESTAMP", "UTC"),
    ),
)
SPACES = Table(
    "spaces",
    "one row for each memory space of a program",
    (
        _SPACE,
        Column("color", "INTEGER", "XLA's number of it"),
        Column("size", "BIGINT", "bytes reserved in it"),
        Column("peak", "BIGINT", "the most in use at once; NULL without live ranges"),
        Column("allocation_count", "BIGINT", "how many allocations"),
        Column("thread_local_bytes", "BIGINT", "on threads' own stacks, not in `size`"),
    ),
)
ROLES = Table(
    "roles",
    "the bytes of the main memory by role; they add up to `needs`",
    (
        Column("role", "VARCHAR", "one of the table of `hlomem summary`"),
        Column("size", "BIGINT", "bytes"),
        Column("count", "BIGINT", "buffers; 0 for what is no buffer"),
    ),
)
ALLOCATIONS = Table(
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
)
BUFFERS = Table(
    "buffers",
    "bytes in use at the peak of the main memory, by role and source line; they add up to `peak`",
    (
        _SPACE,
        Column("role", "VARCHAR", "what they are"),
        Column("line", "VARCHAR", "`file:line`; `(arguments)`, `(no source line)`"),
        Column("size", "BIGINT", "bytes"),
        Column("count", "BIGINT", "buffers"),
        Column("largest", "VARCHAR", "the largest buffer, as XLA prints it"),
        Column("largest_size", "BIGINT", "its bytes"),
        Column("shape", "VARCHAR", "its shape"),
        Column("op_name", "VARCHAR", "its operation, with scopes"),
    ),
)
PADDING = Table(
    "padding",
    "padded shapes of the main memory, as `hlomem padding`",
    (
        _SPACE,
        Column("shape", "VARCHAR", "with its layout"),
        Column("size", "BIGINT", "bytes of one buffer"),
        Column("padding", "BIGINT", "of them, bytes that hold no element"),
        Column("count", "BIGINT", "buffers of this shape"),
        Column("count_at_peak", "BIGINT", "of them, alive at the peak"),
        Column("padding_at_peak", "BIGINT", "padding of those"),
        Column("fix", "VARCHAR", "what to change; empty where nothing is known to help"),
        Column("example", "VARCHAR", "one of the buffers"),
        Column("line", "VARCHAR", "its source line"),
    ),
)
DONATIONS = Table(
    "donations",
    "arguments in the main memory, as `hlomem donate`",
    (
        _SPACE,
        Column("argument", "VARCHAR", "JAX's path, or its number"),
        Column("number", "BIGINT", "of the parameter"),
        Column("size", "BIGINT", "bytes"),
        Column("shape", "VARCHAR", "with its layout"),
        Column("state", "VARCHAR", "`used`, `lost`, `possible`, `read later`, `no match`"),
        Column("result", "VARCHAR", "the result that takes it, or could"),
        Column("copied_bytes", "BIGINT", "a copy made of a donated argument"),
        Column("why", "VARCHAR", "in words"),
    ),
)
COPIES = Table(
    "copies",
    "copies in the main memory, as `hlomem copies`",
    (
        _SPACE,
        Column("buffer", "VARCHAR", "as XLA prints it"),
        Column("size", "BIGINT", "bytes"),
        Column("shape", "VARCHAR", "with its layout"),
        Column("of", "VARCHAR", "what it copies"),
        Column("cause", "VARCHAR", "`layout`, `memory space`, `kept value`, `unknown`"),
        Column("why", "VARCHAR", "in words"),
        Column("is_at_peak", "BOOLEAN", "whether it is alive at the peak"),
        Column("line", "VARCHAR", "its source line"),
    ),
)
FINDINGS = Table(
    "findings",
    "what `hlomem verify` finds; only with `scan --verify`",
    (
        Column("rule", "VARCHAR", "of docs/verifier.md"),
        Column("severity", "VARCHAR", "`error` or `warning`"),
        Column("message", "VARCHAR", "in words"),
    ),
)
ADVICE = Table(
    "advice",
    "what `hlomem advise` suggests; only with `scan --advise`",
    (
        Column("rule", "VARCHAR", "of docs/advice.md"),
        Column("title", "VARCHAR", "in words"),
        Column("argument", "VARCHAR", "what of the program it is about"),
        Column("least", "BIGINT", "bytes it saves at least"),
        Column("most", "BIGINT", "bytes it saves at most"),
        Column("method", "VARCHAR", "`re-planned` or `counted`"),
        Column("confidence", "VARCHAR", "`high`, `medium`, `low`"),
        Column("how", "VARCHAR", "what to write or to type"),
    ),
)
UNITS = Table(
    "units",
    "the inputs as they were found: what the next scan goes by",
    (
        Column("unit", "VARCHAR", "the files that were read as one"),
        Column("segment", "VARCHAR", "the piece of the store its rows are in"),
        Column("source", "VARCHAR", "the first file"),
        Column("archive", "VARCHAR", "the archive it lies in; NULL elsewhere"),
        Column("is_archive", "BOOLEAN", "whether it is an archive, of which all was read"),
        Column("stamp", "VARCHAR", "of its files, or of its archive: another once they change"),
        Column("key", "VARCHAR", "hash of its content; NULL where nobody got to know it"),
        Column("names", "VARCHAR", "of its files"),
        Column("bytes", "BIGINT", "of its files"),
        Column("recipe", "VARCHAR", "hlomem's version and options"),
        Column("modules", "INTEGER", "programs in it"),
        Column("errors", "INTEGER", "of them, those that could not be read"),
        Column("committed", "TIMESTAMP", "UTC; of several of one source, the last counts"),
    ),
    is_of_programs=False,
)
TABLES = {
    table.name: table
    for table in (
        MODULES,
        SPACES,
        ROLES,
        ALLOCATIONS,
        BUFFERS,
        PADDING,
        DONATIONS,
        COPIES,
        FINDINGS,
        ADVICE,
        UNITS,
    )
}
"""By name, in the order the documentation has them."""


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
