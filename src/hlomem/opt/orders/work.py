"""The work of a planned program on one device: matrix products, and bytes sent to other devices.

Loops count as often as they are known to run, of branches the most. A collective sends what a ring
sends: of `n` devices each hands on `(n - 1) / n` of what is gathered, scattered or exchanged, and
twice that of what is reduced everywhere.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import COLLECTIVES
from hlomem.opt.orders.products import product_flops
from hlomem.opt.orders.trips import trip_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape

_IOTA_GROUPS = re.compile(r"\[(\d+),(\d+)\]<=")
_FIRST_GROUP = re.compile(r"\{\{([\d,]*)\}")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'=(\d+)")
_CHOSEN = re.compile(r"'([^']*)'(?::\(\d+\)(\d+))?")
_SCATTERED = "all-reduce-scatter"
"""The name of a fusion in which a TPU keeps a part of what an all-reduce gives."""
_WHOLE = frozenset({"collective-permute", "collective-broadcast"})
"""Collectives that send all they are given."""


class Work(NamedTuple):
    """The work of one device in a run of the program."""

    flops: int
    """Of matrix products and convolutions; kernels that XLA cannot see into do not count."""
    sent: int
    """Bytes to other devices."""

    def times(self, count: int) -> Work:
        return Work(self.flops * count, self.sent * count)


_NOTHING = Work(0, 0)


def module_work(module: HloModule, devices: int, size_of: Callable[[Shape], int]) -> Work:
    """The work of a program that runs on so many devices."""
    return _Counter(devices, size_of).of(module.entry)


class _Counter:
    def __init__(self, devices: int, size_of: Callable[[Shape], int]) -> None:
        self._devices = devices
        self._size_of = size_of
        self._known: dict[HloComputation, Work] = {}

    def of(self, computation: HloComputation) -> Work:
        known = self._known.get(computation)
        if known is None:
            computation.ensure_read()
            flops = sent = 0
            for part in computation.instructions:
                work = self._of_part(part, computation)
                flops, sent = flops + work.flops, sent + work.sent
            known = self._known[computation] = Work(flops, sent)
        return known

    def _of_part(self, part: HloInstruction, home: HloComputation) -> Work:
        opcode = part.opcode.removesuffix("-start")
        if opcode in COLLECTIVES:
            return Work(0, self._sent(part, opcode, home))
        if not part.called_computations:
            return Work(product_flops(part), 0)
        inside = [self.of(callee) for callee in part.called_computations]
        if part.opcode == "conditional":
            return max(inside, default=_NOTHING)
        total = Work(sum(work.flops for work in inside), sum(work.sent for work in inside))
        return total.times(trip_count(part)) if part.opcode == "while" else total

    def _sent(self, part: HloInstruction, opcode: str, home: HloComputation) -> int:
        given = sum(
            self._size_of(leaf) for operand in part.operands for _, leaf in operand.shape.leaves()
        )
        if opcode in _WHOLE:
            return given
        group = self._group_size(part)
        if opcode == "all-gather":
            return given * (group - 1)
        is_whole = opcode == "all-reduce" and not home.name.startswith(_SCATTERED)
        return given * (group - 1) // group * (2 if is_whole else 1)

    def _group_size(self, part: HloInstruction) -> int:
        text = part.attributes.get("replica_groups", "")
        if (iota := _IOTA_GROUPS.search(text)) is not None:
            return max(int(iota[2]), 1)
        if (mesh := _MESH.search(text)) is not None:
            sizes = {name: int(size) for name, size in _AXIS.findall(mesh[1])}
            chosen = _CHOSEN.findall(mesh[2])
            return prod(int(part_of or sizes.get(name, 1)) for name, part_of in chosen)
        first = _FIRST_GROUP.search(text)
        return len(first[1].split(",")) if first is not None and first[1] else self._devices
