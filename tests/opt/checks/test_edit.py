"""The judge of edited programs: right ones pass, and every kind of wrong one is refused."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.remat.edit import Clone, Edit, apply_edit

TEXT = """\
HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }

%body (x: f32[64], y: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  %y = f32[64]{0} parameter(1)
  ROOT %sum = f32[64]{0} add(%x, %y)
}

ENTRY %main (p: f32[64], q: f32[64]) -> (f32[64], f32[64]) {
  %p = f32[64]{0} parameter(0)
  %q = f32[64]{0} parameter(1)
  %a = f32[64]{0} exponential(%p)
  %r = f32[64]{0} rng(%p, %q), distribution=rng_uniform
  %f = f32[64]{0} fusion(%a, %r), kind=kLoop, calls=%body
  %b = f32[64]{0} multiply(%f, %q)
  %n = f32[64]{0} add(%p, %b)
  %c = f32[64]{0} multiply(%a, %b)
  %d = f32[64]{0} multiply(%f, %c)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%n, %d)
}
"""
NAMES = ["p", "q", "a", "r", "f", "b", "n", "c", "d", "t"]


def _edit(clones: list[Clone], operands: dict[str, tuple[str, ...]], before: str) -> Edit:
    """Clones right before an instruction."""
    place = NAMES.index(before)
    order = [*NAMES[:place], *(clone.name for clone in clones), *NAMES[place:]]
    return Edit("main", tuple(clones), operands, {"main": tuple(order)})


def _problems(edit: Edit) -> list[str]:
    given = hlo.parse(TEXT)
    return find_edit_problems(given, apply_edit(given, edit))


def test_a_value_computed_again_while_its_operands_are_there_is_right() -> None:
    clone = Clone("a.remat", "a", ("p",))
    assert not _problems(_edit([clone], {"n": ("p", "b"), "c": ("a.remat", "b")}, "n"))


def test_a_fusion_computed_again_from_a_clone_is_right() -> None:
    clones = [Clone("a.remat", "a", ("p",)), Clone("f.remat", "f", ("a.remat", "r"))]
    assert not _problems(_edit(clones, {"d": ("f.remat", "c")}, "n"))


def test_a_clone_that_reads_memory_written_over_is_refused() -> None:
    clone = Clone("a.remat", "a", ("p",))
    [problem] = _problems(_edit([clone], {"c": ("a.remat", "b")}, "c"))
    assert problem == "a.remat reads p, which n has written over by then"


def test_a_clone_of_other_operands_is_refused() -> None:
    clone = Clone("f.remat", "f", ("b", "r"))
    [problem, *_] = _problems(_edit([clone], {"d": ("f.remat", "c")}, "n"))
    assert "f.remat" in problem
    assert "nothing in the given program does" in problem


def test_a_reader_of_another_value_is_refused() -> None:
    clone = Clone("f.remat", "f", ("a", "r"))
    [problem, *_] = _problems(_edit([clone], {"c": ("f.remat", "b")}, "n"))
    assert problem == "c does not compute what it did"


def test_random_numbers_drawn_again_are_refused() -> None:
    clone = Clone("r.remat", "r", ("p", "q"))
    [problem, *_] = _problems(_edit([clone], {"f": ("a", "r.remat")}, "f"))
    assert "f does not" in problem or "rng may not run twice" in problem
    assert any("rng" in found for found in _problems(_edit([clone], {}, "f")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%c = f32[64]{0} multiply(%a, %b)", "%c = f32[64]{0} add(%a, %b)"),
        ("%b = f32[64]{0} multiply(%f, %q)", "%b = f32[64]{0} multiply(%q, %f)"),
        ("ROOT %sum = f32[64]{0} add(%x, %y)", "ROOT %sum = f32[64]{0} subtract(%x, %y)"),
        ("rng_uniform", "rng_normal"),
        ("{0}: (0, {}, may-alias)", "{0}: (1, {}, may-alias)"),
        ("tuple(%n, %d)", "tuple(%n, %c)"),
    ],
)
def test_whatever_else_is_other_is_refused(old: str, new: str) -> None:
    assert old in TEXT
    assert find_edit_problems(hlo.parse(TEXT), hlo.parse(TEXT.replace(old, new)))
    assert not find_edit_problems(hlo.parse(TEXT), hlo.parse(TEXT))


def test_an_instruction_that_is_gone_is_missed() -> None:
    line = "  %a = f32[64]{0} exponential(%p)\n"
    fewer = TEXT.replace(line, "").replace("%a", "%q")
    assert "a is missing" in find_edit_problems(hlo.parse(TEXT), hlo.parse(fewer))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%n, %d)",
            (
                "%t = (f32[64]{0}, f32[64]{0}) tuple(%n, %d)\n"
                "  ROOT %t.1 = (f32[64]{0}, f32[64]{0}) tuple(%n, %d)"
            ),
            "main returns t.1, not t",
        ),
        (
            "  %c = f32[64]{0} multiply(%a, %b)",
            "  %c = f32[64]{0} add(%a, %b)",
            "c does not compute what it did",
        ),
        (
            "ENTRY %main",
            (
                "%other (o: f32[64]) -> f32[64] {\n  ROOT %o = f32[64]{0} parameter(0)\n}\n\n"
                "ENTRY %main"
            ),
            "",
        ),
    ],
    ids=["another root", "another operation", "a computation nobody runs"],
)
def test_a_text_that_was_edited_otherwise_is_judged_by_what_runs(
    old: str, new: str, says: str
) -> None:
    problems = find_edit_problems(hlo.parse(TEXT), hlo.parse(TEXT.replace(old, new)))
    assert says in problems if says else problems == []


def test_an_instruction_that_reads_a_clone_may_run_before_the_original() -> None:
    clone = Clone("a.remat", "a", ("p",))
    operands = {"f": ("a.remat", "r")}
    order = ("p", "q", "r", "a.remat", "f", "a", "b", "n", "c", "d", "t")
    assert not _problems(Edit("main", (clone,), operands, {"main": order}))


def test_a_reader_that_now_comes_after_what_is_written_over_its_operand_is_refused() -> None:
    order = ("p", "q", "r", "a.remat", "f", "b", "n", "a", "c", "d", "t")
    clone = Clone("a.remat", "a", ("p",))
    [problem] = _problems(Edit("main", (clone,), {"f": ("a.remat", "r")}, {"main": order}))
    assert problem == "a reads p, which n has written over by then"


CALLED = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[64,64]) -> f32[64,64] {{
  %p = f32[64,64]{{1,0}} parameter(0)
  %a = (f32[64,64]{{1,0}}, s8[256]{{0}}) custom-call(%p, %p), custom_call_target="{target}"{more}
  %x = f32[64,64]{{1,0}} get-tuple-element(%a), index=0
  %b = f32[64,64]{{1,0}} negate(%x)
  ROOT %c = f32[64,64]{{1,0}} add(%b, %x)
}}
"""


