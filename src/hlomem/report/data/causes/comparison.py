"""Two programs side by side: paired arguments, whether the programs are the same, and words."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.names import short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.causes.operations import OperationReader
    from hlomem.report.data.causes.program import ComparedProgram, ProgramArgument

_MAX_NAMES = 3
_SAME_SHARE = 0.9
"""The fraction of the smaller program's operations that the same program shares."""
_MODEL_NAME = re.compile(
    r"param|weight|variables|model|opt|^(?:train_?)?state$|momentum|grad|kernel|bias|embed"
    r"|^[wb]_?\d*$",
    re.IGNORECASE,
)


class ArgumentPair(NamedTuple):
    before: ProgramArgument
    after: ProgramArgument

    @property
    def changed_dimensions(self) -> dict[int, tuple[int, int]]:
        """The dimensions that differ, before and after, by position; empty if the rank differs."""
        old, new = self.before.array.dimensions, self.after.array.dimensions
        if len(old) != len(new):
            return {}
        pairs = enumerate(zip(old, new, strict=True))
        return {position: (a, b) for position, (a, b) in pairs if a != b}

    @property
    def is_transposed(self) -> bool:
        old, new = self.before.array.dimensions, self.after.array.dimensions
        return old != new and sorted(old) == sorted(new)


class Comparison:
    """Two programs, and the bytes their buffers hold in one memory space."""

    def __init__(
        self,
        before: ComparedProgram,
        after: ComparedProgram,
        reader: OperationReader,
        entries: Sequence[Entry],
    ) -> None:
        self._reader = reader
        self.before = before
        self.after = after
        self.entries = entries
        self.programs = (before, after)

    @cached_property
    def arguments(self) -> tuple[ArgumentPair, ...]:
        """Arguments of both programs, paired by name, or by number if no name matches."""
        old, new = self.before.arguments, self.after.arguments
        common = [ArgumentPair(old[name], new[name]) for name in old if name in new]
        if common or len(old) != len(new):
            return tuple(common)
        numbers = {argument.number: argument for argument in new.values()}
        return tuple(
            ArgumentPair(argument, numbers[argument.number])
            for argument in old.values()
            if argument.number in numbers
        )

    @cached_property
    def resized(self) -> tuple[ArgumentPair, ...]:
        return tuple(
            pair for pair in self.arguments if pair.changed_dimensions and not pair.is_transposed
        )

    @cached_property
    def stacked(self) -> tuple[int, int] | None:
        """The number of layers before and after, for models with stacked parameters.

        Only the first dimension of several model arguments changes, and it is a loop's trip count,
        or, where trip counts are unknown, a loop slices these arguments. Without a loop the
        programs compute with slices of them.
        """
        models = [p for p in self.resized if is_stored(p.after)] or self._unlike_stacks
        changes = {
            (position, *sizes)
            for pair in models
            for position, sizes in pair.changed_dimensions.items()
        }
        if len(changes) != 1 or len(models) == 1:
            return None
        ((position, old, new),) = changes
        is_looped = any(pair.before.is_carried and pair.after.is_carried for pair in models)
        is_run = self._is_counted(old, new) or is_looped or self._is_sliced(models)
        return (old, new) if position == 0 and is_run else None

    @cached_property
    def length(self) -> tuple[int, int] | None:
        """The steps of a loop before and after: the first dimension of what it is run over.

        Where no argument changed, it is run over none: then only its count says so, unless
        compilers made loops of their own.
        """
        found = {
            pair.changed_dimensions[0]
            for pair in self.resized
            if 0 in pair.changed_dimensions and not is_stored(pair.after)
        }
        counted = [s for s in found if self._is_counted(*s) and s != self.stacked]
        if self.has_same_arguments and not any(p.has_unnamed_loops for p in self.programs):
            old, new = (program.trip_counts for program in self.programs)
            counted = [(a, b) for a in old - new for b in new - old]
        return counted[0] if len(counted) == 1 else None

    @property
    def _unlike_stacks(self) -> list[ArgumentPair]:
        """Arguments a loop runs over that are no time series: those have a batch in common."""
        found = [
            pair
            for pair in self.resized
            if self._is_counted(*pair.changed_dimensions.get(0, (0, 0)))
        ]
        return found if len({pair.after.array.dimensions[1:2] for pair in found}) > 1 else []

    def _is_sliced(self, pairs: Sequence[ArgumentPair]) -> bool:
        """Whether single layers of these stacks, matrices among them, are computed with."""
        layers = {pair.after.array.dimensions[1:] for pair in pairs}
        return max(map(len, layers)) > 1 and all(
            (1, *layer) in program.dimensions or layer in program.dimensions
            for layer in layers
            for program in self.programs
        )

    def _is_counted(self, old: int, new: int) -> bool:
        """Whether loops run so many times, and did not so before."""
        before, after = (program.trip_counts for program in self.programs)
        return old in before - after and new in after - before

    def leading(self, pair: ArgumentPair) -> int:
        """The first dimension of an argument that no loop runs over."""
        sides = zip(pair, self.programs, strict=True)
        is_run_over = all(side.array.dimensions[0] in its.trip_counts for side, its in sides)
        return int(is_run_over and len(pair.after.array.dimensions) > 1)

    @cached_property
    def has_model(self) -> bool:
        return any(map(is_model, self.after.arguments.values()))

    @cached_property
    def is_same_text(self) -> bool:
        modules = [program.memory.module for program in self.programs]
        texts = [module.reader.source.text for module in modules if module and module.reader]
        arrays = [
            {name: argument.array for name, argument in program.arguments.items()}
            for program in self.programs
        ]
        return len(texts) == len(modules) and texts[0] == texts[1] and arrays[0] == arrays[1]

    @cached_property
    def has_same_arguments(self) -> bool:
        sides = [
            sorted(argument.array for argument in program.arguments.values())
            for program in self.programs
        ]
        return sides[0] == sides[1]

    @cached_property
    def has_same_results(self) -> bool:
        """Whether both return the same arrays, layouts included; True if unknown."""
        if not self.before.results or not self.after.results:
            return True
        return [str(shape) for shape in self.before.results] == [
            str(shape) for shape in self.after.results
        ]

    @cached_property
    def has_same_operations(self) -> bool:
        """Whether the operations are the same, up to those a compiler drops."""
        if self.is_same_text:
            return True
        old, new = self.before.operation_names, self.after.operation_names
        fewest = min(len(old), len(new))
        return len(old & new) >= _SAME_SHARE * fewest

    @property
    def is_same_program(self) -> bool:
        return self.has_same_arguments and self.has_same_results and self.has_same_operations

    @property
    def is_fused_alike(self) -> bool:
        return self.is_same_text or self._reader.are_fused_alike(
            self.before.memory.module, self.after.memory.module
        )

    @property
    def has_other_era(self) -> bool:
        """Whether the dumps have different formats, hence come from different XLA releases."""
        old, new = (program.memory.dump.eras for program in self.programs)
        return not {era.letter for era in old} & {era.letter for era in new}

    def is_result(self, entry: Entry) -> bool:
        return entry.buffer.allocation in self.programs[entry.side].result_allocations

    def is_known_operation(self, entry: Entry) -> bool:
        """Whether the other program has the operation as well; True for unnamed buffers."""
        other = self.programs[BEFORE if entry.side == AFTER else AFTER]
        name = entry.buffer.op_name
        return not name or name in other.arguments or other.has_operation(name)


