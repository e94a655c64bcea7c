"""The loop that computes a region in pieces.

Its state is the number of the piece, all that the region reads, and its results: those that are cut
are written piece by piece, shares are added to what is there. In the body, what is read in pieces
is sliced right before it is needed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import relink
from hlomem.hlo.dimension_links import SLICED, Share, identity_of
from hlomem.hlo.shape import ElementType, Shape, default_layout, tuple_shape
from hlomem.opt.loops.fusion_edit import LoopDraft
from hlomem.opt.pieces.fused import FusedPieces
from hlomem.opt.pieces.shapes import braced, piece_attributes, piece_of, summed_in

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.opt.pieces.region import Region

SUFFIX = "piece"
INTEGER = Shape(ElementType.S32, (), (), default_layout(0))
_ELEMENT = "get-tuple-element"


def compute_in_pieces(module: HloModule, region: Region, pieces: int) -> HloModule:
    """The module with a region computed in pieces; `EditError` where that cannot be written."""
    return _Editor(module, region, pieces).run()


class PieceDraft(LoopDraft):
    def new(self, name: str) -> str:
        return self.new_name(name, SUFFIX)


class _Editor:
    def __init__(self, module: HloModule, region: Region, pieces: int) -> None:
        self._region = region
        self._pieces = pieces
        self._draft = PieceDraft(module)
        self._home = next(iter(region.solved)).parent
        self._parent = self._draft.body(self._home)
        self._inputs = region.inputs
        self._results = region.results
        self._new: list[HloInstruction] = []
        """Instructions before the loop."""
        self._listed: list[HloInstruction] = []
        """The instructions of the body."""
        self._made: dict[HloInstruction, HloInstruction] = {}
        """By value of the region its piece; by value that it reads whole, the same in the body."""
        self._slices: dict[tuple[HloInstruction, int], HloInstruction] = {}
        self._offsets: dict[int, HloInstruction] = {}
        self._fused = FusedPieces(self._draft, pieces, self._draft.computation(self._home))

    def run(self) -> HloModule:
        counter = self._filled(INTEGER, "0", "piece")
        given = map(self._draft.instruction, self._inputs)
        operands = [counter, *given, *map(self._start, self._results)]
        shape = tuple_shape([one.shape for one in operands])
        body = self._body(shape)
        condition = self._condition(shape, body)
        initial = self._make("tuple", shape, operands)
        config = json.dumps({"known_trip_count": {"n": str(self._pieces)}}, separators=(",", ":"))
        loop = self._parent.make(
            self._draft.new("while"),
            shape,
            "while",
            [initial],
            attributes={"backend_config": config},
            called=[body, condition],
        )
        first = 1 + len(self._inputs)
        taken: dict[HloInstruction, HloInstruction] = {}
        after: list[HloInstruction] = []
        for index, value in enumerate(self._results, first):
            made = self._draft.element_of(
                self._parent, value.name, loop, shape.elements[index], index
            )
            after.append(made)
            if made.shape.element_type is not value.shape.element_type:
                wrap, name = self._draft.wrap, value.name
                after.append(wrap(self._parent, name, value.shape, "convert", [made]))
            taken[value] = after[-1]
        self._replace([*self._new, initial, loop, *after], taken)
        self._draft.drop_uncalled()
        return self._draft.finish()

    # What the loop begins with.

    def _make(
        self, opcode: Opcode, shape: Shape, operands: list[HloInstruction], payload: str = ""
    ) -> HloInstruction:
        name = self._draft.new(opcode)
        return self._parent.make(name, shape, opcode, operands, payload=payload)

    def _filled(self, shape: Shape, number: str, name: str) -> HloInstruction:
        """An array of one number, before the loop."""
        scalar = Shape(shape.element_type, (), (), default_layout(0))
        if shape.element_type is ElementType.PRED:
            number = "false"
        constant = self._make("constant", scalar, [], number)
        whole = self._draft.wrap(
            self._parent, name, shape, "broadcast", [constant], {"dimensions": "{}"}
        )
        self._new.extend([constant, whole])
        return whole

    def _start(self, value: HloInstruction) -> HloInstruction:
        """A result before the first piece."""
        cut = self._region.cut[value]
        shape = summed_in(value.shape, cut)
        number = identity_of(cut.opcode, shape) if isinstance(cut, Share) else "0"
        if number is None:
            raise EditError(f"{value.name} has no number to begin with")
        return self._filled(shape, number, value.name)

    # The body.

    def _body(self, shape: Shape) -> HloComputation:
        draft, region = self._draft, self._region
        parameter = self._put(self._make("parameter", shape, [], "0"))
        elements = [
            self._put(draft.element_of(self._parent, "element", parameter, one, index))
            for index, one in enumerate(shape.elements)
        ]
        self._offsets[1] = elements[0]
        first = 1 + len(self._inputs)
        self._made.update(zip(self._inputs, elements[1:first], strict=True))
        element_of = dict(zip(self._results, elements[first:], strict=True))
        returned: dict[HloInstruction, HloInstruction] = {}
        for one in sorted(region.solved, key=lambda one: one.index):
            self._piece(one)
            for value in region.arrays_of(one):
                if value in element_of:
                    returned[value] = self._return(value, element_of[value])
        following = self._put(draft.wrap(self._parent, "next", INTEGER, "add", [elements[0], 1]))
        given = [following, *elements[1:first], *(returned[one] for one in self._results)]
        root = self._put(self._make("tuple", shape, given))
        home = draft.computation(self._home)
        name = draft.new("pieces")
        return draft.add(name, home, home.index, self._listed, root).computation

    def _put(self, made: HloInstruction) -> HloInstruction:
        self._listed.append(made)
        return made

    def _return(self, value: HloInstruction, element: HloInstruction) -> HloInstruction:
        """A result with what a piece adds to it."""
        cut, piece = self._region.cut[value], self._made[value]
        wrap, name = self._draft.wrap, value.name
        if isinstance(cut, Share):
            if piece.shape.element_type is not element.shape.element_type:
                return self._put(self._add_wide(name, element, piece))
            return self._put(wrap(self._parent, name, value.shape, cut.opcode, [element, piece]))
        assert cut is not None
        places: list[HloInstruction | int] = [0] * value.shape.rank
        places[cut] = self._offset(piece.shape.dimensions[cut])
        operands = [element, piece, *places]
        return self._put(wrap(self._parent, name, value.shape, "dynamic-update-slice", operands))

    def _add_wide(
        self, name: str, element: HloInstruction, piece: HloInstruction
    ) -> HloInstruction:
        """A fusion that adds a narrow share to a wider sum."""
        total = self._draft.wrap(self._parent, name, element.shape, "add", [element, piece])
        body = self._draft.body(total.called_computations[0])
        share = next(one for one in body.instructions if one.payload == "1")
        wide = body.make(self._draft.new("convert"), element.shape, "convert", [share])
        body.put_after([share], wide)
        body.root.operands = (body.root.operands[0], wide)
        return total

    def _offset(self, size: int) -> HloInstruction:
        """The first place of the piece, if all have a size."""
        if size not in self._offsets:
            counter = self._offsets[1]
            operands: list[HloInstruction | int] = [counter, size]
            self._offsets[size] = self._put(
                self._draft.wrap(self._parent, "offset", INTEGER, "multiply", operands)
            )
        return self._offsets[size]

    def _piece(self, one: HloInstruction) -> None:
        """The instruction of the body that computes a piece of what one of the region does."""
        solved, draft = self._region.solved[one], self._draft
        if one.opcode in SLICED:
            [cut] = solved.link.results
            assert isinstance(cut, int)
            self._made[one] = self._slice(self._clone(one), cut)
            return
        if solved.link.column is not None:
            raise EditError(f"the indices of {one.name} stand outside of fusions")
        operands = [
            self._read(operand, cut)
            for operand, cut in zip(one.operands, solved.link.operands, strict=True)
        ]
        made = draft.copy(draft.instruction(one), draft.new(one.name))
        results = list(solved.link.results)
        leaves = list(one.shape.elements) if one.shape.is_tuple else [one.shape]
        shapes = [piece_of(*pair, self._pieces) for pair in zip(leaves, results, strict=True)]
        made.shape = tuple_shape(shapes) if one.shape.is_tuple else shapes[0]
        made.operands, made.control_predecessors = tuple(operands), ()
        if one.opcode == "fusion":
            callee, sizes = self._fused.copy(one, solved)
            made.called_computations = (callee,)
            made.operands = (*operands, *map(self._offset, sizes))
        made.set_attributes(piece_attributes(one, solved.link, made.shape, self._pieces))
        relink(made)
        self._put(made)
        self._made[one] = made
        for value in self._region.arrays_of(one):
            if value is not one:
                index = value.tuple_index
                taken = draft.element_of(self._parent, value.name, made, shapes[index], index)
                self._made[value] = self._put(taken)

    def _read(self, operand: HloInstruction, cut: int | None) -> HloInstruction:
        """The body's value for an operand: a piece of its own, or of a value outside."""
        if operand in self._region.cut:
            return self._made[operand]
        whole = self._clone(operand) if operand.opcode in SLICED else self._made[operand]
        if cut is None:
            return whole
        if (whole, cut) not in self._slices:
            self._slices[whole, cut] = self._slice(whole, cut)
        return self._slices[whole, cut]

    def _clone(self, constant: HloInstruction) -> HloInstruction:
        if constant not in self._made:
            copy = self._draft.instruction(constant)
            made = self._draft.copy(copy, self._draft.new(constant.name))
            self._made[constant] = self._put(made)
        return self._made[constant]

    def _slice(self, whole: HloInstruction, cut: int) -> HloInstruction:
        shape = piece_of(whole.shape, cut, self._pieces)
        places: list[HloInstruction | int] = [0] * shape.rank
        places[cut] = self._offset(shape.dimensions[cut])
        sizes = {"dynamic_slice_sizes": braced(shape.dimensions)}
        return self._put(
            self._draft.wrap(self._parent, "slice", shape, "dynamic-slice", [whole, *places], sizes)
        )

    def _condition(self, shape: Shape, body: HloComputation) -> HloComputation:
        draft = self._draft
        parameter = self._make("parameter", shape, [], "0")
        counter = draft.element_of(self._parent, "piece", parameter, INTEGER, 0)
        flag = Shape(ElementType.PRED, (), (), default_layout(0))
        operands: list[HloInstruction | int] = [counter, self._pieces]
        direction = {"direction": "LT"}
        root = draft.wrap(self._parent, "before", flag, "compare", operands, direction)
        listed = [parameter, counter, root]
        return draft.add(draft.new("condition"), body, body.index + 1, listed, root).computation

    # Around the loop.

    def _replace(
        self, new: list[HloInstruction], taken: dict[HloInstruction, HloInstruction]
    ) -> None:
        """Let the loop run instead of the region, where its first instruction did."""
        draft, parent = self._draft, self._parent
        gone = {draft.instruction(one) for one in self._region.moved}
        value_of = {draft.instruction(value): made for value, made in taken.items()}
        places = [place for place, one in enumerate(parent.instructions) if one in gone]
        before, after = parent.instructions[: places[0]], parent.instructions[places[-1] + 1 :]
        later = set(gone)
        follows: list[HloInstruction] = []
        for one in parent.instructions[places[0] : places[-1] + 1]:
            if one in gone:
                continue
            if not later.isdisjoint((*one.operands, *one.control_predecessors)):
                later.add(one)
                follows.append(one)
            else:
                before.append(one)
        parent.instructions = [*before, *new, *follows, *after]
        parent.root = value_of.get(parent.root, parent.root)
        [loop] = [one for one in new if one.opcode == "while"]
        for one in (*follows, *after):
            if not gone.isdisjoint(one.operands):
                one.operands = tuple([value_of.get(part, part) for part in one.operands])
            if not gone.isdisjoint(one.control_predecessors):
                waits = [loop if part in gone else part for part in one.control_predecessors]
                one.control_predecessors = tuple(dict.fromkeys(waits))
                relink(one)
        self._delay_again()
        waits = [part for one in gone for part in one.control_predecessors if part not in gone]
        loop.control_predecessors = tuple(sorted(dict.fromkeys(waits), key=lambda one: one.index))
        relink(loop)

    def _delay_again(self) -> None:
        """Let what also runs in the loop run right before the first that reads it, if any does."""
        draft, parent = self._draft, self._parent
        for one in sorted(self._region.again, key=lambda one: -one.index):
            arrays = self._region.arrays_of(one)
            moved = list(dict.fromkeys(map(draft.instruction, (one, *arrays))))
            if any(part.control_predecessors for part in moved):
                continue
            rest = [part for part in parent.instructions if part not in moved]
            if any(not {*moved}.isdisjoint(part.control_predecessors) for part in rest):
                continue
            reads = (
                place for place, part in enumerate(rest) if not {*moved}.isdisjoint(part.operands)
            )
            place = next(reads, None)
            if parent.root in moved:
                continue
            parent.instructions = rest
            if place is not None:
                parent.instructions[place:place] = moved
