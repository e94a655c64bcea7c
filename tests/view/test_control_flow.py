"""Loops and branches found in a dump are those of its module."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.base.quantities import Step, steps
from hlomem.check.program import trace_program
from hlomem.view.control_flow import Conditional, Structure, find_structure
from hlomem.view.joined import join_dump
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import LOOP, V, branches, small_dump
from tests.places import GOLDENS

FOLDERS = [path.parent for path in sorted((GOLDENS / "xla").glob("*/*/*/module.hlo"))]


def _assert_as_in_module(folder: Path) -> int:
    joined = join_dump(hlomem.load(folder))
    said = trace_program(hlo.parse((folder / "module.hlo").read_text()), joined).structure
    found = find_structure(joined)
    assert set(found.loops) == set(said.loops)
    assert set(found.conditionals) == set(said.conditionals)
    assert found.unknown == ()
    return len(said.loops) + len(said.conditionals)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: "/".join(p.parts[-3:]))
def test_a_dump_shows_the_control_flow_of_its_module(folder: Path) -> None:
    _assert_as_in_module(folder)


def test_the_corpus_shows_it_too(shared: Path) -> None:
    folders = [path.parent for path in sorted(shared.glob("corpus/*/*/module.hlo"))]
    with_values = [each for each in folders[::9] if (each / "values.txt").exists()]
    assert sum(map(_assert_as_in_module, with_values)) or not with_values


def test_a_loop_is_known_by_its_parameters() -> None:
    structure = find_structure(join_dump(small_dump(LOOP)))
    [loop] = structure.loops
    assert (loop.instruction, loop.body_root) == ("w", "r")
    assert (loop.condition_parameter, loop.body_parameter) == ("c", "b")
    alone = [LOOP[0], V("w", (1, 2), text=LOOP[-1].text, is_phi=True)]
    assert find_structure(join_dump(small_dump(alone))).unknown == ("w",)


def test_branches_stand_one_after_another() -> None:
    [found] = find_structure(join_dump(branches())).conditionals
    assert found.branches == (plain.Branch(3, 6, "r"), plain.Branch(6, 9, "z"))
    running = [found.branch_at(step) for step in steps(10)]
    assert running == [None, None, None, 0, 0, 0, 1, 1, 1, None]


def test_moments_of_different_branches_exclude_each_other() -> None:
    branching = Conditional("k", (plain.Branch(3, 6, None), plain.Branch(6, 9, None)))
    structure = Structure(conditionals=(branching,))
    others = [step for step in steps(12) if structure.are_exclusive(Step(3), step)]
    assert others == [6, 7, 8]


@pytest.mark.parametrize("folder", FOLDERS[::9], ids=lambda p: "/".join(p.parts[-3:]))
def test_a_dump_that_lost_a_value_is_still_looked_through(folder: Path) -> None:
    dump = hlomem.load(folder)
    assert dump.values is not None
    for number in range(0, len(dump.values.values), 7):
        values = (*dump.values.values[:number], *dump.values.values[number + 1 :])
        lost = rebuilt(dump, values=replace(dump.values, values=values))
        structure = find_structure(join_dump(lost))
        known = {loop.instruction for loop in structure.loops}
        known |= {conditional.instruction for conditional in structure.conditionals}
        assert known.isdisjoint(structure.unknown)
