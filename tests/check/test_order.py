"""Instructions run in an order that operands, control dependences and calls allow."""

from __future__ import annotations

from hlomem import hlo
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.machines.cpu import CPU
from tests.check.small import blamed, planned, with_sequence

MODULE = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(p)
  t = (f32[16]{0}) tuple(a)
  g = f32[16]{0} get-tuple-element(t), index=0
  ROOT b = f32[16]{0} negate(g)
}
"""


def rules(dump: Dump, module: str = MODULE) -> list[str]:
    """The rules a CPU plan breaks, each once."""
    verdict = verify(dump, module=hlo.parse(module), machine=CPU)
    return sorted({finding.rule for finding in verdict.findings})


def test_the_order_is_that_of_the_module() -> None:
    dump = planned(MODULE)
    swapped = with_sequence(dump, "a", "p", "t", "g", "b")
    assert "order/data-dependence" in rules(swapped)
    assert [name for name, rule in blamed(swapped, MODULE) if "data" in rule] == ["a", "p"]
    assert "order/missing" in rules(with_sequence(dump, "p", "a", "t", "g"))


def test_a_step_the_module_does_not_have_is_passed_over() -> None:
    dump = planned(MODULE)
    longer = with_sequence(dump, "p", "a", "t", "g", "b", "other")
    assert "order/missing" not in rules(longer)
    without_a_step = MODULE.replace("  a = f32[16]{0} negate(p)\n", "").replace("(a)", "(p)")
    assert "order/missing" not in rules(dump, without_a_step)


CONTROL = """HloModule m, is_scheduled=true

cond {
  k = f32[16]{0} parameter(0)
  ROOT l = pred[] constant(false)
}

body {
  m = f32[16]{0} parameter(0)
  ROOT n = f32[16]{0} negate(m)
}

yes {
  ROOT x = f32[16]{0} parameter(0)
}

no {
  y = f32[16]{0} parameter(0)
  ROOT z = f32[16]{0} abs(y)
}

ENTRY e {
  q = f32[16]{0} parameter(0)
  s = pred[] parameter(1)
  a = f32[16]{0} negate(q)
  w = f32[16]{0} while(a), condition=cond, body=body
  ROOT c = f32[16]{0} conditional(s, w, w), true_computation=yes, false_computation=no
}
"""


def test_what_a_loop_runs_stands_directly_before_it() -> None:
    dump = planned(CONTROL)
    assert dump.live_ranges is not None
    names = list(dump.live_ranges.sequence)
    first, last = names.index("k"), names.index("w")
    body_first = [*names[:first], "m", "n", "k", "l", *names[last:]]
    assert "order/nesting" in rules(with_sequence(dump, *body_first), CONTROL)
    outside = [*names[:first], *names[last:], *names[first:last]]
    assert "order/nesting" in rules(with_sequence(dump, *outside), CONTROL)
    without_end = [name for name in names if name != "c"]
    assert "order/missing" in rules(with_sequence(dump, *without_end), CONTROL)


def test_computations_that_are_not_in_the_sequence_are_missing() -> None:
    dump = planned(CONTROL)
    assert rules(dump, CONTROL) == []
    assert "order/missing" in rules(with_sequence(dump, "q", "s", "a", "w", "c"), CONTROL)
