"""Sets that only ever grow together: a disjoint-set forest.

In: members, united two by two. Out: one member that stands for each set, and the sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class DisjointSets(Generic[T]):
    """Members of disjoint sets; one never united with another is a set of its own."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, member: T) -> T:
        """The member that stands for the set of another, or for its own."""
        path: list[T] = []
        while (parent := self._parent.get(member)) is not None:
            path.append(member)
            member = parent
        for passed in path[:-1]:
            self._parent[passed] = member
        return member

    def unite(self, one: T, other: T) -> None:
        """Makes one set of two; who stands for `other` stands for both."""
        head, remaining = self.find(one), self.find(other)
        if head != remaining:
            self._parent[head] = remaining

    def are_together(self, one: T, other: T) -> bool:
        """Whether two members are in one set."""
        return self.find(one) == self.find(other)

    def groups(self, members: Iterable[T]) -> dict[T, list[T]]:
        """These members by set, in their order; the key is who stands for the set."""
        found: dict[T, list[T]] = {}
        for member in members:
            found.setdefault(self.find(member), []).append(member)
        return found
