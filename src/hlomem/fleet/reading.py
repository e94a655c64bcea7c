"""One unit read: its programs as rows, or the error that stands in their place.

In: a task. Out: an outcome: lines of JSON by table, one line a row. Nothing a file does to hlomem
leaves this module but the end of its process, which is somebody else's to notice
(`hlomem.fleet.workers`). Files of other storages are written into a folder of their own first, so
that all readers are the ones the commands use.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hlomem import __version__
from hlomem.advice.advising import advise
from hlomem.api.folder import Module
from hlomem.api.load import (
    MAX_BYTES,
    limited_to,
    list_programs_of,
    load_any,
    load_module,
    max_input,
)
from hlomem.api.plan import plan
from hlomem.base.errors import CommandError, HlomemError, InputError, UnsupportedError
from hlomem.base.source import visible, visible_lines
from hlomem.check.verify import verify_joined
from hlomem.dump.dump import Dump
from hlomem.dump.program_name import program_name
from hlomem.fleet.rows import build_rows
from hlomem.fleet.schema import SCHEMA
from hlomem.fleet.storage import is_address, local_path, read_bytes
from hlomem.fleet.units import Unit  # noqa: TC001 - msgspec reads it
from hlomem.hlo.ir import HloModule  # noqa: TC001 - msgspec reads it
from hlomem.report.data.memory import build_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.fleet.rows import Row
    from hlomem.report.data.memory import MemoryView

_MAX_MESSAGE = 2000


class Options(Struct, frozen=True, kw_only=True):
    """All that is asked of every program, and the most it may cost."""

    chip: str = ""
    """Of programs without a plan whose text does not tell it."""
    verify: bool = False
    advise: bool = False
    seconds: float = 60.0
    """For one unit; then it is ended."""
    memory: int = 4 << 30
    """Bytes of address space for one unit."""
    max_input: int = MAX_BYTES

    @property
    def recipe(self) -> str:
        """All that rows depend on beside the files' content."""
        return f"{__version__}/{SCHEMA}/{self.verify:d}{self.advise:d}/{self.chip}"


class Task(Struct, frozen=True, kw_only=True):
    """One unit to read."""

    unit: Unit
    options: Options
    known: tuple[str, ...] = ()
    """Keys of what is in the store: if its content has one of them, it is not read."""
    counts: bool = False
    """Whether only the number of programs is asked for."""


class Outcome(Struct, frozen=True, kw_only=True):
    """A unit that was dealt with."""

    key: str | None
    """None where the process ended before it knew."""
    is_known: bool = False
    """Whether the content is in the store, so that its rows can be taken from there."""
    modules: int = 0
    errors: int = 0
    ran_out: bool = False
    """Whether there was not enough memory; the process is not to be used again."""
    tables: dict[str, bytes] = {}
    """Rows as lines of JSON."""


def read_unit(task: Task) -> Outcome:
    """The rows of a unit; every error is a row."""
    with limited_to(task.options.max_input), ExitStack() as stack:
        try:
            files = local_files(task.unit, stack)
            key = key_of(task.unit, files, task.options.recipe)
        except (HlomemError, OSError) as error:
            return failed(task.unit, None, error)
        if key in task.known:
            return Outcome(key=key, is_known=True)
        try:
            opened = list_programs(task.unit, files)
        except Exception as error:  # noqa: BLE001 - a program's error is a row, whatever it is
            return failed(task.unit, key, error, folder=files[0].parent)
        if task.counts:
            return Outcome(key=key, modules=len(opened))
        return _read_all(task, key, opened, files[0].parent)


def local_files(unit: Unit, stack: ExitStack) -> list[Path]:
    """The unit's files on this machine; those that are elsewhere are brought here."""
    if not unit.data and not any(is_address(file.path) for file in unit.files):
        return [local_path(file.path) for file in unit.files]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hlomem-")))
    data = unit.data or tuple(read_bytes(file.path) for file in unit.files)
    made = []
    for file, content in zip(unit.files, data, strict=True):
        path = folder / Path(file.name).name
        path.write_bytes(content)
        made.append(path)
    return made


