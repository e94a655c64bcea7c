"""Large values made of next to nothing, computed inside the loops that read them.

Masks, pads and selections are stored by one kernel and loaded by the next, though the next could
compute each element where it needs it: then they need no memory, and the program is faster. So do
scatters of one element for each row of zeros, as the gradient of a cross entropy makes them: inside
a loop they are a selection. Only what rounds in one way only is moved, so that no bit changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import EditError
from hlomem.hlo.opcodes import ELEMENTWISE
from hlomem.hlo.schedule import running_computations
from hlomem.hlo.shape import ElementType, Shape, default_layout
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.checks.rounding import rounds_one_way
from hlomem.opt.constants import LEAST_FUSED, MAX_FUSED_INPUT
from hlomem.opt.loops.fusion_edit import LoopDraft, shrink
from hlomem.opt.loops.offsets import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.pipeline import Stages

_MOVING = """
    bitcast concatenate convert copy dynamic-slice pad reshape reverse select slice transpose tuple
"""
_READ_ONCE = frozenset[str](_MOVING.split()) | ELEMENTWISE
"""Opcodes that take each element of what they read once."""
_FLOATS = ("bf16", "f16", "f32", "f64")
_KINDS = ("kInput", "kLoop")


class Rows(NamedTuple):
    """A scatter of one element for each row."""

    axis: int
    """The dimension within a row."""
    column: HloInstruction
    """The index in its row of each element."""
    is_added: bool


def compute_inside(candidate: Candidate) -> Candidate | None:
    """The program whose loops compute what is made of next to nothing; None where none does."""
    stages = candidate.plan
    if stages.options.machine.changed_after_hook != "fusions":
        return None
    try:
        module = _Editor(stages, LEAST_FUSED * candidate.temporaries).run()
    except EditError:
        return None
    return None if module is None else changed(candidate, module, "loops")


def find_inside(stages: Stages) -> list[HloInstruction]:
    """Values of any size that readers can compute inside."""
    if stages.options.machine.changed_after_hook != "fusions":
        return []
    return [value for _, value in _Editor(stages, 1).pairs()]


class _Editor:
    def __init__(self, stages: Stages, least: float) -> None:
        self._stages = stages
        self._least = least
        self._size_of = stages.options.machine.size_of

    def pairs(self) -> list[tuple[HloInstruction, HloInstruction]]:
        """Loops, and the values that they can compute."""
        return [
            (reader, value)
            for computation in running_computations(self._stages.module)
            for reader in self._stages.schedule.sequence(computation)
            for value in dict.fromkeys(reader.operands)
            if _is_loop(reader) and self._is_cheap(value) and _is_read_once(reader, value)
        ]

    def run(self) -> HloModule | None:
        """The module with all that changes; None where nothing does."""
        pairs = self.pairs()
        if not pairs:
            return None
        draft = LoopDraft(self._stages.module)
        draft.moved = HERE
        for computation in running_computations(self._stages.module):
            body = draft.body(computation)
            sequence = self._stages.schedule.sequence(computation)
            body.instructions = [draft.instruction(one) for one in sequence]
        for reader, value in pairs:
            _Inliner(draft, draft.instruction(reader), draft.instruction(value)).run()
        for computation in {reader.parent for reader, _ in pairs}:
            draft.body(computation).drop_dead(lambda one: one.opcode in ("bitcast", "fusion"))
        draft.drop_uncalled()
        return draft.finish()

    def _is_cheap(self, value: HloInstruction) -> bool:
        """Whether a value is large, made of little, and rounds in one way only."""
        if value.opcode != "fusion" or not value.shape.is_array or not _is_transparent(value):
            return False
        size, [body] = self._size_of(value.shape), value.called_computations
        if size < self._least:
            return False
        operands = list(value.operands)
        if find_rows(value) is not None:
            del operands[body.root.operands[0].parameter_number]
        elif not rounds_one_way(body) or value.attributes["kind"] != "kLoop":
            return False
        given = sum(self._size_of(leaf) for one in operands for _, leaf in one.shape.leaves())
        return given <= MAX_FUSED_INPUT * size


def _is_transparent(fusion: HloInstruction) -> bool:
    if fusion.attributes.get("kind") not in _KINDS or fusion.control_predecessors:
        return False
    return all(one.opcode != "fusion" for one in fusion.called_computations[0].instructions)


def _is_loop(fusion: HloInstruction) -> bool:
    """Whether a fusion computes its elements one by one."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kLoop":
        return False
    body = fusion.called_computations[0]
    return not any(one.called_computations for one in body.instructions)


