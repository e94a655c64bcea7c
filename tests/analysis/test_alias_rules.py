"""What must and what may be written in place, after the rules of `alias_info.cc`."""

from __future__ import annotations

import pytest
from msgspec.structs import astuple

from hlomem.analysis.alias_rules import (
    can_share_operand_buffer,
    feeds_only_elementwise,
    in_place_pairs,
    is_elementwise_on,
    row_feeds_only_elementwise,
)
from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.base.errors import ParseError
from hlomem.hlo.shape import ROOT_INDEX
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import run_stages

UPDATE = """\
HloModule update, is_scheduled=true

%fused (p0: f32[8], p1: f32[2], p2: s32[]) -> f32[8] {
  %p0 = f32[8]{0} parameter(0)
  %p1 = f32[2]{0} parameter(1)
  %p2 = s32[] parameter(2)
  ROOT %update = f32[8]{0} dynamic-update-slice(%p0, %p1, %p2)
}

ENTRY %main (a: f32[8], b: f32[2], i: s32[]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[2]{0} parameter(1)
  %i = s32[] parameter(2)
  %copy = f32[8]{0} copy(%a)
  ROOT %fusion = f32[8]{0} fusion(%copy, %b, %i), kind=kLoop, calls=%fused
}
"""


def test_a_fusion_that_updates_its_parameter_writes_in_place() -> None:
    stages = run_stages(parse(UPDATE))
    fusion = stages.module.entry.root
    pairs = in_place_pairs(fusion, stages.call_graph.bodies)
    assert [astuple(pair) for pair in pairs] == [(0, (), ())]
    (result,) = stages.dataflow.value_set(fusion, ROOT_INDEX)
    together = stages.aliasing.buffer_of[result].values
    assert [each.instruction.name for each in together] == ["copy", "fusion"]


@pytest.mark.parametrize(
    ("operation", "may_share"),
    [
        ("negate(%x)", True),
        ("multiply(%x, %x)", True),
        ("reverse(%x), dimensions={0}", False),
        ("sort(%x), dimensions={0}, to_apply=%less", True),
    ],
)
def test_an_elementwise_result_may_take_the_place_of_its_operand(
    operation: str, may_share: bool
) -> None:
    text = f"""\
HloModule share, is_scheduled=true

%less (l: f32[], r: f32[]) -> pred[] {{
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %lt = pred[] compare(%l, %r), direction=LT
}}

ENTRY %main (a: f32[8]) -> f32[8] {{
  %a = f32[8]{{0}} parameter(0)
  %x = f32[8]{{0}} copy(%a)
  ROOT %y = f32[8]{{0}} {operation}
}}
"""
    stages = run_stages(parse(text))
    user = stages.module.entry.root
    shares = can_share_operand_buffer(
        stages.dataflow, user.operands[0], ROOT_INDEX, user, ROOT_INDEX
    )
    assert shares == may_share


_BODY_LINES = {
    "elementwise": "%n = f32[8]{0} add(%p0, %p1)",
    "of another parameter": "%n = f32[8]{0} reverse(%p1), dimensions={0}",
    "not elementwise": "%n = f32[8]{0} reverse(%p0), dimensions={0}",
    "updated": "%n = f32[8]{0} dynamic-update-slice(%p0, %p1, %c)",
    "updating": "%n = f32[8]{0} dynamic-update-slice(%p1, %p0, %c)",
    "with shapes": "%n = f32[8]{0} reverse(f32[8]{0} %p0), dimensions={0}",
    "with a comment": "%n = f32[8]{0} concatenate(%p1, /*index=1*/%p0), dimensions={0}",
    "like-named": "%p0.1 = f32[8]{0} reverse(%p1), dimensions={0}",
}


@pytest.mark.parametrize("line", _BODY_LINES.values(), ids=_BODY_LINES)
@pytest.mark.parametrize("number", [0, 1])
def test_a_body_that_is_text_feeds_what_the_same_body_feeds_when_read(
    line: str, number: int
) -> None:
    name = line.split(maxsplit=1)[0]
    text = f"""\
HloModule text, is_scheduled=true

%fused (p0: f32[8], p1: f32[8]) -> f32[8] {{
  %p0 = f32[8]{{0}} parameter(0)
  %p1 = f32[8]{{0}} parameter(1)
  %c = s32[] constant(0)
  {line}
  ROOT %r = f32[8]{{0}} negate({name})
}}

ENTRY %main (a: f32[8], b: f32[8]) -> f32[8] {{
  %a = f32[8]{{0}} parameter(0)
  %b = f32[8]{{0}} parameter(1)
  ROOT %fusion = f32[8]{{0}} fusion(%a, %b), kind=kLoop, calls=%fused
}}
"""
    module = parse(text)
    body = module.computations[0]
    rows = FusedBodies().rows(body)
    assert rows is not None
    assert not body.is_open
    from_text = row_feeds_only_elementwise(rows, str(number))
    assert from_text == feeds_only_elementwise(body.parameters[number])
    assert FusedBodies().rows(body) == rows, "though it has been read meanwhile"


