"""Edits: the given module stays as it is, and the edited one is what its printed text says."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem import hlo
from hlomem.base.errors import EditError
from hlomem.hlo.builder import ModuleBuilder
from hlomem.hlo.rewrite import Rewriter
from hlomem.pipeline import run_stages
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram, planned_values
from tests.hlo.structure import structure

SCHEDULED = [each for each in GOLDEN_PROGRAMS if "is_scheduled=true" in each.text]


@cache
def _texts(golden: GoldenProgram) -> list[str]:
    return golden.texts


@st.composite
def modules(draw: st.DrawFn) -> tuple[GoldenProgram, hlo.HloModule]:
    """A golden's module, explicit or compact, with some of its bodies read or none."""
    golden = draw(st.sampled_from(SCHEDULED))
    module = hlo.parse(draw(st.sampled_from(_texts(golden))))
    if draw(st.booleans()):
        module.open_all()
    return golden, module


def _some_order(data: st.DataObject, computation: hlo.HloComputation) -> list[hlo.HloInstruction]:
    """Any order in which operands come before their users."""
    waiting = list(computation.instructions)
    order: list[hlo.HloInstruction] = []
    random = data.draw(st.randoms(use_true_random=False))
    while waiting:
        ready = [
            each
            for each in waiting
            if not any(other in waiting for other in (*each.operands, *each.control_predecessors))
        ]
        order.append(random.choice(ready))
        waiting.remove(order[-1])
    return order


def _check(given: hlo.HloModule, before: object, edited: hlo.HloModule) -> hlo.HloModule:
    """What is true of every edit; returns what the text of the edited module is parsed to."""
    assert structure(given) == before, "the given module has changed"
    text = hlo.format_module(edited)
    parsed = hlo.parse(text, lazy=False)
    assert structure(parsed) == structure(edited)
    assert hlo.format_module(parsed) == text
    return parsed


@given(modules(), st.data())
def test_any_order_prints_and_plans_as_its_text_does(
    drawn: tuple[GoldenProgram, hlo.HloModule], data: st.DataObject
) -> None:
    golden, module = drawn
    before = structure(hlo.parse(module.source.text))
    rewriter = Rewriter(module)
    longest = max(module.outer_computations, key=lambda each: len(each.instructions))
    for computation in dict.fromkeys((module.entry, longest)):
        if len(computation.instructions) < 200:
            rewriter.reorder(computation, _some_order(data, computation))
    edited = rewriter.finish()
    parsed = _check(module, before, edited)
    if "tpu" not in str(golden):  # a preset is one of the given order
        assert planned_values(golden.start(edited)) == planned_values(golden.start(parsed))


@given(modules())
def test_the_order_there_is_changes_nothing(drawn: tuple[GoldenProgram, hlo.HloModule]) -> None:
    golden, module = drawn
    rewriter = Rewriter(module)
    for computation in module.outer_computations:
        rewriter.reorder(computation, computation.instructions)
    edited = rewriter.finish()
    assert planned_values(golden.start(edited)) == planned_values(golden.start(module))
    assert structure(edited) == structure(module)


@given(modules(), st.data())
def test_a_cloned_computation_may_be_called_instead(
    drawn: tuple[GoldenProgram, hlo.HloModule], data: st.DataObject
) -> None:
    _, module = drawn
    before = structure(hlo.parse(module.source.text))
    callers = [each for each in module.iter_outer_instructions() if each.called_computations]
    if not callers:
        return
    caller = data.draw(st.sampled_from(callers))
    rewriter = Rewriter(module)
    clone = rewriter.clone_computation(caller.called_computations[0])
    rewriter.set_called(caller, 0, clone)
    edited = rewriter.finish()
    parsed = _check(module, before, edited)
    assert clone.name in parsed.computation_by_name
    assert len(clone.instructions) == caller.called_computations[0].instruction_count
    callees = {callee for each in clone.instructions for callee in each.called_computations}
    assert all(each.name.rpartition(".clone")[1] for each in callees)
    run_stages(edited)


@given(modules(), st.data())
def test_a_cloned_instruction_may_be_read_instead(
    drawn: tuple[GoldenProgram, hlo.HloModule], data: st.DataObject
) -> None:
    _, module = drawn
    before = structure(hlo.parse(module.source.text))
    candidates = [each for each in module.entry.instructions if each.opcode != "parameter"]
    original = data.draw(st.sampled_from(candidates))
    rewriter = Rewriter(module)
    clone = rewriter.clone(original)
    rewriter.replace_uses(original, clone)
    edited = rewriter.finish()
    _check(module, before, edited)
    assert len(clone.users) == len(original.users)
    run_stages(edited)
    back = Rewriter(edited)
    back.replace_uses(clone, edited.entry.instructions[original.index])
    back.remove(clone)
    assert structure(back.finish()) == structure(module)


