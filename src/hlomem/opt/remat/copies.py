"""Copies that are not needed, dropped: their readers read what was copied.

XLA inserts copies before it schedules, wherever some order would write over a value too early
(hlo/transforms/copy_insertion.cc). In an order where all that read the copy run before the next
value is written to the original's memory, the original does. A copy of what is made of nothing,
zeros for a loop to begin with, is made of nothing instead, so that the first need not wait.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import can_share_operand_buffer
from hlomem.analysis.machine_rules import rules_of
from hlomem.base.errors import EditError
from hlomem.hlo.barriers import has_barriers, without_barriers
from hlomem.hlo.body_draft import relink
from hlomem.hlo.shape import ShapeIndex
from hlomem.opt.candidate import Candidate, changed, with_schedule
from hlomem.opt.constants import LEAST_COPY, MAX_COPIES, MAX_SEED
from hlomem.opt.loops.fusion_edit import LoopDraft
from hlomem.opt.loops.offsets import HERE
from hlomem.opt.once import once
from hlomem.opt.orders.edges import AT_START
from hlomem.opt.orders.effects import Effects
from hlomem.opt.orders.flow import FlowBuilder, flows_of
from hlomem.opt.remat.edit import SUFFIX
from hlomem.opt.remat.state import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.pipeline import Stages


def drop_barriers(candidate: Candidate) -> Candidate:
    """The program without barriers, where its compiler does no more than drop them, too.

    What `jax.checkpoint` keeps apart by barriers is apart by then.
    """
    machine = candidate.options.machine
    stages = candidate.plan
    if machine.changed_after_hook != "nothing" or not has_barriers(stages.module):
        return candidate
    module = without_barriers(with_schedule(stages, {}))
    return changed(candidate, module, "loops")


def drop_copies(candidate: Candidate) -> Candidate | None:
    """The program without copies that are not needed, if it needs no more; None where none is."""
    made = without_copies(candidate)
    return None if made is None or made.temporaries > candidate.temporaries else made


def without_copies(candidate: Candidate) -> Candidate | None:
    """The same, whatever it needs: what comes later in its order may be smaller in another."""
    return once(candidate, "without copies", lambda: _without_copies(candidate))


def _without_copies(candidate: Candidate) -> Candidate | None:
    stages = candidate.plan
    try:
        module = _Editor(stages, LEAST_COPY * candidate.temporaries).run()
    except EditError:
        return None
    return None if module is None else changed(candidate, module, "loops")


class _Editor:
    def __init__(self, stages: Stages, least: float) -> None:
        self._stages = stages
        self._least = least
        self._builder = flows_of(stages)
        self._effects = Effects(stages.call_graph)
        self._left = MAX_COPIES

    def run(self) -> HloModule | None:
        """The module with all that changes; None where nothing does."""
        draft = LoopDraft(self._stages.module)
        draft.moved = HERE
        has_changed = False
        for computation in self._builder.computations():
            body = _Body(self._stages, self._builder, computation)
            remade: list[HloInstruction] = []
            for copy in self._copies(computation):
                if self._left <= 0:
                    break
                if self._is_of_nothing(copy.operands[0]):
                    remade.append(copy)
                elif body.drop(copy):
                    self._left -= 1
            if remade or body.dropped:
                has_changed = True
                _write(draft, body, remade)
        if not has_changed:
            return None
        draft.drop_uncalled()
        return draft.finish()

    def _copies(self, computation: HloComputation) -> list[HloInstruction]:
        """Copies of the same layout that are worth it, the largest first."""
        size_of = self._stages.options.machine.size_of
        found = [
            one
            for one in computation.instructions
            if one.opcode == "copy"
            and one is not computation.root
            and one.shape.is_array
            and one.shape.text == one.operands[0].shape.text
            and size_of(one.shape) > self._least
        ]
        return sorted(found, key=lambda one: (-size_of(one.shape), one.index))

    def _is_of_nothing(self, value: HloInstruction) -> bool:
        """Whether a value is made of next to nothing, so that a second costs what a copy does."""
        if value.opcode not in ("broadcast", "fusion", "iota"):
            return False
        size_of = self._stages.options.machine.size_of
        given = sum(size_of(one.shape) for one in value.operands if one.shape.is_array)
        is_small = given <= MAX_SEED and all(one.shape.is_array for one in value.operands)
        return is_small and value.shape.is_array and is_repeatable(value, self._effects)


def _write(draft: LoopDraft, body: _Body, remade: Sequence[HloInstruction]) -> None:
    """Change one computation: other readers, another order, clones instead of copies."""
    new = draft.body(body.computation)
    new.instructions = [draft.instruction(one) for one in body.order()]
    gone = {draft.instruction(one) for one in (*body.dropped, *remade)}
    for copy in body.dropped:
        new.replace(draft.instruction(copy), draft.instruction(copy).operands[0])
    for copy in remade:
        old = draft.instruction(copy)
        model = old.operands[0]
        clone = draft.copy(model, draft.new(copy.name))
        if model.opcode == "fusion":
            callee = draft.clone_fused(model.called_computations[0], SUFFIX)
            clone.called_computations = (callee,)
            relink(clone)
        new.put_before(old, clone)
        new.replace(old, clone)
    for one in new.instructions:
        if not gone.isdisjoint(one.control_predecessors):
            kept = [earlier for earlier in one.control_predecessors if earlier not in gone]
            one.control_predecessors = tuple(kept)
            relink(one)
    new.drop_dead(lambda one: one.opcode in ("broadcast", "copy", "fusion", "iota"))


class _Body:
    """The order of one computation while copies are dropped."""

    def __init__(self, stages: Stages, builder: FlowBuilder, computation: HloComputation) -> None:
        self.computation = computation
        self.dropped: list[HloInstruction] = []
        self._stages = stages
        self._rules = rules_of(stages.options.machine)
        self._nodes = stages.schedule.sequence(computation)
        self._node_of = {one: node for node, one in enumerate(self._nodes)}
        self._places = builder.places.of(computation)
        flow = builder.build(computation, {})
        self._before = [set(needed) for needed in flow.before]

    def order(self) -> list[HloInstruction]:
        order = self._sorted()
        assert order is not None
        return [self._nodes[node] for node in order]

    def drop(self, copy: HloInstruction) -> bool:
        """Let the readers of a copy read the original, if an order allows it."""
        extra = self._new_edges(copy)
        if extra is None:
            return False
        kept = [set(needed) for needed in self._before]
        for later, earlier in extra:
            self._before[later].add(earlier)
        if self._sorted() is None:
            self._before = kept
            return False
        self.dropped.append(copy)
        return True

    def _new_edges(self, copy: HloInstruction) -> list[tuple[int, int]] | None:
        """Nodes that must come after readers of a copy, in pairs; None where it is to stay."""
        own = self._alone(copy)
        if own is None:
            return None
        node = self._node_of[copy]
        readers = set(self._places[own].touched_by) - {node}
        extra: list[tuple[int, int]] = []
        for value in self._values_of(copy.operands[0]):
            writer = self._next_writer(value)
            if writer is None:
                continue
            if writer in readers and not self._may_overwrite(copy, self._nodes[writer]):
                return None
            extra += [(writer, reader) for reader in readers if reader != writer]
        return extra

    def _alone(self, copy: HloInstruction) -> HloValue | None:
        """The value of a copy, if nothing is written over it, and no result is."""
        values = self._values_of(copy)
        if len(values) != 1 or values[0] not in self._places:
            return None
        buffer = self._stages.aliasing.buffer_of[values[0]]
        is_kept = buffer in self._stages.aliasing.live_out or len(buffer.values) > 1
        return None if is_kept or self._places[values[0]].lives_on else values[0]

    def _values_of(self, instruction: HloInstruction) -> list[HloValue]:
        return [v for part in self._stages.dataflow.value_sets[instruction] for v in part]

    def _next_writer(self, value: HloValue) -> int | None:
        """The node that writes the next value to the memory of one."""
        place = self._places.get(value)
        made_by = AT_START if place is None else place.made_by
        buffer = self._stages.aliasing.buffer_of[value]
        written = [
            self._places[other].made_by
            for other in buffer.values
            if other in self._places and self._places[other].made_by > made_by
        ]
        return min(written, default=None)

    def _may_overwrite(self, copy: HloInstruction, writer: HloInstruction) -> bool:
        """Whether what reads a copy may write its result over the original while it reads."""
        return all(
            can_share_operand_buffer(
                self._stages.dataflow, copy, ShapeIndex(), writer, value.index, self._rules
            )
            for value in self._values_of(writer)
            if value.instruction is writer and copy in writer.operands
        )

    def _sorted(self) -> list[int] | None:
        """The nodes as near to their order as edges allow; None where edges go round."""
        waiting = [len(needed) for needed in self._before]
        after: list[list[int]] = [[] for _ in self._before]
        for node, needed in enumerate(self._before):
            for earlier in needed:
                after[earlier].append(node)
        ready = [node for node, count in enumerate(waiting) if not count]
        order: list[int] = []
        while ready:
            node = ready.pop(0)
            order.append(node)
            for later in after[node]:
                waiting[later] -= 1
                if not waiting[later]:
                    insort(ready, later)
        return order if len(order) == len(self._before) else None
