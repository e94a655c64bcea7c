"""Names of calls and callees that only the stack trace of the peak shows.

A path that matches all known names on the way to a value supplies the unknown ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.live_range import split_name
from hlomem.hlo.text.attributes import read_metadata

if TYPE_CHECKING:
    from hlomem.dump.records import StackTrace
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


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
