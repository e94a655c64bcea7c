"""Every edit of `tests/opt/edits` gives what its file says, and the checkers accept it.

`EDITS=update pytest tests/opt/test_edits.py` writes what edits give now; read the difference.
"""

from __future__ import annotations

import os
from difflib import unified_diff

import pytest

from hlomem import hlo
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.checks.offload import find_move_problems
from hlomem.opt.order_search import new_findings
from hlomem.opt.orders.planned_orders import temporary_bytes
from tests.opt.fixtures import Fixture, describe, edit, iter_fixtures, plan

FIXTURES = iter_fixtures()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.path.stem)
def test_an_edit_gives_what_its_file_says(fixture: Fixture) -> None:
    given = hlo.parse(fixture.program)
    edited = edit(fixture, given)
    found = describe(fixture, given, edited)
    if os.environ.get("EDITS") == "update":
        fixture.path.write_text(fixture.with_expected(found), encoding="utf-8")
    lines = (fixture.expected.splitlines(), found.splitlines())
    difference = "\n".join(unified_diff(*lines, "the file", "the edit", lineterm=""))
    assert not difference, f"{fixture.path.name} is not what the edit gives:\n{difference}"


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.path.stem)
def test_an_edit_is_accepted_by_the_checkers_and_needs_less(fixture: Fixture) -> None:
    given = hlo.parse(fixture.program)
    stages, edited = plan(fixture, given), hlo.parse(format_module(edit(fixture, given)))
    assert not _problems(fixture, given, edited)
    assert not new_findings(edited, given, stages.options)
    assert temporary_bytes(plan(fixture, edited)) < temporary_bytes(stages)


def _problems(fixture: Fixture, given: HloModule, edited: HloModule) -> list[str]:
    if fixture.command == "offload":
        color = plan(fixture, given).options.machine.host_color
        assert color is not None
        return find_move_problems(given, edited, color)
    is_of_loops = fixture.command in ("loops", "cut-in-loop")
    return (find_meaning_problems if is_of_loops else find_edit_problems)(given, edited)
