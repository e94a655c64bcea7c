"""The layers of a trained model, and what each keeps for the backward pass.

The turn is the step with most forward values alive. Identical layers keep values of the same line,
shape and operation, or a loop stacks them.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import MOVES
from hlomem.report.data import roles
from hlomem.report.data.occupancy import Usage
from hlomem.report.data.phases import is_forward
from hlomem.report.data.timeline import bytes_over_time
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.report.data.lines import Frame
    from hlomem.report.data.memory import Buffer, MemoryView

_NUMBER = re.compile(r"\d+")
_SMALL = 1024
"""Bytes up to which a value is ignored."""
_BOUNDARY_SHARE = 0.02
"""Fraction of a layer below which a value is a statistic, not its output."""
_UPDATE = "dynamic_update_slice"
_NEARLY_ALL = 0.8
"""The fraction of kept bytes that the function of a layer accounts for."""
_NO_RESULTS = frozenset({"slice", "squeeze", "convert_element_type", "dynamic_slice"})
"""Operations on weights: inputs of a layer, not its results."""


class Layers(NamedTuple):
    """Identical layers, and what they keep; sizes are totals."""

    number: int
    turn: int
    """The step at which the forward pass ends."""
    kept: tuple[Buffer, ...]
    """Values of the forward pass that the backward pass reads, one per storage."""
    is_loop: bool
    """Whether the layers are iterations of a loop, which stacks what they keep."""
    boundary: int
    """Estimated bytes passed from layer to layer."""
    products: int
    function: str
    """The layer's name in the program: `Block.__call__`, `block`; empty if unknown."""
    caller: str
    """The line that calls it: `mymodel/gpt.py:45`; empty if unknown."""

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self.kept)


def find_layers(memory: MemoryView, color: int) -> Layers | None:
    """The layers of a program; None without a backward pass or repeated layers."""
    return _Finder(memory, color).find()


class _Finder:
    def __init__(self, memory: MemoryView, color: int) -> None:
        self._memory = memory
        self._everywhere = [
            buffer
            for buffer in memory.buffers
            if buffer.size > _SMALL
            and buffer.start is not None
            and not buffer.shape.startswith("(")
            and is_forward(buffer.op_name)
            and _last_word(buffer) not in _NO_RESULTS
        ]
        self._forward = [buffer for buffer in self._everywhere if buffer.color == color]
        self._times_made = Counter(
            _key(buffer) for buffer in self._everywhere if buffer.opcode not in MOVES
        )
        """How often equal values are computed, in any memory space."""
        self._names_of: dict[tuple[str, ...], set[str]] = {}
        for buffer in self._everywhere:
            self._names_of.setdefault(_key(buffer), set()).add(buffer.op_name or "")

    def find(self) -> Layers | None:
        if not self._forward:
            return None
        kept = [buffer for buffer in self._forward if self._is_kept(buffer)]
        stacked = self._stacked(kept)
        repeated = self._repeated(kept, {buffer.id for buffer in stacked})
        is_loop = sum(buffer.size for buffer in stacked) >= sum(buffer.size for buffer in repeated)
        members = stacked if is_loop else repeated
        number = self._loop_count(members) if is_loop else self._most_common_count(members)
        if number < 2:  # a single layer does not repeat
            return None
        function, caller = common_function(
            (self._memory.frames(buffer), buffer.size)
            for buffer in members
            if _last_word(buffer) != _UPDATE  # of the loop, not of the layer in it
        )
        return Layers(
            number=number,
            turn=self._turn,
            kept=tuple(members),
            is_loop=is_loop,
            boundary=self._boundary(members, number, is_loop=is_loop),
            products=self._products(number, is_loop=is_loop),
            function=function,
            caller=caller,
        )

    @cached_property
    def _turn(self) -> int:
        uses = [
            Usage(buffer.role, buffer.start or 0, (buffer.end or 0) + 1, buffer.size)
            for buffer in self._forward
        ]
        sizes = bytes_over_time(uses, self._memory.steps + 2)
        return sizes.index(max(sizes))

    def _is_kept(self, buffer: Buffer) -> bool:
        if not buffer.is_live_at(self._turn):
            return False
        return (buffer.end or 0) > self._turn

    def _stacked(self, kept: Iterable[Buffer]) -> list[Buffer]:
        """Stacked values, one per storage."""
        found: dict[tuple[int, int], Buffer] = {}
        for buffer in kept:
            if buffer.role == roles.STACKED or (
                self._memory.is_carried(buffer) and "/while/" in (buffer.op_name or "")
            ):
                found.setdefault((buffer.allocation, buffer.offset), buffer)
        return list(found.values())

    @staticmethod
    def _loop_count(stacked: Iterable[Buffer]) -> int:
        """The most frequent first dimension of stacked values, by bytes."""
        sizes: Counter[int] = Counter()
        for buffer in stacked:
            shape = parse_shape_or_none(buffer.shape)
            if shape is not None and shape.dimensions:
                sizes[shape.dimensions[0]] += buffer.size
        return max(sizes, key=lambda count: sizes[count], default=0)

    def _repeated(self, kept: list[Buffer], stacked: set[int]) -> list[Buffer]:
        """Values that occur once per layer or more often."""
        others = [buffer for buffer in kept if buffer.id not in stacked]
        here = Counter(_key(buffer) for buffer in others)
        return [buffer for buffer in others if max(here[_key(buffer)], self._count(buffer)) > 1]

    def _most_common_count(self, repeated: list[Buffer]) -> int:
        """The most frequent number of occurrences, by bytes."""
        sizes: Counter[int] = Counter()
        for buffer in repeated:
            sizes[self._count(buffer)] += buffer.size
        return max(sizes, key=lambda count: sizes[count], default=0)

    def _count(self, buffer: Buffer) -> int:
        """The number of layers with an equal value, by their numbered names or by occurrences."""
        key = _key(buffer)
        names = self._names_of[key]
        return len(names) if len(names) > 1 else self._times_made[key]

    def _boundary(self, kept: list[Buffer], count: int, *, is_loop: bool) -> int:
        """Bytes passed between layers: the smallest large value of a layer, times the layers."""
        sizes = sorted((buffer.size, buffer.id) for buffer in kept)
        whole = sum(size for size, _ in sizes) // (1 if is_loop else count)
        large = [(size, number) for size, number in sizes if size >= _BOUNDARY_SHARE * whole]
        if not large:
            return 0
        size, number = large[0]
        if not is_loop:
            return size * count
        return size * self._carried_like(self._memory.buffer_by_id(number))

    def _carried_like(self, stacked: Buffer) -> int:
        """The number of forward loop-carried values and loop inputs with the shape of a slice."""
        wanted = _dimensions(stacked)[1:]
        carried = [
            buffer.name
            for buffer in self._memory.buffers
            if buffer.opcode == "while"
            and is_forward(buffer.op_name)
            and _dimensions(buffer) == wanted
        ]
        loops = {name.partition("{")[0] for name in carried}
        return max(1, len(carried) + len(loops))

    def _products(self, count: int, *, is_loop: bool) -> int:
        made = {
            (_key(buffer), buffer.name.partition("{")[0]): buffer.size
            for buffer in self._everywhere
            if is_plain_product(buffer.op_name)
            and buffer.opcode not in MOVES
            and buffer.role != roles.STACKED
        }
        if is_loop:
            once = {key: size for (key, _), size in made.items() if "/while/" in key[0]}
            return count * sum(once.values())
        return sum(size for (key, _), size in made.items() if self._times_made[key] > 1)


