"""One engine for the order in which instructions list their users.

In: the trace of a computation and a table of rules. Out: the users of its instructions, where that
is not the order of the text. An instruction lists its users in the order in which they were made or
came to use it; a removed user's place is taken by the last one
(`HloInstruction::Users::RemoveUser`). The rules are applied from top to bottom, as time passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hlomem.history.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

Users: TypeAlias = "dict[HloInstruction, list[HloInstruction]]"


class UserRule(Rule, frozen=True, kw_only=True):
    """Something that put the users of instructions in another order."""

    arrange: Callable[[Users, Trace], None]
    """Changes the lists of a computation's instructions."""
    is_embedded: bool | None = None
    """True if it is about computations that run inside one operation, or about all others."""


class UserRules:
    """A table of rules, by where they apply."""

    def __init__(self, rules: Sequence[UserRule]) -> None:
        self._inside = [rule.arrange for rule in rules if rule.is_embedded is not False]
        self._outside = [rule.arrange for rule in rules if not rule.is_embedded]

    def users_in(self, trace: Trace) -> Users:
        """The users of a computation's instructions, where they may not be as the text says."""
        users: Users = {}
        for arrange in self._inside if trace.is_embedded else self._outside:
            arrange(users, trace)
        return users


def list_of(users: Users, instruction: HloInstruction) -> list[HloInstruction]:
    """The list of an instruction, to be changed in place."""
    listed = users.get(instruction)
    if listed is None:
        listed = users[instruction] = instruction.users[:]
    return listed


def walk_in_post_order(users: Users, trace: Trace) -> None:
    """List the users of every instruction as a walk through the operands meets them."""
    several = with_several_users(trace)
    if several:
        post_order = trace.module.call_graph.post_order(trace.computation)
        rank = {instruction: place for place, instruction in enumerate(post_order)}
        for instruction in several:
            list_of(users, instruction).sort(key=rank.__getitem__)


def with_several_users(trace: Trace) -> list[HloInstruction]:
    """The instructions whose users have an order."""
    instructions = trace.computation.instructions
    if len(instructions) <= _WITHOUT_CHOICE:
        return []
    return [listing for listing in instructions if len(listing.users) > 1]


_WITHOUT_CHOICE = 3
"""Of three instructions one can have two users, of which one uses the other."""
