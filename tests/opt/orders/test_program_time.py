"""The modelled time of a program in another order."""

from __future__ import annotations

from hlomem import hlo
from hlomem.opt.constants import TRANSFER_FACTOR
from hlomem.opt.orders.cost import ModelledTime, model_time, module_time
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.test_cost import TEXT, WORK
from tests.opt.remat.scanned import SCANNED, scanned_stages


def test_a_transfer_that_is_no_longer_hidden_is_waited_for() -> None:
    stages = start_stages(hlo.parse(TEXT), order_lists=in_text_order)
    entry = stages.module.entry
    p, q, start, work, done, root = entry.instructions
    assert model_time(stages, {}) == ModelledTime(WORK, 0, 0)
    late = model_time(stages, {entry: [p, q, start, done, work, root]})
    assert late == ModelledTime(WORK, 0, TRANSFER_FACTOR * 4096)
    assert late.ratio == (WORK + TRANSFER_FACTOR * 4096) / WORK


def test_a_program_that_does_nothing_takes_no_longer() -> None:
    assert ModelledTime(0, 0, 0).ratio == 1.0


def test_a_module_takes_as_long_as_its_stages() -> None:
    for path in SCANNED:
        stages = scanned_stages(path)
        machine = stages.options.machine
        assert module_time(stages.module, machine) == model_time(stages, {}).before > 0


def test_a_transfer_in_a_loop_is_waited_for_in_every_pass() -> None:
    inner = TEXT.partition("ENTRY %e {")[2].rpartition("}")[0]
    inner = inner.replace("(f32[1024], f32[8192]) tuple(%d, %work)", "f32[8192] negate(%q)")
    inner = inner.replace("%p = f32[1024] parameter(0)", "%p = f32[1024] constant({...})")
    text = f"""HloModule m, is_scheduled=true

%called {{{inner.replace("parameter(1)", "parameter(0)")}}}

%body {{
  %b = f32[8192] parameter(0)
  ROOT %call = f32[8192] call(%b), to_apply=%called
}}

%condition {{
  %a = f32[8192] parameter(0)
  ROOT %yes = pred[] constant(true)
}}

ENTRY %e {{
  %o = f32[8192] parameter(0)
  ROOT %w = f32[8192] while(%o), condition=%condition, body=%body,
    backend_config={{"known_trip_count":{{"n":"5"}}}}
}}
"""
    stages = start_stages(hlo.parse(text.replace(",\n    ", ", ")), order_lists=in_text_order)
    called = stages.module.computation_by_name["called"]
    p, q, start, work, done, root = called.instructions
    late = model_time(stages, {called: [p, q, start, done, work, root]})
    assert late == ModelledTime(5 * 2 * WORK, 0, 5 * TRANSFER_FACTOR * 4096)
