"""Programs in pieces are accepted; whatever computes something else in a pass is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.hlo.ir import HloInstruction, HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks import Change, find_problems
from hlomem.opt.checks.pieces import find_piece_problems
from tests.opt.pieces.programs import loss_in_pieces

GIVEN, MADE = loss_in_pieces()
TEXT = format_module(MADE)
BODY = "%pieces.piece ("

WRONG = {
    "one pass less": (r"constant\(4\)(\n  ROOT %compare)", r"constant(3)\1"),
    "one pass more": (r"constant\(4\)(\n  ROOT %compare)", r"constant(5)\1"),
    "another number is told": ('"n":"4"', '"n":"3"'),
    "it begins with the second piece": (
        r"(%constant.piece = s32\[\] constant)\(0\)",
        r"\1(1)",
    ),
    "every second piece": (
        r"(ROOT %add\S* = s32\[\] add\((%\S+)), %\S+\)",
        r"\1, \2)",
    ),
    "pieces overlap": (r"(s32\[\] constant)\(8\)", r"\1(7)"),
    "all read the first piece": (
        r"(f32\[8,16\]\S* dynamic-slice\(%\S+), %\S+, (%\S+)\)",
        r"\1, \2, \2)",
    ),
    "a piece along another dimension": (
        r"(f32\[8,16\]\S* dynamic-slice\(%\S+), (%\S+), (%\S+)\)",
        r"\1, \3, \2)",
    ),
    "a sum that begins with something": (
        r"(%constant.piece3 = f32\[\] constant)\(0\)",
        r"\1(1)",
    ),
    "a maximum that begins with 0": (
        r"(%constant.piece5 = f32\[\] constant)\(-inf\)",
        r"\1(0)",
    ),
    "the last share only": ("%de.piece3, %dh.piece3", "%de.piece2, %dh.piece3"),
    "nothing is added": ("%de.piece3, %dh.piece3", "%element.piece6, %dh.piece3"),
    "shares are multiplied": (r"(ROOT %add\S* = f32\[64,16\]\S*) add", r"\1 multiply"),
    "a sum of maxima": (r"(ROOT %maximum\S* = f32\[64\]\S*) maximum", r"\1 add"),
    "results are exchanged": (
        "%tops_of_all.piece3, %sums_of_all.piece3",
        "%sums_of_all.piece3, %tops_of_all.piece3",
    ),
    "another operand": (r"dot\(%gradient.piece, %slice", r"dot(%logits.piece, %slice"),
    "another operation": (r"(%below.piece = f32\S*) subtract", r"\1 add"),
    "operands are exchanged": (
        r"divide\((%p_powers.piece), (%totals.piece)\)",
        r"divide(\2, \1)",
    ),
    "an iota from 0": (
        r"dynamic-slice\((%ramp.piece), %offset\S+, (%\S+), (%\S+)\)",
        r"dynamic-slice(\1, \2, \2, \3)",
    ),
    "indices of the whole": (
        r"scatter\((%p_zeros.piece), %local\S+,",
        r"scatter(\1, %p_indices.piece,",
    ),
    "another column is made local": (r"(%number.piece = s32\[\] constant)\(0\)", r"\1(1)"),
    "a gather from before": (
        r"gather\((%q_powers.piece), %local\S+\)",
        r"gather(\1, %q_indices.piece)",
    ),
    "written elsewhere": (
        r"(f32\[32,16\]\S* dynamic-update-slice\(%\S+, %\S+), %\S+, (%\S+)\)",
        r"\1, \2, \2)",
    ),
    "the result before the loop": (r"tuple\(%de.piece4,", "tuple(%de.piece,"),
    "another result of the loop": (r"(%tops_of_all.piece4 = .*), index=7", r"\1, index=8"),
    "another input": (r"tuple\(%piece.piece, %h, %e,", "tuple(%piece.piece, %h, %de.piece,"),
    "another constant": (r"(%minus.piece = f32\[\] constant)\(-1\)", r"\1(1)"),
    "another reduction": (r"(%total.piece = .* to_apply=)%sum", r"\1%larger"),
    "another contraction": (
        r"(%squares.piece2 = .*) lhs_contracting_dims=\{0\}, rhs_contracting_dims=\{0\}",
        r"\1 lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "a wide sum that is not rounded as it was": (
        r"(ROOT %convert\S* = bf16\[64,64\]\S*) convert",
        r"\1 sqrt",
    ),
}


def test_a_region_in_pieces_is_accepted() -> None:
    assert not find_piece_problems(GIVEN, MADE)
    assert not find_problems(GIVEN, [Change(MADE, "pieces")])


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_every_number_of_pieces_is_accepted(pieces: int) -> None:
    assert not find_piece_problems(*loss_in_pieces(pieces))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_refused(name: str) -> None:
    text, count = re.subn(*WRONG[name], TEXT, count=1)
    assert count == 1
    module = _parse(text)
    assert module is None or find_piece_problems(GIVEN, module)


def test_most_wrong_programs_are_programs() -> None:
    """Else nothing would be told of the checker, but of the parser."""
    made = [_parse(re.sub(*pair, TEXT, count=1)) for pair in WRONG.values()]
    assert sum(one is not None for one in made) >= 24


def _parse(text: str) -> HloModule | None:
    try:
        return hlo.parse(text)
    except HlomemError:
        return None


# All changes of a kind.


def _new_lines() -> Iterator[tuple[int, str]]:
    """The lines of computations that the given program does not have, and where they stand."""
    known = {computation.name for computation in GIVEN.computations}
    is_new, place = False, 0
    for line in TEXT.splitlines(keepends=True):
        if line.startswith(("%", "ENTRY")):
            is_new = line.startswith("%") and line[1:].partition(" ")[0] not in known
        elif is_new and " = " in line:
            yield place, line
        place += len(line)


def _with_line(place: int, line: str, other: str) -> HloModule | None:
    return _parse(TEXT[:place] + other + TEXT[place + len(line) :])


def test_no_number_may_be_another() -> None:
    tried = 0
    for place, line in _new_lines():
        found = re.search(r"constant\((-?\d+)\)", line)
        if found is None:
            continue
        for change in (-1, 1):
            other = line.replace(found[0], f"constant({int(found[1]) + change})")
            module = _with_line(place, line, other)
            assert module is not None
            assert find_piece_problems(GIVEN, module), f"{line}{other}"
            tried += 1
    assert tried >= 30


def test_no_operand_may_be_another_of_its_shape() -> None:
    """Every operand in every new computation, replaced by every other value of its shape."""
    tried = 0
    for place, line, other in _exchanged():
        module = _with_line(place, line, other)
        if module is not None:
            assert find_piece_problems(GIVEN, module), f"{line}{other}"
            tried += 1
    assert tried >= 100


def _exchanged() -> Iterator[tuple[int, str, str]]:
    known = {computation.name for computation in GIVEN.computations}
    place_of = {
        line.split(" = ")[0].strip().removeprefix("ROOT "): (place, line)
        for place, line in _new_lines()
    }
    for computation in MADE.computations:
        if computation.name in known:
            continue
        for number, one in enumerate(computation.instructions):
            for operand in dict.fromkeys(one.operands):
                for earlier in computation.instructions[:number]:
                    if earlier is operand or earlier.shape != operand.shape:
                        continue
                    if _number_of(operand) == _number_of(earlier) != None:  # noqa: E711
                        continue
                    place, line = place_of[f"%{one.name}"]
                    head, _, tail = line.partition("(")
                    changed = re.sub(
                        rf"%{re.escape(operand.name)}(?=[,)])", f"%{earlier.name}", tail, count=1
                    )
                    yield place, line, f"{head}({changed}"


def _number_of(one: HloInstruction) -> str | None:
    """The number that a value is full of."""
    while one.opcode == "broadcast":
        [one] = one.operands
    return one.payload if one.opcode == "constant" else None
