"""The layers of a model that is trained, and what each keeps for the backward pass.

In: a `MemoryView` and a space. Out: `Layers`: the values of the forward pass that the backward pass
reads, which of the equal layers each belongs to, and the function that is a layer. Forward and
backward are told by the names JAX gives operations (`jvp(…)`, `transpose(jvp(…))`). The turn
between them is when most of the forward pass is alive. Layers are equal: what they keep comes as
often as there are layers, of one line, one shape and one operation; or is stacked by a loop, with
the layers as first dimension.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.timeline import bytes_over_time
from hlomem.report.data.uses import Usage
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.lines import Frame
    from hlomem.report.data.memory import Buffer, MemoryView

_NUMBER = re.compile(r"\d+")
_SMALL = 1024
"""Bytes up to which a value is no activation worth keeping an account of."""
_BOUNDARY_SHARE = 0.02
"""What is smaller than this share of a layer is a statistic, not what is handed to the next."""
_MOVES = frozenset({"copy", "copy-start", "copy-done"})
_UPDATE = "dynamic_update_slice"
_MOST_BYTES = 0.8
"""The share of what is kept that the function of a layer accounts for."""
_NO_RESULTS = frozenset({"slice", "squeeze", "convert_element_type", "dynamic_slice"})
"""Operations on weights: what a layer is given, not what it computes."""


def is_forward(operation: str | None) -> bool:
    """The operation is one of the forward pass, and not recomputed."""
    if not operation or "rematted_computation" in operation:
        return False
    return "jvp(" in operation and "transpose(jvp(" not in operation


def is_backward(operation: str | None) -> bool:
    """The operation is one of the backward pass."""
    return bool(operation) and "transpose(jvp(" in (operation or "")


class Kept(NamedTuple):
    """A value of the forward pass that the backward pass reads."""

    buffer: Buffer
    layer: int
    """Which of the layers it is of, from 0; 0 for what all layers stack."""
    first_backward: int
    """The step of its first use after the turn."""


class Layers(NamedTuple):
    """Equal layers, and what they keep."""

    number: int
    turn: int
    """The step at which the forward pass ends."""
    kept: tuple[Kept, ...]
    is_loop: bool
    """The layers are iterations of a loop, which stacks what they keep."""
    boundary: int
    """Bytes that layers hand to the next, of all layers, as far as can be told."""
    products: int
    """Bytes of the matrix products of all layers."""
    function: str
    """What a layer is called in the program: `Block.__call__`, `block`; empty where unknown."""
    place: str
    """Where it is called: `mymodel/gpt.py:45`; empty where unknown."""

    @property
    def size(self) -> int:
        """Bytes that are kept, of all layers."""
        return sum(each.buffer.size for each in self.kept)


class _Unrolled(NamedTuple):
    """Values of layers that are written out one after the other."""

    number: int
    members: list[tuple[Buffer, int]]
    """Each with its layer."""


def find_layers(memory: MemoryView, color: int) -> Layers | None:
    """The layers of a program; None where nothing is differentiated, or no layer comes twice."""
    return _Finder(memory, color).find()


class _Finder:
    def __init__(self, memory: MemoryView, color: int) -> None:
        self._memory = memory
        self._everywhere = [
            each
            for each in memory.buffers
            if each.size > _SMALL
            and each.start is not None
            and not each.shape.startswith("(")
            and is_forward(each.op_name)
            and _last_word(each) not in _NO_RESULTS
        ]
        self._forward = [each for each in self._everywhere if each.color == color]
        self._times_made = Counter(
            _key(each) for each in self._everywhere if each.opcode not in _MOVES
        )
        """How often the like is computed, in whatever memory space."""

    def find(self) -> Layers | None:
        """The layers, or None."""
        if not self._forward:
            return None
        kept = [each for each in self._forward if self._is_kept(each)]
        loops = self._stacked(kept)
        unrolled = self._unrolled([each for each in kept if each.id not in loops])
        stacked_size = sum(each.size for each in loops.values())
        is_loop = stacked_size >= sum(each.size for each, _ in unrolled.members)
        count = self._loop_count(loops.values()) if is_loop else unrolled.number
        if count < 2:  # one layer is none that comes again
            return None
        members = tuple(
            [self._kept(each, 0) for each in loops.values()]
            if is_loop
            else [self._kept(each, layer) for each, layer in unrolled.members]
        )
        function, place = common_function(
            (self._memory.frames(each.buffer), each.buffer.size)
            for each in members
            if _last_word(each.buffer) != _UPDATE  # of the loop, not of the layer in it
        )
        return Layers(
            number=count,
            turn=self._turn,
            kept=members,
            is_loop=is_loop,
            boundary=self._boundary(members, count, is_loop=is_loop),
            products=self._products(count, is_loop=is_loop),
            function=function,
            place=place,
        )

    @cached_property
    def _turn(self) -> int:
        uses = [
            Usage(each.role, each.start or 0, (each.end or 0) + 1, each.size)
            for each in self._forward
        ]
        sizes = bytes_over_time(uses, self._memory.steps + 2)
        return sizes.index(max(sizes))

    def _times(self, buffer: Buffer) -> list[int]:
        """When a value is written and read."""
        used = self._memory.joined.placed_by_id[buffer.id].used
        times = self._memory.joined.time_of
        read = [times.get(use.instruction, 0) for use in (used.uses if used else None) or ()]
        return [buffer.start or 0, *read]

    def _is_kept(self, buffer: Buffer) -> bool:
        if not buffer.is_live_at(self._turn):
            return False
        return (buffer.end or 0) > self._turn

    def _stacked(self, kept: Iterable[Buffer]) -> dict[int, Buffer]:
        """What loops stack, one of each storage."""
        found: dict[tuple[int, int], Buffer] = {}
        for each in kept:
            if each.role == roles.STACKED or (
                self._memory.is_carried(each) and "/while/" in (each.op_name or "")
            ):
                found.setdefault((each.allocation, each.offset), each)
        return {each.id: each for each in found.values()}

    @staticmethod
    def _loop_count(stacked: Iterable[Buffer]) -> int:
        """The first dimension of most of what loops stack."""
        sizes: Counter[int] = Counter()
        for each in stacked:
            shape = parse_shape_or_none(each.shape)
            if shape is not None and shape.dimensions:
                sizes[shape.dimensions[0]] += each.size
        return max(sizes, key=lambda count: sizes[count], default=0)

    def _unrolled(self, kept: list[Buffer]) -> _Unrolled:
        """Groups of equal values that come several times, each value with its layer."""
        groups: dict[tuple[str, ...], list[Buffer]] = {}
        for each in kept:
            groups.setdefault(_key(each), []).append(each)
        repeated = [
            sorted(members, key=lambda each: (each.start or 0, each.id))
            for key, members in groups.items()
            if self._count(key, members) > 1
        ]
        sizes: Counter[int] = Counter()
        for members in repeated:
            number = self._count(_key(members[0]), members)
            sizes[number] += sum(each.size for each in members)
        count = max(sizes, key=lambda number: sizes[number], default=0)
        return _Unrolled(
            count,
            [
                (each, place * count // len(members))
                for members in repeated
                for place, each in enumerate(members)
            ],
        )

    def _count(self, key: tuple[str, ...], members: list[Buffer]) -> int:
        """How many layers make the like of some values."""
        return self._times_made[key] or len(members)

    def _kept(self, buffer: Buffer, layer: int) -> Kept:
        times = self._times(buffer)
        after = [step for step in times if step > self._turn]
        return Kept(buffer, layer, min(after, default=buffer.end or 0))

    def _boundary(self, kept: Sequence[Kept], count: int, *, is_loop: bool) -> int:
        """Bytes that all layers hand on: the smallest large value of a layer, once a layer.

        What is handed on is rarely larger than what is computed of it. A loop may hand on several.
        """
        sizes = sorted((each.buffer.size, each.buffer.id) for each in kept)
        whole = sum(size for size, _ in sizes) // (1 if is_loop else count)
        large = [(size, number) for size, number in sizes if size >= _BOUNDARY_SHARE * whole]
        if not large:
            return 0
        size, number = large[0]
        if not is_loop:
            return size * count
        return size * self._carried_like(self._memory.buffer_by_id[number])

    def _carried_like(self, stacked: Buffer) -> int:
        """How many values of the shape of a slice loops of the forward pass carry, or are given."""
        wanted = _dimensions(stacked)[1:]
        carried = [
            each.name
            for each in self._memory.buffers
            if each.opcode == "while" and is_forward(each.op_name) and _dimensions(each) == wanted
        ]
        loops = {name.partition("{")[0] for name in carried}
        return max(1, len(carried) + len(loops))

    def _products(self, count: int, *, is_loop: bool) -> int:
        """Bytes of the matrix products of all layers that have no batch dimension."""
        made = {
            (_key(each), each.name.partition("{")[0]): each.size
            for each in self._everywhere
            if is_plain_product(each.op_name)
            and each.opcode not in _MOVES
            and each.role != roles.STACKED
        }
        if is_loop:
            once = {key: size for (key, _), size in made.items() if "/while/" in key[0]}
            return count * sum(once.values())
        return sum(size for (key, _), size in made.items() if self._times_made[key] > 1)


def is_plain_product(operation: str | None) -> bool:
    """A matrix product without batch dimensions; `einsum` names those that have some."""
    scopes = (operation or "").split("/")
    return scopes[-1] == "dot_general" and not any("->" in scope for scope in scopes)


def _dimensions(buffer: Buffer) -> tuple[int, ...]:
    shape = parse_shape_or_none(buffer.shape)
    return tuple(shape.dimensions) if shape is not None and shape.is_array else ()


def _last_word(buffer: Buffer) -> str:
    return (buffer.op_name or "").rpartition("/")[2]


def _key(buffer: Buffer) -> tuple[str, ...]:
    """What values of equal layers have in common."""
    return _NUMBER.sub("#", buffer.op_name or ""), buffer.source or "", _elements(buffer)


def _elements(buffer: Buffer) -> str:
    return buffer.shape.partition("{")[0]


def common_function(stacks: Iterable[tuple[tuple[Frame, ...], int]]) -> tuple[str, str]:
    """The innermost function most bytes come from, and where it is called from.

    `stacks` are the calls that led to values, innermost first, with their bytes.
    """
    paths = [(tuple(reversed(frames)), size) for frames, size in stacks if frames]
    sizes: Counter[tuple[tuple[str, str], ...]] = Counter()
    for path, size in paths:
        names = tuple((frame.file, frame.function) for frame in path)
        for end in range(1, len(names) + 1):
            sizes[names[:end]] += size
    total = sum(size for _, size in paths)
    common = max(
        (names for names in sizes if sizes[names] >= _MOST_BYTES * total), key=len, default=()
    )
    if not common:
        return "", ""
    sample = next(path for path, _ in paths if _starts_with(path, common))
    caller = sample[len(common) - 2] if len(common) > 1 else None
    place = f"{_short(caller.file)}:{caller.line}" if caller else ""
    return common[-1][1], place


def _starts_with(path: tuple[Frame, ...], names: tuple[tuple[str, str], ...]) -> bool:
    return tuple((frame.file, frame.function) for frame in path[: len(names)]) == names


def _short(file: str) -> str:
    """The last two parts of a file's path."""
    return "/".join(file.replace("\\", "/").split("/")[-2:])
