"""The call graph, and which computations run in their caller's flow or inside one operation.

In: a module. Out: for every computation its callees and the instructions that call it. Mirrors
`service/call_graph.cc`. The bodies of fusions are not opened for this, and a body that was opened
before counts no more than one that was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.analysis.post_order import instruction_post_order
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

CONTROL_FLOW_OPCODES = RUN_IN_PLACE | ASYNC_OPCODES
"""Opcodes that run a computation in the flow of the caller; every other call is embedded.

`hlo_opcode.cc: GetInstructionCallContext`.
"""


class CallGraph:
    """The calls of one module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.callees: dict[HloComputation, list[HloComputation]] = {}
        """The callees of each computation, each once, in the order of its text."""
        self.callsites: dict[HloComputation, list[HloInstruction]] = {
            computation: [] for computation in module.computations
        }
        """The instructions that call each computation, those inside fused bodies left out."""
        self._post_orders: dict[HloComputation, list[HloInstruction]] = {}
        self._called_in_bodies: set[HloComputation] = set()
        self._fused: set[HloComputation] = set()
        self._embedded: set[HloComputation] = set()
        self._reachable = {module.entry}
        self.bodies = FusedBodies()
        """The contents of the bodies of fusions."""
        self._read_calls()

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
        """Whether it runs inside one operation other than a fusion."""
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
        return bool(self.callsites[computation]) or computation in self._called_in_bodies

    def find_call_in_both(self) -> HloInstruction | None:
        """A call that runs in the flow a computation that also runs inside an operation."""
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
        """The callees of a computation; its instructions become their callsites."""
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
        """The callees of a fused body."""
        callees: dict[HloComputation, None] = {}
        for call in body.calls():
            callees.update(dict.fromkeys(call.called_computations))
            if call.opcode == "fusion":
                self._fused.update(call.called_computations)
        self._called_in_bodies.update(callees)
        self._embedded.update(callees)
        return list(callees)
