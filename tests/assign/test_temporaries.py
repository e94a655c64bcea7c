"""Step 4: temporaries behind one another (`BufferAssignment::CombineTempAllocations`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.assign.allocation import BufferAllocation
from hlomem.assign.assigner import combine_temporaries, partition, renumbered
from hlomem.base.quantities import AllocationIndex, ByteCount, Color
from tests.assign.programs import module_of, state

PROBLEM = state(module_of("ROOT %r = f32[64]{0} add(%a, %b)"))


def _allocation(size: int, *, color: int = 0, is_kept: bool = False) -> BufferAllocation:
    return BufferAllocation(
        AllocationIndex(0), ByteCount(size), Color(color), maybe_live_out=is_kept
    )


def test_each_begins_at_the_next_aligned_offset_behind_the_one_before() -> None:
    alignment = PROBLEM.alignment(Color(0))
    one, two, three = _allocation(1), _allocation(alignment), _allocation(5)
    [combined] = combine_temporaries(PROBLEM, [one, two, three])
    assert combined is one
    assert combined.size == 2 * alignment + 5


def test_memory_spaces_are_not_mixed() -> None:
    combined = combine_temporaries(PROBLEM, [_allocation(4, color=1), _allocation(4)])
    assert [(each.color, each.size) for each in combined] == [(1, 4), (0, 4)]


def test_what_stays_comes_first_and_indices_count_up() -> None:
    kept = _allocation(7, is_kept=True)
    combined = combine_temporaries(PROBLEM, [_allocation(3), kept])
    assert combined[0] is kept
    assert [each.index for each in combined] == [0, 1]


def test_the_first_temporary_changes_places_with_the_last_other() -> None:
    """As `std::partition` of a range with two-way iterators does; it is not stable."""
    letters = {
        _allocation(i, is_kept=is_kept): name
        for i, (name, is_kept) in enumerate(
            [("T1", False), ("A", True), ("T2", False), ("B", True), ("C", True)]
        )
    }
    kept, temporaries = partition(list(letters))
    assert [letters[each] for each in kept] == ["C", "A", "B"]
    assert [letters[each] for each in temporaries] == ["T2", "T1"]


@given(st.lists(st.booleans(), max_size=12))
def test_a_partition_loses_nothing(kinds: list[bool]) -> None:
    allocations = [_allocation(i, is_kept=is_kept) for i, is_kept in enumerate(kinds)]
    kept, temporaries = partition(allocations)
    assert {*kept, *temporaries} == set(allocations)
    assert all(each.maybe_live_out for each in kept)
    assert not any(each.maybe_live_out for each in temporaries)


def test_renumbering_goes_by_the_list() -> None:
    allocations = renumbered([_allocation(1), _allocation(2)])
    assert [each.index for each in allocations] == [0, 1]