def key_of(unit: Unit, files: list[Path], recipe: str) -> str:
    """A hash of all that rows are made of: content, names, version, options."""
    made = blake2b(digest_size=16)
    number = "" if unit.program is None else str(unit.program)
    for text in (recipe, unit.kind, unit.name, number):
        made.update(text.encode("utf-8", "surrogateescape") + b"\0")
    for path in files:
        if path.stat().st_size > max_input():
            raise InputError(f"{visible(str(path))}: larger than the limit of inputs (--max-input)")
        data = read_bytes(str(path))
        made.update(f"{path.name}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        made.update(data)
    return made.hexdigest()


class Program(Struct):
    """A program of a unit, not opened yet."""

    name: str
    shown: str | None
    """Its name among the others of its file; None where it is alone."""
    open: Callable[[], Dump | HloModule]


def list_programs(unit: Unit, files: list[Path]) -> list[Program]:
    if unit.kind == "proto":
        found = list_programs_of(files[0])
        if found:
            many = len(found) > 1
            return [
                Program(program.name, program.name if many else None, program.open)
                for program in found
            ]
        return [Program(unit.name, None, partial(load_any, files[0]))]
    if unit.kind == "module":
        return [Program(unit.name, None, partial(load_any, files[0]))]
    parts = tuple(files[:-1] if unit.has_program else files)
    # The program is found again beside the first file.
    return [Program(unit.name, None, partial(load_module, Module(unit.name, parts)))]


def open_memory(loaded: Dump | HloModule, name: str, chip: str = "") -> MemoryView:
    """The memory of a dump, or of a program as it would be planned.

    `chip` counts where the program's text does not tell it.
    """
    if isinstance(loaded, Dump):
        return build_memory(loaded)
    try:
        made = plan(loaded, name=name)
    except CommandError:
        if not chip:
            raise
        made = plan(loaded, chip=chip, name=name)
    return build_memory(made.dump, loaded, made.stages.options.machine, is_planned=True)


def _read_all(task: Task, key: str, programs: list[Program], folder: Path) -> Outcome:
    tables: dict[str, list[bytes]] = {}
    errors, ran_out = 0, False
    wanted = task.unit.program
    for number, program in enumerate(programs):
        if wanted is not None and number != wanted:
            continue
        start = time.process_time()
        try:
            rows = _rows_of(program, task.options)
        except Exception as error:  # noqa: BLE001 - a program's error is a row, whatever it is
            rows = {"modules": [_error_row(program.name, error, folder, task.unit)]}
            errors, ran_out = errors + 1, ran_out or isinstance(error, MemoryError)
        about = {
            "source": task.unit.source,
            "program": program.shown,
            "cpu_seconds": time.process_time() - start,
        }
        rows["modules"][0].update(about)
        _encode(task.unit, key, f"{task.unit.id}-{number}", rows, tables)
    joined = {table: b"".join(lines) for table, lines in tables.items()}
    count = 1 if wanted is not None else len(programs)
    return Outcome(key=key, modules=count, errors=errors, ran_out=ran_out, tables=joined)


def _rows_of(program: Program, options: Options) -> dict[str, list[Row]]:
    loaded = program.open()
    memory = open_memory(loaded, program.name, options.chip)
    rows = build_rows(memory)
    [module] = rows["modules"]
    if options.verify:
        verdict = verify_joined(memory.joined, module=memory.module, machine=memory.given_machine)
        module["is_clean"] = verdict.is_clean
        rows["findings"] = [
            {"rule": finding.rule, "severity": finding.severity, "message": finding.message}
            for finding in verdict.findings
        ]
    if options.advise:
        given = memory.module if memory.is_planned and memory.module else memory.dump
        report = advise(given, module=None if given is memory.module else memory.module)
        names = ("rule", "title", "argument", "least", "most", "method", "confidence", "how")
        rows["advice"] = [
            {name: getattr(advice, name) for name in names} for advice in report.advice
        ]
    return rows


def _encode(
    unit: Unit, key: str, id_: str, rows: dict[str, list[Row]], tables: dict[str, list[bytes]]
) -> None:
    """Adds rows to tables as lines of JSON, with what all rows of a program share."""
    [module] = rows["modules"]
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    module.update(
        place=unit.place, kind=unit.kind, key=key, input_bytes=unit.size, scanned_at=now,
        hlomem=__version__,
    )  # fmt: skip
    shared = {"id": id_, "unit": unit.id, "name": module["name"]}
    for table, found in rows.items():
        lines = tables.setdefault(table, [])
        lines += [encode_line({**shared, **row}) for row in found]


def encode_line(row: Row) -> bytes:
    """A row as a line of JSON; what is no text is escaped as on screens."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except UnicodeEncodeError:  # a byte of the input that was not UTF-8
        shown = {name: visible(value) if isinstance(value, str) else value
                 for name, value in row.items()}  # fmt: skip
        return msgspec.json.encode(shown) + b"\n"


def failed(
    unit: Unit,
    key: str | None,
    error: BaseException | str,
    kind: str = "",
    folder: Path | None = None,
) -> Outcome:
    """The outcome of a unit that could not be read: one row with its error."""
    row = _error_row(unit.name, error, folder, unit)
    row["source"] = unit.source
    if kind:
        row["error_kind"] = kind
    tables: dict[str, list[bytes]] = {}
    _encode(unit, key or "", f"{unit.id}-{unit.program or 0}", {"modules": [row]}, tables)
    joined = {table: b"".join(lines) for table, lines in tables.items()}
    ran_out = isinstance(error, MemoryError)
    return Outcome(key=key, modules=1, errors=1, ran_out=ran_out, tables=joined)


def _error_row(name: str, error: BaseException | str, folder: Path | None, unit: Unit) -> Row:
    message = str(error)
    if not isinstance(error, HlomemError | str):
        message = f"{type(error).__name__}: {error}".removesuffix(": ")
    if folder is not None and unit.data:  # a folder of ours, which is gone when somebody reads this
        message = message.replace(f"{folder}/", "")
    return {
        "name": program_name(name),
        "status": "error",
        "error_kind": _kind_of(error),
        "error": visible_lines(message)[:_MAX_MESSAGE],
    }


def _kind_of(error: BaseException | str) -> str:
    match error:
        case str():
            return "crash"
        case MemoryError():
            return "memory"
        case UnsupportedError():
            return "unsupported"
        case HlomemError() | OSError():
            return "unreadable"
        case RecursionError():
            return "unreadable"
    return "bug"
