"""The operands of instructions; an unprinted one's holds all the values that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.quantities import NEVER, Step

if TYPE_CHECKING:
    from hlomem.base.disjoint_sets import DisjointSets
    from hlomem.view.joined import JoinedDump, Read


_RESULT = (1,)
"""The index of the wrapped computation's result in that of an asynchronous operation."""


def find_operands(
    joined: JoinedDump, families: DisjointSets[str], problems: list[str]
) -> dict[str, list[str]]:
    """The operands of every instruction, as far as told; unites those of one computation."""
    operands = {name: list(line.operands) for name, line in joined.printed.items()}
    for name, names in operands.items():
        for operand in names:
            families.unite(name, operand)
    finder = _Finder(joined, families, problems)
    for name in sorted(joined.held, key=finder.time):
        if name in joined.printed:
            finder.note_wrapped(name)
        else:
            operands[name] = finder.find(name)
            for operand in operands[name]:
                families.unite(name, operand)
    return operands


class _Finder:
    def __init__(
        self, joined: JoinedDump, families: DisjointSets[str], problems: list[str]
    ) -> None:
        self._problems = problems
        self._joined = joined
        self._families = families
        self._returned: list[str] = []  # results of finished calls
        self._bitcasts: set[str] = set()

    def time(self, name: str) -> Step:
        return self._joined.time_of.get(name, NEVER)

    def note_wrapped(self, name: str) -> None:
        """Record the root of an asynchronous computation, which directly precedes its runner."""
        line, time = self._joined.printed[name], self.time(name)
        if not line.opcode.endswith(("-start", "-update")) or time < 1:
            return
        root = self._joined.sequence[time - 1]
        held = self._joined.held.get(root, {}).get(())
        is_result = bool(held) and self._joined.held[name].get(_RESULT) == held
        if is_result and root not in line.operands:  # a copy-start's operand may be
            self._returned.append(root)

    def find(self, name: str) -> list[str]:
        by_number: dict[int, list[Read]] = {}
        for read in self._joined.reads.get(name, ()):
            by_number.setdefault(read.operand, []).append(read)
        self._returned += self._callee_result(name)
        chosen = [self._choose(name, by_number[number]) for number in sorted(by_number)]
        operands = [operand for operand in chosen if operand is not None]
        if len(operands) == 1 and self._joined.held[name] == self._joined.held[operands[0]]:
            self._bitcasts.add(name)
        return operands

    def _choose(self, name: str, reads: list[Read]) -> str | None:
        """The instruction that holds all reads, preferably of the same computation, and late."""
        candidates = self._holders(name, reads[0])
        for read in reads[1:]:
            others = set(self._holders(name, read))
            candidates = [candidate for candidate in candidates if candidate in others]
        if not candidates:
            problem = f"nothing holds what operand {reads[0].operand} of `{name}` reads"
            self._problems.append(f"{problem}; the dump contradicts itself")
            return None
        if len(candidates) > 1:
            candidates = self._in_order(name, reads[0], candidates) or candidates
        find = self._families.find
        over = {find(returned) for returned in self._returned}
        return max(
            candidates,
            key=lambda candidate: (
                find(candidate) == find(name),
                find(candidate) not in over,
                # XLA makes one bitcast of two.
                reads[0].shape_index is not None or candidate not in self._bitcasts,
                self.time(candidate),
            ),
        )

    def _holders(self, reader: str, read: Read) -> list[str]:
        return [
            position.instruction
            for position in read.value.positions
            if position.index == read.shape_index and self._is_before(position.instruction, reader)
        ]

    def _in_order(self, reader: str, read: Read, candidates: list[str]) -> list[str]:
        """The candidates consistent with the order of uses, which is that of positions."""
        rank = {(p.instruction, p.index): number for number, p in enumerate(read.value.positions)}
        lowest, highest = 0, len(rank)
        is_passed = False
        for use in read.value.uses or ():
            line = self._joined.printed.get(use.instruction)
            if (use.instruction, use.operand) == (reader, read.operand):
                is_passed = True
            elif line is not None and use.operand < len(line.operands):
                known = rank.get((line.operands[use.operand], use.index), lowest)
                if is_passed:
                    highest = known
                    break
                lowest = known
        return [
            candidate
            for candidate in candidates
            if lowest <= rank[candidate, read.shape_index] <= highest
        ]

    def _is_before(self, name: str, other: str) -> bool:
        return name != other and (self.time(name) < self.time(other) or self.time(other) < 0)

    def _callee_result(self, name: str) -> list[str]:
        """The source of a call's result: an instruction with a value the call does not read."""
        reads = self._joined.reads.get(name, ())
        if all(read.shape_index == () for read in reads):
            return []  # a get-tuple-element reads the tuple and holds an element
        read = {read.value.id for read in reads}
        for ids in self._joined.held[name].values():
            for value_id in ids:
                positions = () if value_id in read else self._joined.used_by_id[value_id].positions
                holders = [position.instruction for position in positions]
                before = [holder for holder in holders if self._is_before(holder, name)]
                if before:
                    return [max(before, key=self.time)]
        return []
