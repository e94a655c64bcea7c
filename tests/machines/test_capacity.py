"""How much memory a device has."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.machines.capacity import parse_capacity


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("16 gib", 16 << 30),
        ("16GB", 16 * 10**9),
        ("15.75G", int(15.75 * (1 << 30))),
        ("512MiB", 512 << 20),
        ("100", 100),
        ("100B", 100),
        ("v5e", 16 << 30),
        ("H100", 80 << 30),
    ],
)
def test_sizes_and_chips(text: str, size: int) -> None:
    assert parse_capacity(text).size == size


def test_a_chip_keeps_its_name() -> None:
    assert parse_capacity("V5E").name == "v5e"
    assert parse_capacity("16GiB").name == ""


@pytest.mark.parametrize("text", ["", "much", "-3GiB", "16 apples", "1e9", "GiB"])
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(CommandError, match=r"no capacity: .*`16GiB` or a chip: .*v5e"):
        parse_capacity(text)
