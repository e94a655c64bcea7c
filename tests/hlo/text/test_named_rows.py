"""Rows of bodies that have metadata, against the same bodies linked."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.hlo.text.attributes import read_op_name
from hlomem.hlo.text.named_rows import named_rows
from hlomem.hlo.text.shape_parser import parse_shape_text
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram


def _linked(computation: hlo.HloComputation) -> list[tuple[str, str, str]]:
    return [
        (instruction.shape.text, instruction.opcode, instruction.metadata.op_name)
        for instruction in computation.instructions
        if "metadata" in instruction.attributes
    ]


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS[::9], ids=str)
def test_rows_say_what_linked_instructions_say(golden: GoldenProgram) -> None:
    module = hlo.parse(golden.text)
    for computation in list(module.computations):
        body = computation.body_text
        assert body is not None
        found = named_rows(body)
        if found is None:  # an instruction in it stands for two
            continue
        rows, is_complete = found
        told = [
            (parse_shape_text(shape_text).text, opcode, read_op_name(metadata))
            for shape_text, opcode, metadata in rows
        ]
        assert told == _linked(computation)
        assert is_complete == (len(rows) == len(computation.instructions))


@pytest.mark.parametrize(
    ("line", "metadata"),
    [
        ('%a = f32[] negate(%b), metadata={op_name="n"}', 'metadata={op_name="n"}'),
        (
            '%a = f32[] custom-call(%b), custom_call_target="t", metadata={op_name="n"}',
            'metadata={op_name="n"}',
        ),
        ('%a = f32[] negate(%b), dimensions={0}, metadata={op_name="n"}, x=1', None),
        ("%a = f32[] negate(%b)", ""),
    ],
)
def test_metadata_is_found_behind_other_attributes(line: str, metadata: str | None) -> None:
    found = named_rows(f"\n  {line}")
    assert found is not None
    texts = [row[2] for row in found.rows]
    assert texts == ([] if metadata == "" else [metadata or 'metadata={op_name="n"}, x=1'])


@pytest.mark.parametrize(
    "line",
    [
        '%a = f32[] custom-call(%b), backend_config="x, metadata={op_name=\\"n\\"}"',
        '%a = f32[] negate(%b), frontend_attributes={a={b, metadata={op_name="n"}}}',
        "not an instruction",
        '%a = f32[] negate-start(%b), metadata={op_name="n"}',
    ],
)
def test_what_looking_at_lines_does_not_tell_is_left_to_the_parser(line: str) -> None:
    assert named_rows(f"\n  {line}") is None
