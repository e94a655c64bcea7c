"""Every edit of `tests/opt/edits` gives what its file says, and the checkers accept it.

`EDITS=update pytest tests/opt/test_edits.py` writes what edits give now; read the difference.
"""

from __future__ import annotations

import os
from difflib import unified_diff

import pytest

from hlomem import hlo
from hlomem.opt.search import find_order_problems, write
from tests.opt.fixtures import Fixture, describe, edit, iter_fixtures

FIXTURES = iter_fixtures()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.path.stem)
def test_an_edit_gives_what_its_file_says(fixture: Fixture) -> None:
    given = hlo.parse(fixture.program)
    found = describe(fixture, given, edit(fixture, given).module)
    if os.environ.get("EDITS") == "update":
        fixture.path.write_text(fixture.with_expected(found), encoding="utf-8")
    lines = (fixture.expected.splitlines(), found.splitlines())
    difference = "\n".join(unified_diff(*lines, "the file", "the edit", lineterm=""))
    assert not difference, f"{fixture.path.name} is not what the edit gives:\n{difference}"


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.path.stem)
def test_an_edit_is_accepted_by_the_checkers_and_needs_less(fixture: Fixture) -> None:
    made = edit(fixture, hlo.parse(fixture.program))
    _, problems = write(made)
    assert not problems
    assert not find_order_problems(made)
    assert made.temporaries < made.given.start().temporaries