def test_an_async_operation_writes_where_it_says_and_so_does_what_ends_it() -> None:
    text = """\
HloModule reduce, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%wrapped (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %all = f32[8]{0} all-reduce(%p), replica_groups={}, to_apply=%add
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%a)
  %start = ((f32[8]{0}), f32[8]{0}) async-start(%n), output_to_operand_aliasing={{1}: (0, {})}, \
calls=%wrapped
  ROOT %done = f32[8]{0} async-done(%start)
}
"""
    stages = run_stages(parse(text))
    start, done = stages.module.entry.instructions[2:]
    bodies = stages.call_graph.bodies
    assert [astuple(pair) for pair in in_place_pairs(start, bodies)] == [(0, (), (1,))]
    assert [astuple(pair) for pair in in_place_pairs(done, bodies)] == [(0, (0, 0), ())]
    (result,) = stages.dataflow.value_set(done, ROOT_INDEX)
    together = stages.aliasing.buffer_of[result].values
    assert [each.instruction.name for each in together] == ["all", "n"]


@pytest.mark.parametrize(
    ("operation", "is_elementwise"),
    [
        ("f32[8] bitcast-convert(%i)", True),
        ("u16[8,2] bitcast-convert(%i)", False),
        ("s32[8] map(%i), dimensions={0}, to_apply=%same", True),
        ("s32[8] map(%i), dimensions={}, to_apply=%same", True),
        ("s32[8] reverse(%i), dimensions={0}", False),
    ],
)
def test_elements_that_stay_in_their_place_are_elementwise(
    operation: str, is_elementwise: bool
) -> None:
    text = f"""\
HloModule elements

%same (s: s32[]) -> s32[] {{
  ROOT %s = s32[] parameter(0)
}}

ENTRY %main (i: s32[8]) -> {operation.partition(" ")[0]} {{
  %i = s32[8]{{0}} parameter(0)
  ROOT %r = {operation}
}}
"""
    assert is_elementwise_on(parse(text).entry.root, 0) == is_elementwise


PERMUTE = """\
HloModule permute, is_scheduled=true

ENTRY %main (a: (f32[8], f32[4]), b: (f32[8], f32[4]), i: s32[1]) -> {shape} {{
  %a = (f32[8], f32[4]) parameter(0)
  %b = (f32[8], f32[4]) parameter(1)
  %i = s32[1] parameter(2)
  ROOT %r = {shape} {opcode}(%a, %b, %i, %i), source_target_pairs={{{{0,1}}}}, slice_sizes={sizes}
}}
"""


@pytest.mark.parametrize(
    ("opcode", "shape", "outputs"),
    [
        ("collective-permute", "(f32[8], f32[4])", [(), (0,), (1,)]),
        (
            "collective-permute-start",
            "((f32[8], f32[4]), (f32[8], f32[4]))",
            [(1,), (1, 0), (1, 1)],
        ),
    ],
)
def test_a_permute_of_slices_writes_into_its_second_operand(
    opcode: str, shape: str, outputs: list[tuple[int, ...]]
) -> None:
    module = parse(PERMUTE.format(opcode=opcode, shape=shape, sizes="{{8},{4}}"))
    pairs = in_place_pairs(module.entry.root, FusedBodies())
    assert [pair.operand_number for pair in pairs] == [1, 1, 1]
    assert [tuple(pair.output_index) for pair in pairs] == outputs


NESTED = """\
HloModule nested, is_scheduled=true

%inner (p0: f32[8], p1: f32[2], p2: s32[]) -> (f32[8], f32[2]) {
  %p0 = f32[8]{0} parameter(0)
  %p1 = f32[2]{0} parameter(1)
  %p2 = s32[] parameter(2)
  %inside = f32[8]{0} dynamic-update-slice(%p0, %p1, %p2)
  %other = f32[2]{0} negate(%p1)
  ROOT %both = (f32[8]{0}, f32[2]{0}) tuple(%inside, %other)
}

%outer (q0: f32[8], q1: f32[2], q2: s32[]) -> f32[8] {
  %q0 = f32[8]{0} parameter(0)
  %q1 = f32[2]{0} parameter(1)
  %q2 = s32[] parameter(2)
  %fusion.1 = (f32[8]{0}, f32[2]{0}) fusion(%q0, %q1, %q2), kind=kLoop, calls=%inner
  %updated = f32[8]{0} get-tuple-element(%fusion.1), index=0
  %part = f32[2]{0} get-tuple-element(%fusion.1), index=1
  ROOT %again = f32[8]{0} dynamic-update-slice(%updated, %part, %q2)
}

ENTRY %main (a: f32[8], b: f32[2], i: s32[]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[2]{0} parameter(1)
  %i = s32[] parameter(2)
  %copy = f32[8]{0} copy(%a)
  ROOT %fusion = f32[8]{0} fusion(%copy, %b, %i), kind=kLoop, calls=%outer
}
"""


