"""The rules, one by one, on small plans; and no alarm on any plan XLA wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.check import findings
from hlomem.check.findings import Finding, Involved, Verdict
from hlomem.check.rules import RULES
from hlomem.check.verify import MAX_FINDINGS, verify
from hlomem.dump.dump import Dump
from hlomem.dump.records import (
    Allocation,
    AllocationReport,
    LiveRange,
    MemorySpace,
    Parameter,
    Peak,
    PeakBuffer,
    SpaceReport,
    StackTrace,
    TraceNode,
    UsageRow,
    UsageTable,
)
from hlomem.machines.machine import CPU, find_backend
from tests.check.faults import rebuilt
from tests.check.small import V, small_dump
from tests.conftest import GOLDENS

GOLDEN_DUMPS = [
    *sorted((GOLDENS / "seeds").glob("*.txt")),
    *sorted((GOLDENS / "xla").glob("*/*/*")),
    *sorted((GOLDENS / "accepted").glob("*/*/*")),
]
ARGUMENT = Parameter(number=0, shape="f32[16]", index=())


def rules(dump: Dump, module: str | None = None) -> list[str]:
    """The rules a CPU plan breaks, each once."""
    parsed = hlo.parse(module) if module else None
    verdict = verify(dump, module=parsed, backend=CPU)
    return sorted({finding.rule for finding in verdict.findings})


@pytest.mark.parametrize("path", GOLDEN_DUMPS, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_alarm_on_what_xla_wrote(path: Path) -> None:
    dump = hlomem.load(path)
    assert verify(dump).findings == ()
    text = path / "module.hlo"
    if text.exists():
        assert verify(dump, module=hlo.parse(text.read_text())).findings == ()


def test_no_alarm_on_the_corpus(shared: Path) -> None:
    entries = sorted(shared.glob("corpus/*/*/module.hlo"))[::12]
    for text in entries:
        verdict = verify(hlomem.load(text.parent), module=hlo.parse(text.read_text()))
        assert verdict.findings == (), text


def test_values_one_after_another_may_share() -> None:
    assert rules(small_dump([V("a", (0, 1)), V("b", (2, 3))], sequence=["a", "x", "b", "y"])) == []


@pytest.mark.parametrize("opcode", ["dot", "transpose", "copy", "reduce"])
def test_what_reads_elsewhere_is_not_in_place(opcode: str) -> None:
    user = V("b", (1, 2), text=f"f32[16]{{0}} {opcode}(%a)")
    assert rules(small_dump([V("a", (0, 1)), user])) == ["interference/touch"]


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("f32[16]{0} negate(%a)", True),
        ("f32[16]{0} fusion(%a), kind=kLoop, calls=%f", True),
        ("f32[16]{0} negate(%x)", False),
        ('f32[16]{0} custom-call(%a), custom_call_target="f"', False),
        (
            "f32[16]{0} custom-call(%a), output_to_operand_aliasing={{}: (0, {})}",
            True,
        ),
        ("f32[16]{0} dynamic-update-slice(%z, %a, %i)", False),
        ("f32[16]{0} scatter(%a, %i, %u)", True),
        ("f32[16]{0} scatter(%z, %i, %a)", False),
        ("f32[16]{0} triangular-solve(%z, %a)", True),
        ("f32[16]{0} triangular-solve(%a, %z)", False),
        ("no instruction at all", False),
    ],
)
def test_in_place_is_for_some_users_only(text: str, is_right: bool) -> None:
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), text=text)])
    assert rules(dump) == ([] if is_right else ["interference/touch"])


def test_in_place_is_for_equal_shapes_unless_fused() -> None:
    flat = V("b", (1, 2), text="f32[4,4]{1,0} negate(%a)", shape="f32[4,4]{1,0}")
    assert rules(small_dump([V("a", (0, 1)), flat])) == ["interference/touch"]


def test_what_is_read_through_a_bitcast_has_its_shape() -> None:
    """As indices of a top-k, flattened and sorted where they lie (jaxlib 0.12)."""
    square = V("a", (0, 1), shape="f32[4,4]{1,0}", positions=(("flat", ()),), uses=(("b", 0, ()),))
    sort = V("b", (1, 2), text="f32[16]{0} sort(%flat)")
    assert rules(small_dump([square, sort])) == []


def test_a_sort_writes_each_operand_into_its_own_output() -> None:
    text = "(f32[16]{0}, f32[16]{0}) sort(%a, %k)"
    a = V("a", (0, 1), uses=(("b", 0, ()),))
    right, wrong = V("b", (1, 2), text=text, index=(0,)), V("b", (1, 2), text=text, index=(1,))
    assert rules(small_dump([a, right])) == []
    assert rules(small_dump([a, wrong])) == ["interference/touch"]


def concat(first: int, second: int) -> Dump:
    """Two slices, and their concatenation at offset 64."""
    cut = "f32[16]{0} slice(%w), slice={[%d:%d]}"
    pieces = [
        V("p", (0, 2), first, text=cut.replace("%d:%d", "16:32")),
        V("q", (1, 2), second, text=cut.replace("%d:%d", "0:16")),
    ]
    text = 'f32[32]{0} custom-call(%p, %q), custom_call_target="ConcatBitcast"'
    return small_dump([*pieces, V("c", (2, 3), 64, text=text, shape="f32[32]{0}", size=128)])


def test_pieces_of_a_concatenation_lie_at_their_place() -> None:
    assert rules(concat(128, 64)) == []
    assert rules(concat(64, 128)) == ["interference/concat-piece"]


def test_a_piece_that_is_no_operand_has_no_place() -> None:
    text = 'f32[16]{0} custom-call(%a), custom_call_target="ConcatBitcast"'
    values = [V("a", (0, 1), uses=(("c", 3, ()),)), V("c", (1, 2), text=text)]
    assert "interference/concat-piece" in rules(small_dump(values))


LOOP = [
    V("i", (0, 1), text="f32[16]{0} negate()", uses=(("w", 0, ()),)),
    V("c", (1, 3), text="f32[16]{0} parameter(0)", is_phi=True),
    V("t", (2, 3), 0, text="pred[] compare(%c)", shape="pred[]", size=1, allocation=1),
    V("b", (3, 4), text="f32[16]{0} parameter(0)", is_phi=True),
    V("r", (4, 5), text="f32[16]{0} negate(%b)"),
    V("w", (5, 6), text="f32[16]{0} while(%i), condition=%k, body=%y", is_phi=True),
]


def test_what_a_loop_carries_lies_at_one_place() -> None:
    assert rules(small_dump(LOOP)) == []
    for number, value in enumerate(LOOP):
        if value.name != "t":
            torn = V(**{**vars(value), "allocation": 2})
            dump = small_dump([*LOOP[:number], torn, *LOOP[number + 1 :]])
            findings = verify(dump, backend=CPU).findings
            assert "alias/torn" in {finding.rule for finding in findings}, value.name
            assert "carried by w" in str([finding.evidence for finding in findings])


def test_a_loop_without_its_parameters_is_not_checked() -> None:
    dump = small_dump([LOOP[0], V("w", (1, 2), text=LOOP[-1].text, is_phi=True, allocation=1)])
    reasons = [each.reason for each in verify(dump, backend=CPU).not_checked]
    assert "the dump does not show the parts of w" in reasons


O_USES = (("k", 1, ()), ("x", 0, ()))
U_USES = (("k", 2, ()), ("y", 0, ()))


def branches(*more_uses: tuple[str, int, tuple[int, ...]], **places: int) -> Dump:
    """A conditional of two branches; `x` of the first seems to live into the second."""
    operand = "f32[16]{0} negate()"
    result = "f32[16]{0} conditional(%s, %o, %u), branch_computations={%f, %g}"
    values = [
        V("s", (0, 10), text="s32[] constant(0)", shape="s32[]", size=4, allocation=3),
        V(
            "o",
            (1, 9),
            text=operand,
            allocation=places.get("o", 4),
            positions=(("p", ()),),
            uses=(*O_USES, *more_uses),
        ),
        V("u", (2, 9), text=operand, allocation=5, positions=(("q", ()),), uses=U_USES),
        V("x", (4, 8), text="f32[16]{0} abs(%p)", allocation=0),
        V("r", (5, 8), text="f32[16]{0} abs(%x)", allocation=1),
        V("y", (7, 8), text="f32[16]{0} abs(%q)", allocation=places.get("y", 0)),
        V("z", (8, 9), text="f32[16]{0} abs(%y)", allocation=1),
        V("k", (9, 10), text=result, is_phi=True, allocation=places.get("k", 1)),
    ]
    header = {3: Allocation(index=3, size=4, is_constant=True)}
    names = ["s", "o", "u", "p", "x", "r", "q", "y", "z", "k"]
    return small_dump(values, header, sequence=names)


def test_values_of_exclusive_branches_may_share() -> None:
    assert rules(branches()) == []
    assert rules(branches(y=5)) == ["interference/overlap"]


def test_a_branch_may_overwrite_what_it_has_read_if_nothing_later_reads_it() -> None:
    assert rules(branches(o=1)) == []
    assert rules(branches(o=0)) == ["interference/overlap"]
    for reader in ("r", "z"):
        found = verify(branches((reader, 1, ()), o=1), backend=CPU).findings
        blamed = [each.values[1].name for each in found if each.rule == "interference/overlap"]
        assert blamed == [reader]


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


def contexts(start: str, thread: str = "other") -> Dump:
    """Two operations of another thread; `t` is started while that of `s` and `u` runs."""
    shape, named = "((), (), (f32[16]{0}))", 'async_execution_thread="other"'
    second = f'{shape} custom-call-{start}, async_execution_thread="{thread}"'
    values = [
        V("a", (0, 5), text="f32[16]{0} constant({...})", allocation=1),
        V("s", (1, 2), text=f"{shape} custom-call-start(), {named}", index=(2, 0)),
        V("u", (2, 4), text=f"{shape} custom-call-update(%s, %a)", index=(2, 0)),
        V("t", (3, 5), text=second, index=(2, 0)),
    ]
    header = {1: Allocation(index=1, size=64, is_constant=True)}
    return small_dump(values, header, sequence=["a", "s", "u", "t", "d", "e"])


def test_an_operation_that_waits_for_its_operands_does_not_need_its_context_yet() -> None:
    assert "interference/overlap" not in rules(contexts("start()"))
    assert "interference/overlap" in rules(contexts("start(%a)"))
    assert "interference/overlap" in rules(contexts("start()", thread="third"))
    assert "interference/overlap" in rules(contexts("update(%a)"))


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


def test_the_results_of_branches_are_the_result() -> None:
    assert "alias/torn" in rules(branches(k=2))


def test_a_conditional_without_its_parameters_is_not_checked() -> None:
    text = "f32[16]{0} conditional(%s, %o, %u), branch_computations={%f, %g}"
    dump = small_dump([V("k", (0, 1), text=text, is_phi=True)])
    reasons = [each.reason for each in verify(dump, backend=CPU).not_checked]
    assert "the dump does not show the parts of k" in reasons


@pytest.mark.parametrize(
    ("value", "header", "rule"),
    [
        (V("a", (0, 1)), Allocation(index=0, size=64, is_constant=True), "ownership/read-only"),
        (V("a", (0, 1)), Allocation(index=0, size=64, parameter=ARGUMENT), "ownership/read-only"),
        (
            V("a", (0, 1)),
            Allocation(index=0, size=64, is_thread_local=True),
            "ownership/thread-local",
        ),
        (V("a", (0, 1)), Allocation(index=0, size=64, output_shape="f32[16]"), "ownership/output"),
        (V("a", (0, 1)), Allocation(index=1, size=64), "completeness/allocation-number"),
        (V("a", (0, 1)), Allocation(index=0, size=-1), "geometry/negative-size"),
        (V("a", (0, 1), shape="f32[", size=1), None, "geometry/unreadable-shape"),
        (V("a", (0, 1), shape="f32[16]{0:S(1)}"), None, "geometry/color-not-of-layout"),
        (V("a", (0, 1), text="f32[16]{0} constant({...})"), None, "ownership/constant"),
        (V("a", (0, 1), text="f32[16]{0} parameter(0)"), None, "ownership/parameter"),
        (V("a", (0, 7)), None, "live/impossible-range"),
        (V("a", (1, 1)), None, "live/starts-late"),
    ],
)
def test_rules_about_one_value(value: V, header: Allocation | None, rule: str) -> None:
    assert rule in rules(small_dump([value], {0: header} if header else None))


@pytest.mark.parametrize(
    ("text", "shape", "offset"),
    [
        ("parameter(1)", "f32[16]", 0),
        ("parameter(0)", "f32[4]", 0),
        ("parameter(0)", "f32[16]", 64),
    ],
)
def test_a_parameter_fills_its_own_allocation(text: str, shape: str, offset: int) -> None:
    value = V("a", (0, 1), offset, text=f"f32[16]{{0}} {text}")
    parameter = Parameter(number=0, shape=shape, index=())
    header = {0: Allocation(index=0, size=64 + offset, parameter=parameter)}
    assert rules(small_dump([value], header)) == ["ownership/parameter"]


def test_a_parameter_has_one_allocation_and_so_has_the_output() -> None:
    text = "f32[16]{0} parameter(0)"
    values = [V("a", (0, 2), text=text), V("b", (1, 2), text=text, allocation=1)]
    header = Allocation(
        index=0, size=64, parameter=ARGUMENT, maybe_live_out=True, output_shape="f32[16]"
    )
    both = small_dump(values, {0: header, 1: replace(header, index=1)})
    assert rules(both) == ["live/starts-late", "ownership/output", "ownership/parameter"]


def test_constants_share_nothing_even_one_after_another() -> None:
    text = "f32[16]{0} constant({...})"
    values = [V("a", (0, 1), text=text), V("b", (2, 3), text=text)]
    header = {0: Allocation(index=0, size=64, is_constant=True)}
    assert rules(small_dump(values, header, ["a", "x", "b", "y"])) == ["ownership/constant"]


def test_what_is_returned_outlives_the_program() -> None:
    output = Allocation(index=0, size=8, output_shape="(f32[16])", maybe_live_out=True)
    tuple_text = "(f32[16]{0}) tuple(%a)"
    values = [
        V("a", (0, 2), allocation=1, positions=(("t", (0,)),)),
        V("t", (1, 2), text=tuple_text, shape="(f32[16]{0})", size=8, index=()),
    ]
    assert rules(small_dump(values, {0: output})) == ["ownership/output"]
    outlives = {0: output, 1: Allocation(index=1, size=64, maybe_live_out=True)}
    assert rules(small_dump(values, outlives)) == []
    short = V("a", (0, 1), allocation=1, positions=(("t", (0,)),))
    assert rules(small_dump([short, values[1]], outlives)) == ["live/ends-early"]


def test_a_value_is_alive_while_it_is_read() -> None:
    reader = V("c", (2, 3), text="f32[16]{0} negate(%a)", allocation=1)
    found = rules(small_dump([V("a", (0, 1)), V("b", (1, 2), allocation=2), reader]))
    assert found == ["live/ends-early"]


def test_a_value_is_defined_before_it_is_read() -> None:
    values = [V("a", (1, 2), allocation=1), V("b", (0, 1), text="f32[16]{0} negate(%a)")]
    assert rules(small_dump(values, sequence=["b", "a"])) == ["order/used-before-defined"]


def test_a_live_value_is_in_the_sequence() -> None:
    found = rules(small_dump([V("a", (0, 1)), V("b", (0, 1), 64)], sequence=["a"]))
    assert found == ["live/not-in-sequence", "ownership/thread-local"]


def test_what_a_call_reads_is_read_by_what_it_runs() -> None:
    values = [
        V("a", (0, 2), positions=(("p", ()),), uses=(("r", 0, ()), ("k", 0, ()))),
        V("r", (2, 4), text="f32[16]{0} negate(%p)", allocation=1, positions=(("k", ()),)),
    ]
    assert rules(small_dump(values, sequence=["a", "p", "r", "k"])) == []
    by_text = [*values, V("k", (3, 4), text="f32[16]{0} call(%a)", allocation=2)]
    assert rules(small_dump(by_text, sequence=["a", "p", "r", "k"])) == []


def test_values_and_ranges_belong_together() -> None:
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), 64)])
    assert dump.values is not None
    assert dump.live_ranges is not None
    a, b = dump.values.values
    used = dump.values
    cases = [
        (rebuilt(dump, values=replace(used, values=(a,))), "completeness/unknown-value"),
        (rebuilt(dump, values=replace(used, values=(a, b, b))), "completeness/listed-twice"),
        (
            rebuilt(dump, values=replace(used, values=(a, replace(b, name="x")))),
            "completeness/value-differs",
        ),
        (
            rebuilt(dump, values=replace(used, values=(a, b, replace(b, id=9)))),
            "completeness/no-place",
        ),
    ]
    live = dump.live_ranges
    extra = LiveRange(instruction="x", index=(1,), start=0, end=1)
    cases += [
        (
            rebuilt(dump, live_ranges=replace(live, ranges=(*live.ranges, extra))),
            "completeness/no-place",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, ranges=(*live.ranges, live.ranges[0]))),
            "completeness/listed-twice",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, ranges=live.ranges[:1])),
            "completeness/no-live-range",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, sequence=("a", "b", "b"), end=3)),
            "completeness/listed-twice",
        ),
        (rebuilt(dump, live_ranges=replace(live, end=5)), "totals/sequence-length"),
    ]
    for case, rule in cases:
        assert rule in rules(case), rule


def test_two_values_do_not_have_one_name() -> None:
    dump = small_dump([V("a", (0, 1)), V("a", (0, 1), 64)])
    assert "completeness/two-values-of-one-name" in rules(dump)


def test_sums_are_held_against_what_they_sum() -> None:
    dump = small_dump([V("a", (0, 1))])
    live = dump.live_ranges
    assert live is not None
    report = AllocationReport(total_bytes=1)
    assert rules(rebuilt(dump, report=report)) == ["totals/report"]
    wrong = Peak(moment=0, buffers=(PeakBuffer(instruction="a", size=64, cumulative=65),))
    assert rules(rebuilt(dump, live_ranges=replace(live, peak=wrong))) == ["totals/peak"]
    other = Peak(moment=0, buffers=(PeakBuffer(instruction="b", size=64),))
    assert rules(rebuilt(dump, live_ranges=replace(live, peak=other))) == ["totals/peak"]


def test_an_old_report_names_allocations_that_exist_with_their_sizes() -> None:
    path = next(iter(sorted((GOLDENS / "xla" / "jaxlib-0.7.2" / "cpu").iterdir())))
    dump = hlomem.load(path)
    report = dump.report
    assert isinstance(report, AllocationReport)
    row = report.rows[0]
    for allocation in (replace(row.allocation, size="1B "), replace(row.allocation, index=99)):
        wrong = replace(report, rows=(replace(row, allocation=allocation), *report.rows[1:]))
        assert rules(rebuilt(dump, report=wrong)) == ["totals/report"]


TABLE = UsageTable(
    rows=(
        UsageRow(cumulative="3.0KiB", percent=75, size="3.0KiB", offset=0, value_count=1),
        UsageRow(cumulative="4.0KiB", percent=100, size="1.0KiB", offset=64, value_count=1),
    )
)


@pytest.mark.parametrize(
    ("number", "changes", "is_right"),
    [
        (0, {}, True),
        (0, {"percent": 60}, False),
        (1, {"percent": "-nan"}, False),
        (1, {"cumulative": "5.0KiB"}, False),
        (1, {"cumulative": "much"}, True),
        (0, {"size": "1.0KiB"}, False),
    ],
)
def test_the_sums_of_a_table_are_right(
    number: int, changes: dict[str, object], is_right: bool
) -> None:
    rows = [replace(each, **changes) if n == number else each for n, each in enumerate(TABLE.rows)]
    dump = small_dump([V("a", (0, 1))])
    for rest in (None, 3):
        table = replace(TABLE, rows=tuple(rows), rest=rest)
        space = MemorySpace(name="default", color=0, total_bytes=64, tables=(table,))
        found = rules(rebuilt(dump, report=SpaceReport(spaces=(space,))))
        is_seen = rest is None or "percent" not in changes
        assert found == ([] if is_right or not is_seen else ["totals/report"])


TREE = StackTrace(
    total=96,
    nodes=(
        TraceNode(name="main", depth=0, percent=100.0, total=96, current=0, remaining=96),
        TraceNode(name="a", depth=1, percent=66.7, total=64, current=64, remaining=32),
        TraceNode(name="b", depth=1, percent=33.3, total=32, current=32, remaining=0),
    ),
)


@pytest.mark.parametrize("name", ["", "percent", "total", "current", "remaining"])
def test_the_tree_at_the_peak_adds_up(name: str) -> None:
    nodes = list(TREE.nodes)
    if name:
        nodes[1] = replace(nodes[1], **{name: getattr(nodes[1], name) + 1})
    buffers = (
        PeakBuffer(instruction="a", index=(), size=64, cumulative=64),
        PeakBuffer(instruction="b", index=(), size=32, cumulative=96),
    )
    peak = Peak(moment=1, buffers=buffers, stack_trace=replace(TREE, nodes=tuple(nodes)))
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), 64, shape="f32[8]{0}", size=32)])
    assert dump.live_ranges is not None
    wrong = rebuilt(dump, live_ranges=replace(dump.live_ranges, peak=peak))
    assert rules(wrong) == (["totals/peak"] if name else [])


def test_an_unbounded_shape_has_no_peak() -> None:
    dump = small_dump([V("a", (0, 1), shape="f32[?]{0}")])
    assert dump.live_ranges is not None
    peak = Peak(moment=0, buffers=(PeakBuffer(instruction="a", index=(), size=3),))
    assert rules(rebuilt(dump, live_ranges=replace(dump.live_ranges, peak=peak))) == []


def test_what_is_missing_is_said() -> None:
    dump = small_dump([V("a", (0, 1))])
    bare = rebuilt(dump, values=None, live_ranges=None)
    said = " ".join(each.reason for each in verify(bare).not_checked)
    assert "no values" in said
    assert "no live ranges" in said
    assert "no usage report" in said
    assert "there is no module" in said
    empty = verify(rebuilt(dump, assignment=None, values=None))
    assert empty.not_checked[0].reason == "the dump has no allocations"


def test_a_backend_that_explains_no_size_is_not_believed() -> None:
    odd = small_dump([V(f"v{n}", (n, n + 1), 128 * n, size=68) for n in range(5)])
    verdict = verify(odd)
    assert verdict.is_clean
    assert "geometry/size-not-of-shape" in {each.rules for each in verdict.not_checked}
    assert verdict.assumed == ("a plan for cpu, because its layouts are not tiled",)


def test_no_backend_does_with_less_than_a_cpu() -> None:
    small = small_dump([V(f"v{n}", (n, n + 1), 64 * n, size=60) for n in range(5)])
    assert verify(small).counts() == {"geometry/size-not-of-shape": 5}


def test_an_unknown_alignment_is_said() -> None:
    value = V("a", (0, 1), shape="f32[8,128]{1,0:T(8,128)S(7)}", size=4096, color=7)
    dump = small_dump([value], {0: Allocation(index=0, size=4096, color=7)})
    verdict = verify(dump, backend=find_backend("tpu", "v5e"))
    assert verdict.is_clean
    assert "the alignment of color 7 of tpu-v5e is not known" in [
        each.reason for each in verdict.not_checked
    ]


def test_a_shape_of_unknown_size_is_not_measured() -> None:
    value = V("a", (0, 1), shape="f32[?]{0}", size=7)
    assert rules(small_dump([value])) == []


def test_a_plan_that_is_all_wrong_is_not_listed_pair_by_pair() -> None:
    values = [V(f"v{number}", (number, 100)) for number in range(60)]
    verdict = verify(small_dump(values, sequence=[f"v{n}" for n in range(100)]), backend=CPU)
    found = [each for each in verdict.findings if each.rule == "interference/overlap"]
    assert len(found) == MAX_FINDINGS
    assert f"stopped after {MAX_FINDINGS} findings" in [each.reason for each in verdict.not_checked]


def test_a_finding_names_values_ranges_bytes_and_lines() -> None:
    source = ', metadata={op_name="f/mul" source_file="train.py" source_line=12}'
    one = V("a", (0, 2), text=f"f32[16]{{0}} abs(){source}")
    (finding,) = verify(small_dump([one, V("b", (1, 2))]), backend=CPU).findings
    assert str(finding) == "error: a and b live in the same 64 bytes [interference/overlap]"
    assert str(finding.values[0]) == "a (value 0) live 0-2 bytes [0, 64) of allocation 0"
    assert finding.values[0].source == "train.py:12"
    assert finding.evidence[0] == "both are alive from 1 to 2"


def test_a_verdict_counts_by_rule() -> None:
    verdict = Verdict(
        name="x",
        findings=(
            Finding(rule="b/c", message="m"),
            Finding(rule="a/c", message="m", severity="warning"),
            Finding(rule="b/c", message="m"),
        ),
    )
    assert verdict.counts() == {"a/c": 1, "b/c": 2}
    assert len(verdict.errors) == 2
    assert not verdict.is_clean
    assert str(Involved(id=3, name="v")) == "v (value 3)"


def test_an_old_cpu_aligns_to_16() -> None:
    path = next(iter(sorted((GOLDENS / "xla" / "jaxlib-0.4.13" / "cpu").iterdir())))
    assert verify(hlomem.load(path), backend=find_backend("cpu")).is_clean


def test_a_torn_family_may_have_members_without_a_range() -> None:
    torn = V(**{**vars(LOOP[-1]), "allocation": 2})
    dump = small_dump([*LOOP[:-1], torn])
    live = dump.live_ranges
    assert live is not None
    kept = tuple(each for each in live.ranges if each.instruction != "w")
    found = rules(rebuilt(dump, live_ranges=replace(live, ranges=kept)))
    assert {"alias/torn", "completeness/no-live-range"} <= set(found)


def test_a_declared_output_may_be_handed_on_and_read_later() -> None:
    declared = (
        "f32[16]{0} fusion(%a), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%f"
    )
    values = [
        V("a", (0, 1), text="f32[16]{0} negate()"),
        V("b", (1, 3), text=declared),
        V("c", (2, 3), text="f32[16]{0} negate(%a)", allocation=1),
    ]
    assert rules(small_dump(values)) == []


def test_a_text_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    cut = V("b", (1, 2), text="f32[16]{0} negate(%a")
    assert rules(small_dump([V("a", (0, 1), uses=(("b", 0, ()),)), cut])) == []


def test_every_rule_is_said_in_a_sentence_and_documented() -> None:
    sources = Path(findings.__file__).parent.glob("*.py")
    texts = [path.read_text() for path in sources if path.name != "rules.py"]
    families = "|".join(sorted({rule.partition("/")[0] for rule in RULES}))
    used = set(re.findall(rf'"((?:{families})/[a-z-]+)"', "".join(texts)))
    assert used == set(RULES)
    page = (GOLDENS.parent.parent / "docs" / "verifier.md").read_text()
    assert [rule for rule in RULES if f"`{rule}`" not in page] == []
