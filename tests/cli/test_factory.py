"""Settings of factories, and the line that says what goes on."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.cli.factory import parse_settings, parse_value, progress


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0.5", 0.5),
        ("None", None),
        ("True", True),
        ("bf16", "bf16"),
        ("'8'", "8"),
        ("(1,2)", [1, 2]),
        ("[1, 2]", [1, 2]),
        ("1 +", "1 +"),
    ],
)
def test_a_value_is_a_number_or_a_word(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("batch",), "is no setting: give NAME=VALUE"),
        (("=8",), "is no setting: give NAME=VALUE"),
        (("batch=8", "batch=9"), "`batch` is set twice"),
        (("batch={1: 2}",), "is no value of a setting"),
    ],
)
def test_what_is_no_setting_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        parse_settings(words)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        """It is one."""
        return True


def test_on_a_terminal_the_line_is_drawn_now_and_then_and_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 0.01, 10.0])
    monkeypatch.setattr("hlomem.cli.factory.time.monotonic", lambda: next(times))
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress() as draw:
        draw("too soon")
        draw("compiling \x1b x.py:step")
    drawn = terminal.getvalue()
    assert "too soon" not in drawn
    assert "\rcompiling \\x1b x.py:step, 10 s" in drawn
    assert drawn.endswith("\r")
    assert drawn.rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def test_elsewhere_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as draw:
        draw("compiling")
    assert capsys.readouterr().err == ""
