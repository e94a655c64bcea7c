"""What the files of a dump say about one value, found from every side."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.view.joined import display_name, indexed, join_dump
from tests.check.faults import rebuilt
from tests.places import GOLDENS

FOLDERS = sorted((GOLDENS / "xla").glob("*/*/*"))
SEED = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


@pytest.mark.parametrize("folder", FOLDERS[::5], ids=lambda p: "/".join(p.parts[-3:]))
def test_every_record_is_found_by_value_and_by_instruction(folder: Path) -> None:
    dump = hlomem.load(folder)
    joined = join_dump(dump)
    assert dump.values is not None
    assert dump.live_ranges is not None
    assert len(joined.placed) == sum(len(each.values) for each in joined.allocations)
    for value in dump.values.values:
        placed = joined.placed_by_id[value.id]
        assert placed.used is joined.used_by_id[value.id] is value
        assert placed is joined.placed_by_name[value.name, value.index or ()]
        assert joined.printed[value.name].text == value.instruction
        for position in value.positions:
            index = position.index or ()
            assert value.id in joined.held[position.instruction][index]
            assert placed in joined.values_at[position.instruction, index]
            assert index in joined.indices_at[position.instruction]
        for use in value.uses or ():
            assert (use.index or (), placed) in joined.read_by[use.instruction, use.operand]
            assert use.instruction in placed.users & joined.users
            assert use.operand in placed.operand_numbers(use.instruction)
            assert (use.operand, use.index, value) in joined.reads[use.instruction]
    for life in dump.live_ranges.ranges:
        assert joined.find_life(life.instruction, life.index) is life


def test_the_sequence_gives_times() -> None:
    joined = join_dump(hlomem.load(SEED))
    assert [joined.time_of[name] for name in joined.sequence] == list(range(len(joined.sequence)))
    assert joined.peak is not None


def test_what_a_program_returns_is_its_last_value_there() -> None:
    output = join_dump(hlomem.load(SEED)).output
    assert output is not None
    assert output.allocation.output_shape is not None
    assert output.life is not None


def test_a_missing_file_says_nothing() -> None:
    dump = hlomem.load(SEED)
    bare = join_dump(rebuilt(dump, values=None, live_ranges=None, assignment=None))
    assert (bare.placed, bare.printed, bare.held, bare.reads) == ([], {}, {}, {})
    assert (bare.sequence, bare.peak, bare.output) == ((), None, None)
    places = join_dump(rebuilt(dump, values=None, live_ranges=None))
    assert all(each.used is None and each.life is None for each in places.placed)


def test_values_share_bytes_in_one_allocation_only() -> None:
    joined = join_dump(hlomem.load(SEED))
    for one in joined.placed:
        for other in joined.placed:
            if one.used and other.used:
                is_shared = one.allocation.index == other.allocation.index and max(
                    one.start, other.start
                ) < min(one.end, other.end)
                assert joined.share_bytes(one.used, other.used) is is_shared


def test_names_have_the_index_xla_prints() -> None:
    joined = join_dump(hlomem.load(SEED))
    [start] = [each.value for each in joined.placed if display_name(each.value) == "copy-start{0}"]
    assert (start.name, start.index) == ("copy-start", (0,))
    assert (indexed("w", (1, 0)), indexed("w", ()), indexed("w", None)) == ("w{1,0}", "w", "w")
