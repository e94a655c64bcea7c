"""A dump → its module: values → operands → instructions → computations → HLO text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.errors import InputError, ParseError
from hlomem.base.source import elide, visible
from hlomem.dump.live_range import split_name
from hlomem.hlo.opcodes import traits_of
from hlomem.hlo.text.attributes import read_metadata
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.rebuild.embedded import embedded_computations, name_embedded
from hlomem.rebuild.fusions import Sharing, find_in_place, find_sharing, write_body
from hlomem.rebuild.listing import age, list_embedded, lists_by_id
from hlomem.rebuild.shapes import Shapes, take_printed_shapes
from hlomem.view.computations import find_computations
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.records import StackTrace
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump


class Rebuilt(NamedTuple):
    module: HloModule
    notes: tuple[str, ...]
    """Assumptions made for missing facts."""


def require_parts(joined: JoinedDump) -> None:
    """Raises `InputError` if a dump lacks a part, or has a malformed instruction."""
    dump = joined.dump
    if dump.assignment is None or dump.values is None or dump.live_ranges is None:
        problem = "needs allocations, values and live ranges to plan again"
        raise InputError(f"{visible(dump.name)}: {problem}")
    for name, text in joined.text_of.items():
        if (
            name not in joined.printed
            or parse_shape_or_none(joined.printed[name].shape_text) is None
        ):
            raise InputError(f"not an instruction: `{visible(text[:80])}`")


def rebuild(joined: JoinedDump, options: Options) -> Rebuilt:
    """The program of a dump; `options` are those of its release."""
    nest = find_computations(joined, _entry_name(joined))
    if nest.problems:
        raise InputError(nest.problems[0])
    for name, draft in nest.drafts.items():
        if draft.opcode.endswith("-update") and not draft.is_async:
            problem = f"`{name}` updates an asynchronous operation, which cannot be rebuilt"
            raise InputError(f"{problem}: plan the module instead")
    take_printed_shapes(joined, nest.drafts)
    take_names(joined, nest.computations, nest.drafts)
    embedded = embedded_computations(joined, nest)
    writer = ModuleWriter(joined, nest.drafts, nest.computations, embedded)
    module = _parse(writer.text(options))
    return Rebuilt(module, tuple(writer.notes()))


def _parse(text: str) -> HloModule:
    """The module; some dumps do not tell what a value without a line of its own comes from."""
    try:
        return hlo.parse(text, "rebuilt program")
    except ParseError as error:
        line = visible(text.split("\n")[error.line - 1].strip())
        problem = f"cannot be rebuilt from the dump: {error.problem}"
        raise InputError(elide(f"`{line}` {problem}: plan the module instead")) from error


def _entry_name(joined: JoinedDump) -> str:
    """The root of the stack trace, or a default."""
    peak = joined.peak
    if peak is not None and peak.stack_trace is not None and peak.stack_trace.nodes:
        return peak.stack_trace.nodes[0].name
    return "main"


def take_names(joined: JoinedDump, in_flow: list[Computation], drafts: dict[str, Draft]) -> None:
    """Name computations and calls that no text names."""
    peak = joined.peak
    if peak is None or peak.stack_trace is None:
        return
    paths = _paths(peak.stack_trace)
    home_of = {name: computation for computation in in_flow for name in computation.instructions}
    taken = {computation.name for computation in in_flow}
    for buffer in peak.buffers:
        chain = _chain(home_of[buffer.instruction], home_of)
        if not any(_is_nameless(drafts[computation.caller]) for computation in chain):
            continue
        index = "{" + ",".join(map(str, buffer.index)) + "}" if buffer.index else ""
        known = _known_names(chain, drafts, in_flow[0])
        *parts, last = split_name(_shown_name(drafts[buffer.instruction]))
        known.append([*parts, last + index])
        for path in paths:
            names = _agreeing(path, known, taken)
            if names:
                _take(names, chain, drafts)
                taken.update(names[2::2])
                break


def _agreeing(path: list[str], known: list[list[str] | None], taken: set[str]) -> list[str]:
    """The names of a path, one for each entry of `known`; empty if one differs or is taken."""
    names: list[str] = []
    position = 0
    for number, parts in enumerate(known):
        shown = path[position : position + (1 if parts is None else len(parts))]
        position += len(shown)
        is_computation = number % 2 == 0
        is_free = bool(shown) and not (is_computation and shown[0] in taken)
        if shown != parts if parts else not is_free:
            return []
        names.append("/".join(shown))
    return names if position == len(path) else []


def _paths(trace: StackTrace) -> list[list[str]]:
    paths: list[list[str]] = []
    way: list[str] = []
    for node in trace.nodes:
        way = [*way[: node.depth], node.name]
        paths.append(way)
    return paths


def _chain(computation: Computation, home_of: dict[str, Computation]) -> list[Computation]:
    """The called computations on the path to one, itself last."""
    chain: list[Computation] = []
    while computation.caller:
        chain.append(computation)
        computation = home_of[computation.caller]
    return chain[::-1]


def _known_names(
    chain: list[Computation], drafts: dict[str, Draft], entry: Computation
) -> list[list[str] | None]:
    known: list[list[str] | None] = [[entry.name]]
    for computation in chain:
        caller = _starter(drafts[computation.caller], drafts)
        is_shown = caller.line is not None or bool(caller.attributes)
        known.append(split_name(_shown_name(caller)) if is_shown else None)
        known.append(None if _is_nameless(drafts[computation.caller]) else [computation.name])
    return known


def _starter(caller: Draft, drafts: dict[str, Draft]) -> Draft:
    """The start of an asynchronous chain, which is printed."""
    while caller.opcode.endswith("-update"):
        caller = drafts[caller.operands[0]]
    return caller


def _is_nameless(caller: Draft) -> bool:
    """Whether the name of its callee is invented."""
    return caller.callees == [f"{caller.name}.callee"]


def _shown_name(draft: Draft) -> str:
    text = draft.line.tail if draft.line is not None else draft.attributes
    return read_metadata(text).op_name or draft.name


def _take(path: list[str], chain: list[Computation], drafts: dict[str, Draft]) -> None:
    for computation, shown, name in zip(chain, path[1::2], path[2::2], strict=False):
        caller = drafts[computation.caller]
        if _is_nameless(caller):
            caller.callees = [name]
            computation.name = name
            if caller.line is None and shown != caller.name:
                caller.attributes = f', metadata={{op_name="{shown}"}}'


_CALLS = re.compile(r", (?:calls|to_apply)=%?[\w.\-]+", re.ASCII)


class ModuleWriter:
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
        self._read = {operand for draft in drafts.values() for operand in draft.operands}
        self._by_name = {computation.name: computation for computation in in_flow}
        self._unseen: list[str] = []  # computations without values
        self._sharing: dict[str, list[Sharing]] = {}
        self._in_place = find_in_place(joined)
        known = set(self._by_name)
        self._in_fusions = name_embedded(embedded, drafts, known, joined, self._shapes)
        self._by_name.update({computation.name: computation for computation in embedded})
        # Which fusions call those is unknown; the last one is late enough.
        fusions = [name for name in joined.time_of if drafts[name].opcode == "fusion"]
        self._last_fusion = max(fusions, key=joined.own_id.__getitem__, default="")
        self._embedded = embedded
        self._texts: dict[str, str] = {}
        self._number_parameters()

    def text(self, options: Options) -> str:
        """The module, with computations in the order of this XLA."""
        listed = [*self._embedded, self._entry]
        if lists_by_id(options):
            listed = sorted(self._by_name.values(), key=lambda listed: self._rank(listed.name))
        elif options.sorts_thread_local_buffers:
            listed = [*list_embedded(self._embedded, self._joined), self._entry]
        for computation in listed:
            self._write(computation)
        header = f"HloModule rebuilt, is_scheduled=true{self._aliases()}{self._layout()}"
        return "\n\n".join([header, *self._texts.values()]) + "\n"

    def _rank(self, name: str) -> int:
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
        """The donated parameters: those whose allocation holds a result."""
        root = self._entry_root()
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

    def _layout(self) -> str:
        """The shapes of parameters and result, which XLA's own texts say."""
        lines = [self._drafts[name].line for name in self._entry.instructions]
        shape_of = {
            line.number: self._shapes[line.name].text
            for line in lines
            if line is not None and line.number is not None
        }
        parameters = [shape_of[number] for number in sorted(shape_of)]
        result = self._shapes[self._entry_root()].text
        return f", entry_computation_layout={{({', '.join(parameters)})->{result}}}"

    def notes(self) -> Iterator[str]:
        if self._sharing:
            seen = sum(map(bool, self._sharing.values()))
            yield (
                f"bodies of {len(self._sharing)} fusions are unknown: {seen} overwrite an operand, "
                "the others are assumed not to"
            )
        if self._shapes.guessed:
            yield f"shapes of {len(self._shapes.guessed)} bitcasts are unknown"
        if self._unseen:
            yield f"nothing is known of {', '.join(self._unseen)}"

    # Computations.

    def _write(self, computation: Computation) -> None:
        """Write a computation after its callees, in the creation order of calls."""
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
        """The attribute for the thread that runs a computation, if it is not the main one."""
        draft = self._drafts.get(computation.caller)
        while draft is not None and draft.opcode.endswith("-update"):
            draft = self._drafts.get(draft.operands[0])
        is_known = draft is not None and draft.is_async and draft.line is not None
        thread = draft.line.thread if is_known and draft and draft.line else ""
        return f', execution_thread="{thread}"' if thread else ""

    def _calls(self, computation: Computation) -> list[tuple[Draft, str]]:
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

    def _write_hidden(self, draft: Draft, callee: str) -> None:
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

    # Parameters and roots.

    def _number_parameters(self) -> None:
        for computation in self._by_name.values():
            members = [self._drafts[name] for name in computation.instructions]
            unknown = [member for member in members if member.opcode == "parameter"]
            unknown = [member for member in unknown if member.line is None]
            if not unknown or not computation.caller:
                continue
            operands = _arguments(self._drafts[computation.caller], computation.name)
            arguments = dict(enumerate(operands))
            for draft in unknown:
                number = self._argument_of(draft, arguments)
                draft.attributes = str(number)
                draft.shape = self._shapes[arguments.pop(number)]

    def _argument_of(self, draft: Draft, arguments: dict[int, str]) -> int:
        """The number of the first remaining argument with the same values, or of the first."""
        if not arguments:
            raise InputError(f"no operand is left for `{draft.name}`; the dump contradicts itself")
        held = self._joined.held
        fitting = (n for n, name in arguments.items() if held.get(name) == held[draft.name])
        return next(fitting, min(arguments))

    def _root_of(self, computation: Computation) -> str:
        if computation is self._entry:
            return self._entry_root()
        if not computation.caller:
            return self._choose_root(computation.instructions, None)
        caller, held = self._drafts[computation.caller], self._joined.held
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
        return self._choose_root(computation.instructions, wanted)

    def _entry_root(self) -> str:
        """The root of the program: it has the shape and the allocation of the output."""
        names = self._entry.instructions
        output = next((a for a in self._joined.allocations if a.output_shape), None)
        if output is None or output.output_shape is None:
            return self._choose_root(names, None)
        here = {value.id for value in output.values}
        held = self._joined.held
        fitting = [name for name in names if not here.isdisjoint(held[name].get((), ()))]
        root = self._choose_root(fitting or names, output.output_shape)
        if self._drafts[root].opcode == "bitcast":
            self._drafts[root].shape = parse_shape_text(output.output_shape)
        return root

    def _choose_root(self, names: list[str], wanted: str | None) -> str:
        """The last best match: a tuple that uses its operands, the wanted shape, unread."""
        ranked = [
            (
                self._drafts[name].opcode == "tuple" and bool(self._joined.reads.get(name)),
                wanted is None or self._shapes[name].text_without_layout == wanted,
                name not in self._read,
                number,
            )
            for number, name in enumerate(names)
        ]
        return names[max(ranked)[-1]]

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
        """The text of the dump, with `slice-start(x)` and the like expanded."""
        if draft.opcode.endswith("-done") and self._drafts[draft.operands[0]].is_async:
            return line.text.replace(f" {draft.opcode}(", " async-done(", 1)
        wrapped = "" if draft.runner is None else draft.runner.callees[0]
        if wrapped not in self._by_name:
            return line.text
        operands = ", ".join(f"%{name}" for name in draft.operands)
        attributes = _CALLS.sub("", line.tail)  # callees of the wrapped instruction
        if draft.opcode.endswith("-update"):
            return f"%{draft.name} = {line.shape.text} async-update({operands}){attributes}"
        attributes = f", calls=%{wrapped}{attributes}"
        return f"%{draft.name} = {line.shape.text} async-start({operands}){attributes}"


def _arguments(caller: Draft, callee: str) -> list[str]:
    if caller.opcode == "conditional":
        return [caller.operands[1 + caller.callees.index(callee)]]
    if caller.is_async:
        return caller.bound
    return caller.operands[:1] if caller.opcode == "while" else caller.operands
