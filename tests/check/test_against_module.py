"""What a plan must be by its module: values, uses, order, headers, donations, in-place fusions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlomem import hlo
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.dump.records import Allocation, Position, Use, UsedValue
from hlomem.machines.cpu import CPU
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, blamed, moved, planned, shortened, small_dump, with_sequence

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


def with_used(dump: Dump, name: str, **changes: object) -> Dump:
    """`dump` with other things listed for a value."""
    assert dump.values is not None
    values = tuple(
        replace(each, **changes) if each.name == name else each for each in dump.values.values
    )
    return rebuilt(dump, values=replace(dump.values, values=values))


def used(dump: Dump, name: str) -> UsedValue:
    """What is listed for a value."""
    assert dump.values is not None
    return next(each for each in dump.values.values if each.name == name)


def with_headers(dump: Dump, number: int, **changes: object) -> Dump:
    """`dump` with another header of an allocation."""
    assert dump.assignment is not None
    allocations = tuple(
        replace(each, **changes) if each.index == number else each
        for each in dump.assignment.allocations
    )
    return rebuilt(dump, assignment=replace(dump.assignment, allocations=allocations))


def home(dump: Dump, name: str) -> Allocation:
    """The allocation of a value."""
    assert dump.assignment is not None
    return next(a for a in dump.assignment.allocations if name in [v.name for v in a.values])


def test_a_range_covers_what_the_module_reads() -> None:
    dump = planned(MODULE)
    assert rules(dump) == []
    assert rules(shortened(dump, "a", 3)) == ["live/ends-early"]


def test_uses_are_those_of_the_module() -> None:
    dump = planned(MODULE)
    uses = used(dump, "a").uses
    assert uses is not None
    assert "flow/use-missing" in rules(with_used(dump, "a", uses=()))
    assert rules(with_used(dump, "a", uses=(*uses, Use("t", 3)))) == ["flow/use-unknown"]
    assert rules(with_used(dump, "a", uses=(*uses, Use("nobody", 0)))) == []


def test_positions_are_those_of_the_module() -> None:
    dump = planned(MODULE)
    positions = used(dump, "a").positions
    assert "flow/position-missing" in rules(with_used(dump, "a", positions=positions[:1]))
    more = with_used(dump, "a", positions=(*positions, Position("b", ())))
    assert "flow/position-unknown" in rules(more)


def test_values_are_those_of_the_module() -> None:
    dump = planned(MODULE)
    handed_on = MODULE.replace("b = f32[16]{0} negate(g)", "b = f32[16]{0} bitcast(g)")
    assert "flow/unknown-value" in rules(dump, handed_on)
    less = with_sequence(planned(handed_on), "p", "a", "t", "g", "b")
    assert "flow/no-value" in rules(less, MODULE)


SORTED = """HloModule m, is_scheduled=true

less {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  zero = f32[] constant(0)
  difference = f32[] subtract(x, y)
  ROOT is_less = pred[] compare(difference, zero), direction=LT
}

maximum {
  x.1 = f32[] parameter(0)
  y.1 = f32[] parameter(1)
  ROOT larger = f32[] maximum(x.1, y.1)
}

fused {
  q = f32[16]{0} parameter(0)
  low = f32[] constant(-1)
  ROOT r = f32[] reduce(q, low), dimensions={0}, to_apply=maximum
}

ENTRY e {
  p = f32[16]{0} parameter(0)
  s = f32[16]{0} sort(p), dimensions={0}, is_stable=true, to_apply=less
  ROOT f = f32[] fusion(s), kind=kLoop, calls=fused
}
"""


def without(dump: Dump, name: str) -> Dump:
    """`dump` with one value in none of the lists."""
    assert dump.assignment is not None
    assert dump.values is not None
    allocations = tuple(
        replace(each, values=tuple(value for value in each.values if value.name != name))
        for each in dump.assignment.allocations
    )
    values = tuple(each for each in dump.values.values if each.name != name)
    return rebuilt(
        dump,
        assignment=replace(dump.assignment, allocations=allocations),
        values=replace(dump.values, values=values),
    )


@pytest.mark.parametrize("name", ["x", "zero", "is_less", "larger"])
def test_what_comparators_and_reducers_compute_are_values(name: str) -> None:
    dump = planned(SORTED)
    assert rules(dump, SORTED) == []
    assert rules(without(dump, name), SORTED) == ["flow/no-value"]


def test_values_that_are_not_listed_are_not_missed() -> None:
    dump = rebuilt(planned(SORTED), values=None)
    assert "flow/no-value" not in rules(dump, SORTED)


TWO_SCATTERED = """HloModule m, is_scheduled=true

