"""Whole dumps: XLA's own printed back, damaged ones refused or kept, never silently changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hlomem.api.load import encode, load, read_source
from hlomem.base.errors import HlomemError, ParseError
from hlomem.base.source import Source
from hlomem.dump.dump import Dump, Note, join_parts
from hlomem.dump.parts import parse_part

from ..conftest import GOLDENS
from .editing import kept_notes, line_starts, read, result_of
from .test_parts import ASSIGNMENT, BY_ALLOCATION, BY_SPACE, COMBINED, LIVE_RANGE, VALUES

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = sorted(each.parent for each in GOLDENS.glob("xla/*/*/*/origin.json"))
SEEDS = sorted(GOLDENS.glob("seeds/*.txt"))
SEED_ERAS = {"000": "G", "001": "G", "002": "G", "003": "B", "004": "C"}


def letters(dump: Dump) -> str:
    return "".join(era.letter for era in dump.eras)


def assert_printed_back(dump: Dump) -> None:
    """In every era its text can be of, each file is the bytes that were read."""
    for era in dump.eras:
        for part in dump.parts:
            printed = encode(dump.part_text(part, era))
            assert printed == encode(read_source(part.name).text), f"{part.name} in {era}"


def name_of(program: Path) -> str:
    return "/".join(program.parts[-3:])


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_golden_is_printed_back_in_the_era_that_wrote_it(program: Path) -> None:
    dump = load(next(program.glob("buffer-assignment.txt")))
    assert {part.name for part in dump.parts} == {str(each) for each in program.glob("*.txt")}
    assert_printed_back(dump)
    assert json.loads((program / "origin.json").read_text())["era"] in letters(dump)
    assert dump.notes == ()


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem[:3])
def test_a_seed_is_printed_back_in_its_era(seed: Path) -> None:
    dump = load(seed)
    assert_printed_back(dump)
    assert SEED_ERAS[seed.name[:3]] in letters(dump)
    assert dump.notes == ()


def test_the_goldens_show_every_era() -> None:
    assert len(PROGRAMS) > 40
    origins = [json.loads((program / "origin.json").read_text()) for program in PROGRAMS]
    assert "".join(sorted({origin["era"] for origin in origins})) == "ABCDEFGHIJK"


def test_some_programs_of_every_group_of_the_corpus_are_printed_back(shared: Path) -> None:
    groups = [*sorted(shared.glob("corpus/*")), *sorted(shared.glob("real/*"))]
    assert len(groups) > 30
    for group in groups:
        programs = sorted(
            group.glob("*/buffer-assignment.txt"), key=lambda path: path.stat().st_size
        )
        for path in {programs[0], programs[len(programs) * 3 // 4]}:
            dump = load(path)
            assert_printed_back(dump)
            assert not [note for note in dump.notes if note.kind == "contradiction"], path


# --- cut off -----------------------------------------------------------------------------------


def assert_refused_at(error: object, cut: str) -> None:
    """The error is about the last lines, or about a branch of the tree that leads nowhere."""
    assert isinstance(error, ParseError)
    if error.problem != "the tree is cut off or drawn wrongly":
        assert error.line >= cut.count("\n") - 1
        assert "expected" in error.problem


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem[:3])
def test_a_seed_cut_at_any_line_is_refused_or_a_smaller_dump(seed: Path) -> None:
    """Two cuts leave a text that XLA itself could have written.

    Among or right behind the allocations: the first file of a split dump, whose others are noted
    as missing. Right before the stack trace: the dump of an XLA that printed none.
    """
    text = read_source(seed).text
    allocations_end = text.index("\n\nTotal bytes used: ") + 1
    tree = text.find("  Stack trace breakdown")
    for place in list(line_starts(text))[1:-1]:
        dump = result_of(lambda source: join_parts("d", [parse_part(source)]), text[:place])
        if place <= allocations_end:
            assert isinstance(dump, Dump)
            assert [note.kind for note in dump.notes] == ["missing", "missing"]
        elif place == tree:
            assert isinstance(dump, Dump)
            assert (letters(dump), dump.notes) == ("F", ())
        else:
            assert_refused_at(dump, text[:place])
            continue
        assert dump.to_text() == text[:place]


def test_the_smallest_seed_cut_at_any_byte_is_refused_or_a_smaller_dump() -> None:
    """Beside the cuts at lines, a number or a shape at the end of a line may lose its end."""
    text = read_source(SEEDS[0]).text
    whole_lines = set(line_starts(text))
    for place in range(1, len(text)):
        dump = result_of(lambda source: join_parts("d", [parse_part(source)]), text[:place])
        if place in whole_lines:
            continue
        assert isinstance(dump, ParseError), text[:place][-80:]
        assert dump.line >= text.count("\n", 0, place) - 1


@pytest.mark.parametrize("name", ["values.txt", "live-range.txt", "memory-usage-report.txt"])
def test_a_file_of_a_split_dump_cut_at_any_line_is_refused_or_whole(name: str) -> None:
    """Values are a list without an end, and so are memory spaces: a cut between two is not seen
    in the file itself. Values are compared with the allocations."""
    path = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while" / name
    text = read_source(path).text
    complete = 0
    for place in list(line_starts(text))[1:-1]:
        dump = result_of(lambda source: join_parts("d", [parse_part(source)]), text[:place])
        if isinstance(dump, Dump):
            assert dump.to_text() == text[:place]
            complete += 1
        else:
            assert_refused_at(dump, text[:place])
    expected = {"values.txt": text.count("\n<"), "live-range.txt": 1, "memory-usage-report.txt": 0}
    assert complete == expected[name]


def test_values_that_lack_some_of_the_allocations_are_noted() -> None:
    folder = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/scalar_only"
    values = read_source(folder / "values.txt").text
    cut = values[: values.rindex("\n<") + 1]
    parts = [
        parse_part(read_source(folder / "buffer-assignment.txt")),
        parse_part(Source("values.txt", cut)),
        parse_part(read_source(folder / "live-range.txt")),
    ]
    (note,) = join_parts("d", parts).notes
    assert note.kind == "contradiction"
    assert note.text.startswith("allocations and `Used values` list different values: ")


# --- fuzz --------------------------------------------------------------------------------------

FUZZED = [
    text
    for path in [*SEEDS, *sorted(GOLDENS.glob("xla/*/*/scalar_only/*.txt"))]
    if len(text := read_source(path).text) < 12_000
]
FRAGMENTS = [
    *" \t\r\n0123456789,:;(){}<>|@%-x×│├└",
    "00",
    "٣",
    "²",
    "\x00",
    "\x85",
    "\u2028",
    "\ufeff",
    "\udc80",
    "9" * 19,
    "9" * 5000,
    "\r\n",
    "    ",
    "  ",
    ", color 0",
    ", page 0",
    ", parameter 0, shape |f32[]| at ShapeIndex {0}",
    ", unknown |a, b|",
    "{}",
    "{01}",
    " (phi)",
    " @-1",
    "  (none)\n",
    "I0101 00:00:00.0 x\n",
    "WARNING:x\n",
    " reused by buffers of a different color:\n",
    "  value: <1 a @0> (color=0)\n",
    "  Peak memory could not be determined due to unbounded dynamic shape.\n",
    " uses are not initialized yet.\n",
    " (cumulative: 5 bytes)",
    " (50.0%, total: 1 bytes",
    "2×",
    "-nan",
]


ACCIDENTS = ["cut", "delete", "insert", "repeat", "line", "swap", "two"]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A golden text after one to three accidents."""
    text = draw(st.sampled_from(FUZZED))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 24)))
        lines = text.split("\n")
        i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        accident = draw(
            st.sampled_from(["cut", "delete", "insert", "repeat", "line", "swap", "two"])
        )
        if accident == "cut":
            text = text[:start]
        elif accident == "delete":
            text = text[:start] + text[stop:]
        elif accident == "insert":
            text = text[:start] + draw(st.sampled_from(FRAGMENTS)) + text[start:]
        elif accident == "repeat":
            text = text[:stop] + text[start:]
        elif accident == "line":
            text = "\n".join(lines[:i] + lines[i + 1 :])
        elif accident == "swap":
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        else:
            text = "\n".join([*lines[:i], lines[j], *lines[i:]])
    return text


