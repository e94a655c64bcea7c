"""What names tell."""

from __future__ import annotations

from hlomem.history.names import flow_name, split_number


def test_names_are_split_into_base_and_number() -> None:
    assert split_number("add.12") == ("add", 12)
    assert split_number("region_0.3.clone.1") == ("region_0.3.clone", 1)
    assert split_number("add") == ("add", -1)
    assert split_number(f"add.{'9' * 5000}") == (f"add.{'9' * 5000}", -1)


def test_the_name_of_a_loop_is_found_under_what_passes_added() -> None:
    assert flow_name("wide.wide.region_0.5.clone.sunk") == "region_0.5.clone"
    assert flow_name("region_0.5_spmd") == "region_0.5_spmd"
