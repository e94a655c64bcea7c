"""The role of each value, by its producer, its readers and the value it repeats.

A value keeps its role in memory reserved for a result and when XLA moves it to another memory
space, but not when it is copied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import SAME_DATA, Opcode
from hlomem.report.data import roles
from hlomem.report.data.roles import role_of_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.dump.records import Allocation
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, PlacedValue


_COMPRESSED = lazy_pattern(r"\.remat_(un)?compressed(?:\.\d+)?$")
"""The names that `HloRematerialization` gives copies to and from a denser layout."""


class Movement(NamedTuple):
    source: PlacedValue
    how: str
    """`moved from vmem to hbm`."""
    keeps_role: bool


class Movements:
    def __init__(self, joined: JoinedDump, space_name: Callable[[int], str]) -> None:
        self._joined = joined
        self._space_name = space_name

    def find(self, placed: PlacedValue) -> Movement | None:
        """The value that a value repeats; None if it is computed."""
        value = placed.value
        text = self._joined.printed.get(value.name)
        if text is None or not may_repeat(value.name, text.opcode):
            return None
        if value.is_phi or value.shape.startswith("("):
            return None
        source = self._source(placed, text)
        if source is None:
            return None
        here, there = placed.allocation.color, source.allocation.color
        if here != there:
            how = f"moved from {self._space_name(there)} to {self._space_name(here)}"
            return Movement(source, how, keeps_role=True)
        if found := _COMPRESSED.search(placed.value.name):
            how = "decompressed" if found[1] else "kept compressed"
            return Movement(source, f"{how} by XLA's rematerialization", keeps_role=True)
        if text.opcode == "convert":
            is_argument = source.allocation.parameter is not None
            is_xlas = not text.op_name
            return Movement(source, "converted", keeps_role=is_xlas and not is_argument)
        return Movement(source, "copied", keeps_role=False)

    def _source(self, placed: PlacedValue, text: PrintedInstruction) -> PlacedValue | None:
        opcode = text.opcode
        # Each part of a value that is fetched in parts counts as the value.
        is_part = opcode == "slice" or opcode == "dynamic-slice"
        is_data = placed.index == (0,) if opcode == "copy-start" else opcode != "copy-done"
        read = self._joined.read_by.get((placed.value.name, 0), ()) if is_data else ()
        arrays = [operand for index, operand in read if not index and operand is not placed]
        if len(arrays) != 1:
            return None
        stays = placed.allocation.color == arrays[0].allocation.color
        return None if is_part and stays else arrays[0]


def may_repeat(name: str, opcode: Opcode) -> bool:
    if opcode == "fusion":
        return roles.is_copy(name, opcode)
    if opcode in SAME_DATA:
        return True
    return opcode == "copy-start" or opcode == "slice" or opcode == "dynamic-slice"


_STACKS = lazy_pattern(r"dynamic[-_]update[-_]slice")
_BACKWARD = "transpose("
_BYTES = lazy_pattern(r"[su]8\[")
_MAX_HOPS = 6
_GATHERS = "all-gather"
_COPIES = SAME_DATA | {"convert", "copy-start", "copy-done"}
_SLICES = frozenset({"dynamic-slice", "slice"})
_MAY_BE_GATHERED = frozenset(
    {roles.COLLECTIVES, roles.COPIES, roles.TEMPORARIES, roles.ACTIVATIONS, roles.GRADIENTS}
)
_ARRAY = lazy_pattern(r"\w+\[[\d,]*+(?<!\[)\]")
_SAYS_CACHE = lazy_pattern(r"kv_?cache|cache[sd]?\b", re.IGNORECASE)


class ValueRoles:
    def __init__(
        self,
        joined: JoinedDump,
        families: Mapping[PlacedValue, Sequence[PlacedValue]],
        movements: Movements,
        argument_names: Mapping[int, str],
        module: HloModule | None = None,
    ) -> None:
        self._joined = joined
        self._families = families
        self._movements = movements
        self._names = argument_names
        self._end = len(joined.sequence)
        self._module = module
        self.of_loops = self._find_loop_roles()

    def find(self, placed: PlacedValue, moved: Movement | None, operation: str | None) -> str:
        """The role of a value; `operation` is the JAX name of its producer."""
        role = self._find(placed, moved, operation, _MAX_HOPS)
        if role == roles.ACTIVATIONS and not self._is_kept(placed, _MAX_HOPS):
            return roles.TEMPORARIES
        return role

    def _find(
        self, placed: PlacedValue, moved: Movement | None, operation: str | None, hops: int
    ) -> str:
        """The role of a value, whether or not the backward pass reads it."""
        allocation, value = placed.allocation, placed.value
        is_whole = allocation.is_thread_local or allocation.is_constant
        if is_whole or (allocation.parameter is not None and self._is_argument(placed)):
            if (whole := self.role_of_allocation(allocation)) is not None:
                return whole
        elif value.shape.startswith("("):
            return roles.TUPLES
        if allocation.maybe_live_out and (placed.life is None or placed.life.end >= self._end):
            return roles.RESULTS
        if (of_loop := self.of_loops.get(placed)) is not None:
            return of_loop
        if moved is not None and moved.keeps_role and hops:
            source = moved.source
            return self._find(source, self._movements.find(source), operation, hops - 1)
        text = self._joined.printed.get(value.name)
        opcode = None if text is None else text.opcode
        if opcode == "custom-call" and placed.index[-1:] > (0,) and _BYTES.match(value.shape):
            return roles.WORKSPACE
        role = roles.role_by_name(value.name, opcode, value.shape, operation)
        if role in _MAY_BE_GATHERED and self._is_gathered(placed, text, _MAX_HOPS):
            return roles.GATHERED
        return role

    def _is_gathered(self, placed: PlacedValue, text: PrintedInstruction | None, hops: int) -> bool:
        """Whether a value is a model's parameter, gathered, or a copy of one."""
        if text is None or not hops:
            return False
        if text.opcode.startswith(_GATHERS):
            return self._is_weight(placed, hops)
        if not (text.opcode in _COPIES or roles.is_copy(placed.value.name, text.opcode)):
            return False
        return all(
            self._is_gathered(read, self._joined.printed.get(read.value.name), hops - 1)
            for read in self._arrays_read(placed)
        ) and bool(self._arrays_read(placed))

    def _is_weight(self, placed: PlacedValue, hops: int) -> bool:
        """Whether all arrays that an instruction reads are a model's parameters, or parts."""
        read = self._arrays_read(placed)
        return bool(read) and all(self._is_part_of_weight(value, hops) for value in read)

    def _is_part_of_weight(self, placed: PlacedValue, hops: int) -> bool:
        if placed.allocation.parameter is not None:
            return self.role_of_allocation(placed.allocation) == roles.WEIGHTS
        text = self._joined.printed.get(placed.value.name)
        if text is None or not hops:
            return False
        is_part = text.opcode in _COPIES or text.opcode in _SLICES or text.opcode == "fusion"
        return is_part and self._is_weight(placed, hops - 1)

    def _arrays_read(self, placed: PlacedValue) -> list[PlacedValue]:
        """The values of more than one element that its instruction reads."""
        text = self._joined.printed.get(placed.value.name)
        count = 0 if text is None else len(text.operands)
        return [
            read
            for number in range(count)
            for _, read in self._joined.read_by.get((placed.value.name, number), ())
            if _ARRAY.match(read.value.shape) and read is not placed
        ]

    def role_of_allocation(self, allocation: Allocation) -> str | None:
        """The role of an allocation; None for temporaries, whose values differ."""
        if allocation.parameter is not None:
            return role_of_argument(self._names.get(allocation.index, ""))
        if allocation.maybe_live_out:
            return roles.RESULTS
        if allocation.is_constant:
            return roles.CONSTANTS
        return roles.THREAD_LOCAL if allocation.is_thread_local else None

    def _is_argument(self, placed: PlacedValue) -> bool:
        text = self._joined.printed.get(placed.value.name)
        if placed.value.is_phi:
            return False
        return text is None or text.opcode == "parameter"

    def _is_kept(self, placed: PlacedValue, hops: int) -> bool:
        """Whether the backward pass reads it, directly or after moves."""
        for name in placed.users:
            text = self._joined.printed.get(name)
            if text is None:
                continue
            if text.op_name:
                if _BACKWARD in text.op_name:
                    return True
            elif hops and any(
                self._is_kept(value, hops - 1)
                for index in self._joined.indices_at.get(name, ())
                for value in self._joined.values_at[name, index]
                if value is not placed and value.value.name == name
            ):
                return True
        return False

    def _find_loop_roles(self) -> dict[PlacedValue, str]:
        loops = set(self._joined.names_of_opcode.get("while", ()))
        found: dict[PlacedValue, str] = {}
        for placed in self._joined.placed if loops else ():
            if placed not in found and _is_carried(placed, loops):
                family = self._families.get(placed, (placed,))
                found.update(dict.fromkeys(family, self._loop_role(family)))
        return found

    def _loop_role(self, family: Sequence[PlacedValue]) -> str:
        """The role of a loop-carried alias class; an updated argument keeps its role."""
        for placed in family:
            if placed.allocation.parameter is not None and self._is_argument(placed):
                return self.role_of_allocation(placed.allocation) or roles.ARGUMENTS
        if any(map(self._is_cache, family)):
            return roles.CACHE
        return roles.STACKED if self._is_stacked(family) else roles.CARRIED

    def _is_cache(self, placed: PlacedValue) -> bool:
        """Whether its operation says so, or it starts as an argument that is a cache."""
        text = self._joined.printed.get(placed.value.name)
        operation = text.op_name if text and text.opcode != "while" else ""
        if _SAYS_CACHE.search(operation):
            return True
        source = placed
        for _ in range(_MAX_HOPS):
            moved = self._movements.find(source)
            if moved is None:
                return False
            source = moved.source
            if source.allocation.parameter is not None and self._is_argument(source):
                return self.role_of_allocation(source.allocation) == roles.CACHE
        return False

    def _is_stacked(self, family: Iterable[PlacedValue]) -> bool:
        """Whether slices of it are updated, by an instruction or a fusion."""
        for placed in family:
            text = self._joined.printed.get(placed.value.name)
            if text is None:
                continue
            if text.opcode == "dynamic-update-slice":
                return True
            is_opaque = text.opcode == "fusion" or text.opcode == "call"
            words = f"{placed.value.name} {text.op_name}"
            if is_opaque and (_STACKS.search(words) or self._fuses_update(placed)):
                return True
        return False

    def _fuses_update(self, placed: PlacedValue) -> bool:
        """Whether a fusion ends with the update of a slice; unknown without the module."""
        instruction = self._instructions.get(placed.value.name)
        if instruction is None or instruction.opcode != "fusion":
            return False
        root = instruction.called_computations[0].root
        if root.opcode == "tuple" and placed.index:
            root = root.operands[placed.index[0]]
        while root.opcode in SAME_DATA:
            root = root.operands[0]
        return root.opcode == "dynamic-update-slice"

    @property
    def _instructions(self) -> dict[str, HloInstruction]:
        return self._module.outer_instruction_by_name if self._module else {}


def _is_carried(placed: PlacedValue, loops: set[str]) -> bool:
    return any(found.instruction in loops and found.index for found in placed.positions)
