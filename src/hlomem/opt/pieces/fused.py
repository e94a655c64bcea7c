"""Bodies of fusions that compute one of n pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import relink
from hlomem.hlo.dimension_links import SLICED
from hlomem.hlo.shape import ElementType, Shape, default_layout, tuple_shape
from hlomem.opt.pieces.shapes import braced, piece_attributes, piece_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.opt.loops.fusion_edit import LoopDraft
    from hlomem.opt.pieces.solve import Solved

_INTEGER = Shape(ElementType.S32, (), (), default_layout(0))
_OPAQUE = "kCustom"


class FusedPieces:
    def __init__(self, draft: LoopDraft, pieces: int, home: HloComputation) -> None:
        """Bodies are put before `home`."""
        self._draft = draft
        self._pieces = pieces
        self._home = home

    def copy(self, fusion: HloInstruction, solved: Solved) -> tuple[HloComputation, list[int]]:
        """A second body for a fusion, and the sizes of pieces whose begins it takes in addition."""
        [callee] = fusion.called_computations
        body = self._draft.copy_computation(callee, "piece", self._home)
        copies = dict(zip(callee.instructions, list(body.instructions), strict=True))
        made = _Body(self._draft, self._pieces, body, copies, self)
        for one in callee.instructions:
            made.change(one, solved)
        if made.sizes and fusion.attributes.get("kind") == _OPAQUE:
            raise EditError(f"the kernel of {fusion.name} cannot count from where a piece begins")
        root = callee.root
        if root.opcode == "tuple":
            copies[root].shape = tuple_shape([one.shape for one in copies[root].operands])
        for one in body.instructions:
            one.name = self._draft.new(one.name)
        return body.computation, made.sizes


class _Body:
    def __init__(
        self,
        draft: LoopDraft,
        pieces: int,
        body: Draft,
        copies: dict[HloInstruction, HloInstruction],
        fused: FusedPieces,
    ) -> None:
        self._draft = draft
        self._pieces = pieces
        self._body = body
        self._copies = copies
        self._fused = fused
        self._offsets: dict[int, HloInstruction] = {}

    @property
    def sizes(self) -> list[int]:
        """The sizes of pieces whose begins are parameters."""
        return list(self._offsets)

    def change(self, one: HloInstruction, solved: Solved) -> None:
        """Let the copy of an instruction compute a piece, operands being changed."""
        cut, copy = solved.cuts.get(one), self._copies[one]
        if one not in solved.cuts:
            return
        if one.opcode == "parameter":
            copy.shape = piece_of(one.shape, cut, self._pieces)
            return
        inside = solved.inside[one]
        if one.opcode in SLICED:
            assert isinstance(cut, int)
            self._slice(copy, cut)
            return
        copy.shape = piece_of(one.shape, cut, self._pieces)
        if inside.link.column is not None:
            self._count_inside(one, copy, inside)
        if one.opcode == "fusion":
            callee, sizes = self._fused.copy(one, inside)
            copy.called_computations = (callee,)
            copy.operands = (*copy.operands, *map(self._offset, sizes))
        copy.set_attributes(piece_attributes(one, inside.link, copy.shape, self._pieces))
        relink(copy)

    def _offset(self, size: int) -> HloInstruction:
        if size not in self._offsets:
            count = sum(one.opcode == "parameter" for one in self._body.instructions)
            made = self._make("offset", _INTEGER, "parameter", payload=str(count))
            self._body.instructions.insert(0, made)
            self._offsets[size] = made
        return self._offsets[size]

    def _make(
        self,
        name: str,
        shape: Shape,
        opcode: Opcode,
        *operands: HloInstruction,
        payload: str = "",
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        return self._body.make(
            name, shape, opcode, operands, payload=payload, attributes=attributes
        )

    def _slice(self, whole: HloInstruction, cut: int) -> None:
        """Let those that read a value without operands read a piece of it."""
        shape = piece_of(whole.shape, cut, self._pieces)
        zero = self._make("zero", _INTEGER, "constant", payload="0")
        places = [zero] * shape.rank
        places[cut] = self._offset(shape.dimensions[cut])
        sizes = {"dynamic_slice_sizes": braced(shape.dimensions)}
        part = self._make("slice", shape, "dynamic-slice", whole, *places, attributes=sizes)
        for user in self._body.users(whole):
            user.operands = tuple([part if one is whole else one for one in user.operands])
        if self._body.root is whole:
            self._body.root = part
        self._body.put_after([whole], zero, part)

    def _count_inside(self, one: HloInstruction, copy: HloInstruction, solved: Solved) -> None:
        """Let a column of indices count from where the piece begins."""
        link = solved.link
        target = link.operands[0]
        indices = copy.operands[1]
        shape = indices.shape
        if shape.element_type is not ElementType.S32 or target is None:
            raise EditError(f"the indices of {one.name} are not counted in 32 bits")
        flags = Shape(ElementType.PRED, shape.dimensions, (), shape.layout)
        size = one.operands[0].shape.dimensions[target] // self._pieces
        vector = one.attributes["index_vector_dim"]
        scalars = {"dimensions": "{}"}
        columns = self._make("column", shape, "iota", attributes={"iota_dimension": vector})
        number = self._make("number", _INTEGER, "constant", payload=str(link.column))
        numbers = self._make("number", shape, "broadcast", number, attributes=scalars)
        which = self._make(
            "which", flags, "compare", columns, numbers, attributes={"direction": "EQ"}
        )
        begin = self._make("begin", shape, "broadcast", self._offset(size), attributes=scalars)
        zero = self._make("zero", _INTEGER, "constant", payload="0")
        zeros = self._make("zero", shape, "broadcast", zero, attributes=scalars)
        less = self._make("less", shape, "select", which, begin, zeros)
        local = self._make("local", shape, "subtract", indices, less)
        new = (columns, number, numbers, which, begin, zero, zeros, less, local)
        self._body.put_before(copy, *new)
        operands = list(copy.operands)
        operands[1] = local
        copy.operands = tuple(operands)