@pytest.mark.parametrize(
    ("target", "more", "is_right"),
    [
        ("__cublas$gemm", "", True),
        ("__cublas$lt$matmul", "", True),
        ("__cudnn$convForward", "", True),
        ("somebody_elses", "", False),
        ("__cublas$gemm", ", custom_call_has_side_effect=true", False),
        ("__cublas$gemm", ", output_to_operand_aliasing={{0}: (0, {})}", False),
    ],
)
def test_calls_of_libraries_may_run_twice_and_no_others(
    target: str, more: str, is_right: bool
) -> None:
    given = hlo.parse(CALLED.format(target=target, more=more))
    clones = (Clone("a.remat", "a", ("p", "p")), Clone("x.remat", "x", ("a.remat",)))
    order = ("p", "a", "x", "b", "a.remat", "x.remat", "c")
    edit = Edit("main", clones, {"c": ("b", "x.remat")}, {"main": order})
    problems = find_edit_problems(given, apply_edit(given, edit))
    assert (not problems) == is_right
    if not is_right:
        assert any("may not run twice" in problem for problem in problems)


IN_PLACE = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[64], i: s32[]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  %i = s32[] parameter(1)
  %one = f32[1]{0} constant({1})
  %a = f32[64]{0} sine(%p)
  %b = f32[64]{0} dynamic-update-slice(%a, %one, %i)
  %c = f32[64]{0} exponential(%b)
  %d = f32[64]{0} multiply(%c, %b)
  ROOT %e = f32[64]{0} add(%d, %c)
}
"""
_AGAIN = [Clone("a.remat", "a", ("p",)), Clone("b.remat", "b", ("a.remat", "one", "i"))]


def _in_place(clones: list[Clone], operands: dict[str, tuple[str, ...]], order: str) -> list[str]:
    given = hlo.parse(IN_PLACE)
    edit = Edit("main", tuple(clones), operands, {"main": tuple(order.split())})
    return find_edit_problems(given, apply_edit(given, edit))


def test_what_is_written_in_place_may_run_twice_over_a_clone() -> None:
    order = "p i one a b c a.remat b.remat d e"
    assert not _in_place(_AGAIN, {"d": ("c", "b.remat")}, order)


def test_a_clone_written_over_the_memory_of_a_given_value_is_refused() -> None:
    clones = [Clone("b.remat", "b", ("a", "one", "i"))]
    [problem, *_] = _in_place(clones, {"d": ("c", "b.remat")}, "p i one a b c b.remat d e")
    assert problem == "b.remat is new, and must share the memory of another value"


def test_a_given_instruction_that_writes_over_a_clone_is_refused() -> None:
    clones = [Clone("a.remat", "a", ("p",))]
    [problem, *_] = _in_place(clones, {"b": ("a.remat", "one", "i")}, "p i one a a.remat b c d e")
    assert problem == "a.remat is new, and must share the memory of another value"


def test_a_clone_that_is_read_after_another_was_written_over_it_is_refused() -> None:
    clones = [*_AGAIN, Clone("b.remat2", "b", ("a.remat", "one", "i"))]
    order = "p i one a b c a.remat b.remat b.remat2 d e"
    [problem, *_] = _in_place(clones, {"d": ("c", "b.remat2")}, order)
    assert problem.endswith("has written over by then")
