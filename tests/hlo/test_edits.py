"""A module's text with one thing changed, and nothing else."""

from __future__ import annotations

from hlomem import hlo
from hlomem.hlo.edits import as_scheduled, with_aliases, with_element_type, with_order, without_copy
from hlomem.hlo.shape import ROOT_INDEX

TEXT = """HloModule m, is_scheduled=true, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}

ENTRY %main (a: f32[2,3]) -> f32[2,3] {
  %a = f32[2,3]{1,0} parameter(0)
  %copy.1 = f32[2,3]{0,1} copy(%a)
  %negate = f32[2,3]{0,1} negate(%copy.1)
  %copy.10 = f32[2,3]{1,0} copy(%negate)
  %both = f32[2,3]{1,0} add(%copy.10, %copy.10)
  ROOT %copy.11 = f32[2,3]{0,1} copy(%both)
}
"""


def _find(name: str) -> hlo.HloInstruction:
    found = hlo.parse(TEXT).entry.find(name)
    assert found is not None
    return found


def test_an_alias_is_added_to_none() -> None:
    changed = hlo.parse(with_aliases(hlo.parse(TEXT), {ROOT_INDEX: 0}))
    [alias] = changed.input_output_alias
    assert (alias.output_index, alias.parameter_number, alias.must_alias) == (ROOT_INDEX, 0, False)
    assert changed.source.text.split("\n")[1:] == TEXT.split("\n")[1:]


def test_an_alias_is_added_to_those_there_are() -> None:
    first = hlo.parse(with_aliases(hlo.parse(TEXT), {ROOT_INDEX.child(0): 0}))
    second = hlo.parse(with_aliases(first, {ROOT_INDEX.child(1): 4}))
    assert [each.parameter_number for each in second.input_output_alias] == [0, 4]
    assert second.source.text.count("input_output_alias") == 1


def test_an_element_type_is_another_everywhere() -> None:
    changed = with_element_type(hlo.parse(TEXT), "f32", "bf16")
    assert "f32[" not in changed.replace("bf16[", "")
    assert changed.count("bf16[") == TEXT.count("f32[")


def test_an_argument_takes_the_layout_of_its_copy() -> None:
    module = hlo.parse(without_copy(_find("copy.1"), keeps_layout=False))
    assert module.entry.find("copy.1") is None
    [argument] = module.entry.parameters
    assert str(argument.shape) == "f32[2,3]{0,1}"
    assert [each.name for each in argument.users] == ["negate"]
    assert module.entry.find("copy.10") is not None, "a name that begins the same stays"


def test_a_result_is_taken_without_its_copy() -> None:
    module = hlo.parse(without_copy(_find("copy.11"), keeps_layout=True))
    assert module.entry.root.name == "both"
    assert str(module.entry.root.shape) == "f32[2,3]{1,0}"


def test_instructions_stand_in_another_order() -> None:
    text = TEXT.replace("  %both", "  %other = f32[2,3]{1,0} negate(%a)\n  %both")
    module = hlo.parse(text)
    order = module.entry.instructions
    moved = [order[0], order[4], *order[1:4], *order[5:]]
    assert order[4].name == "other"
    changed = hlo.parse(with_order(module, [moved]))
    assert [each.name for each in changed.entry.instructions] == [each.name for each in moved]
    assert changed.entry.root.name == "copy.11"
    assert sorted(changed.source.text) == sorted(text)


def test_a_text_without_a_schedule_says_that_it_has_one() -> None:
    text = (
        "HloModule m\n\nENTRY %e {\n  %a = f32[2] parameter(0)\n  ROOT %b = f32[2] negate(%a)\n}\n"
    )
    module = hlo.parse(text)
    scheduled = as_scheduled(module, [module.entry.instructions])
    assert scheduled == text.replace("HloModule m", "HloModule m, is_scheduled=true", 1)
    again = hlo.parse(scheduled)
    assert as_scheduled(again, [again.entry.instructions]) == scheduled
