"""One engine for the order in which passes made the computations of a module, the oldest first.

A table is read as the pipeline of a compiler; passes claim computations by `precedence`, because
a late pass often leaves the clearer mark. `NameUniquer` counts upwards for each base name: of
`fused_computation.4` and `.7` the former is older. What names leave open the order of passes fills.
"""

from __future__ import annotations

import itertools
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from hlomem.history.computations.marks import first_calls
from hlomem.history.names import split_number
from hlomem.history.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.history.evidence import Trace, Traces
    from hlomem.hlo.ir import HloComputation

T = TypeVar("T")

Priority: TypeAlias = "tuple[int, ...]"
Find: TypeAlias = "Callable[[Claims], Iterable[Trace]]"
Key: TypeAlias = "Callable[[Trace, Claims], Priority]"
Sort: TypeAlias = "Callable[[list[Trace], Claims], list[Trace]]"


def in_order_found(_trace: Trace, _claims: Claims) -> Priority:
    """The key of a pass that leaves its computations as they were found."""
    return ()


class Mark(NamedTuple):
    """How the computations of a pass are known."""

    precedence: int
    """Passes with lower numbers claim first."""
    find: Find
    """The computations it made; others may have claimed some before."""
    key: Key = in_order_found
    """The order in which it goes."""


class Pass(Rule, frozen=True, kw_only=True):
    mark: Mark


class Stage(Struct, frozen=True):
    """Passes after which the computations made by all of them are put in order."""

    passes: tuple[Pass, ...]
    sort: Sort


def stage(sort: Sort, *passes: Pass) -> Stage:
    """Passes, put in order together."""
    return Stage(passes, sort)


def where(made: Callable[[Trace], bool]) -> Find:
    """Find computations one by one, in the order of the text."""
    return lambda claims: filter(made, claims.free)


class Claims:
    def __init__(self, traces: Traces, stages: Sequence[Stage]) -> None:
        self.traces = traces
        self.free: dict[Trace, None] = dict.fromkeys(traces.values())
        self.older: list[Trace] = []
        """The computations of earlier stages, the oldest first."""
        self._passes = [maker for stage in stages for maker in stage.passes]
        self._made: dict[str, list[Trace]] = {}
        self._rank_of: dict[Trace, int] = {}
        self._priorities: dict[Trace, Priority] = {}
        self._facts: dict[Callable[[Claims], object], Any] = {}

    def claim_all(self) -> None:
        """Ask every pass what it made; what no pass claims, the program came with."""
        ranked = sorted(enumerate(self._passes), key=lambda entry: entry[1].mark.precedence)
        for rank, maker in ranked:
            found = dict.fromkeys(filter(self.free.__contains__, maker.mark.find(self)), rank)
            self._made[maker.name] = list(found)
            self._rank_of.update(found)
            for trace in found:
                del self.free[trace]
        self._made[self._passes[0].name] += self.free
        self._rank_of.update(dict.fromkeys(self.free, 0))

    def made_by(self, name: str) -> list[Trace]:
        """The computations of a pass, as it found them."""
        return self._made.get(name, [])

    def made_in(self, stage: Stage) -> list[Trace]:
        return [trace for maker in stage.passes for trace in self.made_by(maker.name)]

    def once(self, find_out: Callable[[Claims], T]) -> T:
        """A fact about the whole module, found out when first asked for."""
        if find_out not in self._facts:
            self._facts[find_out] = find_out(self)
        fact: T = self._facts[find_out]
        return fact

    def priority(self, trace: Trace) -> Priority:
        """The rank of the pass that made it, and what the pass went by."""
        known = self._priorities.get(trace)
        if known is None:
            rank = self._rank_of[trace]
            known = self._priorities[trace] = (rank, *self._passes[rank].mark.key(trace, self))
        return known


