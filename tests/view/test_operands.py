"""Operands that no line shows are those the module names."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.disjoint_sets import DisjointSets
from hlomem.view.joined import join_dump
from hlomem.view.operands import find_operands
from tests.check.small import V, small_dump
from tests.places import GOLDENS

FOLDERS = [path.parent for path in sorted((GOLDENS / "xla").glob("*/cpu/*/module.hlo"))]


@pytest.mark.parametrize("folder", FOLDERS[::3], ids=lambda p: "/".join(p.parts[-3:]))
def test_tuple_elements_and_bitcasts_read_what_the_module_says(folder: Path) -> None:
    module = hlo.parse((folder / "module.hlo").read_text())
    joined = join_dump(hlomem.load(folder))
    problems: list[str] = []
    operands = find_operands(joined, DisjointSets[str](), problems)
    assert problems == []
    for instruction in module.iter_outer_instructions():
        if instruction.name not in operands or instruction.name in joined.printed:
            continue
        if instruction.opcode == "get-tuple-element":
            assert operands[instruction.name] == [instruction.operands[0].name]


def test_a_dump_that_contradicts_itself_is_said_to() -> None:
    values = [V("a", (0, 2), uses=(("g", 0, (3,)),), positions=(("g", ()),))]
    problems: list[str] = []
    operands = find_operands(
        join_dump(small_dump(values, sequence=["a", "g"])), DisjointSets[str](), problems
    )
    assert operands["g"] == []
    assert problems == ["nothing holds what operand 0 of `g` reads; the dump contradicts itself"]
