"""Drafts and computations → HLO text, callees before callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import call_attributes
from hlomem.rebuild.embedded import name_embedded
from hlomem.rebuild.fusions import find_sharing, write_body
from hlomem.rebuild.instructions import Shapes
from hlomem.rebuild.roots import Roots

if TYPE_CHECKING:
    from hlomem.rebuild.computations import Computation
    from hlomem.rebuild.facts import Facts
    from hlomem.rebuild.instructions import Draft


class ModuleWriter:
    """Writes one module."""

    def __init__(
        self,
        facts: Facts,
        drafts: dict[str, Draft],
        entry: Computation,
        called: list[Computation],
        embedded: list[Computation],
        notes: list[str],
    ) -> None:
        self._facts = facts
        self._drafts = drafts
        self._entry = entry
        self._shapes = Shapes(facts, drafts, notes)
        self._roots = Roots(facts, drafts, self._shapes)
        self._by_name = {each.name: each for each in (entry, *called)}
        self._notes = notes
        self._in_fusions = name_embedded(embedded, drafts, set(self._by_name), facts)
        self._by_name.update({each.name: each for each in embedded})
        self._written: dict[str, str] = {}
        self._caller_of: dict[str, str] = {}
        self._number_parameters()

    def text(self, *, is_listed_by_id: bool) -> str:
        """The module; its computations in the order of ids, or as they are called."""
        self._write(self._entry)
        names = list(self._written)
        if is_listed_by_id:
            names.sort(key=self._rank)
        header = f"HloModule rebuilt, is_scheduled=true{self._write_aliases()}"
        return "\n\n".join([header, *(self._written[name] for name in names)]) + "\n"

    def _rank(self, name: str) -> tuple[int, int]:
        """Where a computation stands by the ids of its values, or by those it calls or serves."""
        computation = self._by_name.get(name)
        if computation is None:  # a body, which stands before its caller
            return self._rank(self._caller_of[name])[0], 0
        own_id = self._facts.own_id
        ids = [own_id[each] for each in computation.instructions if each in own_id]
        if ids:
            return min(ids), 1
        return max((self._rank(each) for each in self._callees_of(name)), default=(-1, 0))[0], 2

    def _callees_of(self, name: str) -> list[str]:
        return [callee for callee, caller in self._caller_of.items() if caller == name]

    def _write_aliases(self) -> str:
        """Parameters the caller gave away, seen by a result in their place."""
        root = self._roots.of_entry(self._entry)
        pairs = []
        for allocation in self._facts.assignment.allocations:
            parameter = allocation.parameter
            if parameter is None or not allocation.maybe_live_out:
                continue
            here = {value.id for value in allocation.values}
            for index, ids in self._facts.held[root].items():
                if not here.isdisjoint(ids):
                    output = ", ".join(map(str, index))
                    place = ", ".join(map(str, parameter.index))
                    pairs.append(f"{{{output}}}: ({parameter.number}, {{{place}}}, may-alias)")
                    break
        return f", input_output_alias={{ {', '.join(pairs)} }}" if pairs else ""

    # Computations.

    def _write(self, computation: Computation) -> None:
        root = self._root_of(computation)
        lines = []
        for name in computation.instructions:
            self._write_callees(name, computation.name)
            mark = "ROOT " if name == root else ""
            lines.append(f"  {mark}{self._line(self._drafts[name])}")
        if computation.name in self._written:
            return
        head = f"%{computation.name} {{"
        if computation is self._entry:
            head = f"ENTRY {head}"
        self._written[computation.name] = "\n".join([head, *lines, "}"])

    def _root_of(self, computation: Computation) -> str:
        if computation is self._entry:
            return self._roots.of_entry(computation)
        if computation.caller:
            return self._roots.of_called(computation)
        return self._roots.of_embedded(computation)

    def _write_callees(self, name: str, caller: str) -> None:
        draft = self._drafts[name]
        callees = draft.line.callees if draft.line is not None else {"to_apply": draft.callees}
        for attribute, _ in call_attributes(draft.opcode):
            for callee in callees.get(attribute, ()):
                if callee in self._written:
                    continue
                self._caller_of[callee] = caller
                if callee in self._by_name:
                    self._write(self._by_name[callee])
                elif draft.opcode == "fusion":
                    self._write_fusion(draft, callee)
                else:
                    self._write_unknown(draft, callee)

    def _write_fusion(self, draft: Draft, callee: str) -> None:
        assert draft.line is not None
        called = self._in_fusions.get(draft.name, ())
        for computation in called:
            self._write(computation)
        self._written[callee] = write_body(
            callee,
            draft.line.text,
            draft.line.shape,
            [self._shapes[operand] for operand in draft.operands],
            find_sharing(draft.name, self._facts),
            [computation.name for computation in called],
        )

    def _write_unknown(self, draft: Draft, callee: str) -> None:
        self._notes.append(f"no values of `{callee}`, which `{draft.name}` calls")
        self._written[callee] = f"%{callee} {{\n  ROOT %{callee}.0 = pred[] constant(false)\n}}"

    # Instructions.

    def _line(self, draft: Draft) -> str:
        if draft.line is not None:
            return draft.line.text
        operands = ", ".join(f"%{name}" for name in draft.operands)
        inner = draft.attributes if draft.opcode == "parameter" else operands
        attributes = "" if draft.opcode == "parameter" else draft.attributes
        if draft.opcode == "call":
            attributes = f", to_apply=%{draft.callees[0]}"
        shape = self._shapes[draft.name]
        return f"%{draft.name} = {shape.text} {draft.opcode}({inner}){attributes}"

    def _number_parameters(self) -> None:
        """Tell the parameters of called computations which operand of the caller they are."""
        for computation in self._by_name.values():
            unknown = [
                self._drafts[name]
                for name in computation.instructions
                if self._drafts[name].opcode == "parameter" and self._drafts[name].line is None
            ]
            if not unknown or not computation.caller:
                continue
            caller = self._drafts[computation.caller]
            arguments = _arguments(caller, computation.name)
            for draft in unknown:
                number = self._argument_of(draft, arguments)
                draft.attributes = str(number)
                draft.shape = self._shapes[arguments[number]]
                arguments = [*arguments[:number], "", *arguments[number + 1 :]]

    def _argument_of(self, draft: Draft, arguments: list[str]) -> int:
        held = self._facts.held
        for number, argument in enumerate(arguments):
            if argument and held.get(argument) == held[draft.name]:
                return number
        return next(number for number, argument in enumerate(arguments) if argument)


def _arguments(caller: Draft, callee: str) -> list[str]:
    """What a callee's parameters stand for."""
    if caller.opcode == "conditional":
        return [caller.operands[1 + caller.callees.index(callee)]]
    return caller.operands[:1] if caller.opcode == "while" else caller.operands
