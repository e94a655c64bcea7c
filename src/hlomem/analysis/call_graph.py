"""Who calls whom, and whether a computation runs in its caller's flow or inside one operation.

In: a module. Out: for every computation its callees and the instructions that call it. Mirrors
`service/call_graph.cc`. The bodies of fusions are not opened for this: what they call is found in
their text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.analysis.post_order import instruction_post_order
from hlomem.hlo.opcodes import (
    ASYNC_OPCODES,
    CALL_IN_TEXT,
    NAME_IN_TEXT,
    RUN_IN_PLACE,
)

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

CONTROL_FLOW_OPCODES = RUN_IN_PLACE | ASYNC_OPCODES
"""What runs a computation in the flow of the caller; every other call is embedded.

`hlo_opcode.cc: GetInstructionCallContext`.
"""

_FUSION_ATTRIBUTE = "calls"


class CallGraph:
    """The calls of one module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.callees: dict[HloComputation, list[HloComputation]] = {}
        """What each computation calls, each once, in the order of its text."""
        self.callsites: dict[HloComputation, list[HloInstruction]] = {
            computation: [] for computation in module.computations
        }
        """The instructions that call each computation, those inside fused bodies left out."""
        self._post_orders: dict[HloComputation, list[HloInstruction]] = {}
        self._called_from_text: set[HloComputation] = set()
        self._run_inside: set[HloComputation] = set()  # by an operation outside fused bodies
        self._fused = {each for each in module.computations if each.is_fused}
        self.bodies = FusedBodies(module)
        """What the bodies of fusions hold."""
        self._read_calls()
        self._embedded = self._with_callees(self._run_inside | self._called_from_text)
        self._reachable = self._with_callees({module.entry})

    def post_order(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions of a computation, operands before users; read-only."""
        known = self._post_orders.get(computation)
        if known is None:
            known = self._post_orders[computation] = instruction_post_order(computation)
        return known

    def is_embedded(self, computation: HloComputation) -> bool:
        """Whether it runs inside one operation (a reduction's adder, a fusion's body)."""
        return computation in self._embedded

    def is_in_flow(self, computation: HloComputation) -> bool:
        """Whether it is a part of the program's own flow."""
        return computation in self._reachable and computation not in self._embedded

    def is_thread_local(self, computation: HloComputation) -> bool:
        """Whether it runs inside one operation that is no fusion."""
        return (
            computation in self._reachable
            and computation in self._embedded
            and computation not in self._fused
        )

    def is_fused(self, computation: HloComputation) -> bool:
        """Whether it is the body of a fusion."""
        return computation in self._fused

    def is_called(self, computation: HloComputation) -> bool:
        """Whether anything calls it."""
        return bool(self.callsites[computation]) or computation in self._called_from_text

    def _read_calls(self) -> None:
        for computation in reversed(self.module.computations):  # callers before callees
            if computation in self._fused and not computation.is_open:
                may_call = self.bodies[computation].may_call
                self.callees[computation] = self._callees_in_text(computation) if may_call else []
                continue
            self.callees[computation] = self._callees_of(computation)

    def _callees_of(self, computation: HloComputation) -> list[HloComputation]:
        """What the instructions of a computation call; they become its callsites."""
        callees: dict[HloComputation, None] = {}
        for instruction in computation.instructions:
            called = instruction.called_computations
            if not called:
                continue
            if instruction.opcode not in CONTROL_FLOW_OPCODES:
                self._run_inside.update(called)
                if instruction.opcode == "fusion":
                    self._fused.update(called)
            for callee in called if len(called) == 1 else dict.fromkeys(called):
                callees[callee] = None
                self.callsites[callee].append(instruction)
        return list(callees)

    def _callees_in_text(self, computation: HloComputation) -> list[HloComputation]:
        """What a fused body calls."""
        by_name = self.module.computation_by_name
        callees: dict[HloComputation, None] = {}
        for match in self.bodies.search(CALL_IN_TEXT, computation):
            attribute, names, name = match.groups()
            called = [
                by_name[each] for each in NAME_IN_TEXT.findall(names or name) if each in by_name
            ]
            if any(callee.index >= computation.index for callee in called):
                computation.ensure_read()  # raises that one is called too early
            callees.update(dict.fromkeys(called))
            if attribute == _FUSION_ATTRIBUTE:
                self._fused.update(called)
        self._called_from_text.update(callees)
        return list(callees)

    def _with_callees(self, computations: set[HloComputation]) -> set[HloComputation]:
        """Some computations and all that they call, directly or not."""
        reached: set[HloComputation] = set()
        while computations:
            reached |= computations
            called = {callee for each in computations for callee in self.callees[each]}
            computations = called - reached
        return reached
