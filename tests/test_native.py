"""What the newest XLA writes is read natively to the end: Python would be slow, and silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import hlomem
from hlomem import hlo
from hlomem.analysis import fused_bodies
from hlomem.api.folder import files_of
from hlomem.dump import assignment, live_range, values
from hlomem.hlo.text import reader, scanner
from hlomem.hlo.text.body import link_body
from hlomem.hlo.text.scanner import RowPart
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram
from tests.hlo.native import needs_native

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.hlo.ir import HloComputation
    from hlomem.hlo.text.scanner import InstructionRow


def _version(home: Path) -> tuple[str, tuple[int, ...]]:
    package, _, version = home.parts[-3].partition("-")
    return package, tuple(map(int, version.split(".")))


VERSIONS = [_version(golden.home) for golden in GOLDEN_PROGRAMS]
NEWEST = [
    max(version for version in VERSIONS if version[0] == package)
    for package in ("jaxlib", "libtpu")
]
PROGRAMS = [
    golden
    for golden in GOLDEN_PROGRAMS
    if _version(golden.home) in NEWEST and golden.home.name != "lines_in_attributes"  # unusual
]


def _in_python(*_: object, **__: object) -> NoReturn:
    raise AssertionError("read in Python")


@needs_native
@pytest.mark.parametrize("golden", PROGRAMS, ids=str)
def test_dumps_are_read_natively_to_the_end(
    golden: GoldenProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "_parse_allocation", _in_python)
    monkeypatch.setattr(values, "_parse_value", _in_python)
    monkeypatch.delattr(live_range, "_STEP")
    monkeypatch.delattr(live_range, "_RANGE")
    dump = hlomem.load(golden.home / "buffer-assignment.txt")
    assert len(dump.parts) == len(files_of(golden.home / "buffer-assignment.txt"))


@needs_native
@pytest.mark.parametrize("golden", PROGRAMS, ids=str)
def test_programs_are_read_natively_to_the_end(
    golden: GoldenProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "match_computations", _in_python)
    monkeypatch.setattr(scanner, "match_calling_rows", _in_python)
    monkeypatch.setattr(fused_bodies, "match_operand_rows", _in_python)
    monkeypatch.setattr(reader, "link_body", _link_implied)
    for text in golden.texts:
        module = hlo.parse(text)
        assert all(computation.instructions for computation in module.computations)


def _link_implied(
    computation: HloComputation, rows: list[InstructionRow], *others: Any, **options: Any
) -> list[HloComputation]:
    """Python's part: bodies with elements of tuples that have no line, `%fusion#1`."""
    assert any("#" in row[RowPart.OPERANDS - 1] for row in rows), "read in Python"
    return link_body(computation, rows, *others, **options)
