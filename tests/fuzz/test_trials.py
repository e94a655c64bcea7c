"""Mutants of modules and dumps through every command: none may end in anything but words."""

from __future__ import annotations

import pytest

from tests.fuzz.entry_points import End
from tests.fuzz.limits import run_trial
from tests.fuzz.trials import TARGETS, make_trial

COUNT = 80


@pytest.mark.parametrize("target", TARGETS)
def test_mutants_are_read_or_refused_with_file_line_and_reason(target: str) -> None:
    for number in range(COUNT):
        for outcome in run_trial(make_trial(target, 0, number)):
            assert outcome.end in {End.ACCEPTED, End.REFUSED}, (number, outcome)
