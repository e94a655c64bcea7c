"""Rows of reports as plain Python, and as a table."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import hlomem
from hlomem.base.errors import CommandError
from tests.places import GOLDENS


def test_rows_are_dictionaries_by_field() -> None:
    memory = hlomem.explain(GOLDENS / "trials/cpu/lost")
    rows = memory.by("role")
    assert [row["size"] for row in rows.to_dicts()] == [row.size for row in rows]
    assert len(memory.to_dicts()) == len(memory.buffers)
    assert hlomem.to_dicts(memory.roles)[0]["role"] == memory.roles[0].role


def test_a_table_is_made_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = SimpleNamespace(DataFrame=lambda rows: ("table", rows))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    rows = hlomem.explain(GOLDENS / "trials/cpu/lost").by("role")
    assert rows.to_pandas() == ("table", rows.to_dicts())


def test_without_pandas_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CommandError, match=r"pip install pandas\); to_dicts\(\) gives the same"):
        hlomem.explain(GOLDENS / "trials/cpu/lost").to_pandas()
