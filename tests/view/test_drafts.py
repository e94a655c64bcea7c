"""What instructions without a line are, by the values they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.disjoint_sets import DisjointSets
from hlomem.view.drafts import Draft, draft_instructions
from hlomem.view.joined import join_dump
from hlomem.view.operands import find_operands
from tests.places import GOLDENS

FOLDERS = [path.parent for path in sorted((GOLDENS / "xla").glob("*/*/*/module.hlo"))]


def _drafts(folder: Path) -> dict[str, Draft]:
    joined = join_dump(hlomem.load(folder))
    return draft_instructions(joined, find_operands(joined, DisjointSets[str](), []))


@pytest.mark.parametrize("folder", FOLDERS[::3], ids=lambda p: "/".join(p.parts[-3:]))
def test_opcodes_are_those_of_the_module(folder: Path) -> None:
    drafts = _drafts(folder)
    module = hlo.parse((folder / "module.hlo").read_text())
    for instruction in module.iter_outer_instructions():
        draft = drafts.get(instruction.name)
        if draft is None or instruction.opcode.startswith("async-"):
            continue
        if draft.line is not None or instruction.opcode in {"parameter", "get-tuple-element"}:
            assert draft.opcode == instruction.opcode


def test_a_loop_runs_its_condition_first() -> None:
    folder = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"
    loops = [draft for draft in _drafts(folder).values() if draft.opcode == "while"]
    assert loops
    for loop in loops:
        assert loop.line is not None
        callees = loop.line.callees
        assert loop.callees == [*callees["condition"], *callees["body"]]
        assert not loop.is_async
