"""One text: its kind, what stood around it, and errors at their own place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hlomem.api.load import decode, encode
from hlomem.base.errors import HlomemError, InputError, ParseError
from hlomem.base.source import Source
from hlomem.dump.dump import Dump, join_parts
from hlomem.dump.eras import Features
from hlomem.dump.parts import ForeignLine, Part, Wrapping, parse_part

from .editing import kept_notes, parse_error, read, result_of

if TYPE_CHECKING:
    from collections.abc import Callable

ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 4:
 value: <1 a @0> (size=4,offset=0): f32[]
"""
VALUES = """\

Total bytes used: 4 (4B)

Used values:
<1 a @0>
 positions:
  a
 uses:
 from instruction: %a = f32[] parameter(0)
"""
LIVE_RANGE = """\
HloLiveRange (max 1):
  InstructionSequence:
    0:a
  BufferLiveRange:
    a{}:0-1
  Live ranges at 0 (peak):
    a: 4 bytes
"""
COMBINED = f"{ASSIGNMENT}{VALUES}\n\n{LIVE_RANGE}"
BY_SPACE = "Memory Space: default (color=0)\nTotal bytes: 4 (4B)\n\n"
BY_ALLOCATION = (
    "Total bytes used: 0 (0B)\n\nAllocations sorted by size:\n\n"
    "cumulative_size; total_size - cumulative_size; allocation\n" + "-" * 78 + "\n\n\n"
    "Allocations sorted by size with their values:\n"
)
GLOG = "I0515 10:00:00.123456   42 service.cc:7] XLA service\n"
TSL = "2024-05-15 10:00:00.123456: W tensorflow/x.cc:1] hello\n"
LOGGING = "WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present\n"


def part_of(text: str) -> Part:
    return parse_part(Source("d.txt", text))


@pytest.mark.parametrize(
    ("text", "kind", "filled"),
    [
        (COMBINED, "combined", {"assignment", "values", "live_ranges"}),
        (ASSIGNMENT, "assignment", {"assignment"}),
        (VALUES, "values", {"values"}),
        (LIVE_RANGE, "live-range", {"live_ranges"}),
        (BY_SPACE, "report", {"report"}),
        (BY_ALLOCATION, "report", {"report"}),
        ("BufferAssignment:\n", "assignment", {"assignment"}),
    ],
)
def test_a_text_is_recognised_by_how_it_begins(text: str, kind: str, filled: set[str]) -> None:
    part = part_of(text)
    assert part.kind == kind
    assert {n for n, each in part.contents._asdict().items() if each is not None} == filled
    assert read(text).to_text() == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            COMBINED,
            Features(
                split=False,
                space_before_instruction=True,
                newline_after_instruction=True,
                says_none=False,
                pages=False,
                stack_trace=False,
                peak_index=False,
                peak_cumulative=False,
            ),
        ),
        (ASSIGNMENT.replace("4:", "4, page 0:"), Features(split=True, pages=True)),
        ("BufferAssignment:\n", Features(split=True)),
        ("\nTotal bytes used: 0 (0B)\n\nUsed values:\n", Features(split=True)),
        (
            VALUES.replace(" uses:\n", " uses:\n  (none)\n").replace("parameter(0)", "sine(%b)"),
            Features(
                split=True,
                space_before_instruction=True,
                newline_after_instruction=True,
                says_none=True,
                operand_shapes=False,
            ),
        ),
        (
            VALUES.replace(" uses:\n", " uses:\n  b, operand 0\n").replace(
                ": %a = f32[] parameter(0)", ":%a = f32[] sine(f32[] %b)"
            ),
            Features(
                split=True,
                space_before_instruction=False,
                newline_after_instruction=True,
                operand_shapes=True,
            ),
        ),
        (
            LIVE_RANGE.replace(
                "    a: 4 bytes\n",
                "    a{}: 4 bytes (cumulative: 4 bytes)\n"
                "  Stack trace breakdown for peak usage: 0 bytes\n",
            ),
            Features(split=True, stack_trace=True, peak_index=True, peak_cumulative=True),
        ),
        (BY_SPACE, Features(report=frozenset({"by-space"}))),
        (BY_ALLOCATION, Features(report=frozenset({"by-allocation"}))),
    ],
)
def test_a_text_shows_features_of_the_xla_that_wrote_it(text: str, seen: Features) -> None:
    assert part_of(text).seen == seen


def test_values_that_run_into_one_another_are_recognised() -> None:
    first = VALUES.removesuffix("\n")
    second = VALUES.removesuffix("\n").partition("Used values:\n")[2].replace("1 a", "2 b")
    assert part_of(f"{ASSIGNMENT}{first}\n\n{LIVE_RANGE}").seen.newline_after_instruction is False
    text = f"{ASSIGNMENT}{first}{second}\n\n{LIVE_RANGE}"
    part = part_of(text)
    assert part.seen.newline_after_instruction is False
    assert part.contents.values is not None
    assert [value.id for value in part.contents.values.values] == [1, 2]
    assert read(text).to_text() == text