def is_model(argument: ProgramArgument) -> bool:
    """Whether an argument belongs to the model or its optimizer, by name."""
    is_named = _MODEL_NAME.search(argument.tree) is not None
    return is_named or argument.role in {roles.OPTIMIZER, roles.WEIGHTS}


def is_stored(argument: ProgramArgument) -> bool:
    """Whether it has a part for every layer: of the model, or a cache."""
    return is_model(argument) or argument.role == roles.CACHE


def name_arguments(wanted: Sequence[ProgramArgument], everything: Iterable[ProgramArgument]) -> str:
    """The names of arguments; a tree whose leaves are all wanted is named as one."""
    leaves: dict[str, int] = {}
    for argument in everything:
        leaves[argument.tree] = leaves.get(argument.tree, 0) + 1
    chosen: dict[str, list[str]] = {}
    for argument in wanted:
        chosen.setdefault(argument.tree, []).append(argument.name)
    names: list[str] = []
    for tree, members in chosen.items():
        if len(members) == leaves.get(tree):
            names.append(tree)
        elif len(members) > _MAX_NAMES:
            names.append(f"{tree} ({len(members)} of {leaves.get(tree, 0)} leaves)")
        else:
            names += sorted(members)
    return listed(names)


def listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def at_line(line: str | None, before: str = ", ") -> str:
    """A line as the end of a phrase; empty if unknown."""
    return f"{before}{short_line(line)}" if line else ""