def is_plain_product(operation: str | None) -> bool:
    """Whether a matrix product has no batch dimensions, which `einsum` would name."""
    scopes = (operation or "").split("/")
    return scopes[-1] == "dot_general" and not any("->" in scope for scope in scopes)


def _dimensions(buffer: Buffer) -> tuple[int, ...]:
    shape = parse_shape_or_none(buffer.shape)
    return tuple(shape.dimensions) if shape is not None and shape.is_array else ()


def _last_word(buffer: Buffer) -> str:
    return (buffer.op_name or "").rpartition("/")[2]


def _key(buffer: Buffer) -> tuple[str, ...]:
    """The key shared by values of identical layers."""
    return _NUMBER.sub("#", buffer.op_name or ""), buffer.source or "", buffer.elements


def common_function(stacks: Iterable[tuple[tuple[Frame, ...], int]]) -> tuple[str, str]:
    """The innermost function of most bytes of `stacks`, and the line that calls it."""
    paths = [(tuple(reversed(frames)), size) for frames, size in stacks if frames]
    sizes: Counter[tuple[tuple[str, str], ...]] = Counter()
    for path, size in paths:
        names = tuple((frame.file, frame.function) for frame in path)
        for end in range(1, len(names) + 1):
            sizes[names[:end]] += size
    total = sum(size for _, size in paths)
    common = max(
        (names for names in sizes if sizes[names] >= _NEARLY_ALL * total), key=len, default=()
    )
    if not common:
        return "", ""
    sample = next(
        path
        for path, _ in paths
        if tuple((frame.file, frame.function) for frame in path[: len(common)]) == common
    )
    caller = sample[len(common) - 2] if len(common) > 1 else None
    return common[-1][1], f"{last_parts(caller.file)}:{caller.line}" if caller else ""


def last_parts(file: str) -> str:
    return "/".join(file.replace("\\", "/").split("/")[-2:])
