"""All rules about the past of a module on one platform, and the tables without one of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlomem.history.computations.engine import Stage, in_text_order
from hlomem.history.computations.incremental_order import NONE_VANISHED, Vanished
from hlomem.history.instructions.steps import Steps
from hlomem.history.rules import Rule
from hlomem.history.users.lists import UserRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.history.evidence import Trace, Traces
    from hlomem.history.instructions.steps import Arrangement, Step
    from hlomem.history.users.lists import UserRule, Users
    from hlomem.hlo.ir import HloComputation, HloInstruction
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


class Tables(Struct, frozen=True, kw_only=True, dict=True):
    """The rules for the compiler of one platform."""

    stages: tuple[Stage, ...]
    """The passes that make computations."""
    vanishing: tuple[Vanishing, ...] = ()
    limits: tuple[SearchLimit, ...] = ()
    lost_calls: tuple[LostCalls, ...] = ()
    steps: tuple[Step, ...]
    """The passes that make instructions."""
    arrangements: tuple[Arrangement, ...] = ()
    """Later changes to the order of whole lists of instructions."""
    users: tuple[UserRule, ...]
    """Changes to the order of users."""

    def rules(self) -> Iterator[Rule]:
        """All of them."""
        for stage in self.stages:
            yield from stage.passes
        for others in (
            self.vanishing,
            self.limits,
            self.lost_calls,
            self.steps,
            self.arrangements,
            self.users,
        ):
            yield from others

    def in_force(self, options: Options) -> Tables:
        """Only those that a release has."""
        return self._only(lambda rule: rule.applies(options))

    def without(self, name: str) -> Tables:
        """All but one.

        What the program came with cannot be left out: its computations stand as in the text then,
        its instructions after those of all passes.
        """
        own = self.stages[0]
        if own.passes[0].name == name:
            return replace(self, stages=(Stage(own.passes, in_text_order), *self.stages[1:]))
        program = [step for step in self.steps if not step.opcodes]
        if program[0].name == name:
            others = [step for step in self.steps if step.opcodes]
            return replace(self, steps=(*others, *program))
        return self._only(lambda rule: rule.name != name)

    def _only(self, keep: Callable[[Rule], bool]) -> Tables:
        stages = [Stage(tuple(filter(keep, stage.passes)), stage.sort) for stage in self.stages]
        return replace(
            self,
            stages=tuple(stages),
            vanishing=tuple(filter(keep, self.vanishing)),
            limits=tuple(filter(keep, self.limits)),
            lost_calls=tuple(filter(keep, self.lost_calls)),
            steps=tuple(filter(keep, self.steps)),
            arrangements=tuple(filter(keep, self.arrangements)),
            users=tuple(filter(keep, self.users)),
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

    @cached_property
    def _by_opcode(self) -> Steps:
        return Steps(self.steps)

    @cached_property
    def _by_place(self) -> UserRules:
        return UserRules(self.users)

    def users_in(self, trace: Trace) -> Users:
        """The users of a computation's instructions, where they may not be as the text says."""
        return self._by_place.users_in(trace)

    def instructions_of(self, trace: Trace) -> list[HloInstruction]:
        """The instructions of a computation as its list has them."""
        listed = self._by_opcode.instructions_by_age(trace)
        for arrangement in self.arrangements:
            listed = arrangement.arrange(listed, trace)
        return listed
