"""Why a result was not written over an operand: what the planner goes by, and nothing else."""

from __future__ import annotations

import pytest

import hlomem
from hlomem import hlo
from hlomem.analysis.alias_rules import can_share_operand_buffer
from hlomem.analysis.machine_rules import rules_of
from hlomem.analysis.overwriting import (
    BY_BACKEND,
    INSIDE_FUSION,
    NOT_ELEMENTWISE,
    OTHER_SHAPE,
)
from hlomem.hlo.shape import ShapeIndex
from hlomem.pipeline import start_stages
from hlomem.report.data.explain import ALLOWED, UNKNOWN, InPlace, iter_in_place
from hlomem.report.data.lookup import find_buffer
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import ROOT

XLA = ROOT / "tests" / "goldens" / "xla"
ALIKE = (
    "jaxlib-0.12.0.1/cpu/g_cholesky_solve",
    "jaxlib-0.12.0.1/cpu/half_top_k",
    "jaxlib-0.12.0.1/cpu/nested_while",
    "jaxlib-0.11.2/gpu-h200/nested_while",
    "jaxlib-0.11.2/gpu-h200/sharded_sorts",
    "libtpu-0.0.51/tpu-v5e/m_gather_sharded",
    "libtpu-0.0.51/tpu-v6e/h_switch_in_scan",
)
SORTED = """HloModule m, is_scheduled=true

%lt (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}

ENTRY %main (p: f32[64]) -> (f32[64], f32[64]) {
  %p = f32[64]{0} parameter(0)
  %n = f32[64]{0} negate(%p)
  %k = f32[64]{0} cosine(%OTHER)
  %s = f32[64]{0} sort(%n), dimensions={0}, to_apply=%lt
  %e = f32[64]{0} exponential(%s)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%e, %k)
}
"""


def _in_place(memory: MemoryView, name: str) -> list[InPlace]:
    return list(iter_in_place(memory, find_buffer(memory, name)))


@pytest.mark.parametrize(("backend", "chip"), [("cpu", ""), ("gpu", ""), ("tpu", "v5e")])
@pytest.mark.parametrize("has_module", [True, False])
def test_a_sort_overwrites_what_it_alone_reads(backend: str, chip: str, has_module: bool) -> None:
    for other, expected in (
        ("p", (True, "it is written over it")),
        ("n", (False, "2 instructions read it; only what it alone reads is overwritten")),
    ):
        module = hlo.parse(SORTED.replace("%OTHER", f"%{other}"))
        plan = hlomem.plan(module, backend=backend, chip=chip)
        memory = build_memory(plan.dump, module if has_module else None)
        [told] = _in_place(memory, "s")
        assert (told.is_shared, told.why) == expected


def _golden(name: str, *, with_module: bool = True) -> MemoryView:
    folder = XLA / name
    module = hlo.parse((folder / "module.hlo").read_text()) if with_module else None
    return build_memory(hlomem.load(folder), module)


def test_xlas_own_sorts_are_told_as_xla_made_them() -> None:
    [value, carried] = _in_place(_golden("jaxlib-0.12.0.1/cpu/half_top_k"), "sort{1}")
    assert (value.operand, value.why) == ("x.1", "is not donated")
    assert (carried.operand, carried.is_shared) == ("wrapped_iota", True)
    tpu = _golden("libtpu-0.0.51/tpu-v5e/m_gather_sharded")
    why = {each.operand: each.why for each in _in_place(tpu, "sort.14{0}")}
    assert why == {"copy.13": ALLOWED, "copy.14": OTHER_SHAPE}


def test_a_custom_call_overwrites_what_it_declares() -> None:
    memory = _golden("jaxlib-0.12.0.1/cpu/g_cholesky_solve")
    told = {each.operand: each.why for each in _in_place(memory, "triangular_solve.0")}
    assert told["copy_copy_fusion"] == "it is written over it"
    assert told["select_select_fusion"].startswith("the instruction does not declare")


RULES = {NOT_ELEMENTWISE, OTHER_SHAPE, INSIDE_FUSION, BY_BACKEND}


@pytest.mark.parametrize("name", ALIKE)
def test_the_reason_is_the_planners(name: str) -> None:
    memory = _golden(name)
    assert memory.module is not None
    dataflow = start_stages(memory.module).dataflow
    rules = rules_of(memory.machine)
    checked = 0
    for buffer in memory.buffers:
        placed = memory.joined.placed_by_id[buffer.id]
        user = memory.instruction_by_name.get(placed.value.name)
        for told in iter_in_place(memory, buffer):
            if user is None or told.is_shared or told.why not in RULES | {ALLOWED}:
                continue
            read = memory.joined.placed_by_id[find_buffer(memory, told.operand).id]
            answers = {
                can_share_operand_buffer(
                    dataflow,
                    user.operands[number],
                    ShapeIndex(index),
                    user,
                    ShapeIndex(placed.index),
                    rules,
                )
                for number in read.operand_numbers(user.name)
                for index, value in memory.joined.read_by[user.name, number]
                if value is read
            }
            assert answers == {told.why == ALLOWED}, (buffer.name, told)
            checked += 1
    assert checked


@pytest.mark.parametrize("name", ALIKE)
def test_a_dump_alone_never_contradicts_its_module(name: str) -> None:
    alone, whole = _golden(name, with_module=False), _golden(name)
    for buffer in alone.buffers:
        pairs = zip(iter_in_place(alone, buffer), iter_in_place(whole, buffer), strict=True)
        for less, more in pairs:
            if less.why != UNKNOWN and more.why == ALLOWED:
                assert less.why == ALLOWED
            if less.why == ALLOWED:
                assert more.why == ALLOWED
