"""Which instruction each operand is, also of instructions whose text the dump does not show.

A get-tuple-element, a bitcast, a call define no value, so no `from instruction:` shows them. But
the values they read are known, and where those appear: an operand is an instruction that holds all
the values read there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.rebuild.facts import Facts, Read


class Families:
    """Names that are known to belong together, united step by step (a disjoint-set forest)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The one name that stands for all of a family."""
        parent = self._parent.setdefault(name, name)
        while parent != name:
            grandparent = self._parent[parent]
            self._parent[name] = grandparent
            name, parent = parent, grandparent
        return name

    def unite(self, one: str, other: str) -> None:
        """Note that two names belong to one family."""
        self._parent[self.find(one)] = self.find(other)


def find_operands(facts: Facts, families: Families) -> dict[str, list[str]]:
    """The operands of every instruction; unites those of one computation."""
    operands = {name: list(line.operands) for name, line in facts.lines.items()}
    for name, names in operands.items():
        for operand in names:
            families.unite(name, operand)
    by_time = sorted(facts.held, key=lambda name: facts.time_of.get(name, -1))
    for name in by_time:
        if name in facts.lines:
            continue
        operands[name] = _find_unprinted(name, facts, families)
        for operand in operands[name]:
            families.unite(name, operand)
    return operands


def _find_unprinted(name: str, facts: Facts, families: Families) -> list[str]:
    by_number: dict[int, list[Read]] = {}
    for read in facts.reads.get(name, ()):
        by_number.setdefault(read.operand, []).append(read)
    return [_choose(name, by_number[number], facts, families) for number in sorted(by_number)]


def _choose(name: str, reads: Iterable[Read], facts: Facts, families: Families) -> str:
    """What holds all that an operand holds: of the same computation, then the latest."""
    candidates: dict[str, None] | None = None
    for read in reads:
        holders = {p.instruction: None for p in read.value.positions if p.index == read.index}
        if candidates is not None:
            holders = {each: None for each in holders if each in candidates}
        candidates = holders
    time = facts.time_of.get(name, 0)
    family = families.find(name)
    return max(
        candidates or {},
        key=lambda each: (
            families.find(each) == family,
            facts.time_of.get(each, -1) < time,
            facts.time_of.get(each, -1),
        ),
    )
