"""The table of an instant adds up to the bytes in use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hlomem.job.bfc import BfcAllocator
from hlomem.job.instant import Instant, LiveArray, LoadedProgram, build_now, fits

MIB = 1 << 20


@given(st.lists(st.integers(1, 300 * MIB), max_size=30), st.data())
def test_arrays_and_waste_are_all_that_is_in_use(sizes: list[int], data: st.DataObject) -> None:
    """What an allocator really wastes is never called something else."""
    twin = BfcAllocator(1 << 40, grows=data.draw(st.booleans()))
    held = {twin.allocate(size): size for size in sizes}
    for address in list(held):
        if data.draw(st.booleans()):
            twin.free(address)
            del held[address]
    for size in data.draw(st.lists(st.integers(1, 200 * MIB), max_size=8)):
        held[twin.allocate(size)] = size
    arrays = tuple(LiveArray(size=held[a], shape="x", address=a) for a in held if a is not None)
    now = build_now(Instant(device="d", arrays=arrays, in_use=twin.in_use, limit=twin.limit))
    assert now.arrays + now.rounding + now.chunks + now.other == now.in_use
    assert now.other == 0


def test_arrays_that_share_memory_count_once() -> None:
    arrays = (LiveArray(size=512, shape="x", address=256),) * 2
    now = build_now(Instant(device="d", arrays=arrays, in_use=512))
    assert (now.arrays, now.other) == (512, 0)


def test_memory_of_others_is_said_to_be_other() -> None:
    arrays = (LiveArray(size=512, shape="x", address=256),)
    now = build_now(Instant(device="d", arrays=arrays, in_use=10_000))
    assert now.other == 10_000 - 512 - now.chunks > 0
    assert any(note.startswith("other:") for note in now.notes)


def test_a_platform_without_figures_says_so() -> None:
    now = build_now(Instant(device="cpu:0", arrays=(LiveArray(size=100, shape="x"),)))
    assert (now.in_use, now.arrays, now.other) == (None, 100, 0)
    assert "keeps no figures" in now.notes[0]


def test_a_program_fits_where_blocks_allow_it() -> None:
    assert fits(10, 5, free=100, block=15) is True
    assert fits(10, 5, free=14, block=14) is False
    assert fits(10, 5, free=100, block=9) is False
    assert fits(10, 5, free=100, block=12) is None
    assert fits(10, 5, free=None, block=None) is None


def test_programs_of_one_name_and_size_are_one_row() -> None:
    program = LoadedProgram(name="jit_f", temporaries=10, results=5)
    empty = Instant(device="d", arrays=(), in_use=0, limit=100, pool=0, largest_free=0)
    [row] = build_now(replace(empty, programs=(program, program))).programs
    assert (row.count, row.asks, row.fits) == (2, 15, True)
