"""Names that only the stack trace of the peak shows: those of calls and of their callees.

A path of the trace leads from the entry computation through callers and callees, by turns, to an
instruction. One that agrees with all names known on the way to a value tells those that are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.text.attributes import read_metadata

if TYPE_CHECKING:
    from hlomem.dump.records import StackTrace
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


def take_names(joined: JoinedDump, in_flow: list[Computation], drafts: dict[str, Draft]) -> None:
    """Give computations and calls whose names no text shows those of the stack trace."""
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
        known.append(_shown_name(drafts[buffer.instruction]) + index)
        for path in paths:
            if _agrees(path, known, taken):
                _take(path, chain, drafts)
                taken.update(path[2::2])
                break


def _agrees(path: list[str], known: list[str | None], taken: set[str]) -> bool:
    """Whether a path has the names that are known, and no name of another computation."""
    return len(path) == len(known) and all(
        name == shown or (name is None and (number % 2 == 1 or shown not in taken))
        for number, (name, shown) in enumerate(zip(known, path, strict=True))
    )


def _paths(trace: StackTrace) -> list[list[str]]:
    """The names on the way to every node."""
    paths: list[list[str]] = []
    way: list[str] = []
    for node in trace.nodes:
        way = [*way[: node.depth], node.name]
        paths.append(way)
    return paths


def _chain(computation: Computation, home_of: dict[str, Computation]) -> list[Computation]:
    """The called computations on the way to one, itself last."""
    chain: list[Computation] = []
    while computation.caller:
        chain.append(computation)
        computation = home_of[computation.caller]
    return chain[::-1]


def _known_names(
    chain: list[Computation], drafts: dict[str, Draft], entry: Computation
) -> list[str | None]:
    known: list[str | None] = [entry.name]
    for computation in chain:
        caller = _starter(drafts[computation.caller], drafts)
        known.append(None if caller.line is None and not caller.attributes else _shown_name(caller))
        known.append(None if _is_nameless(drafts[computation.caller]) else computation.name)
    return known


def _starter(caller: Draft, drafts: dict[str, Draft]) -> Draft:
    """The start of an asynchronous chain an update of which runs a computation: it is shown."""
    while caller.opcode.endswith("-update"):
        caller = drafts[caller.operands[0]]
    return caller


def _is_nameless(caller: Draft) -> bool:
    """Whether the name of its callee was made up."""
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
