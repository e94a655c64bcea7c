"""A unit read in this process: its programs as rows, its errors as rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hlomem.fleet.finding import unit_at
from hlomem.fleet.reading import ScanOptions, Task, UnitOutcome, encode_line, failed, read_unit
from tests.places import GOLDENS

BEFORE = GOLDENS / "pairs" / "batch_doubled" / "before"


def _first(folder: Path) -> str:
    return str(min(folder.glob("*buffer-assignment.txt")))


def _rows(outcome: UnitOutcome, table: str = "modules") -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.tables.get(table, b"").splitlines()]


def test_a_dump_is_one_row_with_its_verdict_and_advice() -> None:
    options = ScanOptions(verify=True, advise=True)
    outcome = read_unit(Task(unit=unit_at(_first(BEFORE)), options=options))
    [module] = _rows(outcome)
    assert (module["status"], module["is_clean"], outcome.errors) == ("ok", True, 0)
    assert module["needs"] > 0
    assert _rows(outcome, "findings") == []
    assert {row["unit"] for row in _rows(outcome, "advice")} <= {module["unit"]}
    assert {row["id"] for row in _rows(outcome, "buffers")} == {module["id"]}


def test_content_that_is_known_is_not_read_again() -> None:
    task = Task(unit=unit_at(_first(BEFORE)), options=ScanOptions())
    key = read_unit(task).key
    assert key is not None
    again = read_unit(replace(task, known=(key,)))
    assert (again.is_known, again.tables) == (True, {})
    assert read_unit(replace(task, counts=True)).modules == 1


def test_files_of_an_archive_are_read_from_their_bytes() -> None:
    unit = unit_at(_first(BEFORE))
    data = tuple(Path(file.path).read_bytes() for file in unit.files)
    packed = replace(unit, archive="more.tar.gz", data=data)
    [module] = _rows(read_unit(Task(unit=packed, options=ScanOptions())))
    [plain] = _rows(read_unit(Task(unit=unit, options=ScanOptions())))
    assert {name: module[name] for name in ("name", "needs", "peak")} == {
        name: plain[name] for name in ("name", "needs", "peak")
    }


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("HloModule m\n\nENTRY %e {\n  %a = f32[8] nonsense(\n}\n", "unreadable", "bad.txt:5"),
        (
            "HloModule m\n\nENTRY %e {\n  ROOT %a = f32[8]{0} parameter(0)\n}\n",
            "unsupported",
            "no schedule",
        ),
    ],
    ids=["damaged", "without a schedule"],
)
def test_a_file_that_cannot_be_read_is_a_row_with_its_error(
    tmp_path: Path, text: str, kind: str, says: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    outcome = read_unit(Task(unit=unit_at(str(path)), options=ScanOptions()))
    [module] = _rows(outcome)
    assert module["status"] == "error"
    assert module["error_kind"] == kind
    assert says in module["error"]
    assert (outcome.modules, outcome.errors) == (1, 1)


def test_a_file_of_an_archive_that_cannot_be_read_is_called_as_it_is_there(tmp_path: Path) -> None:
    whole = (GOLDENS / "protos/cpu_train_step/profile.xplane.pb").read_bytes()
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(whole[: len(whole) // 2])
    unit = unit_at(str(path))
    packed = replace(unit, archive="more.tar.gz", data=(path.read_bytes(),))
    for source, name in ((unit, str(path)), (packed, path.name)):
        [module] = _rows(read_unit(Task(unit=source, options=ScanOptions())))
        assert module["error_kind"] == "unreadable"
        assert module["error"].startswith(f"{name}:")


def test_a_chip_counts_where_a_program_does_not_tell_its_own(tmp_path: Path) -> None:
    path = tmp_path / "program.hlo"
    shutil.copy(GOLDENS / "xla/libtpu-0.0.51/tpu-v5e/const_only/module.hlo", path)
    unit = unit_at(str(path))
    [module] = _rows(read_unit(Task(unit=unit, options=ScanOptions())))
    assert module["error_kind"] == "unreadable"
    assert "give one of v4, v5e" in module["error"]
    [module] = _rows(read_unit(Task(unit=unit, options=ScanOptions(chip="v5e"))))
    assert (module["status"], module["backend"]) == ("ok", "tpu")


def test_a_file_larger_than_may_be_read_is_an_error() -> None:
    outcome = read_unit(Task(unit=unit_at(_first(BEFORE)), options=ScanOptions(max_input=10)))
    [module] = _rows(outcome)
    assert module["error_kind"] == "unreadable"


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        ("its process was killed", "crash", "its process was killed"),
        (MemoryError(), "memory", "MemoryError"),
        (RecursionError("too deep"), "unreadable", "RecursionError: too deep"),
        (PermissionError(13, "Permission denied"), "unreadable", "Permission denied"),
        (ZeroDivisionError("now\x1b"), "bug", "ZeroDivisionError: now\\x1b"),
    ],
)
def test_every_error_has_its_kind(error: BaseException | str, kind: str, says: str) -> None:
    outcome = failed(unit_at(_first(BEFORE)), None, error)
    [module] = _rows(outcome)
    assert module["error_kind"] == kind
    assert says in module["error"]
    assert outcome.ran_out == (kind == "memory")


def test_a_byte_that_is_no_text_is_escaped_in_rows() -> None:
    assert json.loads(encode_line({"name": "a\udc80", "size": 3}))["size"] == 3


def test_a_file_that_is_gone_is_an_error_without_a_key(tmp_path: Path) -> None:
    path = tmp_path / "m.after_optimizations.txt"
    path.write_text("HloModule m")
    unit = unit_at(str(path))
    path.unlink()
    outcome = read_unit(Task(unit=unit, options=ScanOptions()))
    assert (outcome.key, outcome.errors) == (None, 1)
