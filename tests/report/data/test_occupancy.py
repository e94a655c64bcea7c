"""Whose each byte is at one moment, against a table of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.buffers import Buffer
from hlomem.report.data.occupancy import alignment_gaps, ownership_key, share_out
from tests import plain

PLACES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), max_size=8)
ROLES = (roles.STACKED, roles.COPIES, roles.TEMPORARIES)


def _buffer(number: int, offset: int, size: int, role: str = roles.TEMPORARIES) -> Buffer:
    return plain.Buffer(
        id=number,
        name=f"b{number}",
        size=size,
        padding=0,
        shape="u8[]",
        allocation=0,
        offset=offset,
        color=0,
        start=0,
        end=1,
        role=role,
        place=allocation_kinds.TEMPORARIES,
        moved=None,
        opcode="add",
        op_name=None,
        source=None,
        told_by=None,
        parameter=None,
    )


@given(PLACES)
def test_each_byte_is_the_first_claimants(places: list[tuple[int, int]]) -> None:
    buffers = [_buffer(n, *place, role=ROLES[n % 3]) for n, place in enumerate(places)]
    owner: dict[int, int] = {}
    for buffer in sorted(buffers, key=ownership_key):
        for byte in range(buffer.offset, buffer.offset + buffer.size):
            owner.setdefault(byte, buffer.id)
    owned, taken = share_out(buffers)
    sizes = {each.buffer.id: each.size for each in owned}
    counts = {number: list(owner.values()).count(number) for number in sizes}
    assert sizes == counts
    assert sum(sizes.values()) == len(owner)
    assert taken == sorted(taken)
    assert {byte for start, end in taken for byte in range(start, end)} == set(owner)


def test_gaps_reach_to_the_next_allowed_offset_and_no_further() -> None:
    assert list(alignment_gaps([(0, 10), (12, 30)], 64, 16)) == [2, 2]
    assert list(alignment_gaps([(0, 16)], 16, 16)) == [0]
