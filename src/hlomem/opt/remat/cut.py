"""Values dropped together at the peak and recomputed after it, each once: a least cut.

Each value that is alive at the peak and read after it is kept, for its bytes, or recomputed, for
its operations and bytes touched. That is a least cut, as for loops (`loops/choice.py`), so that
values made of the same others are dropped together, and what they share is computed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.constants import MAX_CUT_NODES, MAX_CUT_RETRIES
from hlomem.opt.once import once
from hlomem.opt.orders.cost import Costs, costs_of
from hlomem.opt.orders.flow import flows_of
from hlomem.opt.remat.clones import Draft, settle
from hlomem.opt.remat.edit import Edit, apply_edit, orders_by_name
from hlomem.opt.remat.min_cut import UNCUT, Network
from hlomem.opt.remat.state import FORWARDS, State, start_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloComputation
    from hlomem.opt.checks import Kind
    from hlomem.pipeline import Stages


def cut(candidate: Candidate, price: int, body: HloComputation | None = None) -> Candidate | None:
    """The program cut at its peak, or at that of a loop's body, if that is smaller."""
    stages = candidate.plan
    costs = costs_of(stages.options.machine)
    scopes = candidate.given.rules.scopes
    state = cut_at_peak(start_state(stages, scopes, body), costs, price)
    return None if state is None else make_smaller(candidate, state)


def make_smaller(candidate: Candidate, state: State) -> Candidate | None:
    """The program with its entry or a body as it is in a state, if that is smaller."""
    edit = settle(state).edit(orders_by_name(candidate.plan))
    key = edit.entry, edit.clones, tuple(edit.operands.items()), edit.orders[edit.entry]
    return once(candidate, key, lambda: _make(candidate, edit))


def _make(candidate: Candidate, edit: Edit) -> Candidate | None:
    stages = candidate.plan
    try:
        module = apply_edit(stages.module, edit)
    except EditError:
        return None
    kind: Kind = "clones" if edit.entry == stages.module.entry.name else "loops"
    made = changed(candidate, module, kind, clones=len(edit.clones))
    return made if made.temporaries < candidate.temporaries else None


def cut_inside(candidate: Candidate, price: int) -> Candidate | None:
    """The program cut within the loop that it needs most in, if there is one."""
    body = hungriest_body(candidate.plan)
    return None if body is None else cut(candidate, price, body)


def hungriest_body(stages: Stages) -> HloComputation | None:
    """The computation that a program needs most in; None for the entry."""
    return once(stages, "hungriest", lambda: _find_hungriest(stages))


def _find_hungriest(stages: Stages) -> HloComputation | None:
    body: HloComputation | None = None
    peaks = flows_of(stages).peaks()
    while True:
        state = start_state(stages, computation=body)
        levels = state.levels()
        hungriest = state.instruction(state.order[levels.index(max(levels))])
        called = [one for one in hungriest.called_computations if one in peaks]
        if not called or hungriest.opcode not in RUN_IN_PLACE:
            return body
        body = max(called, key=lambda one: peaks[one])


def cut_at_peak(state: State, costs: Costs, price: int) -> State | None:
    """The program cut at its peak for a price; None where nothing is freed."""
    if len(state.order) > MAX_CUT_NODES:
        return None
    levels = state.levels()
    return _Cut(state, costs, price, levels.index(max(levels))).run()


class _Overwritten(Exception):  # noqa: N818 - never leaves this module
    """A node that would read what has been written over."""

    def __init__(self, node: int) -> None:
        super().__init__()
        self.node = node


