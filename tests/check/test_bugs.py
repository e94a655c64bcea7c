"""Real bugs of XLA, JAX and others, as small plans: what went wrong, and the rule that sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.check.findings import Verdict
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.machines.cpu import CPU
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, moved, planned, shortened, small_dump


def rules(verdict: Verdict) -> set[str]:
    """The rules something was found for."""
    return {finding.rule for finding in verdict.findings}


def check(dump: Dump, module: str | None = None) -> Verdict:
    """The verdict on a CPU plan."""
    return verify(dump, module=hlo.parse(module) if module else None, machine=CPU)


def test_b1_touching_values_overlap_in_part() -> None:
    a = V("a", (0, 1), 0, size=4096, shape="f32[1024]{0}", text="f32[1024]{0} iota()")
    b = V("b", (1, 2), 1024, size=4096, shape="f32[1024]{0}", text="f32[1024]{0} negate(%a)")
    assert rules(check(small_dump([a, b]))) == {"interference/touch-partial"}
    right = V("b", (1, 2), 0, size=4096, shape="f32[1024]{0}", text="f32[1024]{0} negate(%a)")
    assert check(small_dump([a, right])).is_clean


@pytest.mark.parametrize(
    ("offset", "size", "rule"),
    [
        (-64, 64, "geometry/negative-offset"),
        (0, -64, "geometry/negative-size"),
        (2**63 - 64, 64, "geometry/out-of-bounds"),
    ],
)
def test_b2_negative_or_wrapping_places(offset: int, size: int, rule: str) -> None:
    value = V("a", (0, 1), offset, size=size)
    header = {0: plain.Allocation(index=0, size=64)}
    assert rule in rules(check(small_dump([value], header)))


SHIFTED = """HloModule m, is_scheduled=true

fused {
  p = s32[4,1,1]{2,1,0} parameter(0)
  base = s32[1,4,1]{2,1,0} bitcast(p)
  part = s32[3,1,1]{2,1,0} slice(p), slice={[0:3], [0:1], [0:1]}
  WHAT
  zero = s32[] constant(0)
  one = s32[] constant(1)
  ROOT u = s32[1,4,1]{2,1,0} dynamic-update-slice(base, new, zero, one, zero)
}

ENTRY e {
  x = s32[4,1,1]{2,1,0} parameter(0)
  c = s32[4,1,1]{2,1,0} negate(x)
  ROOT f = s32[1,4,1]{2,1,0} fusion(c), kind=kLoop, calls=fused
}
"""
PLAIN = SHIFTED.replace("WHAT", "new = s32[1,3,1]{2,1,0} bitcast(part)")
PLUS_ONE = SHIFTED.replace(
    "WHAT", "more = s32[3,1,1]{2,1,0} negate(part)\n  new = s32[1,3,1]{2,1,0} bitcast(more)"
)


@pytest.mark.parametrize("module", [PLAIN, PLUS_ONE], ids=["b3 xla 49176", "b4 jax 7461"])
def test_b3_b4_a_fusion_reads_what_it_has_overwritten(module: str) -> None:
    dump = planned(module)
    home = (
        next(a.index for a in dump.assignment.allocations if "f" in [v.name for v in a.values])
        if dump.assignment
        else 0
    )
    verdict = check(moved(dump, "c", allocation=home, offset=0), module)
    (finding,) = verdict.findings
    assert finding.rule == "interference/in-place-fusion"
    assert [value.name for value in finding.values] == ["c", "f"]
    assert "elements from [0] on go to [1]" in finding.evidence[-1]


def test_b3_on_the_real_dump(goldens: Path) -> None:
    folder = goldens / "rejected" / "xla-49176"
    module = hlo.parse((folder / "module.hlo").read_text())
    (finding,) = verify(hlomem.load(folder), module=module).findings
    assert finding.rule == "interference/in-place-fusion"
    assert "reads operand 0 at other elements than it writes" in finding.evidence[-1]


def test_three_results_of_a_scatter_in_one_buffer_name_their_cause(goldens: Path) -> None:
    folder = goldens / "rejected" / "xla-29362"
    module = hlo.parse((folder / "module.hlo").read_text())
    found = verify(hlomem.load(folder), module=module).findings
    assert [finding.rule for finding in found].count("interference/touch") == 3
    assert "scatter.1 updates param_0.1 in place for both" in found[-1].evidence[-1]


def test_an_update_may_read_the_window_it_writes() -> None:
    same = PLAIN.replace("slice={[0:3]", "slice={[1:4]")
    dump = planned(same)
    assert dump.assignment is not None
    home = next(a.index for a in dump.assignment.allocations if "f" in [v.name for v in a.values])
    assert check(moved(dump, "c", allocation=home, offset=0), same).is_clean


def test_b5_two_outputs_of_one_instruction_share() -> None:
    text = "(f32[16]{0}, f32[16]{0}) fusion(), kind=kLoop, calls=%f"
    one = V("f", (0, 1), text=text, index=(0,))
    two = V("f", (0, 1), text=text, index=(1,))
    assert rules(check(small_dump([one, two]))) == {"interference/overlap"}


READ_LATER = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[16]{0} parameter(0)
  i = s32[] parameter(1)
  one = f32[1]{0} parameter(2)
  a = f32[16]{0} negate(p)
  b = f32[16]{0} dynamic-update-slice(a, one, i)
  c = f32[16]{0} copy(a)
  ROOT d = f32[16]{0} add(b, c)
}
"""


