"""Who calls whom, and in which context.

In: a module. Out: a node per computation that is read, with its call sites and callers. Fused
bodies that nobody opened are leaves: a fusion's call is there, what happens inside is not.

Mirrors `service/call_graph.cc`. The graph has no cycles, because the parser only lets a computation
call what stands above it; everything here is iterative all the same. One graph is kept per module.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from hlomem.hlo.opcodes import ASYNC_OPCODES, KNOWN_OPCODES

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule


class CallContext(Enum):
    """How a computation is run (`CallContext` of call_graph.h)."""

    NONE = "never called"
    CONTROL_FLOW = "its instructions run as such: call, while, conditional, async"
    EMBEDDED = "inside another instruction: fusion, reduce, sort"
    BOTH = "both"


class CallSite(NamedTuple):
    """An instruction that calls computations."""

    instruction: HloInstruction
    context: CallContext

    @property
    def called_computations(self) -> tuple[HloComputation, ...]:
        """What it calls, in XLA's order."""
        return self.instruction.called_computations


class CallGraphNode:
    """A computation, the calls it makes and the calls made to it."""

    __slots__ = ("call_sites", "callees", "caller_call_sites", "computation", "context", "depth")

    def __init__(self, computation: HloComputation) -> None:
        self.computation = computation
        self.call_sites: list[CallSite] = []
        self.callees: list[HloComputation] = []  # each once, in the order of the first call
        self.caller_call_sites: list[CallSite] = []
        self.context = CallContext.NONE
        self.depth = 0  # of the longest chain of calls from a computation nobody calls


class CallGraph:
    """The nodes of a module, callees before callers in `post_order`."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.node_of = {each: CallGraphNode(each) for each in module.computations}
        for computation in module.computations:
            if computation.is_open:
                self._add_call_sites(computation)
        self._set_contexts()

    def call_site(self, instruction: HloInstruction) -> CallSite | None:
        """The call an instruction makes, None where it makes none."""
        sites = self.node_of[instruction.parent].call_sites
        return next((site for site in sites if site.instruction is instruction), None)

    def callers(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions that call a computation, in the order of the text."""
        return [site.instruction for site in self.node_of[computation].caller_call_sites]

    def post_order(self) -> list[HloComputation]:
        """What the entry reaches, callees first, as `CallGraph::VisitNodes` visits them."""
        order: list[HloComputation] = []
        seen: set[HloComputation] = {self.module.entry}
        stack = [(self.module.entry, iter(self.node_of[self.module.entry].callees))]
        while stack:
            computation, callees = stack[-1]
            callee = next((each for each in callees if each not in seen), None)
            if callee is None:
                order.append(computation)
                stack.pop()
            else:
                seen.add(callee)
                stack.append((callee, iter(self.node_of[callee].callees)))
        return order

    def dominates(self, a: HloComputation, b: HloComputation) -> bool:
        """Whether every chain of calls that reaches `b` goes through `a` (`Dominates`)."""
        seen = {b}
        pending = [b]
        while pending:
            computation = pending.pop()
            if computation is a:
                continue
            callers = self.callers(computation)
            if not callers:
                return False
            for caller in callers:
                if caller.parent not in seen:
                    seen.add(caller.parent)
                    pending.append(caller.parent)
        return True

    def _add_call_sites(self, computation: HloComputation) -> None:
        node = self.node_of[computation]
        seen: set[HloComputation] = set()
        for instruction in computation.instructions:
            if not instruction.called_computations:
                continue
            site = CallSite(instruction, instruction_call_context(instruction.opcode))
            node.call_sites.append(site)
            for callee in instruction.called_computations:
                self.node_of[callee].caller_call_sites.append(site)
                if callee not in seen:
                    seen.add(callee)
                    node.callees.append(callee)

    def _set_contexts(self) -> None:
        """`CallGraph::SetCallContexts` and `SetNodeDepths`; callers stand below their callees."""
        for computation in reversed(self.module.computations):
            node = self.node_of[computation]
            if not node.caller_call_sites:
                node.context = CallContext.CONTROL_FLOW
            for site in node.caller_call_sites:
                caller = self.node_of[site.instruction.parent]
                node.depth = max(node.depth, caller.depth + 1)
                # What an embedded computation calls is embedded, whatever the call is.
                embedded = caller.context is CallContext.EMBEDDED
                added = CallContext.EMBEDDED if embedded else site.context
                if caller.context is CallContext.BOTH:
                    added = CallContext.BOTH
                node.context = _union(node.context, added)


_CONTROL_FLOW = ASYNC_OPCODES | {"call", "conditional", "while"}


def instruction_call_context(opcode: str) -> CallContext:
    """How an opcode runs what it calls (`GetInstructionCallContext`)."""
    if opcode in _CONTROL_FLOW or opcode not in KNOWN_OPCODES:
        return CallContext.CONTROL_FLOW
    return CallContext.EMBEDDED


def _union(one: CallContext, two: CallContext) -> CallContext:
    if one is CallContext.NONE or one is two:
        return two
    return one if two is CallContext.NONE else CallContext.BOTH


_GRAPHS: WeakKeyDictionary[HloModule, CallGraph] = WeakKeyDictionary()


def call_graph(module: HloModule) -> CallGraph:
    """The call graph of a module, made once."""
    graph = _GRAPHS.get(module)
    if graph is None:
        graph = _GRAPHS[module] = CallGraph(module)
    return graph
