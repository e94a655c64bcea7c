"""Kernels and fusions next to the VMEM they may use, in every report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hlomem import load
from hlomem.cli import main
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.data.scoped import build_scoped
from hlomem.report.data.summary import build_summary
from hlomem.report.page.page import build_page
from hlomem.report.screens.scoped_text import draw_scoped
from hlomem.report.screens.text import plain
from tests.places import GOLDENS

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView

SCOPED = GOLDENS / "scoped"


def _memory(name: str) -> MemoryView:
    return build_memory(load(SCOPED / name))


@pytest.mark.parametrize(
    ("name", "limit", "origin"),
    [("layers", 16, "v5e"), ("layers_v6e", 32, "v6e")],
)
def test_the_limit_is_the_chips(name: str, limit: int, origin: str) -> None:
    scoped = build_scoped(_memory(name))
    assert scoped is not None
    assert (scoped.limit, scoped.limit_from) == (limit << 20, origin)
    assert scoped.reserved_beyond == 0
    assert [row.used for row in scoped.rows] == sorted([r.used for r in scoped.rows], reverse=True)
    [kernel] = [row for row in scoped.rows if row.kind == "kernel"]
    assert kernel.name == "tiled_matmul"
    assert kernel.source is not None
    assert kernel.source.endswith("in_programs.py:21")


def test_a_flag_reserves_what_nothing_uses() -> None:
    scoped = build_scoped(_memory("layers_limit"))
    assert scoped is not None
    assert scoped.reserved_beyond == (64 << 20) - scoped.rows[0].used
    words = plain(draw_scoped(scoped, 80))
    assert "each may use 64.00 MiB, by xla_tpu_scoped_vmem_limit_kib" in words
    assert "reserves 60.03 MiB more than any of them uses" in words
    assert max(map(len, words.splitlines())) <= 80


def test_summary_and_page_have_it_and_other_dumps_have_none() -> None:
    memory = _memory("layers")
    assert build_summary(memory, find_space(memory)).scoped == build_page(memory).scoped
    other = build_memory(load(GOLDENS / "xla" / "libtpu-0.0.51" / "tpu-v6e" / "nested_while"))
    assert build_summary(other, find_space(other)).scoped is None


@pytest.mark.parametrize("command", ["peak", "explain"])
def test_an_instruction_says_what_it_uses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--at", "tiled_matmul.3"] if command == "peak" else ["tiled_matmul.3"]
    assert main([command, str(SCOPED / "layers"), *words]) == 0
    assert "its kernel uses 1.00 MiB of 16.00 MiB VMEM while it runs" in capsys.readouterr().out


def test_json_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(SCOPED / "layers"), "--json"]) == 0
    scoped = json.loads(capsys.readouterr().out)["scoped"]
    assert scoped["rows"][0]["used"] <= scoped["limit"]
