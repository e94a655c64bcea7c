"""`hlomem doctor` from outside."""

from __future__ import annotations

import json

from hlomem import __version__
from tests.cli.conftest import Run


def test_one_screen_says_what_is_here_and_what_would_be_needed(run: Run) -> None:
    result = run("doctor")
    assert result.code == 0
    screen = result.out.decode()
    assert __version__ in screen
    assert max(map(len, screen.splitlines())) <= 80


def test_the_same_as_data(run: Run) -> None:
    content = json.loads(run("doctor", "--json").out)
    assert (content["schema"], content["kind"]) == ("hlomem/1", "health")
