"""Leaks: moved arrays are no growth, and all sums add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.job.leaks import find_leaks
from hlomem.proto.pprof import Frame, Holding
from tests.job.recorded import holdings_of


def _held(line: int, count: int, unit: int, kind: str = "buffer") -> Holding:
    stack = (Frame("call", "/x/site-packages/jax/_src/pjit.py", 1), Frame("f", "train.py", line))
    return Holding(count=count, size=count * unit, kind=kind, device="cuda:0", stack=stack)


profiles = st.lists(
    st.lists(
        st.builds(_held, st.integers(1, 4), st.integers(1, 5), st.sampled_from([4, 256, 1000])),
        max_size=6,
    ),
    min_size=2,
    max_size=4,
)


@given(profiles)
def test_growth_less_what_shrank_is_the_change_of_the_totals(taken: list[list[Holding]]) -> None:
    leaks = find_leaks([(str(number), one) for number, one in enumerate(taken)])
    grown = sum(line.size for line in leaks.grown)
    assert grown - leaks.shrunk == leaks.totals[-1] - leaks.totals[0]


def test_a_donated_step_moves_its_state_and_leaks_nothing() -> None:
    before = [_held(30, 15, 1 << 20), _held(32, 1, 16384)]
    after = [_held(10, 15, 1 << 20), _held(10, 1, 4), _held(32, 1, 16384)]
    leaks = find_leaks([("before", before), ("after", after)])
    assert leaks.moved == 15 << 20
    assert [(line.line, line.size) for line in leaks.grown] == [("train.py:10", 4)]


def test_what_grows_in_every_interval_is_a_leak() -> None:
    taken = [(str(n), [_held(5, n + 1, 1000), _held(6, 2 + n % 2, 8)]) for n in range(4)]
    leaks = find_leaks(taken)
    assert [(line.line, line.count, line.is_steady) for line in leaks.grown] == [
        ("train.py:5", 3, True),
        ("train.py:6", 1, False),
    ]


def test_recorded_profiles_name_the_line_that_restored() -> None:
    pair = [(name, holdings_of(name)) for name in ("restore.saved", "restore.both")]
    leaks = find_leaks(pair)
    assert leaks.totals == (702_283_776, 1_404_567_552)
    assert {line.line for line in leaks.grown} == {"/home/me/jobs.py:72"}
    assert sum(line.size for line in leaks.grown) == 702_283_776
    [pile] = leaks.executables
    assert (pile.line, pile.before, pile.after) == ("/home/me/jobs.py:72", 1, 6)