second {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  z = f32[] parameter(2)
  w = f32[] parameter(3)
  ROOT v = (f32[], f32[]) tuple(z, w)
}

ENTRY e {
  p = f32[16]{0} parameter(0)
  n = f32[1]{0} parameter(1)
  i = s32[] parameter(2)
  a = f32[16]{0} negate(p)
  b = f32[16]{0} abs(p)
  ROOT s = (f32[16]{0}, f32[16]{0}) scatter(a, b, i, n, n), update_window_dims={0},
    inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second
}
"""


def test_the_table_of_a_scatter_into_two_is_neither() -> None:
    assert rules(planned(TWO_SCATTERED), TWO_SCATTERED) == []


def test_shapes_are_those_of_the_module() -> None:
    integers = MODULE.replace("f32[16]{0} negate(p)", "s32[16]{0} negate(p)")
    assert rules(planned(MODULE), integers) == ["flow/shape-differs"]


def test_compact_text_has_no_get_tuple_elements() -> None:
    """The parser names them; XLA, which planned, had other names."""
    dump = planned(MODULE)
    assert rules(dump, MODULE.replace("g = ", "h = ").replace("(g)", "(h)")) == []


def test_headers_are_those_of_the_module() -> None:
    dump = planned(MODULE)
    argument, output = home(dump, "p"), home(dump, "b")
    assert argument.parameter is not None
    other = replace(argument.parameter, number=1)
    assert rules(with_headers(dump, argument.index, parameter=other)) == ["ownership/parameter"]
    for changes in ({"maybe_live_out": False}, {"output_shape": None}):
        assert "ownership/output" in rules(with_headers(dump, output.index, **changes))
    elsewhere = with_headers(dump, home(dump, "t").index, output_shape="f32[16]")
    assert "ownership/output" in rules(elsewhere)


@pytest.mark.parametrize(
    "change",
    [
        ("HloModule m,", "HloModule m, input_output_alias={ {}: (9, {}, may-alias) },"),
        ("HloModule m,", "HloModule m, input_output_alias={ {4}: (0, {}, may-alias) },"),
    ],
    ids=["no such argument", "no such result"],
)
def test_a_donation_of_what_there_is_not_is_passed_over(change: tuple[str, str]) -> None:
    assert rules(planned(MODULE), MODULE.replace(*change)) == []


CALLED = """f {
  x = f32[16]{0} parameter(0)
  ROOT y = f32[16]{0} negate(x)
}

"""


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            "HloModule m\n\nENTRY e {\n  ROOT z = f32[] constant(1)\n}\n",
            "the module is of another program",
        ),
        (
            MODULE.replace("negate(g)", "call(), to_apply=f").replace("ENTRY", f"{CALLED}ENTRY"),
            "calls, operands and shapes of the module do not fit together",
        ),
        (
            MODULE.replace("negate(p)", "call(p), to_apply=f")
            .replace("negate(g)", "call(g), to_apply=f")
            .replace("ENTRY", f"{CALLED}ENTRY"),
            "f is called twice, which XLA does not plan",
        ),
    ],
    ids=["another program", "does not fit", "called twice"],
)
def test_a_module_that_cannot_be_used_is_said(module: str, reason: str) -> None:
    verdict = verify(planned(MODULE), module=hlo.parse(module), machine=CPU)
    assert reason in [each.reason for each in verdict.not_checked]


DECLARED = """HloModule m, is_scheduled=true

fused {
  p = f32[16]{0} parameter(0)
  ROOT r = f32[16]{0} reverse(p), dimensions={0}
}

