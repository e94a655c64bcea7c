"""Hostile texts are read or refused in time; programs among them are planned."""

from __future__ import annotations

import pytest

from tests.fuzz.entry_points import End
from tests.fuzz.hostile import VALID_MODULES
from tests.fuzz.limits import Trial, run_limited
from tests.fuzz.trials import hostile_trials

TRIALS = hostile_trials(many=2000)
VALID = {make.__name__ for make in VALID_MODULES}


@pytest.mark.parametrize("name", TRIALS)
def test_a_hostile_text_is_answered_within_the_limits(name: str) -> None:
    trial = TRIALS[name]()
    ends = [outcome.end for outcome in run_limited(trial)]
    allowed = {End.ACCEPTED} if name in VALID else {End.ACCEPTED, End.REFUSED}
    assert allowed.issuperset(ends)
    assert len(ends) == len(trial.commands)


def test_limits_are_noticed() -> None:
    """The harness itself: a process that dies is a finding."""
    outcomes = run_limited(Trial({"x.txt": b"x"}, [["show", "x.txt"], ["show", "--nonsense"]]))
    assert [outcome.end for outcome in outcomes] == [End.REFUSED, End.BUG]
