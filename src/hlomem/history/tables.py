"""All rules about the past of a module on one platform, and the tables without one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlomem.history.computations.engine import Stage, in_text_order
from hlomem.history.computations.incremental_order import NONE_VANISHED, Vanished
from hlomem.history.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.history.evidence import Traces
    from hlomem.hlo.ir import HloComputation
    from hlomem.machines.options import Options


class Vanishing(Rule, frozen=True, kw_only=True):
    """A pass that makes computations which another one removes."""

    find: Callable[[list[HloComputation], Traces], Vanished]


class LostCalls(Rule, frozen=True, kw_only=True):
    """Calls between computations of which at least one is gone; they count in the limit."""

    count: Callable[[Traces], int]


class SearchLimit(Rule, frozen=True, kw_only=True):
    """The limit that computations which are gone had left to the search for an order."""

    delta: int


class Tables(Struct, frozen=True, kw_only=True):
    stages: tuple[Stage, ...]
    """The passes that make computations."""
    vanishing: tuple[Vanishing, ...] = ()
    limits: tuple[SearchLimit, ...] = ()
    lost_calls: tuple[LostCalls, ...] = ()

    def rules(self) -> Iterator[Rule]:
        for stage in self.stages:
            yield from stage.passes
        yield from (*self.vanishing, *self.limits, *self.lost_calls)

    def in_force(self, options: Options) -> Tables:
        return self._only(lambda rule: rule.applies(options))

    def without(self, name: str) -> Tables:
        """All but one; without that of the program its computations stand as in the text."""
        own = self.stages[0]
        if own.passes[0].name == name:
            return replace(self, stages=(Stage(own.passes, in_text_order), *self.stages[1:]))
        return self._only(lambda rule: rule.name != name)

    def _only(self, keep: Callable[[Rule], bool]) -> Tables:
        stages = [Stage(tuple(filter(keep, stage.passes)), stage.sort) for stage in self.stages]
        return replace(
            self,
            stages=tuple(stages),
            vanishing=tuple(filter(keep, self.vanishing)),
            limits=tuple(filter(keep, self.limits)),
            lost_calls=tuple(filter(keep, self.lost_calls)),
        )

    @property
    def delta(self) -> int:
        """The limit with which the search for an order of computations begins."""
        return sum(limit.delta for limit in self.limits)

    def count_lost_calls(self, traces: Traces) -> int:
        """The calls that are gone, which had pushed that limit."""
        return sum(rule.count(traces) for rule in self.lost_calls)

    def find_vanished(self, created: list[HloComputation], traces: Traces) -> Vanished:
        """The computations that were called for a while and are gone."""
        found = [vanishing.find(created, traces) for vanishing in self.vanishing]
        return found[0] if found else NONE_VANISHED
