"""What is on its way through a computation at every moment, from its begin to its end.

The state of a loop, and the arguments whose memory results take over, are there at the begin and
cannot be recomputed once they are written over. Whenever a node runs, every way from them to what
the computation leaves behind leads over a value that is there then: such values are a cut between
both, and the least cut is a number of bytes that no order and no recomputation goes below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.remat.min_cut import UNCUT, Network

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.opt.orders.flow import Flow, FlowValue


class _Part(NamedTuple):
    """A value that may be on the way."""

    value: FlowValue
    size: int
    is_lent: bool
    """Whether it lies in the memory of a result."""


class Passage:
    """The values on their way through a computation."""

    def __init__(self, flow: Flow, stacks: AbstractSet[HloBuffer]) -> None:
        self._count = len(flow.nodes)
        self._parts = [
            _Part(value, 0 if flow.buffers[value.buffer] in stacks else size, is_lent=False)
            for value in flow.values
            for size in [flow.sizes[value.buffer]]
        ]
        self._parts += [
            _Part(value, lender.size, is_lent=True)
            for lender in flow.lenders
            for value in lender.values
        ]
        is_begun = [part.value.made_by < 0 and not part.value.lives_on for part in self._parts]
        self._begun = [number for number, is_first in enumerate(is_begun) if is_first]
        self._ended = [number for number, part in enumerate(self._parts) if part.value.lives_on]
        self.is_empty = not any(self._parts[number].size for number in self._begun)

    def least(
        self, node: int | None = None, there: AbstractSet[int] = frozenset(), later: int = 0
    ) -> int:
        """Bytes on their way while a node runs first, besides buffers that are there anyway.

        `later` are the nodes, as bits, that cannot have run by then. What the node itself touches
        in the memory of results is left out: its result may be written over it.
        """
        sizes = [
            UNCUT if part.value.made_by >= 0 and later >> part.value.made_by & 1 else size
            for part in self._parts
            for size in [self._size(part, node, there)]
        ]
        network, source, sink = self._network(sizes)
        near = network.source_side(source, sink)
        return sum(
            size
            for number, size in enumerate(sizes)
            if self._enter(number) in near and self._enter(number) + 1 not in near
        )

    def _network(self, sizes: Sequence[int]) -> tuple[Network, int, int]:
        source = self._enter(len(self._parts))
        sink = source + 1
        network = Network(sink + 1)
        for number, part in enumerate(self._parts):
            enter = self._enter(number)
            network.connect(enter, enter + 1, sizes[number])
            if part.value.made_by >= 0:
                network.connect(part.value.made_by, enter, UNCUT)
            for reader in part.value.readers:
                network.connect(enter + 1, reader, UNCUT)
        for number in self._begun:
            network.connect(source, self._enter(number), UNCUT)
        for number in self._ended:
            network.connect(self._enter(number) + 1, sink, UNCUT)
        return network, source, sink

    def _enter(self, number: int) -> int:
        """The node of the network where a value begins; the next is where it ends."""
        return self._count + 2 * number

    @staticmethod
    def _size(part: _Part, node: int | None, there: AbstractSet[int]) -> int:
        value = part.value
        if part.is_lent:
            return 0 if node == value.made_by or node in value.readers else part.size
        return 0 if value.buffer in there else part.size
