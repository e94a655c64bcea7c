"""Effects of instructions (`HasSideEffect` of hlo/ir/hlo_instruction.cc), and asynchronous work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import ASYNC_OPCODES, COLLECTIVES, KNOWN_OPCODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_SEEN = "infeed outfeed recv recv-done rng rng-get-and-update-state send send-done"
_OUTSIDE = frozenset(_SEEN.split())
"""Opcodes that change, or depend on, something that is not in the program."""
_TOGETHER = COLLECTIVES | {
    "all-gather-start",
    "all-reduce-start",
    "collective-permute-start",
    "collective-reduce",
}
"""Opcodes of what devices do together; its beginning where it is asynchronous."""
_IDLE = """
    add-dependency after-all bitcast constant domain get-tuple-element opt-barrier parameter
    partition-id replica-id tuple
"""
_FREE = frozenset(_IDLE.split())
"""Opcodes that take no time, and so hide nothing."""
_EFFECT = "custom_call_has_side_effect"


def takes_time(instruction: HloInstruction) -> bool:
    """Whether a device works on it, so that it may hide a transfer."""
    return instruction.opcode not in _FREE


def is_start(instruction: HloInstruction) -> bool:
    """Whether it begins something that goes on while others run."""
    return instruction.opcode.endswith("-start") or instruction.opcode in ("send", "recv")


def find_end(start: HloInstruction) -> HloInstruction | None:
    """The instruction that waits for the end of what a start began; None where nothing does."""
    pending = start
    while True:
        followers = [user for user in pending.users if user.operands[0] is pending]
        done = next((user for user in followers if user.opcode.endswith("-done")), None)
        if done is not None:
            return done
        update = next((user for user in followers if user.opcode in ASYNC_OPCODES), None)
        if update is None:
            return None
        pending = update


class Effects:
    """Answers whether instructions have effects, those of what they call included."""

    def __init__(self, call_graph: CallGraph, *, may_reorder_collectives: bool = False) -> None:
        self._call_graph = call_graph
        self._counts = _OUTSIDE if may_reorder_collectives else _OUTSIDE | _TOGETHER
        self._known: dict[HloComputation, bool] = {}

    def has(self, instruction: HloInstruction) -> bool:
        """Whether the order of an instruction among those with effects must stay."""
        opcode = instruction.opcode
        if opcode in self._counts or opcode not in KNOWN_OPCODES | _TOGETHER:
            return True
        declared = opcode == "custom-call" and instruction.attributes.get(_EFFECT) == "true"
        if declared:
            return True
        return any(self._is_in(callee) for callee in instruction.called_computations)

    def _is_in(self, computation: HloComputation) -> bool:
        known = self._known.get(computation)
        if known is None:
            known = self._known[computation] = any(self._found_in(computation))
        return known

    def _found_in(self, computation: HloComputation) -> Iterator[bool]:
        """The body of a fusion is known by its opcodes, without opening it."""
        if self._call_graph.is_fused(computation):
            body = self._call_graph.bodies[computation]
            yield not self._counts.isdisjoint(body.opcodes)
            yield "custom-call" in body.opcodes
            yield from map(self._is_in, self._call_graph.callees[computation])
        else:
            yield from map(self.has, computation.instructions)
