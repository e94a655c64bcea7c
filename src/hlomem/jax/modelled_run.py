"""A run of a planned program on one device of a target: operations, traffic, and modelled time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.opt.orders.cost import module_time
from hlomem.opt.orders.work import module_work

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.jax.target_kinds import Target


class ModelledRun(NamedTuple):
    """One run on one device."""

    flops: int
    """Of matrix products."""
    sent: int
    """Bytes to other devices."""
    seconds: float | None
    """By the model of `opt.orders.cost` with the chip's speed; None where that is unknown."""


def model_run(module: HloModule, target: Target) -> ModelledRun:
    """The run of a program that a target's compiler has planned."""
    machine, chip = target.machine, target.chip_facts
    work = module_work(module, target.device_count, machine.size_of)
    if chip is None or not chip.bandwidth:
        return ModelledRun(work.flops, work.sent, None)
    ratio = chip.flops // chip.bandwidth or machine.flops_per_byte
    moved = module_time(module, replace(machine, flops_per_byte=ratio))
    return ModelledRun(work.flops, work.sent, moved / chip.bandwidth)