@given(modules())
def test_another_element_type_and_back_changes_nothing(
    drawn: tuple[GoldenProgram, hlo.HloModule],
) -> None:
    _, module = drawn
    before = structure(hlo.parse(module.source.text))
    types = {
        leaf.element_type.text
        for each in module.iter_instructions()
        for _, leaf in each.shape.leaves()
    }
    if "f32" not in types or "f16" in types:
        return
    rewriter = Rewriter(module)
    rewriter.change_element_type("f32", "f16")
    half = rewriter.finish()
    _check(module, before, half)
    assert not any("f32[" in each.shape.text for each in half.iter_instructions())
    back = Rewriter(half)
    back.change_element_type("f16", "f32")
    assert structure(back.finish()) == structure(module)


def _free_pair(module: hlo.HloModule) -> tuple[int, tuple[int, ...]] | None:
    """An argument and a part of the result that could take its memory."""
    given = {each.parameter_number for each in module.input_output_alias}
    taken = {each.output_index for each in module.input_output_alias}
    for parameter in module.entry.parameters:
        for index, leaf in module.entry.root.shape.leaves():
            if index in taken or parameter.parameter_number in given:
                continue
            if leaf.is_array and parameter.shape.text_without_layout == leaf.text_without_layout:
                return parameter.parameter_number, index
    return None


@given(modules())
def test_what_is_donated_is_not_donated_twice(drawn: tuple[GoldenProgram, hlo.HloModule]) -> None:
    _, module = drawn
    before = structure(hlo.parse(module.source.text))
    pair = _free_pair(module)
    if pair is None:
        return
    rewriter = Rewriter(module)
    rewriter.donate(*pair)
    with pytest.raises(EditError, match=f"output .* already takes parameter {pair[0]}"):
        rewriter.donate(*pair)
    edited = rewriter.finish()
    parsed = _check(module, before, edited)
    [new] = set(parsed.input_output_alias) - set(module.input_output_alias)
    assert (new.parameter_number, new.output_index) == pair
    assert all(
        (each.parameter_number, each.parameter_index) != (pair[0], ())
        for each in parsed.buffer_donor
    )
    with pytest.raises(EditError, match="already"):
        Rewriter(edited).donate(*pair)


_LAYOUT = "entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}"
TEXT = (
    f"""HloModule m, is_scheduled=true, buffer_donor={{ (0, {{}}) }}, {_LAYOUT}
"""
    """
ENTRY %main (a: f32[2,3]) -> f32[2,3] {
  %a = f32[2,3]{1,0} parameter(0)
  %copy.1 = f32[2,3]{0,1} copy(%a)
  %negate = f32[2,3]{0,1} negate(%copy.1)
  %copy.10 = f32[2,3]{1,0} copy(%negate), control-predecessors={%copy.1}
  %both = f32[2,3]{1,0} add(%copy.10, %copy.10), control-predecessors={%copy.10}
  ROOT %copy.11 = f32[2,3]{0,1} copy(%both)
}
"""
)


def _find(module: hlo.HloModule, name: str) -> hlo.HloInstruction:
    found = module.entry.find(name)
    assert found is not None
    return found


def test_an_argument_takes_the_layout_of_its_copy_and_its_caller_is_told() -> None:
    module = hlo.parse(TEXT)
    rewriter = Rewriter(module)
    rewriter.drop_copy(_find(module, "copy.1"), takes_layout_of_copy=True)
    edited = rewriter.finish()
    assert edited.entry.find("copy.1") is None
    [argument] = edited.entry.parameters
    assert str(argument.shape) == "f32[2,3]{0,1}"
    assert [each.name for each in argument.users] == ["negate"]
    layout = edited.entry_computation_layout
    assert layout is not None
    assert list(map(str, (*layout.parameters, layout.result))) == ["f32[2,3]{0,1}"] * 2
    assert _find(edited, "copy.10").control_predecessors == (argument,)
    _check(module, structure(hlo.parse(TEXT)), edited)


