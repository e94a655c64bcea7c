"""Values computed again beside a better order: told, judged, and left where a judge objects."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt import cheap_remat as almost_free
from hlomem.opt.cheap_remat import find_recomputed, recompute_freely
from hlomem.opt.order_search import BetterOrder, Rules, improve_stages
from hlomem.opt.orders.latency import module_time
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.remat.programs import products

RULES = Rules("low", recompute=0.02)


def _found(text: str) -> BetterOrder:
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    return improve_stages("m", stages, RULES)


def test_the_report_adds_up_with_the_text() -> None:
    found = _found(products(4))
    better = recompute_freely(found, RULES)
    again = better.report.again
    assert again is not None
    assert better.report.after < again.ordered == found.report.after
    module = hlo.parse(better.text())
    stages = start_stages(module, found.stages.options, order_lists=in_text_order)
    assert temporary_bytes(stages) == better.report.after
    names = [one.name for one in module.entry.instructions]
    assert again.instructions == len(names) - len(found.stages.module.entry.instructions) == 1
    machine = found.stages.options.machine
    assert again.program_time == module_time(found.stages.module, machine)
    assert again.time == module_time(module, machine) - again.program_time > 0


def test_a_program_that_a_judge_objects_to_is_not_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(almost_free, "judge_edited", lambda *_: ["it is wrong"])
    found = _found(products(4))
    better = recompute_freely(found, RULES)
    assert better.text() == found.text()
    assert better.report.again is None
    assert better.report.after == found.report.after
    assert better.report.notes[-1] == "values computed again were rejected: it is wrong"


@pytest.mark.parametrize("rules", [Rules("low"), Rules("low", recompute=0.0001)])
def test_a_share_that_is_too_small_leaves_the_order(rules: Rules) -> None:
    found = _found(products(4))
    assert recompute_freely(found, rules) == found


def test_a_program_whose_compiler_fills_fast_memory_later_is_left_alone() -> None:
    machine = find_machine("tpu", "v5e")
    options = options_for(machine, Release("libtpu", (0, 0, 51)))
    stages = start_stages(hlo.parse(products(4)), options, order_lists=in_text_order)
    assert find_recomputed(improve_stages("m", stages, RULES), RULES) is None
