"""Long work shows on a terminal that it goes on, and leaves nothing there."""

from __future__ import annotations

import io
import sys
import time

import pytest

from hlomem.cli import progress
from hlomem.cli.progress import working


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch, patience: float = 0.01) -> _Terminal:
    """Makes standard error a terminal, in the test itself: pytest sets its own before."""
    found = _Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(progress, "_REDRAWN", 0.001)
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    return found


def _wait_for(terminal: _Terminal, words: str) -> None:
    for _ in range(10_000):
        if words in terminal.getvalue():
            return
        time.sleep(0.001)
    pytest.fail(f"`{words}` was not drawn: {terminal.getvalue()!r}")


def test_work_shows_its_words_and_time_and_leaves_an_empty_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _terminal(monkeypatch)
    with working("packing \x1b[31m5 buffers"):
        _wait_for(terminal, "5 buffers, 0 s")
    drawn = terminal.getvalue()
    assert "\x1b" not in drawn
    assert drawn.endswith("\r")
    assert not drawn.split("\r")[-2].strip()


def test_a_line_goes_away_when_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)

    def fail() -> None:
        with working("checking"):
            _wait_for(terminal, "checking")
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert not terminal.getvalue().split("\r")[-2].strip()


def test_short_work_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch, patience=60)
    with working("planning"):
        pass
    assert not terminal.getvalue()


def test_where_there_is_no_terminal_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    with working("planning"):
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_line_is_drawn_now_and_then_and_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 0.01, 10.0])
    monkeypatch.setattr("hlomem.cli.progress.time.monotonic", lambda: next(times))
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress.progress() as draw:
        draw("too soon")
        draw("compiling \x1b x.py:step")
    drawn = terminal.getvalue()
    assert "too soon" not in drawn
    assert "\rcompiling \\x1b x.py:step, 10 s" in drawn
    assert drawn.endswith("\r")
    assert drawn.rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def test_elsewhere_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as draw:
        draw("compiling")
    assert capsys.readouterr().err == ""