@pytest.mark.parametrize("text", [COMBINED, ASSIGNMENT, VALUES, LIVE_RANGE, BY_SPACE])
def test_windows_line_ends_are_kept_and_noted(text: str) -> None:
    windows = text.replace("\n", "\r\n")
    dump = read(windows)
    assert dump.parts[0].contents == part_of(text).contents
    assert dump.to_text() == windows
    assert kept_notes(dump) == [r"d.txt: lines end with \r\n"]


def test_mixed_line_ends_are_refused_at_the_first_odd_one() -> None:
    error = parse_error(parse_part, COMBINED.replace("\n", "\r\n").replace("4:\r\n", "4:\n"))
    assert (error.line, error.column) == (2, 22)
    assert error.problem == r"the line ends with \n, other lines with \r\n"
    assert error.hint == "give all one ending"


def test_errors_in_a_text_with_windows_line_ends_have_the_right_place() -> None:
    text = COMBINED.replace("offset=0", "offset=x").replace("\n", "\r\n")
    error = parse_error(parse_part, text)
    assert (error.line, error.column) == (3, 33)


def test_a_lone_carriage_return_is_no_line_end() -> None:
    text = COMBINED.replace("f32[]\n", "f32[]\rx\n", 1)
    assert read(text).to_text() == text


def test_a_byte_order_mark_is_kept_and_noted() -> None:
    dump = read("\ufeff" + COMBINED)
    assert dump.to_text() == "\ufeff" + COMBINED
    assert kept_notes(dump) == ["d.txt: begins with a byte-order mark"]


def test_everything_around_a_text_at_once_is_kept() -> None:
    text = "\ufeff" + (GLOG + COMBINED.replace("f32[]\n", "f32[]\udcff\n", 1)).replace("\n", "\r\n")
    dump = read(text)
    assert dump.to_text() == text
    assert len(kept_notes(dump)) == 4


def test_bytes_that_are_not_utf_8_are_kept_and_noted() -> None:
    data = COMBINED.replace("<1 a @0> (", "<1 \udcff\udc80 @0> (").encode(
        "utf-8", "surrogateescape"
    )
    assert b"<1 \xff\x80 @0>" in data
    dump = read(decode("d.txt", data).text)
    assert encode(dump.to_text()) == data
    assert kept_notes(dump) == ["d.txt:3: bytes that are not UTF-8"]


@pytest.mark.parametrize("log_line", [GLOG, TSL, LOGGING, "W0515 10:00:00 x\n", "ERROR:\n"])
def test_a_log_line_before_any_line_is_kept_and_noted(log_line: str) -> None:
    lines = COMBINED.splitlines(keepends=True)
    for number in range(len(lines) + 1):
        text = "".join([*lines[:number], log_line, *lines[number:]])
        dump = read(text)
        assert dump.parts[0].contents == part_of(COMBINED).contents
        assert dump.to_text() == text
        assert kept_notes(dump) == [
            f"d.txt:{number + 1}: log line is not of the dump: {log_line.rstrip()}"
        ]


def test_many_log_lines_are_kept_in_their_places() -> None:
    text = GLOG + "".join(line + GLOG + TSL for line in COMBINED.splitlines(keepends=True))
    dump = read(text)
    assert dump.to_text() == text
    assert [line.line for line in dump.parts[0].wrapping.foreign_lines[:4]] == [1, 3, 4, 6]


def test_an_error_among_log_lines_is_shown_where_it_is() -> None:
    text = (GLOG + COMBINED).replace(" value:", GLOG + " value:").replace("    0:a", "    7:a")
    error = parse_error(parse_part, text + TSL)
    line = 1 + text[: text.index("    7:a")].count("\n")
    assert (error.line, error.column) == (line, 5)
    assert error.problem == "expected step 0 of the sequence, found 7"
    assert str(error).split("\n")[1] == f"{line} |     7:a"


def test_a_line_that_only_resembles_a_log_line_is_refused() -> None:
    error = parse_error(parse_part, ASSIGNMENT + "Warning: x\n")
    assert (error.line, error.column) == (4, 1)