@settings(max_examples=3000, derandomize=True, deadline=None)
@pytest.mark.no_cover
@given(damaged())
def test_a_damaged_dump_is_refused_or_printed_back_exactly(text: str) -> None:
    dump = result_of(lambda source: join_parts("d", [parse_part(source)]), text)
    if isinstance(dump, HlomemError):
        assert str(dump).startswith("d.txt:")
        return
    assert all(isinstance(note, Note) for note in dump.notes)
    for era in dump.eras:
        assert dump.to_text(era) == text


@settings(max_examples=300, derandomize=True, deadline=None)
@pytest.mark.no_cover
@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))))
def test_any_text_is_refused_or_printed_back_exactly(text: str) -> None:
    for start in ("", "BufferAssignment:\n", "\nTotal bytes used: ", "Memory Space: "):
        dump = result_of(lambda source: join_parts("d", [parse_part(source)]), start + text)
        assert isinstance(dump, HlomemError) or dump.to_text() == start + text


# --- joining -----------------------------------------------------------------------------------


def test_a_split_dump_is_joined_from_its_files() -> None:
    parts = [
        parse_part(Source(name, text))
        for name, text in (("a", ASSIGNMENT), ("v", VALUES), ("l", LIVE_RANGE), ("r", BY_SPACE))
    ]
    dump = join_parts("m", parts)
    assert dump.assignment is parts[0].contents.assignment
    assert dump.values is parts[1].contents.values
    assert dump.live_ranges is parts[2].contents.live_ranges
    assert dump.report is parts[3].contents.report
    assert dump.texts() == {"a": ASSIGNMENT, "v": VALUES, "l": LIVE_RANGE, "r": BY_SPACE}
    assert str(dump) == dump.to_text() == ASSIGNMENT + VALUES + LIVE_RANGE + BY_SPACE


