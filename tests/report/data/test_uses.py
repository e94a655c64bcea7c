"""Bytes in use, against the obvious count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.buffers import Buffer
from hlomem.report.data.occupancy import Usage, iter_held, iter_uses
from hlomem.report.data.timeline import bytes_over_time
from tests import plain

STEPS = 12
ROLES = (roles.CARRIED, roles.GRADIENTS, roles.TEMPORARIES)
"""Of those that share bytes, the first of this order counts."""


def _buffer(
    number: int, offset: int, size: int, start: int | None, end: int | None, role: str = ROLES[0]
) -> Buffer:
    return plain.Buffer(
        id=number,
        name=f"v{number}",
        size=size,
        padding=0,
        shape="f32[]",
        allocation=0,
        offset=offset,
        color=0,
        start=start,
        end=end,
        role=role,
        place=allocation_kinds.TEMPORARIES,
        moved=None,
        opcode=None,
        op_name=None,
        source=None,
        told_by=None,
        parameter=None,
    )


def test_the_example_of_the_module() -> None:
    a, b, c = _buffer(0, 0, 100, 0, 3), _buffer(1, 0, 100, 1, 5), _buffer(2, 100, 50, 2, 5)
    assert bytes_over_time(iter_uses([a, b, c]), 6) == [100, 100, 150, 150, 150, 150]


def test_what_has_no_known_life_uses_nothing() -> None:
    assert list(iter_uses([_buffer(0, 0, 100, None, None)])) == []


PLACES = st.tuples(
    st.integers(0, 20),
    st.integers(0, 10),
    st.integers(0, STEPS - 1),
    st.integers(0, STEPS - 1),
    st.sampled_from(ROLES),
)


@given(
    st.lists(PLACES, max_size=12)
    # Two in one place, as arguments and what replaces them.
    | st.tuples(PLACES, PLACES).map(lambda pair: [pair[0], (*pair[0][:2], *pair[1][2:])])
)
def test_every_step_counts_each_byte_once(places: list[tuple[int, int, int, int, str]]) -> None:
    buffers = [
        _buffer(number, offset, size, min(one, two), max(one, two), role)
        for number, (offset, size, one, two, role) in enumerate(places)
    ]
    uses = list(iter_uses(buffers))
    curves = {role: bytes_over_time([u for u in uses if u[0] == role], STEPS) for role in ROLES}
    assert {use.role for use in uses} == {buffer.role for buffer in buffers}
    for step in range(STEPS):
        counted: set[int] = set()
        for role in ROLES:
            alive = [each for each in buffers if each.is_live_at(step) and each.role == role]
            held = {byte for b in alive for byte in range(b.offset, b.offset + b.size)}
            assert curves[role][step] == len(held - counted)
            counted |= held


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, STEPS), st.integers(0, 5))))
def test_an_allocation_is_held_for_its_owner_where_nobody_uses_it(
    turns: list[tuple[int, int, int]],
) -> None:
    uses, reached = [], 0
    for gap, steps, size in turns:
        start, stop = min(reached + gap, STEPS), min(reached + gap + steps, STEPS)
        if stop > start:
            uses.append(Usage(ROLES[1], start, stop, size))
        reached = stop
    used = bytes_over_time(uses, STEPS)
    held = bytes_over_time(iter_held(uses, 5, ROLES[0], STEPS), STEPS)
    assert held == [5 - size for size in used]
