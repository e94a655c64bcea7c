"""TPUs."""

from __future__ import annotations

import pytest

from hlomem.machines.options import options_for
from hlomem.machines.registry import CHIPS, find_device, find_machine, machines_of
from hlomem.machines.releases import find_release
from hlomem.machines.tpu import MACHINES, TPU_V4, TPU_V5E


@pytest.mark.parametrize(
    ("chip", "gibibytes"),
    [
        ("v4", 30.75),
        ("v4-core", 15.25),
        ("v5e", 15.75),
        ("v5p", 95.73),
        ("v6e", 31.24),
        ("tpu7x", 94.74),
    ],
)
def test_memory_is_what_libtpu_says_is_available(chip: str, gibibytes: float) -> None:
    assert CHIPS[chip].size == int(gibibytes * 2**30)
    assert not CHIPS[chip].is_nominal
    assert "libtpu 0.0.51" in CHIPS[chip].note


def test_the_fast_memory_of_v4_is_cmem_and_vmem_elsewhere() -> None:
    names = {
        machine.chip_name: machine.space_name(machine.preset_color or 0) for machine in MACHINES
    }
    assert {name for name, space in names.items() if space == "cmem"} == {"v4", "v4-core"}
    assert set(names.values()) == {"cmem", "vmem"}


def test_a_core_of_v4_is_meant_only_where_it_is_named() -> None:
    assert find_machine("tpu", "v4-core").capacity == CHIPS["v4-core"].size
    assert "v4-core" not in {machine.chip_name for machine in machines_of("tpu")}
    assert find_device("tpu", "TPU v4") is TPU_V4


def test_rules_follow_the_release() -> None:
    old, new = (options_for(TPU_V5E, find_release(f"libtpu-{v}")) for v in ("0.0.34", "0.0.51"))
    assert (old.fast_merge, new.fast_merge) == (False, True)
    assert not old.plans_like(new)
