"""Nobody can tell whether a body has been read: not by a plan, and not by asking."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.base.errors import ParseError
from hlomem.pipeline import STAGES, start_stages
from hlomem.rebuild.names_from_dump import unnamed_elements
from hlomem.report.data.module_overview import build_module_overview
from tests.golden_programs import GOLDEN_PROGRAMS, planned_values
from tests.places import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_programs import GoldenProgram


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_opening_all_bodies_between_two_stages_changes_nothing(golden: GoldenProgram) -> None:
    text = golden.text
    left_alone = planned_values(golden.start(hlo.parse(text)))
    for stage in (None, *STAGES):
        stages = golden.start(hlo.parse(text))
        if stage is not None:
            getattr(stages, stage)
        stages.module.open_all()
        assert planned_values(stages) == left_alone, stage


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_a_body_answers_alike_before_and_after_it_is_read(golden: GoldenProgram) -> None:
    for text in golden.texts:
        module, read = hlo.parse(text), hlo.parse(text)
        read.open_all()
        for before, after in zip(module.computations, read.computations, strict=True):
            assert before.outline() == after.outline()
            assert before.first_parameter_name == after.first_parameter_name
            assert _named_calls(before) == _named_calls(after)
            assert before.body_text == after.body_text
        assert len(unnamed_elements(module)) == len(unnamed_elements(read))
        assert build_module_overview(module) == build_module_overview(read)
        assert {each.name for each in module.fused_computations} == {
            each.name for each in read.fused_computations
        }


def _named_calls(computation: hlo.HloComputation) -> list[object]:
    return [
        (call.opcode, [each.name for each in call.called_computations], call.attribute_text)
        for call in computation.calls()
    ]


MISLEADING = """\
HloModule m, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (p: f32[8]) -> f32[] {
  %p = f32[8]{0} parameter(0)
  %zero = f32[] constant(0), metadata={op_name="a, to_apply=%fused"}
  %odd = f32[8]{0} negate(%p), to_apply=%add
  ROOT %reduce = f32[] reduce(%p, %zero), dimensions={0}, to_apply=%add
}

ENTRY %main (a: f32[8]) -> f32[] {
  %a = f32[8]{0} parameter(0)
  ROOT %fusion = f32[] fusion(%a), kind=kLoop, calls=%fused
}
"""


def test_what_looks_like_a_call_is_none_whether_read_or_not() -> None:
    module, read = hlo.parse(MISLEADING), hlo.parse(MISLEADING)
    read.open_all()
    for each in (module, read):
        [call] = each.computation_by_name["fused"].calls()
        assert (call.opcode, call.called_computations[0].name) == ("reduce", "add")
    assert not module.computation_by_name["fused"].is_open


def test_what_a_fusion_calls_may_not_run_in_the_flow_read_or_not() -> None:
    text = MISLEADING.replace(
        "  ROOT %fusion =",
        "  %b = f32[] constant(0)\n  %c = f32[] call(%b, %b), to_apply=%add\n  ROOT %fusion =",
    )
    for is_read in (False, True):
        module = hlo.parse(text)
        if is_read:
            module.open_all()
        with pytest.raises(ParseError, match="runs both"):
            start_stages(module).call_graph  # noqa: B018 - raises


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "hlo" not in path.parents],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_hlo_asks_whether_a_body_is_open(path: Path) -> None:
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    assert names.isdisjoint({"is_open", "is_text"})
