"""When a value has to be there, by what a dump lists."""

from __future__ import annotations

from msgspec.structs import replace

from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, branches, rules, small_dump


def test_what_a_branch_returns_is_needed_after_the_root_has_run() -> None:
    result = "f32[16]{0} conditional(%s, %o), branch_computations={%f}"
    for returned in ("r", "n"):
        places = (("p", ()), (returned, (0,)))
        values = [
            V("s", (0, 7), text="s32[] constant(0)", shape="s32[]", size=4, allocation=3),
            V("o", (1, 6), text="f32[16]{0} negate()", positions=places, uses=(("k", 1, ()),)),
            V("n", (3, 3), text="s8[64]{0} iota()", shape="s8[64]{0}", allocation=2),
            V("r", (4, 6), text="f32[16]{0} iota()", allocation=1),
            V("m", (5, 6), text="s8[64]{0} iota()", shape="s8[64]{0}"),
            V("k", (6, 7), text=result, is_phi=True, allocation=1),
        ]
        dump = small_dump(values, sequence=["s", "o", "p", "n", "r", "m", "k"])
        assert ("interference/overlap" in rules(dump)) is (returned == "r")


def test_a_branch_that_shows_nothing_of_the_shape_is_passed_over() -> None:
    dump = branches()
    assert dump.assignment is not None
    allocations = [
        replace(a, values=tuple(replace(v, shape="s8[64]{0}") for v in a.values if v.name in "uyz"))
        for a in dump.assignment.allocations
    ]
    hidden = {v.name: v for a in allocations for v in a.values}
    mixed = tuple(
        replace(a, values=tuple(hidden.get(v.name, v) for v in a.values))
        for a in dump.assignment.allocations
    )
    found = rules(rebuilt(dump, assignment=replace(dump.assignment, allocations=mixed)))
    assert "live/ends-early" not in found


def test_what_is_returned_outlives_the_program() -> None:
    output = plain.Allocation(index=0, size=8, output_shape="(f32[16])", maybe_live_out=True)
    tuple_text = "(f32[16]{0}) tuple(%a)"
    values = [
        V("a", (0, 2), allocation=1, positions=(("t", (0,)),)),
        V("t", (1, 2), text=tuple_text, shape="(f32[16]{0})", size=8, index=()),
    ]
    assert rules(small_dump(values, {0: output})) == ["ownership/output"]
    outlives = {0: output, 1: plain.Allocation(index=1, size=64, maybe_live_out=True)}
    assert rules(small_dump(values, outlives)) == []
    short = V("a", (0, 1), allocation=1, positions=(("t", (0,)),))
    assert rules(small_dump([short, values[1]], outlives)) == ["live/ends-early"]


def test_what_a_call_reads_is_read_by_what_it_runs() -> None:
    values = [
        V("a", (0, 2), positions=(("p", ()),), uses=(("r", 0, ()), ("k", 0, ()))),
        V("r", (2, 4), text="f32[16]{0} negate(%p)", allocation=1, positions=(("k", ()),)),
    ]
    assert rules(small_dump(values, sequence=["a", "p", "r", "k"])) == []
    by_text = [*values, V("k", (3, 4), text="f32[16]{0} call(%a)", allocation=2)]
    assert rules(small_dump(by_text, sequence=["a", "p", "r", "k"])) == []
