"""Machines are found by platform and chip."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.machines.registry import (
    CHIPS,
    MACHINES,
    PLATFORMS,
    find_chip,
    find_device,
    find_machine,
    given_machine,
    machines_of,
    platform_machine,
    platform_of,
)


def test_the_platforms_are_what_the_command_line_takes() -> None:
    assert PLATFORMS == ("cpu", "gpu", "tpu")


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_is_found_by_its_parts(name: str) -> None:
    machine = MACHINES[name]
    if machine.chip is not None:
        assert find_machine(machine.platform, machine.chip_name) is machine
        assert find_machine(machine.platform, machine.chip_name.upper()) is machine
        assert find_chip(machine.chip_name) is machine
        assert CHIPS[machine.chip_name] is machine.chip


def test_a_platform_whose_chips_plan_alike_needs_none() -> None:
    assert find_machine("cpu") is MACHINES["cpu"]
    assert find_machine("gpu") is MACHINES["gpu"]
    assert machines_of("gpu") == (MACHINES["gpu"],)
    with pytest.raises(CommandError, match="plans for a TPU depend on its chip: give one of v4"):
        find_machine("tpu")


def test_an_unknown_chip_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"no rules for GPU chip `h20`: known are t4, .*b200"):
        find_machine("gpu", "h20")
    with pytest.raises(CommandError, match="did you mean h200"):
        find_machine("gpu", "h20")
    with pytest.raises(CommandError, match=r"no rules for chip `v9`: known are t4, .*tpu7x"):
        find_chip("v9")
    with pytest.raises(CommandError, match="`h200` is a chip of backend gpu, not tpu"):
        find_machine("tpu", "h200")
    with pytest.raises(CommandError, match="backend cpu takes no chip"):
        find_machine("cpu", "epyc")


@pytest.mark.parametrize(("platform", "chip"), [("gpu", "MI300X"), ("tpu", "v3"), ("tpu", "V2")])
def test_a_chip_of_which_only_the_memory_is_known_plans_nothing(platform: str, chip: str) -> None:
    assert CHIPS[chip.lower()].is_nominal
    with pytest.raises(
        CommandError, match=f"no rules for chip `{chip}`: only its capacity is known"
    ):
        find_machine(platform, chip)


def test_a_gpu_of_amd_by_its_architecture_is_refused() -> None:
    with pytest.raises(CommandError, match="no rules for GPU chip `gfx942`"):
        find_machine("gpu", "gfx942")


def test_an_unknown_platform_names_those_known() -> None:
    with pytest.raises(CommandError, match="unknown backend `rocm`: known are cpu, gpu, tpu"):
        find_machine("rocm")
    assert machines_of("rocm") == ()
    assert platform_machine("rocm") is None


@pytest.mark.parametrize(
    ("platform", "kind", "name"),
    [
        ("tpu", "TPU v5 lite", "tpu-v5e"),
        ("tpu", "TPU v5", "tpu-v5p"),
        ("tpu", "TPU v6 lite", "tpu-v6e"),
        ("tpu", "TPU v4", "tpu-v4"),
        ("tpu", "TPU7x", "tpu-tpu7x"),
        ("gpu", "NVIDIA H100 80GB HBM3", "gpu"),
        ("cpu", "cpu", "cpu"),
    ],
)
def test_devices_are_known_by_what_jax_calls_them(platform: str, kind: str, name: str) -> None:
    machine = find_device(platform, kind)
    assert machine is not None
    assert machine.name == name


def test_a_device_that_is_not_known_is_none() -> None:
    assert find_device("tpu", "TPU v99") is None
    assert find_device("rocket", "") is None


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_may_be_given_itself(name: str) -> None:
    machine = MACHINES[name]
    assert given_machine(machine) is machine
    with pytest.raises(CommandError, match="is a machine with its own chip"):
        given_machine(machine, "v5e")


def test_what_is_not_given_is_left_open() -> None:
    assert given_machine("") is None
    assert given_machine("", "v5e") is given_machine("tpu", "v5e") is MACHINES["tpu-v5e"]


def test_the_platform_of_a_chip_is_known_for_every_chip_and_no_other() -> None:
    for platform in PLATFORMS:
        for machine in machines_of(platform):
            if machine.chip is not None:
                assert platform_of(machine.chip_name) == platform
    assert platform_of("v3") == "tpu"
    with pytest.raises(CommandError, match="h20"):
        platform_of("h20")
