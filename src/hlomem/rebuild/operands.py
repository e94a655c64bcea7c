"""Which instruction each operand is, also of instructions whose text the dump does not show.

A get-tuple-element, a bitcast, a call define no value, so no `from instruction:` shows them. But
the values they read are known, and where those appear: an operand is an instruction that holds all
the values read there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.errors import InputError

if TYPE_CHECKING:
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


def _choose(name: str, reads: list[Read], facts: Facts, families: Families) -> str:
    """What holds all that an operand holds: of the same computation, then the latest."""
    candidates = _holders(reads[0], facts, name)
    for read in reads[1:]:
        others = set(_holders(read, facts, name))
        candidates = [each for each in candidates if each in others]
    if not candidates:
        problem = f"nothing holds what operand {reads[0].operand} of `{name}` reads"
        raise InputError(f"{problem}; the dump contradicts itself")
    family = families.find(name)
    callee = _family_of_callee(name, facts, families)
    return max(
        candidates,
        key=lambda each: (
            families.find(each) == family,
            families.find(each) != callee,
            facts.time_of.get(each, -1),
        ),
    )


def _holders(read: Read, facts: Facts, reader: str) -> list[str]:
    """What holds a value in the part that is read, and runs before it is."""
    time = facts.time_of.get(reader, 0)
    return [
        instruction
        for instruction, index in ((each.instruction, each.index) for each in read.value.positions)
        if index == read.index and instruction != reader and facts.time_of.get(instruction, -1) < time
    ]


def _family_of_callee(name: str, facts: Facts, families: Families) -> str | None:
    """The computation a call takes its result from: what it holds without having read it."""
    if all(each.index == () for each in facts.reads[name]):
        return None  # a get-tuple-element reads the tuple and holds an element
    read = {each.value.id for each in facts.reads[name]}
    for ids in facts.held[name].values():
        for value in [facts.by_id[each] for each in ids if each not in read]:
            holders = [p.instruction for p in value.positions if p.instruction != name]
            before = [each for each in holders if facts.time_of.get(each, -1) < facts.time_of.get(name, 0)]
            if before:
                return families.find(max(before, key=lambda each: facts.time_of.get(each, -1)))
    return None
