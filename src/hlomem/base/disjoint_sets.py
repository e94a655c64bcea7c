"""A disjoint-set forest (union-find)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class DisjointSets(Generic[T]):
    """Disjoint sets; a member never united with another is its own set."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, member: T) -> T:
        path: list[T] = []
        while (parent := self._parent.get(member)) is not None:
            path.append(member)
            member = parent
        for passed in path[:-1]:
            self._parent[passed] = member
        return member

    def unite(self, one: T, other: T) -> None:
        """Merges two sets; the representative of `other` represents both."""
        head, remaining = self.find(one), self.find(other)
        if head != remaining:
            self._parent[head] = remaining

    def are_together(self, one: T, other: T) -> bool:
        return self.find(one) == self.find(other)

    def groups(self, members: Iterable[T]) -> dict[T, list[T]]:
        """Members grouped by the representative of their set, in the given order."""
        found: dict[T, list[T]] = {}
        for member in members:
            found.setdefault(self.find(member), []).append(member)
        return found
