"""The bytes a program needs: the one rule which allocations count, and the only sum of them.

An allocation counts in its own memory space and in no other: host memory is not HBM. One on the
stacks of threads (`thread-local`) counts in none: the runtime reserves nothing for it, and JAX's
`total_allocation_bytes` leaves it out, too (`ComputeTotalAllocationBytes` of XLA's
`service/buffer_assignment.cc`). The rule serves allocations of plans, of dumps and of protos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from hlomem.base.quantities import MAIN_MEMORY, ByteCount

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reserved(Protocol):
    """An allocation, as far as its bytes go."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def color(self) -> int:
        """Its memory space."""

    @property
    def is_thread_local(self) -> bool:
        """Whether it is on the stacks of threads."""


AnyReserved = TypeVar("AnyReserved", bound=Reserved)


def reserved(allocations: Iterable[AnyReserved], space: int) -> list[AnyReserved]:
    """The allocations that count in a memory space."""
    return [
        allocation
        for allocation in allocations
        if allocation.color == space and not allocation.is_thread_local
    ]


def footprint(allocations: Iterable[Reserved], space: int = MAIN_MEMORY) -> ByteCount:
    """The bytes that some allocations need in a memory space; of all of a program, its needs."""
    return ByteCount(sum(allocation.size for allocation in reserved(allocations, space)))


def main_space(allocations: Iterable[Reserved]) -> int:
    """The memory space a program is measured in: the first that it needs anything of."""
    held = (
        allocation.color
        for allocation in allocations
        if allocation.size and not allocation.is_thread_local
    )
    return min(held, default=MAIN_MEMORY)
