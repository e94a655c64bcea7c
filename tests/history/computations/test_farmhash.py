"""Against FarmHash itself (the values are those of pyfarmhash 0.5.1)."""

from __future__ import annotations

import pytest

from hlomem.history.computations.by_content import fingerprint64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * 65, 0x6BF136A09F841C74),
        ("hlomem " * 12, 0xF92E33BFA981B544),
        ("x" * 1000, 0x1A8C8AB6295A3220),
    ],
)
def test_fingerprint64(text: str, expected: int) -> None:
    assert fingerprint64(text.encode()) == expected
