"""Printed lines, taken apart as the module reader takes modules apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlomem
from hlomem import hlo
from hlomem.hlo.text.attributes import Metadata
from hlomem.view.instruction_line import parse_instruction_line, source_of
from hlomem.view.joined import join_dump
from tests.places import GOLDENS

FOLDERS = [path.parent for path in sorted((GOLDENS / "xla").glob("*/*/*/module.hlo"))]


@pytest.mark.parametrize("folder", FOLDERS[::4], ids=lambda p: "/".join(p.parts[-3:]))
def test_a_line_says_what_its_module_says(folder: Path) -> None:
    module = hlo.parse((folder / "module.hlo").read_text(), lazy=False)
    instructions = {
        instruction.name: instruction
        for computation in module.computations
        for instruction in computation.instructions
    }
    seen = 0
    for name, printed in join_dump(hlomem.load(folder)).printed.items():
        instruction = instructions.get(name)
        if instruction is None or instruction.opcode.startswith("async-"):
            continue  # the module reader spells `copy-start` and the like out
        assert printed.name == name
        assert printed.opcode == instruction.opcode
        assert printed.shape == instruction.shape
        assert printed.operands == tuple(operand.name for operand in instruction.operands)
        assert printed.metadata.op_name == instruction.metadata.op_name
        declared = [
            (tuple(output), number, tuple(index))
            for output, number, index in instruction.output_to_operand_aliasing
        ]
        assert list(printed.operand_pairs) == declared
        called = {callee for names in printed.callees.values() for callee in names}
        assert called == {callee.name for callee in instruction.called_computations}
        seen += 1
    assert seen


def test_older_lines_give_the_shapes_of_operands() -> None:
    line = "%a.1 = f32[2]{0} add(f32[2]{0} %b, (f32[], /*index=1*/s32[]) %c), metadata={}"
    printed = parse_instruction_line(line)
    assert printed is not None
    assert printed.operands == ("b", "c")
    assert printed.operand_shapes == ("f32[2]{0}", "(f32[], s32[])")
    plain = parse_instruction_line("ROOT %a = f32[2]{0} add(%b, %c)")
    assert plain is not None
    assert plain.operand_shapes == ("", "")


def test_payloads_are_no_operands() -> None:
    parameter = parse_instruction_line("%p = f32[2]{0} parameter(3), sharding={replicated}")
    assert parameter is not None
    assert (parameter.number, parameter.operands) == (3, ())
    constant = parse_instruction_line("%c = s32[] constant(7)")
    assert constant is not None
    assert (constant.number, constant.operands, constant.inner) == (None, (), "7")


def test_attributes_are_found_when_asked_for() -> None:
    call = parse_instruction_line(
        '%s = ((), f32[4]{0}) custom-call-start(%a), custom_call_target="f", '
        'async_execution_thread="side", slice={[4:8], [0:2]}, calls=%g'
    )
    assert call is not None
    assert (call.target, call.thread, call.slice_starts) == ("f", "side", (4, 0))
    assert call.callees == {"calls": ["g"]}


def test_messages_leave_the_shape_out() -> None:
    printed = parse_instruction_line("%fusion.3 = fusion(f32[8] %a), kind=kLoop")
    assert printed is not None
    assert (printed.name, printed.opcode, printed.shape_text) == ("fusion.3", "fusion", "")


def test_what_is_no_instruction_is_none() -> None:
    for text in ("", "no instruction at all", "%a = f32[2]", "%a = b(f32[2])"):
        assert parse_instruction_line(text) is None


def test_a_line_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = (
        '%a = f32[2]{0} add(%b, %c), metadata={op_name="f/add" source_file="x.py" source_line=3}'
    )
    printed = parse_instruction_line(whole)
    assert printed is not None
    assert source_of(printed.metadata) == "x.py:3"
    cut = parse_instruction_line(whole[: whole.index('"x.py')])
    assert cut is not None
    assert cut.metadata == Metadata(op_name="f/add")
    assert source_of(cut.metadata) == ""


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    for line in (text, f"%a = f32[2]{{0}} add({text}", f"%a = {text} add(%b), metadata={{{text}"):
        printed = parse_instruction_line(line)
        if printed is not None:
            assert line.startswith(("%", "ROOT", printed.name))
            assert isinstance(printed.tail + printed.metadata.op_name, str)
            assert len(printed.operands) == len(printed.operand_shapes)


def test_the_metadata_of_a_kernel_is_not_its_kernel_metadata() -> None:
    line = "%k = f32[8]{0} custom-call(%x), frontend_attributes={kernel_metadata={}}"
    found = parse_instruction_line(f'{line}, metadata={{op_name="jit(f)/pallas_call"}}')
    assert found is not None
    assert found.op_name == "jit(f)/pallas_call"
