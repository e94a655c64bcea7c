"""How releases plan on machines, and what is said where that is not known."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.machines.options import Options, notes_on_release, options_for
from hlomem.machines.registry import MACHINES
from hlomem.machines.releases import find_release


def test_the_defaults_are_those_of_the_newest_xla_for_cpu() -> None:
    newest = options_for(MACHINES["cpu"], find_release("K"))
    assert newest.plans_like(Options())


def test_a_tpu_plans_as_the_libtpu_of_a_jaxlibs_time() -> None:
    machine = MACHINES["tpu-v5e"]
    by_jaxlib = options_for(machine, find_release("jaxlib-0.7.2"))
    assert by_jaxlib == options_for(machine, find_release("libtpu-0.0.34"))


def test_a_libtpu_does_not_plan_for_others() -> None:
    with pytest.raises(CommandError, match=r"libtpu-0\.0\.51 does not plan for cpu, whose XLA"):
        options_for(MACHINES["cpu"], find_release("libtpu-0.0.51"))


def test_releases_with_the_same_rules_plan_alike() -> None:
    gpu = MACHINES["gpu"]
    one, other = (options_for(gpu, find_release(name)) for name in ("0.11.1", "0.11.2"))
    assert one != other
    assert one.plans_like(other)
    assert not one.plans_like(options_for(gpu, find_release("0.12.0.1")))


@pytest.mark.parametrize(
    ("machine", "release", "nearest"),
    [
        ("gpu", "jaxlib-0.4.20", "jaxlib-0.11.2, the only release known"),
        ("gpu-h200", "jaxlib-9.9", "jaxlib-0.11.2, the only release known"),
        ("cpu", "jaxlib-9.9", "jaxlib-0.12.0.1, the newest known"),
        ("cpu", "jaxlib-0.4.1", "jaxlib-0.4.13, the oldest known"),
        ("tpu-v5e", "libtpu-0.0.60", "libtpu-0.0.51, the newest known"),
        ("tpu-v6e", "libtpu-0.0.2", "libtpu-0.0.4, the oldest known"),
        ("tpu-v4", "libtpu-0.0.34", "libtpu-0.0.51, the only release known"),
    ],
)
def test_rules_that_are_not_known_are_named(machine: str, release: str, nearest: str) -> None:
    (note,) = notes_on_release(MACHINES[machine], find_release(release))
    problem = f"what {release} does differently on {machine} is not known"
    assert note == f"{problem}: planned with {machine.partition('-')[0]} rules of {nearest}"


@pytest.mark.parametrize(
    ("machine", "release"),
    [("cpu", "jaxlib-0.8.1"), ("gpu", "jaxlib-0.11.2"), ("tpu-v5e", "libtpu-0.0.51")],
)
def test_nothing_is_said_of_rules_that_are_known(machine: str, release: str) -> None:
    assert notes_on_release(MACHINES[machine], find_release(release)) == []


def test_another_packages_release_is_named() -> None:
    (note,) = notes_on_release(MACHINES["tpu-v5e"], find_release("jaxlib-0.10.0"))
    assert note == "planned as libtpu-0.0.34, the XLA for tpu nearest to jaxlib-0.10.0"
