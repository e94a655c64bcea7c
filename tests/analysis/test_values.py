"""Who reads a value: `HloValue::ComputeUses` and `MayUseOperandValue` of service/hlo_value.cc."""

from __future__ import annotations

import pytest

from hlomem.analysis.values import may_use_operand_value, part_number
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex
from hlomem.hlo.text.parser import parse
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.pipeline import start_stages

FIRST = ShapeIndex((0,))


def _uses(*lines: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """Who reads `n`: instruction, operand number and part of the operand."""
    first = ["%a = f32[2]{0} parameter(0)", "%n = f32[2]{0} negate(%a)"]
    body = "\n".join(f"  {line}" for line in [*first, *lines])
    dataflow = start_stages(
        parse(f"HloModule m, is_scheduled=true\n\nENTRY %e {{\n{body}\n}}\n")
    ).dataflow
    [value] = [each for each in dataflow.values if each.instruction.name == "n"]
    return [
        (use.instruction.name, use.operand_number, tuple(use.operand_index))
        for use in dataflow.use_finder.uses(value)
    ]


def test_an_operand_that_stands_twice_is_read_twice() -> None:
    assert _uses("ROOT %r = f32[2]{0} add(%n, %n)") == [("r", 0, ()), ("r", 1, ())]


def test_a_tuple_in_the_middle_reads_nothing() -> None:
    uses = _uses(
        "%t = (f32[2]{0}) tuple(%n)",
        "%g = f32[2]{0} get-tuple-element(%t), index=0",
        "ROOT %r = f32[2]{0} negate(%g)",
    )
    assert uses == [("r", 0, ())]


def test_a_tuple_that_is_the_result_is_a_use() -> None:
    assert _uses("ROOT %t = (f32[2]{0}) tuple(%n)") == [("t", 0, ())]


def test_a_call_reads_the_parts_of_a_tuple() -> None:
    uses = _uses(
        "%t = (f32[2]{0}) tuple(%n)",
        'ROOT %c = f32[2]{0} custom-call(%t), custom_call_target="f"',
    )
    assert uses == [("c", 0, (0,))]


@pytest.mark.parametrize("count", [3, 15, 16, 40])
def test_operand_numbers_do_not_depend_on_how_many_operands_there_are(count: int) -> None:
    """Beyond a certain number they are looked up, not searched."""
    operands = ["%n" if number % 3 == 0 else "%a" for number in range(count)]
    call = f'custom-call({", ".join(operands)}), custom_call_target="f"'
    expected = [("c", number, ()) for number in range(0, count, 3)]
    assert _uses(f"ROOT %c = f32[2]{{0}} {call}") == expected


@pytest.mark.parametrize(
    ("line", "reads_whole", "reads_part"),
    [
        ("%r = f32[2]{0} get-tuple-element(%t), index=0", True, False),
        ("%r = (f32[2]{0}) copy(%t)", True, False),
        ("%r = ((f32[2]{0})) tuple(%t)", False, False),
        ("%r = (f32[2]{0}) domain(%t)", False, False),
        ('%r = f32[2]{0} custom-call(%t), custom_call_target="f"', True, True),
    ],
)
def test_what_only_hands_its_operand_on_does_not_read_it(
    line: str, reads_whole: bool, reads_part: bool
) -> None:
    text = f"HloModule m\n\nENTRY %e {{\n  %t = (f32[2]{{0}}) parameter(0)\n  ROOT {line}\n}}\n"
    root = parse(text).entry.root
    assert may_use_operand_value(root, ROOT_INDEX) == reads_whole
    assert may_use_operand_value(root, FIRST) == reads_part


def test_parts_are_numbered_depth_first() -> None:
    shape = parse_shape_text("((f32[2], s32[]), f32[4])")
    indices = [(), (0,), (0, 0), (0, 1), (1,)]
    assert [part_number(shape, ShapeIndex(index)) for index in indices] == list(range(5))


def test_values_and_buffers_show_who_defines_them() -> None:
    text = "HloModule m, is_scheduled=true\n\nENTRY %e {\n  ROOT %a = f32[2]{0} parameter(0)\n}\n"
    stages = start_stages(parse(text))
    [buffer] = stages.aliasing.buffers
    assert repr(buffer) == "<buffer 0 [<value 0 a>]>"
    assert repr(stages.module) == "<module m>"
    assert repr(stages.module.entry) == "<computation %e>"
