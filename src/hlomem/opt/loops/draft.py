"""Edits of the bodies of loops: new instructions, fusions of one instruction each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.draft import ModuleDraft
from hlomem.hlo.ir import HloInstruction
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloComputation
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape


class LoopDraft(ModuleDraft):
    """A module whose loops are being changed."""

    _wrapped = 0
    """Bodies of fusions that stand before all others."""

    def body(self, computation: HloComputation) -> Draft:
        """A computation of the given module, to be changed."""
        return self.draft(self.computation(computation))

    def new(self, name: str) -> str:
        """A name like another that is free in the whole module."""
        return self.new_name(name, SUFFIX)

    def element_of(
        self, body: Draft, name: str, whole: HloInstruction, shape: Shape, index: int
    ) -> HloInstruction:
        """An element of a tuple."""
        attributes = {"index": str(index)}
        return body.make(self.new(name), shape, "get-tuple-element", [whole], attributes=attributes)

    def wrap(
        self,
        body: Draft,
        name: str,
        shape: Shape,
        opcode: Opcode,
        operands: Sequence[HloInstruction | int],
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        """A fusion of one instruction: compilers take none bare after scheduling.

        An operand that is a number stays inside, as a constant.
        """
        inside = self.new(f"wrapped_{opcode}")
        outer = [operand for operand in operands if isinstance(operand, HloInstruction)]
        index_shape = outer[-1].shape if outer else shape.with_layout(None)
        taken: list[HloInstruction] = []
        for operand in operands:
            is_inside = isinstance(operand, int)
            number = operand if is_inside else sum(one.opcode == "parameter" for one in taken)
            taken.append(
                body.make(
                    self.new("constant" if is_inside else "parameter"),
                    index_shape if isinstance(operand, int) else operand.shape,
                    "constant" if is_inside else "parameter",
                    payload=str(number),
                )
            )
        root = body.make(self.new(opcode), shape, opcode, taken, attributes=attributes)
        callee = self.add(inside, body.computation, self._wrapped, [*taken, root], root).computation
        callee.is_fused = True
        self._wrapped += 1
        kind = {"kind": "kLoop"}
        return body.make(self.new(name), shape, "fusion", outer, attributes=kind, called=[callee])
