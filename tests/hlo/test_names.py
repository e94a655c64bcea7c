"""What names tell."""

from __future__ import annotations

from hlomem.hlo.names import split_number


def test_names_are_split_into_base_and_number() -> None:
    assert split_number("add.12") == ("add", 12)
    assert split_number("region_0.3.clone.1") == ("region_0.3.clone", 1)
    assert split_number("add") == ("add", -1)
    assert split_number(f"add.{'9' * 5000}") == (f"add.{'9' * 5000}", -1)
