"""The known machines, by platform and chip: `--backend tpu --chip v5e`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.machines import cpu, gpu, tpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.machines.machine import Chip, Machine

_FILES = (cpu, gpu, tpu)

MACHINES: Mapping[str, Machine] = MappingProxyType(
    {machine.name: machine for file in _FILES for machine in file.MACHINES}
)
"""Every machine by its name: `cpu`, `gpu`, `gpu-h200`, `tpu-v5e`, …"""

PLATFORMS = tuple(dict.fromkeys(machine.platform for machine in MACHINES.values()))
"""The values of `--backend`: `cpu`, `gpu`, `tpu`."""

_CHIPS_OF: Mapping[str, tuple[Chip, ...]] = {
    file.MACHINES[0].platform: (
        *(machine.chip for machine in file.MACHINES if machine.chip is not None),
        *file.OTHER_CHIPS,
    )
    for file in _FILES
}
CHIPS: Mapping[str, Chip] = MappingProxyType(
    {chip.name: chip for chips in _CHIPS_OF.values() for chip in chips}
)
"""Every chip of known capacity, by its name."""

_JAX_PLATFORMS = {"cuda": "gpu", "rocm": "gpu"}


def find_machine(platform: str, chip: str = "") -> Machine:
    """The machine of a platform and chip; the chip is optional if all chips plan alike."""
    if platform not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise CommandError(f"unknown backend `{visible(platform)}`: known are {known}")
    name = chip.lower()
    candidates = machines_of(platform)
    if not name and len(candidates) > 1:
        known = ", ".join(machine.chip_name for machine in candidates)
        problem = f"plans for a {platform.upper()} depend on its chip"
        raise CommandError(f"{problem}: give one of {known} as the chip")
    found = MACHINES.get(f"{platform}-{name}" if name else platform)
    if found is None:
        raise CommandError(_unknown_chip(platform, chip))
    return found


def find_chip(chip: str) -> Machine:
    for machine in MACHINES.values():
        if machine.chip_name and machine.chip_name == chip.lower():
            return machine
    raise CommandError(_unknown_chip("", chip))


def given_machine(backend: str | Machine, chip: str = "") -> Machine | None:
    """The machine given by users, as an object or as platform and chip; None if they gave none."""
    if isinstance(backend, str):
        if backend:
            return find_machine(backend, chip)
        return find_chip(chip) if chip else None
    if chip:
        raise CommandError(f"`{backend.name}` is a machine with its own chip: leave the chip out")
    return backend


def platform_of(chip: str) -> str:
    for platform, chips in _CHIPS_OF.items():
        if any(other.name == chip for other in chips):
            return platform
    raise CommandError(_unknown_chip("", chip))


def find_device(platform: str, kind: str) -> Machine | None:
    """The machine of a JAX device (`tpu`, `TPU v5 lite`); None if unknown."""
    for machine in machines_of(_JAX_PLATFORMS.get(platform, platform)):
        if machine.chip is None or machine.chip.device_kind == kind:
            return machine
    return None


def machines_of(platform: str, *, also_on_request: bool = False) -> tuple[Machine, ...]:
    """The machines of a platform that plan differently: one, or one per chip."""
    alike = MACHINES.get(platform)
    if alike is not None:
        return (alike,)
    return tuple(
        machine
        for machine in MACHINES.values()
        if machine.platform == platform
        and (also_on_request or machine.chip is None or not machine.chip.is_on_request)
    )


def platform_machine(platform: str) -> Machine | None:
    """Any machine of a platform, for what all of them share; None for an unknown platform."""
    return next(iter(machines_of(platform)), None)


def _unknown_chip(platform: str, chip: str) -> str:
    """Why a chip is refused, and the nearest known names."""
    shown, name = visible(chip), chip.lower()
    if name in CHIPS:
        mine = [machine for machine in MACHINES.values() if machine.chip_name == name]
        if not mine:
            return f"no rules for chip `{shown}`: only its capacity is known"
        return f"`{shown}` is a chip of backend {mine[0].platform}, not {platform}"
    names = [
        machine.chip_name
        for machine in MACHINES.values()
        if machine.chip_name and platform in ("", machine.platform)
    ]
    if not names:
        return f"backend {platform} takes no chip: all its machines plan alike"
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    near = get_close_matches(name, names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    kind = f"{platform.upper()} " if platform else ""
    return f"no rules for {kind}chip `{shown}`: known are {', '.join(names)}{hint}"
