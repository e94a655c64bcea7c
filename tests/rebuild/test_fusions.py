"""Bodies made for fusions allow what was seen, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hlomem
from hlomem import hlo
from hlomem.analysis.alias_rules import can_share_operand_buffer, in_place_pairs
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.shape import ShapeIndex
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.pipeline import Stages, start_stages
from hlomem.rebuild.fusions import Sharing, find_in_place, find_sharing, write_body
from hlomem.view.joined import join_dump

if TYPE_CHECKING:
    from pathlib import Path

PAIR = "(f32[8]{0}, f32[8]{0})"


def _stages(
    kind: str, shape: str, *sharing: Sharing, is_in_place: bool = False
) -> tuple[Stages, HloInstruction]:
    """A fusion of three operands of eight floats."""
    operand = parse_shape_text("f32[8]{0}")
    body = write_body(
        "body", parse_shape_text(shape), [operand] * 3, sharing, (), is_in_place=is_in_place
    )
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
    stages, fusion = _stages("kLoop", PAIR, Sharing((1,), 2, ()), is_in_place=True)
    [pair] = in_place_pairs(fusion, stages.call_graph.bodies)
    assert (pair.operand_number, pair.operand_index, pair.output_index) == (2, (), (1,))
    assert _shared(stages, fusion, (1,)) == [2]


def test_other_fusions_need_not() -> None:
    stages, fusion = _stages("kLoop", "f32[8]{0}", Sharing((), 1, ()))
    assert list(in_place_pairs(fusion, stages.call_graph.bodies)) == []


def test_along_a_chain_in_one_place_all_fusions_work_in_place_or_none(goldens: Path) -> None:
    joined = join_dump(hlomem.load(goldens / "trials/tpu/concat"))
    chain = [name for name in joined.printed if find_sharing(name, joined)]
    assert len(chain) == 15
    assert set(chain) <= find_in_place(joined)  # a sine could have had the last one's place
    joined = join_dump(hlomem.load(goldens / "trials/tpu/gpt"))
    assert any(find_sharing(name, joined) for name in joined.printed)
    free = [name for name in joined.printed if find_sharing(name, joined)]
    assert not set(free) <= find_in_place(joined)
