"""Which parts are new values: `HloDataflowAnalysis::InitializeInstructionValueSets`."""

from __future__ import annotations

import pytest

from hlomem.analysis.defined_parts import count_defined, defined_parts
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.opcodes import as_opcode
from hlomem.hlo.text.parser import parse
from hlomem.hlo.text.shape_parser import parse_shape_text

PAIR = "(f32[2]{0}, f32[2]{0})"


def _root(*lines: str) -> HloInstruction:
    first = ["%a = f32[2]{0} parameter(0)", "%b = f32[2]{0} parameter(1)"]
    body = "\n".join(f"  {line}" for line in [*first, *lines])
    return parse(f"HloModule m\n\nENTRY %e {{\n{body}\n}}\n").entry.root


def _defined(*lines: str) -> list[tuple[int, ...]]:
    root = _root(*lines)
    indices = root.shape.parts.indices
    return [tuple(indices[number]) for number in defined_parts(root)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = f32[2]{0} add(%a, %b)", [()]),
        ("%r = f32[2]{0} bitcast(%a)", []),
        ("%r = f32[2]{0} opt-barrier(%a)", []),
        (f"%r = {PAIR} tuple(%a, %b)", [()]),
        (f'%r = {PAIR} custom-call(%a, %b), custom_call_target="two"', [(), (0,), (1,)]),
        ("%r = (f32[2]{0}, f32[2]{0}, u32[]) copy-start(%a)", [(), (0,), (2,)]),
        ("%r = (f32[2]{0}, u32[], token[]) send(%a, %b), channel_id=1", [(), (1,), (2,)]),
        (
            "%r = (f32[2]{0}, f32[4]{0}) all-gather-start(%a), dimensions={0}",
            [(), (1,)],
        ),
        (
            "%r = (f32[2]{0}, f32[2]{0}, u32[]) collective-permute-start(%a)",
            [(), (1,), (2,)],
        ),
    ],
)
def test_parts_that_are_new(line: str, expected: list[tuple[int, ...]]) -> None:
    assert _defined(f"ROOT {line}") == expected


def test_the_end_of_a_copy_defines_nothing() -> None:
    start = "%s = (f32[2]{0}, f32[2]{0}, u32[]) copy-start(%a)"
    assert _defined(start, "ROOT %d = f32[2]{0} copy-done(%s)") == []


def test_the_end_of_a_gather_defines_a_table_only_where_there_is_one() -> None:
    one = "%s = (f32[2]{0}, f32[4]{0}) all-gather-start(%a), dimensions={0}"
    assert _defined(one, "ROOT %d = f32[4]{0} all-gather-done(%s)") == []
    two = (
        "%s = ((f32[2]{0}, f32[2]{0}), (f32[4]{0}, f32[4]{0})) all-gather-start(%a, %b), "
        "dimensions={0}"
    )
    assert _defined(two, "ROOT %d = (f32[4]{0}, f32[4]{0}) all-gather-done(%s)") == [()]


def test_a_copy_of_a_tuple_defines_the_table_only() -> None:
    assert _defined(f"%t = {PAIR} tuple(%a, %b)", f"ROOT %c = {PAIR} copy(%t)") == [()]


def test_an_opcode_nobody_knows_defines_all_of_its_result() -> None:
    assert _defined(f"ROOT %r = {PAIR} frobnicate(%a, %b)") == [(), (0,), (1,)]


@pytest.mark.parametrize(
    ("shape", "opcode", "count"),
    [
        ("f32[2]{0}", "add", 1),
        ("f32[2]{0}", "bitcast", 0),
        (PAIR, "tuple", 1),
        (PAIR, "custom-call", 3),
        ("f32[2]{0}", "copy", 1),
    ],
)
def test_bodies_are_counted_by_shape_and_opcode(shape: str, opcode: str, count: int) -> None:
    assert count_defined(parse_shape_text(shape), as_opcode(opcode)) == count
