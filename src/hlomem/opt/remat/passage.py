"""The bytes that are on their way from the begin of a computation to its end, at every moment.

The state of a loop, and the arguments whose memory results take over, are there at the begin and
cannot be recomputed once they are written over. Whenever a node runs, every way from them to the
results of the computation leads over a value that is there then: such values are a cut between
both, and the least cut is a number of bytes that no order and no recomputation goes below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.remat.min_cut import UNCUT, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.opt.orders.flow import Flow


class Passage:
    """The values on their way through a computation."""

    def __init__(self, flow: Flow, stacks: AbstractSet[HloBuffer]) -> None:
        self._count = len(flow.nodes)
        self._values = flow.values
        self._sizes = [
            0 if flow.buffers[value.buffer] in stacks else flow.size(number)
            for number, value in enumerate(flow.values)
        ]
        is_begun = [value.made_by < 0 and not value.lives_on for value in flow.values]
        self._begun = [number for number, is_first in enumerate(is_begun) if is_first]
        self._ended = [number for number, value in enumerate(flow.values) if value.lives_on]
        self.most = sum(self._sizes[number] for number in self._begun)
        """Bytes, at most."""
        self._cuts: list[list[int]] = []
        """Values that all ways lead over, each the least cut for some node."""

    def least(
        self, there: AbstractSet[int], later: int, counts: Callable[[int], bool] = bool
    ) -> int:
        """Bytes on their way while a node runs first, besides buffers that are there anyway.

        `later` are the nodes, as bits, that cannot have run by then. Where `counts` says that a
        number is too small to count, it may be smaller than what is told.
        """
        sizes = [
            UNCUT if value.made_by >= 0 and later >> value.made_by & 1 else size
            for value, size in zip(self._values, self._sizes, strict=True)
        ]
        for number, value in enumerate(self._values):
            if value.buffer in there:
                sizes[number] = 0
        for cut in self._cuts:
            known = sum([sizes[number] for number in cut])
            if not counts(known):
                return known
        network, source, sink = self._network(sizes)
        near = network.source_side(source, sink)
        cut = [
            number
            for number in range(len(sizes))
            if self._enter(number) in near and self._enter(number) + 1 not in near
        ]
        self._cuts.append(cut)
        return sum([sizes[number] for number in cut])

    def _network(self, sizes: Sequence[int]) -> tuple[Network, int, int]:
        source = self._enter(len(self._values))
        sink = source + 1
        network = Network(sink + 1)
        for number, value in enumerate(self._values):
            enter = self._enter(number)
            network.connect(enter, enter + 1, sizes[number])
            if value.made_by >= 0:
                network.connect(value.made_by, enter, UNCUT)
            for reader in value.readers:
                network.connect(enter + 1, reader, UNCUT)
        for number in self._begun:
            network.connect(source, self._enter(number), UNCUT)
        for number in self._ended:
            network.connect(self._enter(number) + 1, sink, UNCUT)
        return network, source, sink

    def _enter(self, number: int) -> int:
        """The node of the network where a value begins; the next is where it ends."""
        return self._count + 2 * number