def test_foreign_lines_are_put_back_even_when_the_text_grew_or_shrank() -> None:
    wrapping = Wrapping(
        foreign_lines=(ForeignLine(line=2, text="L1"), ForeignLine(line=4, text="L2"))
    )
    assert wrapping.restore("a\nb\nc\n") == "a\nL1\nb\nL2\nc\n"
    assert wrapping.restore("a\nb\nc\nd\n") == "a\nL1\nb\nL2\nc\nd\n"
    assert wrapping.restore("a\n") == "a\nL1\n\nL2"


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        part_of("")
    assert str(caught.value) == "d.txt:1:1: the file is empty; expected a dump XLA wrote"


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("HloModule m\n", "found `HloModule`", "this is an HLO module; the dump is the file"),
        ("\x7fELF\0\0\0", r"found `\x7f`", "this is a binary file; a dump comes from XLA_FLAGS"),
        ("PNG\n", "found `PNG`", "a dump comes from XLA_FLAGS=--xla_dump_to=DIR"),
        ("\n", "found the end of the line", "a dump comes from XLA_FLAGS"),
        ("\ufeff", "the text ends here", "a dump comes from XLA_FLAGS"),
        ("BufferAssignment", "found `BufferAssignment`", "a dump comes from XLA_FLAGS"),
        (" BufferAssignment:\n", "found ` `", "a dump comes from XLA_FLAGS"),
    ],
)
def test_a_foreign_text_is_refused_with_advice(text: str, problem: str, hint: str) -> None:
    error = parse_error(parse_part, text)
    assert (error.line, error.column) == (1, 1)
    assert problem in error.problem
    assert "`BufferAssignment:`, the start of an XLA memory dump" in error.problem
    assert error.hint.startswith(hint)


def test_values_without_live_ranges_are_refused_as_cut_off() -> None:
    error = parse_error(parse_part, ASSIGNMENT + VALUES)
    assert error.problem == "the text ends here; expected two empty lines and `HloLiveRange`"
    assert error.line == (ASSIGNMENT + VALUES).count("\n") + 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (COMBINED.replace("4:\n", "4;\n"), (2, 21)),
        (COMBINED.replace("  a\n uses", "  a x\n uses"), (10, 4)),
        (COMBINED.replace("a{}:0-1", "a{}:0_1"), (19, 9)),
        (COMBINED + "x", (22, 1)),
    ],
)
def test_each_part_of_one_file_reports_its_own_errors(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(ParseError) as caught:
        part_of(text)
    assert (caught.value.line, caught.value.column) == place


TREE_HEAD = LIVE_RANGE + "  Stack trace breakdown for peak usage: 4 bytes\n"
TABLE_HEAD = (
    "Memory Space: d (color=0)\nTotal bytes: 4 (4B)\n"
    "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
    f"  {'-' * 60}\n"
)
HEADER = "BufferAssignment:\nallocation 0: size 1"
ONE_VALUE = "<1 a @0>\n positions:\n  a\n uses:\n from instruction: %a\n"


@pytest.mark.parametrize(
    "repeat",
    [
        lambda n: "x" * n,
        lambda n: "BufferAssignment:\n" + " " * n,
        lambda n: "BufferAssignment:\n" + "\n\nTotal bytes used: " * (n // 20),
        lambda n: HEADER + ", x" * (n // 3) + ":\n",
        lambda n: HEADER + ", |" + "x" * n,
        lambda n: HEADER + ", " + "|" * n + ":\n",
        lambda n: HEADER + ", " + "," * n + ":\n",
        lambda n: HEADER + ", parameter 0, shape |x" * (n // 22) + ":\n",
        lambda n: HEADER + ":\n value: <1 " + "x" * n + " @0> (size=1,offset=0): s8[]\n",
        lambda n: HEADER + ":\n value: <1 a{" + "1," * n + "} @0> (size=1,offset=0): s8[]\n",
        lambda n: HEADER + ":\n value: <" + "9" * n,
        lambda n: COMBINED.replace("%a = f32[] parameter(0)\n", "%" + "<" * n),
        lambda n: COMBINED.replace("%a = f32[] parameter(0)\n", "%" + "<>" * n),
        lambda n: COMBINED.replace("  a\n uses", "  a\n" * n + " use"),
        lambda n: COMBINED.replace("<1 a @0>\n", ONE_VALUE * (n // 50) + "<1 a>\n"),
        lambda n: COMBINED + GLOG * (n // 50),
        lambda n: COMBINED.replace(" value", GLOG * (n // 50) + " value").replace("0-1", "x"),
        lambda n: TREE_HEAD + "    " + "(" * n,
        lambda n: TREE_HEAD + "    " + "(1.0%, tota " * (n // 12),
        lambda n: TREE_HEAD + "    (" + "1" * n,
        lambda n: TREE_HEAD + "    a" + "\nb" * n,
        lambda n: TREE_HEAD + "  " + "    " * n,
        lambda n: "Memory Space: " + " (color=" * (n // 8),
        lambda n: TABLE_HEAD + " " * n,
        lambda n: TABLE_HEAD + "  " + "1." * n,
        lambda n: TABLE_HEAD + "     1B(100%);         1B;            0;          2; " + "(, " * n,
    ],
)
def test_long_texts_are_read_or_refused_in_one_go(repeat: Callable[[int], str]) -> None:
    """They take a tenth of a second each; looking at every pair of places would take hours."""
    text = repeat(200_000)
    dump = result_of(lambda source: join_parts("d", [parse_part(source)]), text)
    assert isinstance(dump, HlomemError) or dump.to_text() == text
    assert len(str(dump)) < 2000 or isinstance(dump, Dump)
