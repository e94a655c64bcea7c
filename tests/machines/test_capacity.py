"""How much memory a device has."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.machines.capacity import parse_capacity
from hlomem.machines.registry import CHIPS


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("16 gib", 16 << 30),
        ("16GB", 16 * 10**9),
        ("15.75G", int(15.75 * (1 << 30))),
        ("512MiB", 512 << 20),
        ("2097152", 2 << 20),
        ("100B", 100),
        ("v5e", 63 << 28),
        ("H100", 80 << 30),
    ],
)
def test_sizes_and_chips(text: str, size: int) -> None:
    assert parse_capacity(text).size == size


def test_a_chip_keeps_its_name() -> None:
    assert parse_capacity("V5E").name == "v5e"
    assert parse_capacity("16GiB").name == ""


def test_what_is_nominal_says_so() -> None:
    assert parse_capacity("h100").label == "h100, nominal"
    assert parse_capacity("v5e").label == "v5e"
    assert parse_capacity("v3").is_nominal
    assert not parse_capacity("16GiB").is_nominal
    assert "75%" in parse_capacity("h100").note


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_has_one_capacity(chip: str) -> None:
    assert parse_capacity(chip).size == CHIPS[chip].size


def test_what_is_nearly_a_chip_is_suggested() -> None:
    with pytest.raises(CommandError, match="did you mean v5p or v5e"):
        parse_capacity("v5")


@pytest.mark.parametrize("text", ["", "much", "-3GiB", "16 apples", "1e9", "GiB"])
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(CommandError, match=r"not a capacity: .*`16GiB` or a chip: .*v5e"):
        parse_capacity(text)


@pytest.mark.parametrize("text", ["16", " 80 ", "0"])
def test_a_small_number_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="bytes: give a unit, as in `16GiB`"):
        parse_capacity(text)