def _is_read_once(fusion: HloInstruction, value: HloInstruction) -> bool:
    """Whether a fusion takes each element of an operand once, wherever it puts it."""
    numbers = [number for number, one in enumerate(fusion.operands) if one is value]
    if len(numbers) != 1 or value.parent is not fusion.parent:
        return False
    seen: set[HloInstruction] = set()
    pending = [fusion.called_computations[0].parameters[numbers[0]]]
    while pending:
        for user in pending.pop().users:
            if user.opcode not in _READ_ONCE:
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


# Scatters.


def find_rows(fusion: HloInstruction) -> Rows | None:
    """The scatter of a fusion, if it puts one element into each row of zeros."""
    root = fusion.called_computations[0].root
    if root.opcode != "scatter" or not root.shape.is_array or len(root.operands) != 3:
        return None
    zeros, indices, updates = root.operands
    shape, rank = root.shape, root.shape.rank
    combiner = root.called_computations[0].root
    is_usual = (
        shape.element_type.text in _FLOATS
        and shape.layout == default_layout(rank)
        and zeros.opcode == "parameter"
        and _is_zeros(fusion.operands[zeros.parameter_number])
        and (combiner.opcode == "add" or combiner.payload == "1")
        and updates.shape.dimensions[1:] == (1,) * rank
        and root.integers("scatter_dims_to_operand_dims") == tuple(range(rank))
    )
    joined = _behind_bitcasts(indices)
    if not is_usual or joined.opcode != "concatenate" or len(joined.operands) != rank:
        return None
    free = [number for number, one in enumerate(joined.operands) if one.opcode != "iota"]
    if len(free) != 1:
        return None
    return Rows(free[0], joined.operands[free[0]], combiner.opcode == "add")


def _is_zeros(value: HloInstruction) -> bool:
    """Whether a value is a broadcast of zero."""
    root = value.called_computations[0].root if value.opcode == "fusion" else value
    return root.opcode == "broadcast" and root.operands[0].payload == "0"


def _behind_bitcasts(instruction: HloInstruction) -> HloInstruction:
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction


# The edit.


