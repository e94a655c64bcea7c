"""Drafts and computations → HLO text, callees before callers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import traits_of
from hlomem.rebuild.embedded import name_embedded
from hlomem.rebuild.fusions import find_in_place, find_sharing, write_body
from hlomem.rebuild.listing import age, list_embedded, lists_by_id
from hlomem.rebuild.parameters import number_parameters
from hlomem.rebuild.roots import Roots
from hlomem.rebuild.shapes import Shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.machines.options import Options
    from hlomem.rebuild.fusions import Sharing
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump


_CALLS = re.compile(r", (?:calls|to_apply)=%?[\w.\-]+", re.ASCII)


class ModuleWriter:
    """Writes one module."""

    def __init__(
        self,
        joined: JoinedDump,
        drafts: dict[str, Draft],
        in_flow: list[Computation],
        embedded: list[Computation],
    ) -> None:
        self._joined = joined
        self._drafts = drafts
        self._entry = in_flow[0]
        self._shapes = Shapes(joined, drafts)
        self._roots = Roots(joined, drafts, self._shapes)
        self._by_name = {computation.name: computation for computation in in_flow}
        self._unseen: list[str] = []  # computations without values
        self._sharing: dict[str, list[Sharing]] = {}
        self._in_place = find_in_place(joined)
        known = set(self._by_name)
        self._in_fusions = name_embedded(embedded, drafts, known, joined, self._shapes)
        self._by_name.update({computation.name: computation for computation in embedded})
        # Whichever fusions call those, in the last one they are called late enough.
        fusions = [name for name in joined.time_of if drafts[name].opcode == "fusion"]
        self._last_fusion = max(fusions, key=joined.own_id.__getitem__, default="")
        self._embedded = embedded
        self._texts: dict[str, str] = {}
        number_parameters(self._by_name.values(), drafts, self._shapes, joined)

    def text(self, options: Options) -> str:
        """The module; its computations as this XLA lists them."""
        listed = [*self._embedded, self._entry]
        if lists_by_id(options):
            listed = sorted(
                self._by_name.values(), key=lambda computation: self._rank(computation.name)
            )
        elif options.sorts_thread_local_buffers:
            listed = [*list_embedded(self._embedded, self._joined), self._entry]
        for computation in listed:
            self._write(computation)
        header = f"HloModule rebuilt, is_scheduled=true{self._aliases()}"
        return "\n\n".join([header, *self._texts.values()]) + "\n"

    def _rank(self, name: str) -> int:
        """The first id in a computation, or in its callees."""
        computation = self._by_name.get(name)
        if computation is None:
            return -1
        own_id = self._joined.own_id
        ids = [own_id[name] for name in computation.instructions if name in own_id]
        if ids:
            return min(ids)
        callees = [callee for _, callee in self._calls(computation)]
        return max(map(self._rank, callees), default=-1)

    def _aliases(self) -> str:
        """Parameters the caller gave away, seen by a result in their place."""
        root = self._roots.of_entry(self._entry)
        pairs = []
        for allocation in self._joined.allocations:
            parameter = allocation.parameter
            if parameter is None or not allocation.maybe_live_out:
                continue
            here = {value.id for value in allocation.values}
            for index, ids in self._joined.held[root].items():
                if not here.isdisjoint(ids):
                    output = ", ".join(map(str, index))
                    part = ", ".join(map(str, parameter.index))
                    pairs.append(f"{{{output}}}: ({parameter.number}, {{{part}}}, may-alias)")
                    break
        return f", input_output_alias={{ {', '.join(pairs)} }}" if pairs else ""

    def notes(self) -> Iterator[str]:
        """The assumptions behind the text."""
        if self._sharing:
            seen = sum(map(bool, self._sharing.values()))
            yield (
                f"bodies of {len(self._sharing)} fusions are unknown: {seen} were seen to write "
                "over an operand, the others are taken not to"
            )
        if self._shapes.guessed:
            yield f"shapes of {len(self._shapes.guessed)} bitcasts are unknown"
        if self._unseen:
            yield f"nothing is known of {', '.join(self._unseen)}"

    # Computations.

    def _write(self, computation: Computation) -> None:
        """Write a computation after its callees, in the order in which the calls were made."""
        if computation.name in self._texts:
            return
        calls = self._calls(computation)
        for draft, callee in sorted(calls, key=lambda call: age(call[0])):
            if callee in self._by_name:
                self._write(self._by_name[callee])
            elif callee not in self._texts:
                self._write_hidden(draft, callee)
        root = self._root_of(computation)
        lines = [
            f"  {'ROOT ' if name == root else ''}{self._line(self._drafts[name])}"
            for name in computation.instructions
        ]
        head = f"{'ENTRY ' if computation is self._entry else ''}%{computation.name} {{"
        self._texts[computation.name] = "\n".join([head, *lines, f"}}{self._thread(computation)}"])

    def _thread(self, computation: Computation) -> str:
        """The words for the thread that runs a computation, where it is not the main one."""
        draft = self._drafts.get(computation.caller)
        while draft is not None and draft.opcode.endswith("-update"):
            draft = self._drafts.get(draft.operands[0])
        is_known = draft is not None and draft.is_async and draft.line is not None
        thread = draft.line.thread if is_known and draft and draft.line else ""
        return f', execution_thread="{thread}"' if thread else ""

    def _calls(self, computation: Computation) -> list[tuple[Draft, str]]:
        """The calling instructions and their callees, in XLA's order."""
        calls = []
        for name in computation.instructions:
            draft = self._drafts[name]
            if draft.line is None or draft.is_async:
                calls += [(draft, callee) for callee in draft.callees]
                continue
            callees = draft.line.callees
            for attribute, _ in traits_of(draft.opcode).calls:
                calls += [(draft, callee) for callee in callees.get(attribute, ())]
        return calls

    def _root_of(self, computation: Computation) -> str:
        if computation is self._entry:
            return self._roots.of_entry(computation)
        if computation.caller:
            return self._roots.of_called(computation)
        return self._roots.of_embedded(computation)

    def _write_hidden(self, draft: Draft, callee: str) -> None:
        """Write a computation of which the dump shows nothing."""
        if draft.line is None or draft.is_async:
            return
        if draft.opcode != "fusion":
            self._unseen.append(callee)
            self._texts[callee] = f"%{callee} {{\n  ROOT %{callee}.0 = pred[] constant(false)\n}}"
            return
        called = self._in_fusions if draft.name == self._last_fusion else []
        self._sharing[draft.name] = find_sharing(draft.name, self._joined)
        for computation in called:
            self._write(computation)
        self._texts[callee] = write_body(
            callee,
            draft.line.shape,
            [self._shapes[operand] for operand in draft.operands],
            self._sharing[draft.name],
            [computation.name for computation in called],
            is_in_place=draft.name in self._in_place,
        )

    # Instructions.

    def _line(self, draft: Draft) -> str:
        if draft.line is not None:
            return self._printed_line(draft, draft.line)
        operands = ", ".join(f"%{name}" for name in draft.operands)
        inner = draft.attributes if draft.opcode == "parameter" else operands
        attributes = "" if draft.opcode == "parameter" else draft.attributes
        if draft.opcode == "call":
            attributes = f", to_apply=%{draft.callees[0]}{attributes}"
        shape = self._shapes[draft.name]
        return f"%{draft.name} = {shape.text} {draft.opcode}({inner}){attributes}"

    def _printed_line(self, draft: Draft, line: PrintedInstruction) -> str:
        """The text of the dump; `slice-start(x)` in full, because what it wraps is known."""
        if draft.opcode.endswith("-done") and self._drafts[draft.operands[0]].is_async:
            return line.text.replace(f" {draft.opcode}(", " async-done(", 1)
        if not draft.is_async or draft.wrapped not in self._by_name:
            return line.text
        operands = ", ".join(f"%{name}" for name in draft.operands)
        # What the wrapped instruction calls is said there.
        attributes = _CALLS.sub("", line.tail)
        if draft.opcode.endswith("-update"):
            return f"%{draft.name} = {line.shape.text} async-update({operands}){attributes}"
        attributes = f", calls=%{draft.wrapped}{attributes}"
        return f"%{draft.name} = {line.shape.text} async-start({operands}){attributes}"
