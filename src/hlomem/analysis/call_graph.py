"""Callees and callsites (`service/call_graph.cc`); bodies of fusions are not parsed for this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.analysis.post_order import instruction_post_order
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

CONTROL_FLOW_OPCODES = RUN_IN_PLACE | ASYNC_OPCODES
"""Opcodes that run a computation in the caller's control flow; all other calls are embedded
(`GetInstructionCallContext` of hlo_opcode.cc)."""


class CallGraph:
    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.callees: dict[HloComputation, list[HloComputation]] = {}
        """The distinct callees of each computation, in the order of the text."""
        self.callsites: dict[HloComputation, list[HloInstruction]] = {
            computation: [] for computation in module.computations
        }
        """The instructions outside fused bodies that call each computation."""
        self._post_orders: dict[HloComputation, list[HloInstruction]] = {}
        self._called_in_bodies: set[HloComputation] = set()
        self._fused: set[HloComputation] = set()
        self._embedded: set[HloComputation] = set()
        self._reachable = {module.entry}
        self.bodies = FusedBodies()
        self._read_calls()

    def post_order(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions of a computation, operands before users; read-only."""
        known = self._post_orders.get(computation)
        if known is None:
            known = self._post_orders[computation] = instruction_post_order(computation)
        return known

    def is_embedded(self, computation: HloComputation) -> bool:
        """Whether it runs inside one operation: a reducer, a fusion's body."""
        return computation in self._embedded

    def is_in_flow(self, computation: HloComputation) -> bool:
        """Whether it belongs to the program's control flow."""
        return computation in self._reachable and computation not in self._embedded

    def is_thread_local(self, computation: HloComputation) -> bool:
        """Whether it runs inside one operation other than a fusion."""
        return (
            computation in self._reachable
            and computation in self._embedded
            and computation not in self._fused
        )

    def is_fused(self, computation: HloComputation) -> bool:
        return computation in self._fused

    def is_called(self, computation: HloComputation) -> bool:
        return bool(self.callsites[computation]) or computation in self._called_in_bodies

    def find_call_in_both(self) -> HloInstruction | None:
        """A control-flow call of a computation that is also embedded in an operation."""
        calls = (
            site
            for computation in self.module.outer_computations
            if computation in self._embedded
            for site in self.callsites[computation]
            if site.opcode in RUN_IN_PLACE and self.is_in_flow(site.parent)
        )
        return next(calls, None)

    def _read_calls(self) -> None:
        fused, bodies = self._fused, self.bodies
        for computation in reversed(self.module.computations):  # callers before callees
            if computation not in fused:
                callees = self._callees_of(computation)
            elif bodies[computation].may_call:
                callees = self._callees_in_body(computation)
            else:
                callees = []
            self.callees[computation] = callees
            if callees and computation in self._embedded:
                self._embedded.update(callees)
            if callees and computation in self._reachable:
                self._reachable.update(callees)

    def _callees_of(self, computation: HloComputation) -> list[HloComputation]:
        """The callees of a computation; records its callsites."""
        callees: dict[HloComputation, None] = {}
        for instruction in computation.instructions:
            called = instruction.called_computations
            if not called:
                continue
            if instruction.opcode == "fusion":
                self._fused.update(called)
                self._embedded.update(called)
            elif instruction.opcode not in CONTROL_FLOW_OPCODES:
                self._embedded.update(called)
            for callee in called if len(called) == 1 else dict.fromkeys(called):
                callees[callee] = None
                self.callsites[callee].append(instruction)
        return list(callees)

    def _callees_in_body(self, body: HloComputation) -> list[HloComputation]:
        callees: dict[HloComputation, None] = {}
        for call in body.calls():
            callees.update(dict.fromkeys(call.called_computations))
            if call.opcode == "fusion":
                self._fused.update(call.called_computations)
        self._called_in_bodies.update(callees)
        self._embedded.update(callees)
        return list(callees)