class _Inliner:
    """One operand of a loop, computed inside."""

    def __init__(self, draft: LoopDraft, reader: HloInstruction, value: HloInstruction) -> None:
        self._draft = draft
        self._reader = reader
        self._value = value
        self._body = draft.draft(reader.called_computations[0])
        self._copy_of: dict[HloInstruction, HloInstruction] = {}

    def run(self) -> None:
        rows = find_rows(self._value)
        source = self._value.called_computations[0]
        self._draft.track(source)
        made = list(self._copies(source))
        root = self._copy_of[source.root] if rows is None else None
        if rows is not None:
            made += self._selection(rows, source.root)
            root = made[-1]
        assert root is not None
        number = self._reader.operands.index(self._value)
        parameters = [one for one in self._body.instructions if one.opcode == "parameter"]
        old = next(one for one in parameters if one.parameter_number == number)
        for user in self._body.users(old):
            user.operands = tuple([root if one is old else one for one in user.operands])
        new = [one for one in made if one.opcode == "parameter"]
        rest = [one for one in self._body.instructions if one.opcode != "parameter"]
        made = [one for one in made if one.opcode != "parameter"]
        self._body.instructions = [*parameters, *new, *made, *rest]
        if self._body.root is old:
            self._body.root = root
        shrink(self._body, self._reader)

    def _copies(self, source: HloComputation) -> Iterator[HloInstruction]:
        """The instructions of the value's body; its parameters are the reader's."""
        for instruction in self._draft.listed(source):
            if instruction.opcode == "parameter":
                found, is_new = self._parameter(instruction)
                self._copy_of[instruction] = found
                if is_new:
                    yield found
            elif instruction.opcode != "scatter":
                copy = self._draft.copy(instruction, self._draft.new(instruction.name))
                copy.operands = tuple([self._copy_of[one] for one in instruction.operands])
                copy.parent = self._body.computation
                self._copy_of[instruction] = copy
                yield copy

    def _parameter(self, instruction: HloInstruction) -> tuple[HloInstruction, bool]:
        """The parameter of the reader that is the same value; a new one where there is none."""
        given = self._value.operands[instruction.parameter_number]
        if given in self._reader.operands:
            number = self._reader.operands.index(given)
            known = [one for one in self._body.instructions if one.opcode == "parameter"]
            found = [one for one in (*known, *self._copy_of.values()) if one.opcode == "parameter"]
            return next(one for one in found if one.parameter_number == number), False
        number = len(self._reader.operands)
        self._reader.operands = (*self._reader.operands, given)
        name = self._draft.new(instruction.name)
        return self._make(name, given.shape, "parameter", payload=str(number)), True

    def _make(
        self,
        name: str,
        shape: Shape,
        opcode: Opcode,
        operands: Sequence[HloInstruction] = (),
        attributes: dict[str, str] | None = None,
        payload: str = "",
    ) -> HloInstruction:
        return self._body.make(
            name, shape, opcode, operands, payload=payload, attributes=attributes or {}
        )

    def _selection(self, rows: Rows, scatter: HloInstruction) -> list[HloInstruction]:
        """The instructions that a scatter of one element for each row is equal to."""
        made: list[HloInstruction] = []
        shape = scatter.shape
        batch = [number for number in range(shape.rank) if number != rows.axis]
        sizes = tuple([shape.dimensions[number] for number in batch])
        along = {"dimensions": f"{{{','.join(map(str, batch))}}}"}

        def put(
            opcode: Opcode,
            shape: Shape,
            *operands: HloInstruction,
            attributes: dict[str, str] | None = None,
            payload: str = "",
        ) -> HloInstruction:
            name = self._draft.new(f"{scatter.name}.{opcode}")
            made.append(self._make(name, shape, opcode, operands, attributes, payload))
            return made[-1]

        def of(element_type: ElementType, sizes: tuple[int, ...]) -> Shape:
            return Shape(element_type, sizes, (), default_layout(len(sizes)))

        index = self._copy_of[rows.column]
        number = index.shape.element_type
        index = put("bitcast", of(number, sizes), index)
        index = put("broadcast", of(number, shape.dimensions), index, attributes=along)
        axis = {"iota_dimension": str(rows.axis)}
        counted = put("iota", of(number, shape.dimensions), attributes=axis)
        equal = {"direction": "EQ"}
        pred = of(ElementType.PRED, shape.dimensions)
        is_here = put("compare", pred, index, counted, attributes=equal)
        everywhere = {"dimensions": "{}"}
        zero = put("constant", of(shape.element_type, ()), payload="0")
        zeros = put("broadcast", shape, zero, attributes=everywhere)
        update = self._copy_of[scatter.operands[2]]
        if update.opcode == "broadcast" and _is_number(update.operands[0]):
            value = put("broadcast", shape, update.operands[0], attributes=everywhere)
        else:
            row = of(shape.element_type, sizes)
            value = put("bitcast", row, update)
            if rows.is_added:
                no = put("broadcast", row, zero, attributes=everywhere)
                value = put("add", row, no, value)
            value = put("broadcast", shape, value, attributes=along)
        put("select", shape, is_here, value, zeros)
        return made


def _is_number(instruction: HloInstruction) -> bool:
    """Whether a value is a constant that adding it to zero does not change."""
    if instruction.opcode != "constant" or instruction.shape.dimensions:
        return False
    try:
        return float(instruction.payload) != 0
    except ValueError:
        return False
