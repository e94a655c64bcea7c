"""Instructions in the styles of the dumps."""

from __future__ import annotations

import pytest

import hlomem
from hlomem import hlo
from hlomem.hlo import TextStyle, format_instruction, parse
from hlomem.hlo.text.proto_order import in_proto_order

TEXT = """\
HloModule m

async_computation {
  param_0 = f32[8]{0} parameter(0)
  ROOT slice.1 = f32[4]{0} slice(param_0), slice={[0:4]}, metadata={op_name="inner"}
}

ENTRY main {
  p = f32[8]{0} parameter(0)
  start = ((f32[8]{0}), f32[4]{0}, u32[]) async-start(p), calls=async_computation, metadata={op_name="outer"}
  done = f32[4]{0} async-done(start)
  ROOT add = f32[4]{0} add(done, done), control-predecessors={p}
}
"""  # noqa: E501


def texts(style: TextStyle) -> list[str]:
    return [format_instruction(each, style) for each in parse(TEXT).entry.instructions]


def test_short() -> None:
    lines = TEXT.split("ENTRY main {\n")[1].splitlines()[:4]
    expected = [line.strip().removeprefix("ROOT ") for line in lines]
    assert texts(TextStyle(percent=False)) == expected


def test_long_with_operand_shapes() -> None:
    assert texts(TextStyle(operand_shapes=True))[3] == (
        "%add = f32[4]{0} add(f32[4]{0} %done, f32[4]{0} %done), control-predecessors={%p}"
    )


def test_async_sugar() -> None:
    start, done = texts(TextStyle(async_sugar=True))[1:3]
    assert start == (
        "%start = ((f32[8]{0}), f32[4]{0}, u32[]) slice-start(%p), slice={[0:4]}, "
        'metadata={op_name="outer"}'
    )
    assert done == "%done = f32[4]{0} slice-done(%start)"


def test_proto_order() -> None:
    text = '{"aliasing_operands":{"lists":[]},"dma_priority":1,"flag_configs":[{"flag_type":"x"}]}'
    ordered = (
        '{"flag_configs":[{"flag_type":"x"}],"aliasing_operands":{"lists":[]},"dma_priority":1}'
    )
    assert in_proto_order(text) == ordered


def test_proto_order_leaves_alone_what_is_not_json() -> None:
    for text in ("{mode = 86 : ui8}", '{"a":1', "{" * 500, '"x"', '{"a":1}x', ""):
        assert in_proto_order(text) == text


def test_proto_order_keeps_unknown_fields_last() -> None:
    assert in_proto_order('{"a":1.50,"known_trip_count":{"n":"4"}}') == (
        '{"known_trip_count":{"n":"4"},"a":1.50}'
    )


def test_a_compact_text_may_order_by_an_element_it_has_no_line_for() -> None:
    text = """HloModule m, is_scheduled=true, entry_computation_layout={((f32[8], f32[8]))->f32[8]}

ENTRY %main (p: (f32[8], f32[8])) -> f32[8] {
  %p = (f32[8]{0}, f32[8]{0}) parameter(0)
  %a = f32[8]{0} negate(%p#0)
  ROOT %b = f32[8]{0} negate(%p#1), control-predecessors={%get-tuple-element.7, %a}
}

"""
    module = hlo.parse(text, lazy=False)
    assert [each.name for each in module.entry.root.control_predecessors] == ["a"]
    assert hlo.format_module(module) == text
    later = text.replace("negate(%p#0)", "negate(%p#0), control-predecessors={%b}")
    with pytest.raises(hlomem.ParseError, match="control predecessor `b` is not defined above"):
        hlo.parse(later)
