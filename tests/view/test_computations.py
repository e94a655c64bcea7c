"""The flattened schedule of a dump, taken apart into the computations of its module."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.view.computations import find_computations
from hlomem.view.joined import join_dump
from tests.check.small import small_dump
from tests.places import GOLDENS

FOLDERS = [path.parent for path in sorted((GOLDENS / "xla").glob("*/*/*/module.hlo"))]


@pytest.mark.parametrize("folder", FOLDERS[::3], ids=lambda p: "/".join(p.parts[-3:]))
def test_instructions_are_where_the_module_has_them(folder: Path) -> None:
    module = hlo.parse((folder / "module.hlo").read_text())
    joined = join_dump(hlomem.load(folder))
    nest = find_computations(joined, module.entry.name)
    assert nest.problems == ()
    assert nest.computations[0].name == module.entry.name
    home_of = {
        instruction.name: computation
        for computation in module.computations
        if computation.is_open
        for instruction in computation.instructions
    }
    for computation in nest.computations:
        homes = {home_of[name] for name in computation.instructions if name in home_of}
        assert len(homes) <= 1, computation.name
        times = [joined.time_of[name] for name in computation.instructions]
        assert times == sorted(times)


def test_every_step_belongs_to_one_computation() -> None:
    for folder in FOLDERS[::9]:
        joined = join_dump(hlomem.load(folder))
        nest = find_computations(joined)
        members = [name for each in nest.computations for name in each.instructions]
        assert sorted(members) == sorted(joined.sequence)


def test_an_empty_program_is_an_empty_entry() -> None:
    [entry] = find_computations(join_dump(small_dump([])), "e").computations
    assert (entry.name, entry.instructions, entry.caller) == ("e", [], "")
