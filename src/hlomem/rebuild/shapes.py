"""The shapes of every instruction, inferred from values where they are not printed."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeGuard

from hlomem.hlo.opcodes import ELEMENTWISE, opcodes_where
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.rebuild.fusions import find_sharing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.shape import Shape
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


class Shapes:
    def __init__(self, joined: JoinedDump, drafts: dict[str, Draft]) -> None:
        self._joined = joined
        self._drafts = drafts
        self._users: dict[str, list[Draft]] = {}
        for draft in drafts.values():
            for operand in draft.operands:
                self._users.setdefault(operand, []).append(draft)
        self.guessed: list[str] = []
        """Bitcasts of unknown shape."""

    def __getitem__(self, name: str) -> Shape:
        draft = self._drafts[name]
        if draft.shape is None:
            draft.shape = self._infer(draft)
        return draft.shape

    def _infer(self, draft: Draft) -> Shape:
        if draft.opcode == "get-tuple-element":
            whole = self[draft.operands[0]]
            return whole.elements[int(draft.attributes.removeprefix(", index="))]
        if draft.opcode == "bitcast":
            return self._infer_bitcast(draft)
        # A tuple's table is a value, too, so the top level has the whole shape.
        value = self._joined.used_by_id[self._joined.held[draft.name][()][0]]
        return self._joined.printed[value.name].shape.subshape(value.index or ())

    def _infer_bitcast(self, bitcast: Draft) -> Shape:
        """The shape in a user's text, or that of a user that may overwrite it, or its source's."""
        source = self[bitcast.operands[0]]
        users = self._users.get(bitcast.name, ())
        for user in users:
            told = _shape_told_by(user, user.operands.index(bitcast.name))
            if told is not None:
                return told
        self.guessed.append(bitcast.name)
        for user in users:
            for sharing in find_sharing(user.name, self._joined) if user.opcode == "fusion" else ():
                if user.operands[sharing.operand] == bitcast.name and user.shape is not None:
                    return user.shape.subshape(sharing.output_index)
        for user in users:
            kept = _shape_kept_by(user, user.operands.index(bitcast.name))
            if _are_alike(kept, source):
                return kept
        return source


def _shape_told_by(user: Draft, number: int) -> Shape | None:
    if user.shape is None or not user.shape.is_tuple:
        return None
    if user.opcode == "tuple":
        return user.shape.elements[number]
    if user.opcode == "copy-start":
        return user.shape.elements[1]
    if not user.is_async:
        return None
    return user.shape.elements[0].elements[number + len(user.bound) - len(user.operands)]


_KEEPING_SHAPE = ELEMENTWISE | opcodes_where(
    lambda traits: traits.shares == "only first" or traits.shares == "same number"
)


def _shape_kept_by(user: Draft, number: int) -> Shape | None:
    """The shape of the result that may overwrite an operand of the same shape."""
    if user.opcode not in _KEEPING_SHAPE or user.shape is None:
        return None
    elements = user.shape.elements if user.shape.is_tuple else ()
    return elements[number] if number < len(elements) else user.shape


def _are_alike(one: Shape | None, other: Shape) -> TypeGuard[Shape]:
    return (
        one is not None
        and one.is_array
        and other.is_array
        and one.element_type is other.element_type
        and prod(one.dimensions) == prod(other.dimensions)
    )


def take_printed_shapes(joined: JoinedDump, drafts: Mapping[str, Draft]) -> None:
    """Set the printed shapes of drafts; older versions also print those of operands."""
    shown = {
        name: parse_shape_text(shape)
        for line in joined.printed.values()
        for name, shape in zip(line.operands, line.operand_shapes, strict=True)
        if shape and name not in joined.printed
    }
    for name, draft in drafts.items():
        draft.shape = draft.line.shape if draft.line is not None else shown.get(name)
