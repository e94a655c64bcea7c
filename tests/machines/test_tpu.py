"""TPUs."""

from __future__ import annotations

import pytest

from hlomem.machines.options import options_for
from hlomem.machines.registry import CHIPS
from hlomem.machines.releases import find_release
from hlomem.machines.tpu import MACHINES, TPU_V5E


@pytest.mark.parametrize(
    ("chip", "gibibytes"),
    [("v4", 15.25), ("v5e", 15.75), ("v5p", 95.73), ("v6e", 31.24), ("tpu7x", 94.74)],
)
def test_memory_is_what_libtpu_says_is_available(chip: str, gibibytes: float) -> None:
    assert CHIPS[chip].size == int(gibibytes * 2**30)
    assert not CHIPS[chip].is_nominal
    assert "libtpu 0.0.51" in CHIPS[chip].note


def test_the_fast_memory_of_v4_is_cmem_and_vmem_elsewhere() -> None:
    names = {
        machine.chip_name: machine.space_name(machine.preset_color or 0) for machine in MACHINES
    }
    assert names == {"v4": "cmem", "v5e": "vmem", "v5p": "vmem", "v6e": "vmem", "tpu7x": "vmem"}


def test_rules_follow_the_release() -> None:
    old, new = (options_for(TPU_V5E, find_release(f"libtpu-{v}")) for v in ("0.0.34", "0.0.51"))
    assert (old.fast_merge, new.fast_merge) == (False, True)
    assert not old.plans_like(new)
