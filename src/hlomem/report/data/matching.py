"""Buffers of two compiles, paired in schedule order by keys from strict to loose."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.report.data.lines import bare_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hlomem.hlo.opcodes import Opcode
    from hlomem.report.data.memory import Buffer, MemoryView

_LAYOUT = re.compile(r"\{[^{}]*\}")
_WRAPPERS = re.compile(
    r"(?:^|(?<=/))(?:jit\((?:main|<lambda>)\)|closed_call|core_call|eval_jaxpr)(?:/|$)"
)
"""Scopes that only some versions of JAX add."""


class Pair(NamedTuple):
    """A buffer before and after; one of them is None without a partner."""

    before: Buffer | None
    after: Buffer | None


class Traits(Struct, frozen=True, gc=False):
    argument: str | None
    number: str | None
    """An argument's number and tuple index."""
    operation: str | None
    line: str | None
    elements: str
    opcode: Opcode | None


_KEYS: tuple[Callable[[Traits], Hashable | None], ...] = (
    lambda t: t.argument,
    lambda t: t.number,
    lambda t: (t.operation, t.line, t.elements, t.opcode) if t.operation else None,
    lambda t: (t.operation, t.line, t.elements) if t.operation else None,
    lambda t: (t.operation, t.elements) if t.operation else None,
    lambda t: (t.line, t.elements, t.opcode) if t.line else None,
    lambda t: (t.operation, t.line, t.opcode) if t.operation else None,
    lambda t: (t.operation, t.opcode) if t.operation else None,
)
"""From strict to loose; the last two ignore the shape. None does not match."""


def match_buffers(before: MemoryView, after: MemoryView) -> list[Pair]:
    """Every buffer of both sides, in all memory spaces, paired or alone."""
    matcher = _Matcher(_Side(before), _Side(after))
    for key in _KEYS:
        matcher.match_by(partial(_Side.keys, key=key))
    for neighbours in (_Side.sources, _Side.users) * 2:
        matcher.match_by(partial(_Side.positions, neighbours=neighbours))
    matcher.match_by(_Side.kinds)
    return matcher.pairs


def traits_of(memory: MemoryView, buffer: Buffer) -> Traits:
    parameter = None
    if buffer.opcode == "parameter":
        parameter = memory.joined.placed_by_id[buffer.id].allocation.parameter
    return Traits(
        buffer.parameter if parameter else None,
        f"{parameter.number} {parameter.index}" if parameter else None,
        operation_key(buffer.op_name) if buffer.op_name else None,
        _line(buffer.source) if buffer.source else None,
        _elements(buffer.shape),
        buffer.opcode,
    )


# Many buffers share an operation, line or shape.
@lru_cache(maxsize=1 << 14)
def operation_key(op_name: str) -> str:
    """An operation's name without the parts that vary between versions of JAX."""
    name = bare_op_name(op_name) if "]" in op_name else op_name
    may_be_wrapped = "jit(" in name or "_call" in name or "eval_jaxpr" in name
    return _WRAPPERS.sub("", name) if may_be_wrapped else name


@lru_cache(maxsize=1 << 14)
def _line(source: str) -> str | None:
    file, _, line = source.rpartition(":")
    return f"{PurePath(file).name}:{line}" if file else None


@lru_cache(maxsize=1 << 14)
def _elements(shape: str) -> str:
    return _LAYOUT.sub("", shape)


class _Side:
    """One of the two compiles, and its buffers that have no partner yet."""

    def __init__(self, memory: MemoryView) -> None:
        self.memory = memory
        self.left = sorted(
            memory.buffers, key=lambda one: (-1 if one.start is None else one.start, one.id)
        )
        self.traits = {buffer.id: traits_of(memory, buffer) for buffer in self.left}
        self.pair_of: dict[int, int] = {}
        """The index of each buffer's pair, by buffer id."""
        self.pair_of_instruction: dict[str, int] = {}

    def join(self, buffer: Buffer, number: int) -> None:
        self.pair_of[buffer.id] = number
        self.pair_of_instruction.setdefault(buffer.name.partition("{")[0], number)

    def keys(self, key: Callable[[Traits], Hashable | None]) -> list[Hashable | None]:
        traits = self.traits
        return [key(traits[buffer.id]) for buffer in self.left]

    def positions(
        self, neighbours: Callable[[_Side, Buffer], tuple[int, ...]]
    ) -> list[Hashable | None]:
        """Their positions in the graph; None if no neighbour of a buffer has a partner."""
        found = [(self.traits[buffer.id], neighbours(self, buffer)) for buffer in self.left]
        return [(own.elements, own.opcode, near) if near else None for own, near in found]

    def kinds(self) -> list[Hashable | None]:
        """The last resort for buffers without a name."""
        return self.keys(lambda t: None if t.operation else (t.elements, t.opcode))

    def sources(self, buffer: Buffer) -> tuple[int, ...]:
        read = self.memory.operands(buffer)
        return tuple(
            sorted({self.pair_of[operand.id] for operand in read if operand.id in self.pair_of})
        )

    def users(self, buffer: Buffer) -> tuple[int, ...]:
        users = self.memory.joined.placed_by_id[buffer.id].users
        pairs = {self.pair_of_instruction.get(name) for name in users}
        return tuple(sorted(pair for pair in pairs if pair is not None))


class _Matcher:
    def __init__(self, before: _Side, after: _Side) -> None:
        self._before = before
        self._after = after
        self._joined: list[Pair] = []

    def match_by(self, keys_of: Callable[[_Side], list[Hashable | None]]) -> None:
        waiting: dict[Hashable, list[Buffer]] = {}
        after, before = keys_of(self._after), keys_of(self._before)
        for buffer, key in zip(reversed(self._after.left), reversed(after), strict=True):
            if key is not None:
                waiting.setdefault(key, []).append(buffer)
        for buffer, key in zip(self._before.left, before, strict=True):
            if members := waiting.get(key):
                self._join(buffer, members.pop())
        for side in (self._before, self._after):
            side.left = [buffer for buffer in side.left if buffer.id not in side.pair_of]

    def _join(self, before: Buffer, after: Buffer) -> None:
        self._before.join(before, len(self._joined))
        self._after.join(after, len(self._joined))
        self._joined.append(Pair(before, after))

    @property
    def pairs(self) -> list[Pair]:
        alone = [Pair(buffer, None) for buffer in self._before.left]
        return [*self._joined, *alone, *(Pair(None, buffer) for buffer in self._after.left)]
