"""An allocator of which only sums are known: TPU's and CPU's, modelled.

TPU's heap is not public. By its error texts a program's temporaries are one block at the bottom of
memory and arrays lie above (pytorch/xla#1735, jax#7913), so that a run needs its temporaries in one
piece below all arrays: where arrays leave no holes, that is what sums say. A CPU has no pool.
"""

from __future__ import annotations

from hlomem.job.bfc import PoolExhaustedError


class SumAllocator:
    """Bytes in use against a limit; it has the face of `BfcAllocator`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = self.peak = self._next = 0
        self._sizes: dict[int, int] = {}

    def allocate(self, size: int) -> int | None:
        """An address for so many bytes, which stands for nothing."""
        if not size:
            return None
        if self.in_use + size > self.limit:
            raise PoolExhaustedError(size)
        self._next += 1
        self._sizes[self._next] = size
        self.in_use += size
        self.peak = max(self.peak, self.in_use)
        return self._next

    def free(self, address: int | None) -> None:
        """Give back what `allocate` gave."""
        if address is not None:
            self.in_use -= self._sizes.pop(address)

    @property
    def pool(self) -> int:
        """The most that was in use."""
        return self.peak

    @property
    def largest_free(self) -> int:
        """All that is free."""
        return self.limit - self.in_use

    @property
    def largest_possible(self) -> int:
        """All that is free."""
        return self.limit - self.in_use