def test_a_result_is_taken_without_its_copy() -> None:
    module = hlo.parse(TEXT)
    rewriter = Rewriter(module)
    rewriter.drop_copy(_find(module, "copy.11"))
    edited = rewriter.finish()
    assert (edited.entry.root.name, str(edited.entry.root.shape)) == ("both", "f32[2,3]{1,0}")
    assert edited.entry_computation_layout is not None
    assert str(edited.entry_computation_layout.result) == "f32[2,3]{1,0}"


def test_a_donor_that_is_donated_is_no_donor_any_more() -> None:
    rewriter = Rewriter(hlo.parse(TEXT))
    rewriter.donate(0, must_alias=True)
    edited = rewriter.finish()
    assert edited.buffer_donor == ()
    assert list(edited.attributes)[:2] == ["is_scheduled", "input_output_alias"]
    assert edited.attributes["input_output_alias"] == "{ {}: (0, {}, must-alias) }"


REFUSED = {
    "a donation of nothing": ("edit.donate(7)", "no parameter 7: the entry has 1"),
    "a donation to nothing": ("edit.donate(0, (1,))", r"the result has no part at \{1\}"),
    "no copy": ("edit.drop_copy(find('negate'))", "`negate` is not a copy"),
    "a layout others read": (
        """edit.insert(find('both'), 'n', 'f32[2,3]', 'negate', [find('a')])
edit.drop_copy(find('copy.1'), takes_layout_of_copy=True)""",
        "cannot have the layout of `copy.1`: `n` reads it, too",
    ),
    "an order that lacks one": ("edit.reorder(entry, entry.instructions[1:])", "`a` is missing"),
    "an order with one twice": (
        "edit.reorder(entry, [*entry.instructions, find('a')])",
        "it repeats one",
    ),
    "users first": (
        "edit.reorder(entry, entry.instructions[::-1])",
        "`copy.11` would stand before `both`, which it needs",
    ),
    "removing what is used": ("edit.remove(find('negate'))", "`copy.10` uses it"),
    "removing the root": ("edit.remove(find('copy.11'))", "it is the root"),
    "removing an argument": (
        """edit.drop_copy(find('copy.1'))
new = edit.insert(find('negate'), 'c', 'f32[2,3]', 'constant', payload='{...}')
edit.replace_uses(find('a'), new)
edit.remove(find('a'))""",
        "callers give it a value",
    ),
    "what is removed": (
        "edit.drop_copy(find('copy.1')); edit.drop_copy(find('copy.1'))",
        "`copy.1` was removed",
    ),
    "an operand too many": ("edit.set_operand(find('negate'), 1, find('a'))", "has no operand 1"),
    "an operand of later": (
        "edit.set_operand(find('negate'), 0, find('both')); edit.finish()",
        "`negate` would stand before `both`",
    ),
    "a name that is taken": ("edit.rename(find('negate'), 'a'); edit.finish()", "two instructions"),
    "a shape that does not fit": (
        "edit.insert(find('both'), 't', '(f32[])', 'tuple', [find('a')]); edit.finish()",
        "has shape `f32",
    ),
    "a clone of an argument": ("edit.clone(find('a'))", "it has its number"),
    "a strange instruction": ("edit.remove(other.entry.root)", "is not of module `m`"),
    "a strange computation": ("edit.clone_computation(other.entry)", "is not of module `m`"),
    "no such type": ("edit.change_element_type('f32', 'f33')", "no arrays of `f33`"),
    "a type nobody has": ("edit.change_element_type('f64', 'f32')", "has no array of `f64`"),
    "a callee of none": ("edit.set_called(find('negate'), 0, entry)", "does not call 1"),
    "a link by text": (
        "edit.set_attribute(find('copy.10'), 'control-predecessors', '{%a}')",
        "names what it is linked with",
    ),
    "work after the end": ("edit.finish(); edit.donate(0)", "are finished: start again"),
    "a name inserted twice": (
        "edit.insert(find('both'), 'negate', 'f32[2,3]', 'negate', [find('a')])",
        "`negate` is defined twice in computation `main`",
    ),
    "a clone of a taken name": ("edit.clone(find('negate'), 'both')", "`both` is defined twice"),
    "a user of another shape": (
        """new = edit.insert(find('both'), 'c', 'f32[3]', 'constant', payload='{...}')
edit.set_operand(find('negate'), 0, new)""",
        r"`c` has shape `f32\[3\]`, `copy.1` has `f32\[2,3\]`",
    ),
    "an operand of elsewhere": (
        """clone = edit.clone_computation(entry)
edit.set_operand(find('negate'), 0, clone.instructions[0])""",
        "is not in the computation of `copy.1`",
    ),
    "a size beyond all": ("edit.resize(2, 1 << 62)", "would be too large"),
    "a size nobody has": ("edit.resize(7, 8)", "no dimension of size 7"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_edit_that_cannot_be_made_says_why(what: str) -> None:
    module = hlo.parse(TEXT)
    builder = ModuleBuilder("other")
    main = builder.computation("main")
    main.parameter("p", "f32[]")
    names = {
        "edit": Rewriter(module),
        "find": module.entry.find,
        "entry": module.entry,
        "other": builder.build(main.finish()),
    }
    action, reason = REFUSED[what]
    with pytest.raises(EditError, match=reason):
        exec(action, names)  # noqa: S102 - our own table


def test_orders_make_a_module_scheduled() -> None:
    module = hlo.parse(TEXT.replace(", is_scheduled=true", ""))
    rewriter = Rewriter(module)
    rewriter.schedule({module.entry: module.entry.instructions})
    assert rewriter.finish().is_scheduled
    assert not module.is_scheduled


def test_bodies_nobody_touched_stay_text() -> None:
    golden = next(each for each in SCHEDULED if "cpu/g_cholesky_solve" in str(each))
    module = hlo.parse(golden.text)
    rewriter = Rewriter(module)
    rewriter.rename(module.entry.root, "renamed")
    edited = rewriter.finish()
    unread = [each for each in edited.computations if not each.is_open]
    assert unread
    assert all(each.body_text is not None for each in unread)


IMPLIED = """HloModule m, is_scheduled=true

ENTRY %main (a: (f32[2], f32[2])) -> f32[2] {
  %a = (f32[2]{0}, f32[2]{0}) parameter(0)
  %sum = f32[2]{0} add(%a#0, %a#1)
  %a_1 = f32[2]{0} negate(%sum)
  ROOT %last = f32[2]{0} add(%a_1, %a#1)
}
"""


def test_an_implied_element_has_a_name_of_its_own() -> None:
    module = hlo.parse(IMPLIED)
    names = [each.name for each in module.entry.instructions]
    assert names == ["a", "a_0", "a_1.1", "sum", "a_1", "last"]
    edited = Rewriter(module).finish()
    assert structure(hlo.parse(hlo.format_module(edited))) == structure(edited)


def test_attributes_shapes_and_the_header_are_set_and_removed() -> None:
    module = hlo.parse(TEXT)
    rewriter = Rewriter(module)
    rewriter.set_header("replica_count", "2")
    rewriter.set_header("buffer_donor", None)
    rewriter.set_shape(_find(module, "copy.1"), "f32[2,3]{1,0}")
    rewriter.set_attribute(_find(module, "negate"), "metadata", '{op_name="f"}')
    rewriter.set_attribute(_find(module, "both"), "backend_config", '"x"')
    rewriter.set_attribute(_find(module, "both"), "backend_config", None)
    rewriter.rename(_find(module, "copy.10"), "ten")
    rewriter.clone(_find(module, "negate"), "again")
    edited = rewriter.finish()
    parsed = _check(module, structure(hlo.parse(TEXT)), edited)
    assert parsed.attributes["replica_count"] == "2"
    assert parsed.buffer_donor == ()
    assert str(_find(parsed, "copy.1").shape) == "f32[2,3]{1,0}"
    assert _find(parsed, "negate").attributes == {"metadata": '{op_name="f"}'}
    assert "backend_config" not in _find(parsed, "both").attributes
    assert _find(parsed, "both").control_predecessors == (_find(parsed, "ten"),)
    assert _find(parsed, "again").operands == _find(parsed, "negate").operands


def test_an_argument_is_donated_once_and_to_its_own_shape() -> None:
    builder = ModuleBuilder("pair")
    main = builder.computation("main")
    one, other = main.parameter("p", "f32[2]"), main.parameter("q", "f32[3]")
    main.add("t", "(f32[2], f32[2], f32[3])", "tuple", [one, one, other])
    rewriter = Rewriter(builder.build(main.finish()))
    with pytest.raises(EditError, match=r"is `f32\[2\]`, output \{2\} `f32\[3\]`: it needs one"):
        rewriter.donate(0, (2,))
    rewriter.donate(0, (0,))
    with pytest.raises(EditError, match=r"is already donated to output \{0\}"):
        rewriter.donate(0, (1,))
    assert len(rewriter.finish().input_output_alias) == 1
