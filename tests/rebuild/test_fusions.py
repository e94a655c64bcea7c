"""Bodies made for fusions allow what was seen, and nothing else."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.analysis.alias_rules import can_share_operand_buffer, in_place_pairs
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.shape import ShapeIndex
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.pipeline import Stages, start_stages
from hlomem.rebuild.fusions import Sharing, write_body

PAIR = "(f32[8]{0}, f32[8]{0})"


def _stages(
    kind: str, shape: str, *sharing: Sharing, hint: str = ""
) -> tuple[Stages, HloInstruction]:
    """A fusion of three operands of eight floats."""
    operand = parse_shape_text("f32[8]{0}")
    body = write_body("body", hint, parse_shape_text(shape), [operand] * 3, sharing, ())
    parameters = "\n".join(f"  %p{i} = f32[8]{{0}} parameter({i})" for i in range(3))
    fusion = f"ROOT %f = {shape} fusion(%p0, %p1, %p2), kind={kind}, calls=%body"
    entry = f"ENTRY %main {{\n{parameters}\n  {fusion}\n}}"
    module = hlo.parse(f"HloModule m, is_scheduled=true\n\n{body}\n\n{entry}\n", lazy=False)
    return start_stages(module), module.entry.root


def _shared(stages: Stages, fusion: HloInstruction, index: tuple[int, ...] = ()) -> list[int]:
    """The operands whose place a part of the result may take."""
    return [
        number
        for number, operand in enumerate(fusion.operands)
        if can_share_operand_buffer(
            stages.dataflow, operand, ShapeIndex(()), fusion, ShapeIndex(index)
        )
    ]


@pytest.mark.parametrize("kind", ["kLoop", "kInput", "kOutput", "kCustom"])
def test_only_what_was_seen_may_be_written_over(kind: str) -> None:
    assert _shared(*_stages(kind, "f32[8]{0}")) == []
    for number in range(3):
        assert _shared(*_stages(kind, "f32[8]{0}", Sharing((), number, ()))) == [number]
    both = [Sharing((), 0, ()), Sharing((), 2, ())]
    assert _shared(*_stages(kind, "f32[8]{0}", *both)) == [0, 2]


def test_a_fusion_that_updates_a_slice_writes_in_place() -> None:
    hint = "%dynamic-update-slice_fusion = f32[8] fusion(...)"
    stages, fusion = _stages("kLoop", PAIR, Sharing((1,), 2, ()), hint=hint)
    [pair] = in_place_pairs(fusion, stages.call_graph.bodies)
    assert (pair.operand_number, pair.operand_index, pair.output_index) == (2, (), (1,))
    assert _shared(stages, fusion, (1,)) == [2]


def test_other_fusions_need_not() -> None:
    stages, fusion = _stages("kLoop", "f32[8]{0}", Sharing((), 1, ()))
    assert list(in_place_pairs(fusion, stages.call_graph.bodies)) == []
