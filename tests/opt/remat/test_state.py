"""States with clones: they count what their programs do, and give back what is not needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.orders.cost import Costs
from hlomem.opt.remat.budget_search import plan_edit
from hlomem.opt.remat.clones import relax, settle
from hlomem.opt.remat.cut import cut_at_peak
from hlomem.opt.remat.edit import apply_edit, orders_by_name
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.state import State, start_state
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import stages_of
from tests.opt.remat.programs import HOMES

SOME = HOMES[::2]


def _descend(state: State, costs: Costs, wanted: int, steps: int = 12) -> State:
    for _ in range(steps):
        levels = state.levels()
        choice = choose(state, levels, costs, wanted) if max(levels) > wanted else None
        if choice is None:
            break
        assert choice.levels == choice.state.levels()
        assert max(choice.levels) <= max(levels)
        state = choice.state
    return state


def _full_levels(state: State) -> list[int]:
    """Bytes alive at every place, wherever buffers lie."""
    return replace(state, flow=replace(state.flow, sizes=state.full)).levels()


@pytest.mark.parametrize("home", SOME, ids=lambda home: home.name)
def test_a_state_counts_what_its_program_does(home: Path) -> None:
    stages = stages_of(home)
    costs = Costs(stages.options.machine.size_of)
    given = start_state(stages)
    half = max(given.levels()) // 2
    cut = cut_at_peak(given, costs, 256)
    for state in (_descend(given, costs, half), cut, cut and settle(cut)):
        if state is None or not state.clone_nodes():
            continue
        relaxed = relax(state, costs, max(state.levels()))
        for made in (state, relaxed):
            planned = plan_edit(stages, made.edit(orders_by_name(stages)))
            assert _full_levels(made) == _full_levels(start_state(planned))


@pytest.mark.parametrize("home", SOME, ids=lambda home: home.name)
def test_clones_are_taken_back_while_there_is_room(home: Path) -> None:
    stages = stages_of(home)
    costs = Costs(stages.options.machine.size_of)
    given = start_state(stages)
    state = _descend(given, costs, max(given.levels()) // 2)
    low, high = max(state.levels()), max(given.levels())
    for wanted in (low, (low + high) // 2):
        relaxed = relax(state, costs, wanted)
        assert max(relaxed.levels()) <= wanted
        assert costs.total(relaxed.clones()) <= costs.total(state.clones())
        module = apply_edit(stages.module, relaxed.edit(orders_by_name(stages)))
        assert find_edit_problems(stages.module, hlo.parse(format_module(module))) == []


LATE = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[4096]) -> f32[8192] {
  %p = f32[4096]{0} parameter(0)
  %a = f32[4096]{0} sine(%p)
  %b = f32[8192]{0} concatenate(%p, %p), dimensions={0}
  %c = f32[8192]{0} reverse(%b), dimensions={0}
  %d = f32[] dot(%b, %c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %e = f32[4096]{0} broadcast(%d), dimensions={}
  ROOT %r = f32[8192]{0} concatenate(%a, %e), dimensions={0}
}
"""


def test_a_value_that_nobody_reads_before_the_peak_is_made_once() -> None:
    stages = start_stages(hlo.parse(LATE), order_lists=in_text_order)
    costs = Costs(stages.options.machine.size_of)
    cut = cut_at_peak(start_state(stages), costs, 0)
    assert cut is not None
    assert "a" in [one.name for one in cut.clones()]
    settled = settle(cut)
    assert settled.clones() == []
    order = [settled.instruction(node).name for node in settled.order]
    assert order.index("a") == len(order) - 2
