"""The result of each computation, which a dump does not mark.

The caller tells the shape, and a call the values, too. Handing a value on is a use only where the
tuple is the root, so a tuple that uses its operands is one. Otherwise the root is the instruction
nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.text.shape_parser import parse_shape_text

if TYPE_CHECKING:
    from hlomem.rebuild.shapes import Shapes
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


class Roots:
    """Finds roots; `shapes` are those of all instructions."""

    def __init__(self, joined: JoinedDump, drafts: dict[str, Draft], shapes: Shapes) -> None:
        self._joined = joined
        self._drafts = drafts
        self._shapes = shapes
        self._read = {operand for draft in drafts.values() for operand in draft.operands}

    def of_entry(self, entry: Computation) -> str:
        """The root of the program: it has the shape of the output, and lies in its place."""
        output = next((a for a in self._joined.allocations if a.output_shape), None)
        if output is None or output.output_shape is None:
            return self._choose(entry.instructions, None)
        here = {value.id for value in output.values}
        held = self._joined.held
        fitting = [n for n in entry.instructions if not here.isdisjoint(held[n].get((), ()))]
        root = self._choose(fitting or entry.instructions, output.output_shape)
        if self._drafts[root].opcode == "bitcast":
            self._drafts[root].shape = parse_shape_text(output.output_shape)
        return root

    def of_called(self, computation: Computation) -> str:
        """The root of an instruction's callee."""
        caller = self._drafts[computation.caller]
        held = self._joined.held
        if caller.opcode == "call":
            for name in reversed(computation.instructions):
                if held[name] == held[caller.name]:
                    return name
        wanted = None
        if caller.is_async and caller.shape is not None:
            wanted = caller.shape.elements[1].text_without_layout
        elif caller.shape is not None:
            wanted = caller.shape.text_without_layout
            if caller.opcode == "while" and computation.name == caller.callees[0]:
                wanted = "pred[]"
        return self._choose(computation.instructions, wanted)

    def of_embedded(self, computation: Computation) -> str:
        """The root of a computation inside one operation."""
        return self._choose(computation.instructions, None)

    def _choose(self, names: list[str], wanted: str | None) -> str:
        """The last of those that fit best: returns values, has the shape, is read by nobody."""
        ranked = [
            (
                self._returns_operands(name),
                wanted is None or self._shapes[name].text_without_layout == wanted,
                name not in self._read,
                number,
            )
            for number, name in enumerate(names)
        ]
        return names[max(ranked)[-1]]

    def _returns_operands(self, name: str) -> bool:
        return self._drafts[name].opcode == "tuple" and bool(self._joined.reads.get(name))
