"""The machines there are, found by platform and chip.

In: `tpu` and `v5e`, as `--backend` and `--chip` give them. Out: the `Machine`; what is not known is
refused with what is.
"""

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

CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        chip.name: chip
        for file in _FILES
        for chip in (
            *(machine.chip for machine in file.MACHINES if machine.chip is not None),
            *file.OTHER_CHIPS,
        )
    }
)
"""Every chip whose memory is known, by its name."""

_KINDS_OF_GPU = {"cuda": "gpu", "rocm": "gpu"}
"""Platforms as JAX calls them where it tells GPUs apart."""


def find_machine(platform: str, chip: str = "") -> Machine:
    """The machine of a platform and a chip; of the platform where its chips plan alike."""
    if platform not in PLATFORMS:
        known = ", ".join(PLATFORMS)
        raise CommandError(f"no plan for backend `{visible(platform)}`: known are {known}")
    name = chip.lower()
    candidates = machines_of(platform)
    if not name and len(candidates) > 1:
        known = ", ".join(machine.chip_name for machine in candidates)
        article = f"a {platform.upper()}"
        raise CommandError(f"{article} plans by its chip: give one of {known} as the chip")
    found = MACHINES.get(f"{platform}-{name}" if name else platform)
    if found is None:
        raise CommandError(_unknown_chip(platform, chip))
    return found


def find_chip(chip: str) -> Machine:
    """The machine of a chip, whose platform goes without saying."""
    for machine in MACHINES.values():
        if machine.chip_name and machine.chip_name == chip.lower():
            return machine
    raise CommandError(_unknown_chip("", chip))


def given_machine(backend: str | Machine, chip: str = "") -> Machine | None:
    """The machine users give: itself, or by platform and chip; None where they leave it open."""
    if isinstance(backend, str):
        if backend:
            return find_machine(backend, chip)
        return find_chip(chip) if chip else None
    if chip:
        raise CommandError(f"`{backend.name}` is a machine, which has its chip: leave the chip out")
    return backend


def platform_of(chip: str) -> str:
    """The platform of a chip whose memory is known."""
    for file in _FILES:
        of_machines = {machine.chip_name for machine in file.MACHINES}
        if chip in of_machines | {other.name for other in file.OTHER_CHIPS}:
            return str(file.MACHINES[0].platform)
    raise CommandError(_unknown_chip("", chip))


def find_device(platform: str, kind: str) -> Machine | None:
    """The machine of a device as JAX calls it (`tpu`, `TPU v5 lite`); None where none is known."""
    platform = _KINDS_OF_GPU.get(platform, platform)
    alike = MACHINES.get(platform)
    if alike is not None:
        return alike
    for machine in machines_of(platform):
        if machine.chip is not None and machine.chip.device_kind == kind:
            return machine
    return None


def machines_of(platform: str) -> tuple[Machine, ...]:
    """The machines of a platform that plan differently, chip by chip where they do."""
    alike = MACHINES.get(platform)
    if alike is not None:
        return (alike,)
    return tuple(machine for machine in MACHINES.values() if machine.platform == platform)


def platform_machine(platform: str) -> Machine | None:
    """Any machine of a platform, for what all of them share; None where it is none's name."""
    return next((machine for machine in MACHINES.values() if machine.platform == platform), None)


def _unknown_chip(platform: str, chip: str) -> str:
    """Why a chip is refused, and what might be meant."""
    shown, name = visible(chip), chip.lower()
    if name in CHIPS:
        mine = [machine for machine in MACHINES.values() if machine.chip_name == name]
        if not mine:
            return f"no rules for chip `{shown}`: only its memory is known"
        return f"`{shown}` is a chip of backend {mine[0].platform}, not {platform}"
    names = [
        machine.chip_name
        for machine in MACHINES.values()
        if machine.chip_name and platform in ("", machine.platform)
    ]
    if not names:
        return f"no chip is to be given for backend {platform}, whose machines plan alike"
    from difflib import get_close_matches  # noqa: PLC0415 - only a slip needs it

    near = get_close_matches(name, names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    kind = f"{platform.upper()} " if platform else ""
    return f"no rules for {kind}chip `{shown}`: known are {', '.join(names)}{hint}"