def test_b6_b9_an_operand_is_read_after_it_was_overwritten() -> None:
    dump = planned(READ_LATER)
    assert dump.live_ranges is not None
    moment = dump.live_ranges.sequence.index("b")
    verdict = check(shortened(dump, "a", moment), READ_LATER)
    assert rules(verdict) == {"live/overwritten"}
    assert "a is read by c at 5, after b was written over it" in verdict.findings[0].message


WAITS = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(p)
  b = f32[16]{0} abs(p), control-predecessors={a}
  ROOT c = f32[16]{0} add(a, b)
}
"""


def test_b7_writers_run_in_another_order_than_they_wait_for() -> None:
    dump = planned(WAITS)
    assert check(dump, WAITS).is_clean
    live = dump.live_ranges
    assert live is not None
    swapped = rebuilt(dump, live_ranges=replace(live, sequence=("p", "b", "a", "c")))
    assert "order/control-dependence" in rules(check(swapped, WAITS))


ASYNC = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(p)
  s = f32[16]{0} all-reduce-start(a), to_apply=sum
  b = f32[16]{0} abs(p)
  d = f32[16]{0} all-reduce-done(s)
  ROOT c = f32[16]{0} add(d, b)
}
"""
SUM = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
"""


def test_b8_an_operand_of_an_asynchronous_operation_ends_before_it_is_done() -> None:
    module = ASYNC.replace("\nENTRY", SUM + "\nENTRY")
    in_place = planned(module)
    assert check(in_place, module).is_clean  # what is reduced lives on as the result
    dump = moved(in_place, "a", allocation=5)  # where b comes to lie
    (finding,) = check(dump, module).findings
    assert finding.rule == "live/ends-early"
    assert "read by s until d at 4" in finding.message


def test_b10_a_value_lies_in_memory_of_another_color() -> None:
    value = V("a", (0, 1), color=1, shape="f32[16]{0:S(1)}")
    assert rules(check(small_dump([value]))) == {"geometry/color-differs"}


DONATED = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY e {
  p = f32[16]{0} parameter(0)
  ROOT a = f32[16]{0} negate(p)
}
"""


def test_b11_both_ends_of_a_donation_differ_in_size() -> None:
    verdict = check(moved(planned(DONATED), "a", size=32), DONATED)
    assert {"alias/donation-differs", "geometry/size-not-of-shape"} <= rules(verdict)


def test_b12_a_lost_donation_is_a_warning() -> None:
    values = [
        V("p", (0, 1), text="f32[16]{0} parameter(0)"),
        V("a", (1, 2), text="f32[16]{0} negate(%p)", allocation=1),
    ]
    parameter = plain.Parameter(number=0, shape="f32[16]", index=())
    headers = {
        0: plain.Allocation(index=0, size=64, parameter=parameter),
        1: plain.Allocation(index=1, size=64, maybe_live_out=True, output_shape="f32[16]"),
    }
    dump = small_dump(values, headers)
    (finding,) = check(dump, DONATED).findings
    assert (finding.rule, finding.severity) == ("alias/lost-donation", "warning")
    assert "64 bytes more" in finding.message
    (must,) = check(dump, DONATED.replace("may-alias", "must-alias")).findings
    assert must.severity == "error"


def test_b13_a_window_is_not_aligned() -> None:
    value = V("a", (0, 1), 8)
    assert rules(check(small_dump([value]))) == {"geometry/misaligned"}


@pytest.mark.parametrize(
    ("shape", "size", "rule"),
    [
        ("s4[16]{0:E(4)}", 16, "geometry/size-not-of-shape"),
        ("f32[16]{0}", 2**64 + 64, "geometry/size-not-of-shape"),
        ("f64[2305843009213693951]{0}", 2**63, "geometry/unreadable-shape"),
    ],
)
def test_b14_a_size_is_not_that_of_the_shape(shape: str, size: int, rule: str) -> None:
    value = V("a", (0, 1), shape=shape, size=size)
    assert rules(check(small_dump([value]))) == {rule}


RETURNED = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(p)
  ROOT t = (f32[16]{0}, f32[16]{0}) tuple(a, p)
}
"""


def test_b15_an_argument_is_returned_unchanged_and_overwritten() -> None:
    dump = planned(RETURNED)
    assert dump.assignment is not None
    assert check(dump, RETURNED).is_clean
    home = next(a.index for a in dump.assignment.allocations if a.parameter is not None)
    found = rules(check(moved(dump, "a", allocation=home), RETURNED))
    assert {"interference/overlap", "ownership/read-only"} <= found
