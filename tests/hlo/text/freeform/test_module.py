"""Text as people write it is read and printed as XLA reads and prints it."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import canonicalize, format_module, parse
from tests.hlo.forms import FORMS
from tests.hlo.text.freeform.goldens import PRINTED, REFUSALS
from tests.hlo.written import REFUSED, WRITTEN, entry

TEXTS = {**FORMS, **WRITTEN}


def test_xla_was_asked_about_every_text() -> None:
    assert PRINTED.keys() == TEXTS.keys()
    assert REFUSALS.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_printed_as_xla_prints_it(name: str) -> None:
    assert canonicalize(TEXTS[name], name) == PRINTED[name]


@pytest.mark.parametrize("name", PRINTED)
def test_what_xla_prints_comes_back(name: str) -> None:
    assert format_module(parse(PRINTED[name], name, lazy=False)) == PRINTED[name]


_NOT_READ_AGAIN = {
    "a condition of two loops",  # XLA prints it below the loop that calls it, and refuses that
    "floats",  # `-0` is an integer
}
"""What XLA itself does not read as the module it printed it for."""


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - _NOT_READ_AGAIN))
def test_what_xla_prints_is_canonical(name: str) -> None:
    assert canonicalize(PRINTED[name], name) == PRINTED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_a_place_and_with_words(name: str) -> None:
    for read in (lambda text: parse(text, "bad.hlo", lazy=False), canonicalize):
        with pytest.raises(ParseError) as caught:
            read(REFUSED[name])
        assert caught.value.problem
    line = REFUSALS[name].partition(":")[0]
    if line.isdecimal():  # XLA may notice at the next instruction, and point there
        assert 0 <= int(line) - caught.value.line <= 1


def test_shapes_are_those_xla_infers() -> None:
    text = WRITTEN["shapes left out"]
    root = parse(text).entry.root
    assert root.shape.text == "(f32[4,8]{1,0}, f32[4,8]{1,0})"


def test_names_of_two_computations_are_made_unique() -> None:
    """A clean layout alone does not make a text one of XLA's."""
    text = """\
HloModule m

f {
  p = f32[] parameter(0)
  ROOT n = f32[] negate(p)
}

ENTRY e {
  p = f32[] parameter(0)
  ROOT n = f32[] call(p), to_apply=f
}
"""
    module = parse(text)
    names = [each.name for each in module.iter_instructions()]
    assert names == ["p", "n", "p.1", "n.1"]
    root = module.entry.root.span
    assert text[root.start : root.end] == "n = f32[] call(p), to_apply=f"


def test_a_text_with_its_own_names_stays_as_it_is() -> None:
    text = """\
HloModule m

ENTRY e {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}

"""
    assert format_module(parse(text)) == text


def test_literals_are_kept_that_xla_leaves_out() -> None:
    root = parse(entry("ROOT c = s32[ 11 ] constant({1,2,3,4,5,6,7,8,9,10,11})")).entry.root
    assert root.payload == "{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}"


def test_opcodes_and_attributes_that_are_not_known_are_kept() -> None:
    text = entry(
        "p = f32[ 4 ] parameter(0), new={ a , [1]}",
        "ROOT r = f32[4] frobnicate(p, negate(p)), to_apply=f, depth=[2,3]<=[6] T(1, 0)",
        before="f { ROOT q = f32[4] parameter(0) }",
    )
    module = parse(text)
    parameter, _, root = module.entry.instructions
    assert parameter.attributes == {"new": "{ a , [1]}"}
    assert str(root.opcode) == "frobnicate"
    assert [each.name for each in root.called_computations] == ["f"]
    assert root.attributes["depth"] == "[2,3]<=[6] T(1, 0)"


def test_an_unknown_opcode_needs_its_shape() -> None:
    with pytest.raises(ParseError, match="the shape of `frobnicate` is missing"):
        parse(entry("p = f32[] parameter(0)", "ROOT r = frobnicate(p)"))


@pytest.mark.parametrize(
    ("name", "value"), [("a", ""), ("b", "]"), ("c", "{(}"), ("d", "{1, 2"), ("e", "(x]")]
)
def test_values_of_unknown_attributes_have_brackets_that_close(name: str, value: str) -> None:
    with pytest.raises(ParseError):
        canonicalize(entry(f"ROOT p = f32[] parameter(0), {name}={value}"))


def test_one_instruction_with_parts_that_are_not_defined() -> None:
    with pytest.raises(ParseError, match="operand `x` is not defined above"):
        canonicalize("f32[4] negate(x)")
    with pytest.raises(ParseError, match="expected the end of the text"):
        canonicalize("f32[4] negate(f32[4] x) }")
    with pytest.raises(ParseError, match="expected `HloModule`"):
        canonicalize("negate(f32[4] x)")


@pytest.mark.parametrize("opcode", ["T", "Add", "a.b", "_x"])
@pytest.mark.parametrize("space", ["\n  ", " "])
def test_a_word_that_is_no_opcode_is_refused_where_it_stands(opcode: str, space: str) -> None:
    """Also in a body that is read alone: opcodes of other releases are kept, these are of none."""
    called = f"called {{\n  a = f32[] parameter(0){space}ROOT b = f32[] {opcode}(a) }}\n"
    text = entry("p = f32[] parameter(0)", "ROOT c = f32[] call(p), to_apply=called", before=called)
    for read in (canonicalize, lambda given: parse(given).open_all()):
        with pytest.raises(ParseError, match=f"`{opcode}` is not an opcode"):
            read(text)
