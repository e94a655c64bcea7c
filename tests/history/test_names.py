"""What names tell."""

from __future__ import annotations

from hlomem.history.names import flow_name


def test_the_name_of_a_loop_is_found_under_what_passes_added() -> None:
    assert flow_name("wide.wide.region_0.5.clone.sunk") == "region_0.5.clone"
    assert flow_name("region_0.5_spmd") == "region_0.5_spmd"