class _Cut:
    def __init__(self, state: State, costs: Costs, price: int, at: int) -> None:
        self._state = state
        self._costs = costs
        self._price = price
        self._at = at
        self._places = {node: place for place, node in enumerate(state.order)}
        self._before = state.order[: at + 1]
        self._behind = state.order[at + 1 :]
        self._kept = self._find_overwritten()
        """Nodes not to be recomputed: what they read is written over by then, or what they make is
        written over in turn."""
        self._source, self._sink = 2 * len(state.origin), 2 * len(state.origin) + 1
        self._needed = {
            operand
            for node in self._behind
            for operand in state.operands[node]
            if self._places[operand] <= at
        }
        self._edges_of: dict[int, tuple[int, int]] = {}
        """By node the edges that are cut where it is kept, and where it is recomputed."""
        self._network = self._connect()

    def run(self) -> State | None:
        """The program with all that changes; None where nothing is freed."""
        for _ in range(MAX_CUT_RETRIES):
            try:
                return self._write(self._choose())
            except _Overwritten as found:
                self._keep(found.node)
        return None

    def _keep(self, node: int) -> None:
        self._kept.add(node)
        kept, remade = self._edges_of[node]
        is_done = self._network.resize(kept, self._size(node))
        if not (is_done and self._network.resize(remade, self._cost(node))):
            self._network = self._connect()

    def _write(self, remade: set[int]) -> State | None:
        draft = Draft(self._state)
        clones: dict[int, int] = {}
        renamed: dict[int, int] = {}
        sequence = list(self._before)
        for node in self._behind:
            for missing in self._missing(node, remade, clones):
                if not self._is_intact(missing, remade, self._places[node]):
                    raise _Overwritten(missing)
                clone = draft.clone(missing, self._read(missing, clones))
                clones[missing] = clone
                renamed.update(draft.renamed_all(missing, clone))
                sequence.append(clone)
            if not renamed.keys().isdisjoint(self._state.flow.read_by[node]):
                draft.rewire(node, self._read(node, clones), renamed)
            elif any(operand in clones for operand in self._state.operands[node]):
                draft.rewire(node, self._read(node, clones), {})
            sequence.append(node)
        return draft.finish(sequence) if clones else None

    def _find_overwritten(self) -> set[int]:
        """Nodes whose values are written over after the peak."""
        state = self._state
        pending = [
            operand
            for node in self._behind
            for operand in state.operands[node]
            if state.writes_over(node, operand)
        ]
        found: set[int] = set()
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                if state.instruction(node).opcode in FORWARDS:
                    pending += state.operands[node]
        return found

    def _read(self, node: int, clones: Mapping[int, int]) -> tuple[int, ...]:
        return tuple([clones.get(operand, operand) for operand in self._state.operands[node]])

    def _missing(self, node: int, remade: set[int], clones: Mapping[int, int]) -> list[int]:
        """The nodes to recompute before one, in their order."""
        found: set[int] = set()
        pending = list(self._state.operands[node])
        while pending:
            needed = pending.pop()
            if needed in remade and needed not in clones and needed not in found:
                found.add(needed)
                pending += self._state.operands[needed]
        return sorted(found, key=lambda needed: self._places[needed])

    def _is_intact(self, node: int, remade: set[int], place: int) -> bool:
        """Whether nothing that a clone reads is written over before it runs."""
        return all(
            self._places[writer] >= place
            for operand in self._state.operands[node]
            if operand not in remade
            for writer in self._state.limits(operand)
        )

    # The cut.

    def _connect(self) -> Network:
        network = Network(self._sink + 1)
        for node in self._before:
            kept = network.connect(2 * node, 2 * node + 1, self._size(node))
            remade = network.connect(self._source, 2 * node, self._cost(node))
            self._edges_of[node] = kept, remade
            for operand in self._state.operands[node]:
                network.connect(2 * operand + 1, 2 * node, UNCUT)
            if node in self._needed:
                network.connect(2 * node + 1, self._sink, UNCUT)
        return network

    def _choose(self) -> set[int]:
        """The nodes that are recomputed after the peak."""
        near = self._network.source_side(self._source, self._sink)
        remade: set[int] = set()
        pending = list(self._needed)
        while pending:
            node = pending.pop()
            if node not in remade and 2 * node not in near:
                remade.add(node)
                pending += self._state.operands[node]
        return remade

    def _size(self, node: int) -> int:
        """Bytes to keep what a node holds; one that only hands on keeps nothing of its own."""
        state = self._state
        if state.instruction(node).opcode in FORWARDS and node not in self._kept:
            return UNCUT
        return sum(
            state.flow.size(value)
            for value in state.holds[node]
            if not state.flow.values[value].lives_on
        )

    def _cost(self, node: int) -> int:
        state = self._state
        if not state.may_repeat(node) or node in self._kept:
            return UNCUT
        instruction = state.instruction(node)
        if instruction.opcode in FORWARDS:
            return 0
        if not self._price:
            return 1
        return self._costs.weight(instruction) // self._price + 1
