"""Edits of the bodies of loops: instructions that read others, fusions of one instruction each.

In: a module, as `hlomem.hlo.rewrite.Rewriter` takes it. New instructions are made for a body in no
list yet; the one who makes them puts them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.rewrite import Rewriter
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.draft import Draft
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape


class BodyRewriter(Rewriter):
    """A rewriter that names what it makes."""

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
        callee = self.add_fused(inside, body, [*taken, root], root)
        kind_of = {"kind": "kLoop"}
        return body.make(
            self.new(name), shape, "fusion", outer, attributes=kind_of, called=[callee]
        )
