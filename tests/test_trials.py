"""The dumps of programs as users compile them, against what JAX reports of the same compile."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hlomem.api.load import load, read_source
from hlomem.dump.dump import Dump

FOLDERS = sorted(
    path.parent for path in Path(__file__).parent.glob("goldens/trials/*/*/origin.json")
)
SOURCE = re.compile(r'"(/[^"\n]*\.py)"')
ELEMENT = re.compile(r"%[\w.-]+#\d")


def _name(folder: Path) -> str:
    return "-".join(folder.parts[-2:])


def _reports(folder: Path) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = json.loads((folder / "origin.json").read_text())[
        "memory_analysis"
    ]
    return reports


def _dump(folder: Path, function: str) -> Dump:
    (file,) = folder.glob(f"*.jit_{function}.*after_optimizations-buffer-assignment.txt*")
    return load(file)


def _reserved(dump: Dump) -> int:
    """Bytes in device memory; JAX does not count what is of a thread."""
    assert dump.assignment is not None
    allocations = [one for one in dump.assignment.allocations if one.color == 0]
    return sum(one.size for one in allocations if not one.is_thread_local)


def _modules(folder: Path) -> str:
    """The texts of all modules of a run."""
    files = folder.glob("*after_optimizations.txt*")
    return "".join(read_source(path).text for path in files)


@pytest.mark.parametrize("folder", FOLDERS, ids=_name)
def test_dumps_reserve_what_jax_reports(folder: Path) -> None:
    for report in _reports(folder):
        reserved = _reserved(_dump(folder, report["function"]))
        if "error" in report:
            assert "RESOURCE_EXHAUSTED" in report["error"]
            assert reserved > 15.75 * 2**30
        else:
            assert reserved == report["total_allocation_bytes"]


@pytest.mark.parametrize("folder", FOLDERS, ids=_name)
def test_sources_lie_where_a_user_would_have_them(folder: Path) -> None:
    sources = set(SOURCE.findall(_modules(folder)))
    assert sources
    assert all(source.startswith("/home/user/") for source in sources)


@pytest.mark.parametrize("folder", FOLDERS, ids=_name)
def test_elements_of_tuples_are_written_compactly(folder: Path) -> None:
    text = _modules(folder)
    assert "get-tuple-element(" not in text
    assert ELEMENT.search(text) or " while(" not in text
