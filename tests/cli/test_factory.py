"""Settings of factories."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.base.errors import CommandError
from hlomem.cli.factory import parse_settings, parse_value


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
        (("batch",), "is not NAME=VALUE"),
        (("=8",), "is not NAME=VALUE"),
        (("batch=8", "batch=9"), "`batch` is set twice"),
        (("batch={1: 2}",), "is not a valid setting"),
    ],
)
def test_what_is_no_setting_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        parse_settings(words)