def test_what_is_not_at_hand_is_none_and_noted() -> None:
    dump = read(VALUES)
    assert (dump.assignment, dump.live_ranges, dump.report) == (None, None, None)
    assert dump.notes == (
        Note(kind="missing", text="no allocations (*-buffer-assignment.txt) next to d.txt"),
        Note(kind="missing", text="no live ranges (*-live-range.txt) next to d.txt"),
    )
    assert read(BY_SPACE).values is None


@pytest.mark.parametrize(
    ("texts", "doubled", "line"),
    [
        ([ASSIGNMENT, ASSIGNMENT], "allocations (*-buffer-assignment.txt)", "BufferAssignment:"),
        ([COMBINED, COMBINED], "allocations (*-buffer-assignment.txt)", "BufferAssignment:"),
        ([COMBINED, VALUES], "values (*-buffer-assignment-values.txt)", "Total bytes used: "),
        ([LIVE_RANGE, COMBINED], "live ranges (*-live-range.txt)", "HloLiveRange"),
        ([BY_SPACE, COMBINED, BY_ALLOCATION], "usage report (*-memory-usage-report.txt)", "Total"),
    ],
)
def test_two_files_that_hold_the_same_are_refused(
    texts: list[str], doubled: str, line: str
) -> None:
    with pytest.raises(ParseError) as caught:
        join_parts("m", [parse_part(Source(str(n), text)) for n, text in enumerate(texts)])
    last = len(texts) - 1
    assert caught.value.problem == f"two files hold {doubled}: 0 is the other"
    assert caught.value.source.name == str(last)
    assert caught.value.source.text == texts[last]
    assert texts[last][caught.value.span.start :].startswith(line)


def test_a_combined_dump_and_its_report_are_joined() -> None:
    dump = join_parts(
        "m", [parse_part(Source("c", COMBINED)), parse_part(Source("r", BY_ALLOCATION))]
    )
    assert letters(dump) == "CD"
    assert not [note for note in dump.notes if note.kind == "missing"]


# --- notes -------------------------------------------------------------------------------------

TREE = (
    "  Stack trace breakdown for peak usage: 4 bytes\n"
    "    m (100.0%, total: 4 bytes, current: 4 bytes, remaining: 0 bytes)\n"
)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("size 4:", "size 5:", "allocations hold 5 bytes, `Total bytes used` says 4"),
        ("<1 a @0> (", "<2 a @0> (", "`Used values` list different values: 1, 2"),
        ("(max 1)", "(max 2)", "the sequence has 1 steps, its head says 2"),
        (
            "    a: 4 bytes",
            "    b: 4 bytes",
            "the list at the peak disagree about a, b",
        ),
        (
            "    a: 4 bytes\n",
            "    a{}: 5 bytes (cumulative: 5 bytes)\n" + TREE,
            "buffers at the peak hold 5 bytes, the tree 4",
        ),
        ("size 4:", "size 4, page 0:", "era unknown (no known XLA writes this combination)"),
    ],
)
def test_lines_that_cannot_both_be_true_are_noted(old: str, new: str, text: str) -> None:
    damaged_text = COMBINED.replace(old, new)
    assert damaged_text != COMBINED
    dump = read(damaged_text)
    (note,) = dump.notes
    assert note.kind == "contradiction"
    assert text in note.text
    assert dump.to_text() == damaged_text


def test_many_differing_values_are_noted_in_short() -> None:
    lines = "".join(f" value: <{n} a @0> (size=0,offset=0): f32[]\n" for n in range(10, 20))
    (note,) = read(COMBINED.replace("\n\nTotal", f"\n{lines}\nTotal")).notes
    assert note.text.endswith("list different values: 10, 11, 12, 13, 14, …")


def test_unknown_attributes_are_noted_wherever_they_stand() -> None:
    dump = read(COMBINED.replace("size 4:", "size 4, odd:"))
    assert kept_notes(dump) == ["d.txt: allocation 0 has an unknown attribute: odd"]
    report = read(BY_ALLOCATION + "allocation 3: size 1B, even:\n")
    assert kept_notes(report) == ["d.txt: allocation 3 has an unknown attribute: even"]


def test_a_dump_without_a_peak_has_nothing_to_contradict() -> None:
    unbounded = "  Peak memory could not be determined due to unbounded dynamic shape.\n"
    text = COMBINED.replace("  Live ranges at 0 (peak):\n    a: 4 bytes\n", unbounded)
    assert read(text).notes == ()
    assert read(text).to_text() == text


def test_changed_records_are_printed_in_the_era_that_was_read() -> None:
    dump = read(COMBINED)
    assert dump.assignment is not None
    allocation = replace(dump.assignment.allocations[0], is_constant=True)
    (part,) = dump.parts
    contents = part.contents._replace(
        assignment=replace(dump.assignment, allocations=(allocation,))
    )
    changed = join_parts(dump.name, [part._replace(contents=contents)])
    assert changed.to_text() == COMBINED.replace("size 4:", "size 4, constant:")