def creation_order(traces: Traces, stages: Sequence[Stage]) -> list[Trace]:
    """The computations of a module, the oldest first."""
    claims = Claims(traces, stages)
    claims.claim_all()
    for stage in stages:
        made = claims.made_in(stage)
        if made:
            claims.older += stage.sort(made, claims)
    return claims.older


def when_met(trace: Trace, claims: Claims) -> Priority:
    """The key of a pass that goes through the program, callees first."""
    return (claims.once(_first_calls).get(trace.computation, 0),)


def _first_calls(claims: Claims) -> dict[HloComputation, int]:
    return first_calls(claims.traces)


def as_found(made: list[Trace], _claims: Claims) -> list[Trace]:
    """Pass by pass, in the order in which they were found."""
    return made


def in_text_order(made: list[Trace], _claims: Claims) -> list[Trace]:
    """As if nothing were known."""
    return sorted(made, key=lambda trace: trace.computation.index)


def by_number(made: list[Trace], _claims: Claims) -> list[Trace]:
    """The numbers in names."""
    return sorted(made, key=lambda trace: split_number(trace.name)[1])


def by_parameter_number(made: list[Trace], _claims: Claims) -> list[Trace]:
    """The numbers in the names of first parameters, whatever those are called."""
    return sorted(made, key=lambda trace: trace.parameter_number)


def by_priority(made: list[Trace], claims: Claims) -> list[Trace]:
    """Pass by pass, as each goes."""
    return sorted(made, key=claims.priority)


def by_parameter_numbers(
    made: list[Trace], claims: Claims, *, advance_whole_priority: bool = True
) -> list[Trace]:
    """Parameters' numbers first, passes where those leave it open."""
    for trace in sorted(made, key=lambda trace: len(trace.name)):
        claims.priority(trace)  # originals first: no long chain of clones is followed at once
    made = in_text_order(made, claims)
    priorities = {trace: claims.priority(trace) for trace in made}
    return sort_by_parameter_numbers(
        made, priorities, advance_whole_priority=advance_whole_priority
    )


def sort_by_parameter_numbers(
    made: list[Trace],
    priorities: Mapping[Trace, Priority] | None = None,
    *,
    advance_whole_priority: bool = True,
) -> list[Trace]:
    """Sorted so that numbers in the names of first parameters grow, otherwise by priority.

    Without priorities, what numbers leave open stays in the order given. A computation never sorts
    after one it is older than: it takes over the whole priority of that one, or its pass at least.
    """
    priority = dict(priorities or dict.fromkeys(made, ()))
    next_of: dict[Trace, Trace] = {}
    for older, younger in _neighbours(made):
        next_of[older] = younger
        if advance_whole_priority:
            priority[older] = min(priority[older], priority[younger])
        elif priority[younger][0] < priority[older][0]:
            priority[older] = priority[younger][0], *priority[older][1:]
    later = set(next_of.values())
    place = {trace: i for i, trace in enumerate(made)}
    ready = [(priority[trace], place[trace], trace) for trace in made if trace not in later]
    heapify(ready)
    order: list[Trace] = []
    while ready:
        trace = heappop(ready)[-1]
        order.append(trace)
        successor = next_of.get(trace)
        if successor is not None:
            heappush(ready, (priority[successor], place[successor], successor))
    return order


_BUILT_NUMBERS = {"p.0.lhs": 1}
"""The number that a builder gives to a name each time; where it is taken, the first free one is."""


def _neighbours(made: list[Trace]) -> Iterable[tuple[Trace, Trace]]:
    """Two with parameters of one base name and successive numbers, of each base the last first."""
    chains: dict[str, list[tuple[int, Trace]]] = {}
    for trace in made:
        if trace.parameter is not None:
            chains.setdefault(trace.parameter.base, []).append((trace.parameter.number, trace))
    for base, chain in chains.items():
        natural = _BUILT_NUMBERS.get(base)
        chain.sort(key=lambda entry: (entry[0] != natural, entry[0]))
        for (_, older), (_, younger) in reversed(list(itertools.pairwise(chain))):
            yield older, younger
