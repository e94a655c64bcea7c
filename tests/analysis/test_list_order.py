"""The order of lists decides numbers, never a place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import hlomem
from hlomem.base.errors import CommandError
from tests.places import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.plan import Plan

ENTRIES = sorted(path.parent for path in (GOLDENS / "xla").rglob("origin.json"))


def _plan(home: Path, order: str) -> Plan:
    facts = json.loads((home / "origin.json").read_text())
    package = "libtpu" if facts["backend"] == "tpu" else "jaxlib"
    dump = hlomem.load(home / "buffer-assignment.txt")
    return hlomem.plan(
        (home / "module.hlo").read_text(),
        backend=facts["backend"],
        chip=facts["chip"],
        era=f"{package}-{facts['versions'][package]}",
        schedule=None if facts["scheduled"] else dump,
        preset=dump if facts["backend"] == "tpu" else None,
        order=order,
    )


def _places(plan: Plan) -> set[tuple[str, int, int, int, bool, int]]:
    """Every value by name, with its bytes and what kind of allocation they are in."""
    return {
        (
            f"{value.instruction.name}{value.index}",
            allocation.color,
            allocation.size,
            place.offset,
            allocation.is_thread_local,
            place.size,
        )
        for allocation in plan.stages.assignment.allocations
        for value, place in allocation.slices.items()
    }


@pytest.mark.parametrize("home", ENTRIES, ids=lambda home: f"{home.parent.parent.name}-{home.name}")
def test_every_value_lies_where_it_does_in_xlas_order(home: Path) -> None:
    assert _places(_plan(home, "text")) == _places(_plan(home, "xla"))


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match="unknown order `sorted`; known are xla, text"):
        hlomem.plan("HloModule m", order="sorted")
