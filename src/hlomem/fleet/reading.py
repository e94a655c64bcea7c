"""Reads one unit: its programs as rows, or an error row; remote files are copied first."""

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
from hlomem.api import opening
from hlomem.api.advise import advise_on
from hlomem.api.folder import Module
from hlomem.api.load import (
    MAX_BYTES,
    limited_to,
    list_programs_of,
    load_any,
    load_module,
    max_input,
)
from hlomem.base.errors import CommandError, HlomemError, InputError, UnsupportedError
from hlomem.base.source import visible, visible_lines
from hlomem.check.verify import verify_joined
from hlomem.dump.file_names import program_name
from hlomem.fleet.rows import Row, build_rows
from hlomem.fleet.schema import SCHEMA
from hlomem.fleet.storage import is_address, local_path, read_bytes
from hlomem.fleet.units import Unit  # noqa: TC001 - msgspec reads it
from hlomem.hlo.ir import HloModule  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.dump import Dump
    from hlomem.report.data.memory import MemoryView

_MAX_MESSAGE = 2000


class ScanOptions(Struct, frozen=True, kw_only=True):
    """The computations for every program, and the limits per unit."""

    chip: str = ""
    """For programs without a plan whose text does not tell it."""
    verify: bool = False
    advise: bool = False
    seconds: float = 60.0
    memory: int = 4 << 30
    """Bytes of address space."""
    max_input: int = MAX_BYTES

    @property
    def recipe(self) -> str:
        """Everything that rows depend on except the files' content."""
        return f"{__version__}/{SCHEMA}/{self.verify:d}{self.advise:d}/{self.chip}"


class Task(Struct, frozen=True, kw_only=True):
    unit: Unit
    options: ScanOptions
    known: tuple[str, ...] = ()
    """Content keys in the store: a unit with one of them is not read."""
    counts: bool = False


class UnitOutcome(Struct, frozen=True, kw_only=True):
    key: str | None
    """The content key; None if the process ended before it was known."""
    is_known: bool = False
    """Whether the rows are in the store already."""
    modules: int = 0
    errors: int = 0
    ran_out: bool = False
    """Whether memory ran out; the process must not be reused."""
    tables: dict[str, bytes] = {}


def read_unit(task: Task) -> UnitOutcome:
    """The rows of a unit; every error is a row."""
    with limited_to(task.options.max_input), ExitStack() as stack:
        try:
            files = local_files(task.unit, stack)
            key = key_of(task.unit, files, task.options.recipe)
        except (HlomemError, OSError) as error:
            return failed(task.unit, None, error)
        if key in task.known:
            return UnitOutcome(key=key, is_known=True)
        try:
            opened = list_programs(task.unit, files)
        except Exception as error:  # noqa: BLE001 - every error becomes a row
            return failed(task.unit, key, error, folder=files[0].parent)
        if task.counts:
            return UnitOutcome(key=key, modules=len(opened))
        return _read_all(task, key, opened, files[0].parent)


def local_files(unit: Unit, stack: ExitStack) -> list[Path]:
    """The unit's files on this machine; remote ones are copied."""
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


class UnitProgram(Struct):
    name: str
    shown: str | None
    """Its name within a file of several programs; else None."""
    open: Callable[[], Dump | HloModule]


def list_programs(unit: Unit, files: list[Path]) -> list[UnitProgram]:
    if unit.kind == "proto":
        found = list_programs_of(files[0])
        if found:
            many = len(found) > 1
            return [
                UnitProgram(program.name, program.name if many else None, program.open)
                for program in found
            ]
        return [UnitProgram(unit.name, None, partial(load_any, files[0]))]
    if unit.kind == "module":
        return [UnitProgram(unit.name, None, partial(load_any, files[0]))]
    parts = tuple(files[: len(files) - unit.has_program - unit.about_code])
    # The program and what is known of its code are found next to the first file.
    return [UnitProgram(unit.name, None, partial(load_module, Module(unit.name, parts)))]


def open_memory(loaded: Dump | HloModule, name: str, chip: str = "") -> MemoryView:
    """The memory of a dump or of a program; `chip` counts where its text does not tell it."""
    try:
        return opening.open_memory(loaded, name=name)
    except CommandError:
        if not chip:
            raise
        return opening.open_memory(loaded, chip=chip, name=name)


def _read_all(task: Task, key: str, programs: list[UnitProgram], folder: Path) -> UnitOutcome:
    tables: dict[str, list[bytes]] = {}
    errors, ran_out = 0, False
    wanted = task.unit.program
    for number, program in enumerate(programs):
        if wanted is not None and number != wanted:
            continue
        start = time.process_time()
        try:
            rows = _rows_of(program, task.options)
        except Exception as error:  # noqa: BLE001 - every error becomes a row
            rows = {"modules": [_error_row(program.name, error, folder, task.unit)]}
            errors, ran_out = errors + 1, ran_out or isinstance(error, MemoryError)
        spent = time.process_time() - start
        rows["modules"][0].update(source=task.unit.source, program=program.shown, cpu_seconds=spent)
        _encode(task.unit, key, f"{task.unit.id}-{number}", rows, tables)
    joined = {table: b"".join(lines) for table, lines in tables.items()}
    count = 1 if wanted is not None else len(programs)
    return UnitOutcome(key=key, modules=count, errors=errors, ran_out=ran_out, tables=joined)


def _rows_of(program: UnitProgram, options: ScanOptions) -> dict[str, list[Row]]:
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
        names = ("rule", "title", "argument", "least", "most", "method", "confidence", "how")
        rows["advice"] = [
            {name: getattr(advice, name) for name in names} for advice in advise_on(memory).advice
        ]
    return rows


def _encode(
    unit: Unit, key: str, id_: str, rows: dict[str, list[Row]], tables: dict[str, list[bytes]]
) -> None:
    """Add rows to tables as JSON lines, with the columns common to a program."""
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
    """A row as a JSON line; bytes that are not UTF-8 are escaped as on screens."""
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
) -> UnitOutcome:
    """The outcome of an unreadable unit: one row with its error."""
    row = _error_row(unit.name, error, folder, unit)
    row["source"] = unit.source
    if kind:
        row["error_kind"] = kind
    tables: dict[str, list[bytes]] = {}
    _encode(unit, key or "", f"{unit.id}-{unit.program or 0}", {"modules": [row]}, tables)
    joined = {table: b"".join(lines) for table, lines in tables.items()}
    ran_out = isinstance(error, MemoryError)
    return UnitOutcome(key=key, modules=1, errors=1, ran_out=ran_out, tables=joined)


def _error_row(name: str, error: BaseException | str, folder: Path | None, unit: Unit) -> Row:
    message = str(error)
    if not isinstance(error, HlomemError | str):
        message = f"{type(error).__name__}: {error}".removesuffix(": ")
    if folder is not None and unit.data:  # a temporary folder
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
        case HlomemError() | OSError() | RecursionError():
            return "unreadable"
    return "bug"