@pytest.mark.parametrize(
    ("root", "pairs"),
    [
        ("dynamic-update-slice(%updated, %part, %q2)", [(0, (), ())]),
        ("add(%updated, %updated)", []),
    ],
)
def test_an_update_of_an_update_in_a_nested_fusion_writes_over_the_parameter(
    root: str, pairs: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
) -> None:
    stages = run_stages(parse(NESTED.replace("dynamic-update-slice(%updated, %part, %q2)", root)))
    found = in_place_pairs(stages.module.entry.root, stages.call_graph.bodies)
    assert [astuple(pair) for pair in found] == pairs


def test_the_part_of_a_nested_fusion_that_is_updated_is_the_one_that_is_taken() -> None:
    text = NESTED.replace("ROOT %again = f32[8]{0} dynamic-update-slice(%updated, %part, %q2)", "")
    text = text.replace("  %updated =", "  ROOT %updated =")
    stages = run_stages(parse(text))
    found = in_place_pairs(stages.module.entry.root, stages.call_graph.bodies)
    assert [astuple(pair) for pair in found] == [(0, (), ())]
    other = text.replace("ROOT %updated", "%updated").replace("%part =", "ROOT %part =")
    other = other.replace("s32[]) -> f32[8] {\n  %q0", "s32[]) -> f32[2] {\n  %q0")
    other = other.replace("ROOT %fusion = f32[8]", "ROOT %fusion = f32[2]")
    other = other.replace("i: s32[]) -> f32[8] {\n  %a", "i: s32[]) -> f32[2] {\n  %a")
    stages = run_stages(parse(other))
    assert list(in_place_pairs(stages.module.entry.root, stages.call_graph.bodies)) == []


PRODUCT = """\
HloModule product, is_scheduled=true

%fused (p0: f32[4,4], p1: f32[4,4], p2: f32[4,4]) -> f32[4,4] {
  %p0 = f32[4,4]{1,0} parameter(0)
  %p1 = f32[4,4]{1,0} parameter(1)
  %p2 = f32[4,4]{1,0} parameter(2)
  %dot = f32[4,4]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %sum = f32[4,4]{1,0} add(%dot, %p2)
}

ENTRY %main (a: f32[4,4], b: f32[4,4], c: f32[4,4]) -> f32[4,4] {
  %a = f32[4,4]{1,0} parameter(0)
  %b = f32[4,4]{1,0} parameter(1)
  %c = f32[4,4]{1,0} parameter(2)
  %x = f32[4,4]{1,0} negate(%a)
  %y = f32[4,4]{1,0} negate(%b)
  %z = f32[4,4]{1,0} negate(%c)
  ROOT %fusion = f32[4,4]{1,0} fusion(%x, %y, %z), kind=kOutput, calls=%fused
}
"""


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        (PRODUCT, ["z"]),
        (PRODUCT.replace("add(%dot, %p2)", "add(%p2, %dot)"), ["z"]),
        (PRODUCT.replace("add(%dot, %p2)", "add(%dot, %dot)"), []),
        (PRODUCT.replace("dot(%p0, %p1)", "dot(%p0, %p2)"), []),
    ],
    ids=["second", "first", "neither", "both"],
)
def test_a_product_may_be_added_over_what_nobody_else_reads(text: str, shared: list[str]) -> None:
    stages = run_stages(parse(text))
    fusion = stages.module.entry.root
    found = [
        operand.name
        for operand in fusion.operands
        if can_share_operand_buffer(stages.dataflow, operand, ROOT_INDEX, fusion, ROOT_INDEX)
    ]
    assert found == shared


def test_a_constant_is_never_written_over() -> None:
    text = PRODUCT.replace("negate(%c)", "constant({...})")
    stages = run_stages(parse(text))
    fusion, dataflow = stages.module.entry.root, stages.dataflow
    constant = fusion.operands[2]
    assert constant.opcode == "constant"
    assert not can_share_operand_buffer(dataflow, constant, ROOT_INDEX, fusion, ROOT_INDEX)


@pytest.mark.parametrize("kind", ["kCustom", "kOutput"])
def test_a_fusion_with_more_operands_than_its_body_takes_is_refused_where_it_stands(
    kind: str,
) -> None:
    text = PRODUCT.replace("kOutput", kind).replace("fusion(%x, %y, %z)", "fusion(%x, %y, %x, %z)")
    with pytest.raises(ParseError, match="`fused` takes 3 operands, not 4") as caught:
        run_stages(parse(text))
    assert "ROOT %fusion" in str(caught.value)
