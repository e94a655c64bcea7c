"""A copy of a module is its equal, and shares the text of what nobody looks into."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.hlo.body_draft import unused_name
from hlomem.hlo.draft import ModuleDraft
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram, planned_values
from tests.hlo.structure import structure


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_a_copy_in_which_nothing_changed_is_the_module(golden: GoldenProgram) -> None:
    for text in golden.texts:
        module = hlo.parse(text)
        copy = ModuleDraft(module).finish()
        assert [each.is_open for each in copy.computations] == [
            each.is_open for each in module.computations
        ]
        assert planned_values(golden.start(copy)) == planned_values(golden.start(module))
        assert structure(copy) == structure(module)
        assert {each.module for each in copy.computations} == {copy}


def test_a_copy_of_a_copy_is_one_too() -> None:
    module = hlo.parse(GOLDEN_PROGRAMS[0].text)
    copy = ModuleDraft(ModuleDraft(module).finish()).finish()
    assert structure(copy) == structure(module)


def test_an_error_points_into_the_text_a_module_without_one_would_have() -> None:
    module = hlo.parse(GOLDEN_PROGRAMS[0].text)
    draft = ModuleDraft(module)
    draft.draft(draft.module.entry)
    copy = draft.finish()
    error = copy.entry.root.error("here")
    assert error.source.text == hlo.format_module(copy)
    line = error.source.text.split("\n")[error.line - 1]
    assert line.strip().startswith(f"ROOT %{copy.entry.root.name} = ")


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert unused_name("a", set()) == "a"
    assert unused_name("a", {"a", "a.1"}) == "a.2"


def test_what_was_found_in_a_text_is_known_of_its_copies_until_they_are_edited() -> None:
    module = hlo.parse(GOLDEN_PROGRAMS[0].text)
    draft = ModuleDraft(module)
    draft.draft(draft.module.entry)
    copy = draft.finish()
    body = module.computations[0]
    asked: list[str] = []

    def find(name: str) -> str:
        asked.append(name)
        return name

    assert body.ask_once("name", lambda: find("first")) == "first"
    same = copy.computation_by_name[body.name]
    assert same.ask_once("name", lambda: find("second")) == "first"
    assert same.ask_once("other", lambda: find("third")) == "third"
    assert [copy.entry.ask_once("name", lambda: find("edited")) for _ in range(2)] == ["edited"] * 2
    assert asked == ["first", "third", "edited", "edited"]
