"""Schedule, live ranges, the peak and its stack-trace tree."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.base.quantities import Step
from hlomem.base.source import Source
from hlomem.dump.live_range import format as format_live_ranges
from hlomem.dump.live_range import parse
from hlomem.dump.records import LiveRanges, PeakBuffer, StackTrace, TraceNode
from tests import plain

from .editing import (
    Path,
    changed_lines,
    field_at,
    fields_in,
    line_starts,
    parse_error,
    result_of,
    with_field,
)

SAMPLE = """\
HloLiveRange (max 3):
  InstructionSequence:
    0:a
    1:b.1
    2:while.3
  BufferLiveRange:
    a{}:0-3
    b.1{}:1-2
    while.3{1,0}:2-3
  Live ranges at 2 (peak):
    while.3{1,0}: 4096 bytes (cumulative: 4096 bytes)
    b.1{}: 1000 bytes (cumulative: 5096 bytes)
    a{}: 4 bytes (cumulative: 5100 bytes)
  Stack trace breakdown for peak usage: 5 100 bytes
    main (100.0%, total: 5 100 bytes, current: 0 bytes, remaining: 5 100 bytes)
      ├── f(x) (99.9%, total: 5 096 bytes, current: 1 000 bytes, remaining: 4 100 bytes)
      │   └── while (80.3%, total: 4 096 bytes, current: 4 096 bytes, remaining: 4 bytes)
      └── a (0.1%, total: 4 bytes, current: 4 bytes, remaining: 0 bytes)
