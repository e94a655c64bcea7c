"""Values of a loop's body that are recomputed within an iteration."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.candidate import Program, start_text
from hlomem.opt.checks import find_problems
from hlomem.opt.goal import Rules, WorkLeft
from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.remat.inside import lower_inside
from hlomem.opt.remat.state import start_state

WIDE = "f32[65536]{0}"
COUNT = 6


def _loop() -> str:
    """Values made of a loop's state, which is written over once all of them were made."""
    forth = [
        f'%a{one} = {WIDE} custom-call(%m{one}), custom_call_target="__cudnn$norm"'
        for one in range(COUNT)
    ]
    narrow = [
        f"%m{one} = {WIDE} multiply(%w, %{'w' if one == 0 else f'm{one - 1}'})"
        for one in range(COUNT)
    ]
    made = [line for pair in zip(narrow, forth, strict=True) for line in pair]
    back = [
        f"%g{one} = {WIDE} multiply(%{'a' if one == COUNT - 1 else 'g'}"
        f"{one if one == COUNT - 1 else one + 1}, %a{one})"
        for one in reversed(range(COUNT))
    ]
    waits = ", ".join(f"%a{one}" for one in range(COUNT))
    body = "\n".join(
        f"  {line}"
        for line in (
            f"%state = (s32[], {WIDE}) parameter(0)",
            "%i = s32[] get-tuple-element(%state), index=0",
            f"%w = {WIDE} get-tuple-element(%state), index=1",
            "%one = s32[] constant(1)",
            *made,
            *back,
            f"%u = {WIDE} subtract(%w, %g0), control-predecessors={{{waits}}}",
            "%n = s32[] add(%i, %one)",
            f"ROOT %r = (s32[], {WIDE}) tuple(%n, %u)",
        )
    )
    return f"""HloModule m, is_scheduled=true

%body (state: (s32[], f32[65536])) -> (s32[], f32[65536]) {{
{body}
}}

%condition (state.1: (s32[], f32[65536])) -> pred[] {{
  %state.1 = (s32[], {WIDE}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %end = s32[] constant(10)
  ROOT %less = pred[] compare(%i.1, %end), direction=LT
}}

ENTRY %main (p: f32[65536]) -> f32[65536] {{
  %p = {WIDE} parameter(0)
  %zero = s32[] constant(0)
  %c = {WIDE} copy(%p)
  %t = (s32[], {WIDE}) tuple(%zero, %c)
  %loop = (s32[], {WIDE}) while(%t), condition=%condition, body=%body
  ROOT %w.1 = {WIDE} get-tuple-element(%loop), index=1
}}
"""


def test_what_an_update_waits_for_is_recomputed_before_the_update() -> None:
    options = options_for(find_machine("gpu", "h200"), Release("jaxlib", (0, 11, 2)))
    start = Program(start_text(hlo.parse(_loop()), options), Rules(), b"").start()
    limit = other_bytes(start.plan) + round(0.7 * start.temporaries)
    made = lower_inside(start, limit, WorkLeft("default"))
    assert made
    assert made[-1].total <= limit
    assert not find_problems(start.plan.module, made[-1].changes_so_far, Rules().allowed())


def test_what_is_awaited_is_recomputed_only_if_asked_for() -> None:
    options = options_for(find_machine("gpu", "h200"), Release("jaxlib", (0, 11, 2)))
    stages = start_text(hlo.parse(_loop()), options)
    [body] = [one for one in stages.module.outer_computations if one.name == "body"]
    for has_awaited in (False, True):
        state = start_state(stages, computation=body, has_awaited=has_awaited)
        node = next(one for one in range(state.count) if state.instruction(one).name == "a0")
        assert state.may_repeat(node) is has_awaited
        assert [state.instruction(one).name for one in state.waiting[node]] == ["u"]