ENTRY e {
  q = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(q)
  ROOT b = f32[16]{0} fusion(a), kind=kLoop, DECLAREDcalls=fused
}
"""


def test_a_fusion_that_declares_its_operand_is_believed() -> None:
    declared = DECLARED.replace("DECLARED", "output_to_operand_aliasing={{}: (0, {})}, ")
    plain = DECLARED.replace("DECLARED", "")
    assert rules(planned(declared), declared) == []
    dump = planned(plain)
    assert rules(dump, plain) == []
    wrong = moved(dump, "a", allocation=home(dump, "b").index)
    assert rules(wrong, plain) == ["interference/in-place-fusion"]


COPY = """HloModule m, is_scheduled=true

ENTRY e {
  q = f32[16]{0} parameter(0)
  a = f32[16]{0} negate(q)
  s = (f32[16]{0}, f32[16]{0}, u32[]) copy-start(a)
  x = f32[16]{0} abs(q)
  ROOT d = f32[16]{0} copy-done(s)
}
"""


def test_an_asynchronous_copy_reads_until_it_is_done() -> None:
    dump = planned(COPY)
    assert rules(dump, COPY) == []
    assert rules(shortened(dump, "a", 3), COPY) == ["live/ends-early"]


WRAPPED = """HloModule m, is_scheduled=true

wrapped {
  w = f32[16]{0} parameter(0)
  v = f32[16]{0} abs(w)
  ROOT u = f32[16]{0} negate(v)
}

ENTRY e {
  a = f32[16]{0} iota(), iota_dimension=0
  s = ((f32[16]{0}), f32[16]{0}, u32[]) async-start(a), calls=wrapped
  ROOT d = f32[16]{0} async-done(s)
}
"""


def asynchronous(**lives: tuple[int, int]) -> Dump:
    """A plan of `WRAPPED`; `v` is inside the computation that runs on its own."""
    start = "((f32[16]{0}), f32[16]{0}, u32[]) async-start(%a), calls=%wrapped"
    whole = start.partition(" async")[0]
    reads = (("v", 0, ()), ("s", 0, ()), ("d", 0, (0, 0)))
    given = (("s", (1,)), ("d", ()))
    values = [
        V("a", (0, 5), positions=(("w", ()), ("s", (0, 0))), uses=reads),
        V("v", lives.get("v", (2, 5)), text="f32[16]{0} abs(%w)", allocation=1),
        V("u", (3, 6), 0, "f32[16]{0} negate(%v)", allocation=2, positions=given, uses=D1),
        V("s", (4, 5), 0, start, whole, 24, allocation=3, index=(), uses=(("d", 0, ()),)),
        V("s", (4, 5), 0, start, "(f32[16]{0})", 8, 4, index=(0,), uses=(("d", 0, (0,)),)),
        V("s", (4, 5), 0, start, "u32[]", 4, 5, index=(2,), uses=(("d", 0, (2,)),)),
    ]
    header = {2: plain.Allocation(index=2, size=64, maybe_live_out=True, output_shape="f32[16]")}
    return small_dump(values, header, sequence=["a", "w", "v", "u", "s", "d"])


D1 = (("d", 0, (1,)),)


def test_what_runs_asynchronously_lives_until_it_is_waited_for() -> None:
    assert rules(asynchronous(), WRAPPED) == []
    assert rules(asynchronous(v=(2, 3)), WRAPPED) == ["live/ends-early"]
    never_done = with_sequence(asynchronous(v=(2, 3)), "a", "w", "v", "u", "s", "x")
    assert "order/missing" in rules(never_done, WRAPPED)


def test_an_update_is_not_the_end_of_an_asynchronous_operation() -> None:
    update = "  t = ((f32[16]{0}), f32[16]{0}, u32[]) async-update(s)\n"
    longer = WRAPPED.replace("  ROOT d", f"{update}  ROOT d").replace(
        "async-done(s)", "async-done(t)"
    )
    dump = with_sequence(asynchronous(v=(2, 5)), "a", "w", "v", "u", "s", "t", "d")
    assert "v" in [name for name, rule in blamed(dump, longer) if rule == "live/ends-early"]