"""
LINES = SAMPLE.split("\n")
UNBOUNDED = "  Peak memory could not be determined due to unbounded dynamic shape."
TREE = "\n".join(LINES[13:])


def parse_text(text: str) -> LiveRanges:
    return parse(Source("d.txt", text))


def swap(number: int, *lines: str) -> str:
    """The sample with other lines in place of one (counted from 1)."""
    return "\n".join([*LINES[: number - 1], *lines, *LINES[number:]])


def test_every_line_becomes_a_field() -> None:
    assert parse_text(SAMPLE) == LiveRanges(
        end=3,
        sequence=("a", "b.1", "while.3"),
        ranges=(
            plain.LiveRange(instruction="a", index=(), start=0, end=3),
            plain.LiveRange(instruction="b.1", index=(), start=1, end=2),
            plain.LiveRange(instruction="while.3", index=(1, 0), start=2, end=3),
        ),
        peak=plain.Peak(
            moment=2,
            buffers=(
                PeakBuffer(instruction="while.3", index=(1, 0), size=4096, cumulative=4096),
                PeakBuffer(instruction="b.1", index=(), size=1000, cumulative=5096),
                PeakBuffer(instruction="a", index=(), size=4, cumulative=5100),
            ),
            stack_trace=StackTrace(
                total=5100,
                nodes=(
                    node("main", 0, 100.0, 5100, 0, 5100),
                    node("f(x)", 1, 99.9, 5096, 1000, 4100),
                    node("while", 2, 80.3, 4096, 4096, 4),
                    node("a", 1, 0.1, 4, 4, 0),
                ),
            ),
        ),
    )


def node(
    name: str, depth: int, percent: float, total: int, current: int, remaining: int
) -> TraceNode:
    return TraceNode(
        name=name, depth=depth, percent=percent, total=total, current=current, remaining=remaining
    )


def test_the_sample_is_printed_back() -> None:
    assert format_live_ranges(parse_text(SAMPLE)) == SAMPLE


@pytest.mark.parametrize(
    ("moment", "is_live"), [(0, False), (1, True), (2, True), (3, True), (4, False)]
)
def test_a_live_range_includes_both_its_ends(moment: int, is_live: bool) -> None:
    alive = plain.LiveRange(instruction="a", index=(), start=1, end=3)
    assert alive.is_live_at(Step(moment)) is is_live


P, T = ("peak",), ("peak", "stack_trace")
CHANGES: list[tuple[Path, Any, int, str]] = [
    (("end",), 4, 1, "HloLiveRange (max 4):"),
    (("sequence", 1), "c", 4, "    1:c"),
    (("ranges", 0, "instruction"), "z", 7, "    z{}:0-3"),
    (("ranges", 0, "index"), (2,), 7, "    a{2}:0-3"),
    (("ranges", 0, "start"), 1, 7, "    a{}:1-3"),
    (("ranges", 0, "end"), 2**63 - 1, 7, "    a{}:0-9223372036854775807"),
    ((*P, "moment"), 1, 10, "  Live ranges at 1 (peak):"),
    ((*P, "buffers", 1, "instruction"), "c", 12, "    c{}: 1000 bytes (cumulative: 5096 bytes)"),
    ((*P, "buffers", 1, "size"), 999, 12, "    b.1{}: 999 bytes (cumulative: 5096 bytes)"),
    ((*P, "buffers", 1, "index"), None, 12, "    b.1: 1000 bytes (cumulative: 5096 bytes)"),
    ((*P, "buffers", 1, "cumulative"), 1, 12, "    b.1{}: 1000 bytes (cumulative: 1 bytes)"),
    ((*P, "buffers", 1, "cumulative"), None, 12, "    b.1{}: 1000 bytes"),
    ((*T, "total"), 1234567, 14, "  Stack trace breakdown for peak usage: 1 234 567 bytes"),
    ((*T, "nodes", 3, "name"), "b", 18, LINES[17].replace("── a", "── b")),
    ((*T, "nodes", 3, "percent"), 12.25, 18, LINES[17].replace("0.1%", "12.2%")),
    ((*T, "nodes", 3, "total"), 5000, 18, LINES[17].replace("total: 4", "total: 5 000")),
    ((*T, "nodes", 3, "current"), 0, 18, LINES[17].replace("current: 4", "current: 0")),
    ((*T, "nodes", 3, "remaining"), 1, 18, LINES[17].replace("remaining: 0", "remaining: 1")),
]


@pytest.mark.parametrize(("path", "value", "number", "line"), CHANGES)
def test_changing_a_field_changes_its_line_and_no_other(
    path: Path, value: Any, number: int, line: str
) -> None:
    changed = format_live_ranges(with_field(parse_text(SAMPLE), path, value))
    assert changed_lines(SAMPLE, changed) == ([LINES[number - 1]], [line])


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (("sequence",), (), LINES[2:5], []),
        (("ranges",), (), LINES[6:9], []),
        (("peak",), None, LINES[9:18], [UNBOUNDED]),
        ((*P, "buffers"), (), LINES[10:13], []),
        ((*P, "stack_trace"), None, LINES[13:18], []),
        ((*T, "nodes"), (), LINES[14:18], []),
        (
            (*T, "nodes", 3, "depth"),
            2,
            LINES[15:18],
            [
                LINES[15].replace("├", "└"),
                LINES[16].replace("│", " ").replace("└", "├"),
                LINES[17].replace("└", "    └"),
            ],
        ),
    ],
)
def test_changing_a_list_or_the_tree_changes_its_lines_and_no_other(
    path: Path, value: Any, old: list[str], new: list[str]
) -> None:
    changed = format_live_ranges(with_field(parse_text(SAMPLE), path, value))
    assert changed_lines(SAMPLE, changed) == (old, new)


def test_every_field_of_every_record_is_among_the_changes() -> None:
    sample = parse_text(SAMPLE)
    covered = {field_at(sample, path) for path, *_ in CHANGES}
    lists = {
        ("LiveRanges", "ranges"),
        ("LiveRanges", "peak"),
        ("Peak", "buffers"),
        ("Peak", "stack_trace"),
        ("StackTrace", "nodes"),
        ("TraceNode", "depth"),
    }
    assert covered | lists == fields_in(sample)


def test_older_xla_prints_less_of_the_peak() -> None:
    live = parse_text(SAMPLE)
    without_tree = SAMPLE.removesuffix(TREE)
    assert format_live_ranges(live, stack_trace=False) == without_tree
    plain = "".join(
        line.partition(" (cumulative")[0].rstrip("\n") + "\n"
        for line in without_tree.splitlines(keepends=True)
    )
    assert format_live_ranges(live, cumulative=False, stack_trace=False) == plain
    assert "    b.1: 1000 bytes\n" in format_live_ranges(
        live, index=False, cumulative=False, stack_trace=False
    )


def test_an_unbounded_shape_leaves_no_peak() -> None:
    text = "\n".join([*LINES[:9], UNBOUNDED, ""])
    assert parse_text(text).peak is None
    assert format_live_ranges(parse_text(text)) == text


def test_an_empty_schedule_has_an_empty_peak() -> None:
    text = (
        "HloLiveRange (max 0):\n  InstructionSequence:\n  BufferLiveRange:\n"
        "  Live ranges at 0 (peak):\n  Stack trace breakdown for peak usage: 0 bytes\n"
    )
    expected = LiveRanges(end=0, peak=plain.Peak(moment=0, stack_trace=StackTrace(total=0)))
    assert parse_text(text) == expected
    assert format_live_ranges(expected) == text


def test_several_roots_are_joined_by_a_bar() -> None:
    nodes = (
        node("r", 0, 50.0, 1, 0, 2),
        node("s", 1, 50.0, 1, 1, 1),
        node("t", 0, 50.0, 1, 0, 1),
        node("u", 1, 50.0, 1, 1, 0),
    )
    live = LiveRanges(
        end=0, peak=plain.Peak(moment=0, stack_trace=StackTrace(total=2, nodes=nodes))
    )
    text = format_live_ranges(live)
    assert [line.partition(" (")[0] for line in text.split("\n")[5:9]] == [
        "    r",
        "  │   └── s",
        "    t",
        "      └── u",
    ]
    assert parse_text(text) == live


def test_a_name_in_the_tree_may_hold_a_line_end() -> None:
    text = swap(18, LINES[17].replace("── a", '── jit(f)/mul"\n(note: 5%, total: x)\n  y'))
    trace = parse_text(text).peak
    assert trace is not None
    assert trace.stack_trace is not None
    assert trace.stack_trace.nodes[3].name == 'jit(f)/mul"\n(note: 5%, total: x)\n  y'
    assert format_live_ranges(parse_text(text)) == text


@pytest.mark.parametrize("number", ["9 223 372 036 854 775 807", "999 999 999 999 999 999"])
def test_the_tree_holds_numbers_up_to_64_bits(number: str) -> None:
    text = swap(18, LINES[17].replace("total: 4", f"total: {number}"))
    assert format_live_ranges(parse_text(text)) == text


TREE_TITLE = "Stack trace breakdown for peak usage:"
TOO_BIG = "number does not fit 64 bits"
BAD = [
    (1, "HloLiveRange (max x):", 1, 19, "expected a number and `):`, found `x`"),
    (1, "HloLiveRange (max 9223372036854775808):", 1, 19, TOO_BIG),
    (2, "  InstructionSequenc:", 2, 1, "expected `  InstructionSequence:`"),
    (4, "    7:b.1", 4, 5, "expected step 1 of the sequence, found 7"),
    (4, "    01:b.1", 4, 1, "expected four spaces and a number"),
    (4, "    1:", 4, 7, "expected an instruction, found the end of the line"),
    (4, "    x    1:b.1", 4, 1, "expected four spaces and a number"),
    (4, "   1:b.1", 4, 1, "expected a step after four spaces, or `  BufferLiveRange:`"),
    (6, "  BufferLiveRanges:", 6, 1, "expected a step after four spaces"),
    (8, "    b.1:1-2", 8, 1, "expected four spaces, an instruction, its shape index and `:`"),
    (8, "    b.1{}:x-2", 8, 11, "expected a number and `-`, found `x`"),
    (8, "    b.1{}:1-", 8, 13, "expected a number, found the end of the line"),
    (8, "    b.1{}:1-02", 8, 13, "expected a number, found `02`"),
    (8, "    b.1{}:1-9223372036854775808", 8, 13, TOO_BIG),
    (8, "    junk    b.1{}:1-2", 8, 1, "expected four spaces, an instruction"),
    (10, "  Live ranges at two (peak):", 10, 18, "expected a number, the peak's moment"),
    (10, "  Live ranges at 2 (peek):", 10, 20, "expected `(peak):`"),
    (12, "    b.1{}: 1000 byte", 12, 12, "expected a number and `bytes`, found `1000`"),
    (12, "    b.1{}: 1000 bytes (cum: 5096 bytes)", 12, 22, "expected `(cumulative: N bytes)`"),
    (12, "    b.1{}: 9223372036854775808 bytes", 12, 12, TOO_BIG),
    (12, "    b.1{}: 1000 bytes", 12, 1, "expected a buffer like the first"),
    (12, "    b.1: 1000 bytes (cumulative: 5096 bytes)", 12, 1, "expected a buffer like the first"),
    (13, "    a{}: 4 bytes", 13, 1, "expected a buffer like the first"),
    (13, "    a: 4 bytes (cumulative: 5100 bytes)", 13, 1, "expected a buffer like the first"),
    (12, "    x    b.1{}: 1 bytes (cumulative: 1 bytes)", 12, 6, "expected a shape index, or `: `"),
    (14, "  Stack trace breakdown for peak: 5 100 bytes", 14, 1, "or `  Stack trace`"),
    (14, "  Stack trace breakdown for peak usage: 5100 bytes", 14, 41, "expected a number"),
    (14, "  Stack trace breakdown for peak usage: 5 1000 bytes", 14, 41, "expected a number"),
    (
        14,
        "  Stack trace breakdown for peak usage: 9 223 372 036 854 775 808 bytes",
        14,
        41,
        TOO_BIG,
    ),
    (14, f"  Stack trace breakdown for peak usage: {'9' * 5000} bytes", 14, 41, TOO_BIG),
    (14, "  Stack trace breakdown for peak usage: 6 100 bytes", 19, 1, "more of the tree of 6100"),
    (16, LINES[15].replace("├──", "├─"), 16, 1, "expected a branch of the tree"),
    (16, LINES[15].replace("├", "└"), 16, 1, "the tree is cut off or drawn wrongly"),
    (16, LINES[15].replace("99.9%", "099.9%"), 16, 11, "expected a name, then `(…%, total: `"),
    (16, LINES[15].replace("99.9%", "٩.9%"), 16, 11, "expected a name, then `(…%, total: `"),
    (16, LINES[15].replace("5 096", "05 096"), 16, 31, "expected a number and `bytes, current:`"),
    (16, LINES[15].replace("5 096", "-0"), 16, 31, "expected a number and `bytes, current:`"),
    (16, LINES[15].replace("bytes, rem", "byte, rem"), 16, 53, "`bytes, remaining:`"),
    (16, LINES[15].replace("bytes)", "bytes"), 16, 77, "expected a number and `bytes)`"),
    (17, LINES[16].replace("│", " "), 17, 1, "the tree is cut off or drawn wrongly"),
    (19, "x\n", 19, 1, "expected a branch of the tree, found `x`"),
]


@pytest.mark.parametrize(("number", "line", "row", "column", "problem"), BAD)
def test_a_bad_line_is_refused_where_it_goes_wrong(
    number: int, line: str, row: int, column: int, problem: str
) -> None:
    error = parse_error(parse, swap(number, line))
    assert problem in error.problem
    assert (error.line, error.column) == (row, column)


def test_a_bad_line_between_roots_does_not_become_part_of_a_name() -> None:
    text = swap(16, "  │   ├── b (1%)", LINES[15])
    error = parse_error(parse, text)
    assert (error.line, error.column) == (16, 11)


def test_text_behind_the_end_is_refused() -> None:
    text = "\n".join([*LINES[:9], UNBOUNDED, "more", ""])
    error = parse_error(parse, text)
    assert (error.line, error.column) == (11, 1)
    assert error.problem == "expected the end of the dump, found `more`"


def test_a_cut_anywhere_is_noticed_but_where_an_older_xla_ends() -> None:
    complete = []
    for place in list(line_starts(SAMPLE))[:-1]:
        live = result_of(parse, SAMPLE[:place])
        if isinstance(live, LiveRanges):
            assert format_live_ranges(live) == SAMPLE[:place]
            complete.append(SAMPLE.count("\n", 0, place))
        else:
            assert "the text ends here" in str(live) or "cut off" in str(live)
    assert complete == [13]  # before the tree: as jaxlib 0.6.1 to 0.7.0 write it


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("", "3 buffers alive at the peak, of which 0 are listed"),
        ("    a: 4 bytes\n", "3 buffers alive at the peak, of which 1 are listed"),
        ("    a: 4 bytes\n    b.1: 4 bytes\n", "3 buffers alive at the peak, of which 2"),
        ("    c{}: 4 bytes (cumulative: 4 bytes)\n", ""),
        ("    b.1{}: 4 bytes (cumulative: 4 bytes)\n", "3 buffers alive at the peak, of which 1"),
        ("    b.1: 4 bytes\n", ""),
    ],
)
def test_a_list_of_the_peak_is_cut_when_what_is_there_could_go_on(
    listed: str, problem: str
) -> None:
    text = "\n".join(LINES[:10]) + "\n" + listed
    if problem:
        error = parse_error(parse, text)
        assert problem in error.problem
        assert error.hint.startswith("the text is cut off")
    else:
        assert format_live_ranges(parse_text(text)) == text
