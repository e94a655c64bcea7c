"""The functions of a model whose forward pass repeats: its layers, as the user's code names them.

The call stacks of what the forward pass computes tell which functions computed it. A function
repeats if equal values were computed below it several times, or if it runs in the body of a loop.
One that runs once holds all layers and is no layer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import MOVES
from hlomem.report.data.lines import is_installed
from hlomem.report.data.phases import is_forward, is_recomputed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.report.data.lines import Frame
    from hlomem.report.data.memory import Buffer, MemoryView

_SMALL = 1024
"""Bytes up to which a value is ignored."""
_SHARE = 0.1
"""Smallest share of the forward pass's bytes that a layer computes."""
_NESTED = 0.9
"""The share of a function's bytes below another from which on it is part of that."""
_ALL, _MOST = 0.98, 0.5
"""The shares of the forward pass from which on a function holds all layers, or is most of them."""
_FEW_LINES = 2
_WHILE = re.compile(r"/while(?=/|$)")
_NUMBERED = re.compile(r"/[A-Za-z]\w*_?\d+/")
"""A scope that a framework has numbered: `Block_0`, `block_3`, `enc5`."""
_OURS = re.compile(r"[/\\]hlomem[/\\]jax[/\\]")


class _Name(NamedTuple):
    file: str
    function: str


class LayerFunction(NamedTuple):
    """A function that repeats."""

    file: str
    name: str
    """As Python qualifies it: `Block.__call__`, `make.<locals>.block`."""
    line: int
    """A line in it."""
    caller: str
    """A line that calls it: `gpt.py:45`; empty if unknown."""
    calls: int
    """How often it runs outside loops; 1 in the body of a loop."""
    is_in_loop: bool
    size: int
    """Bytes of what the forward pass computes below it."""
    is_linen: bool
    """Whether it is a method of a module of flax.linen, which names its scopes."""

    @property
    def short_name(self) -> str:
        """`Block` for `Block.__call__`, `block` for `make.<locals>.block`; a lambda by its line."""
        if self.is_lambda:
            return f"the lambda at {last_parts(self.file)}:{self.line}"
        name = self.name.removesuffix(".__call__")
        return name.rpartition("<locals>.")[2]

    @property
    def is_lambda(self) -> bool:
        return self.name.endswith("<lambda>")


class Loop(NamedTuple):
    """A loop of the forward pass that a line of the user's code asks for."""

    file: str
    function: str
    line: int
    size: int
    """Bytes of what it stacks for the backward pass."""
    length: int
    """Iterations; 0 if unknown."""


def find_layers(
    memory: MemoryView, calls: Mapping[str, int] | None = None
) -> list[list[LayerFunction]]:
    """The functions that repeat, outermost first: each list lies within those before it.

    `calls` has how often functions were called, by `file::name`, where that was counted; else it is
    inferred from what they computed.
    """
    return _Finder(memory, calls or {}).levels()


def find_loops(memory: MemoryView) -> list[Loop]:
    """The loops that stack values for the backward pass, most bytes first."""
    return _Finder(memory, {}).loops()


def is_checkpointed(memory: MemoryView) -> bool:
    """Whether something is recomputed in the backward pass already."""
    return any(is_recomputed(buffer.op_name) for buffer in memory.buffers)


class _Finder:
    def __init__(self, memory: MemoryView, calls: Mapping[str, int]) -> None:
        self._memory = memory
        self._counted = calls
        self._forward = [
            buffer
            for buffer in memory.buffers
            if buffer.size > _SMALL
            and not buffer.shape.startswith("(")
            and is_forward(buffer.op_name)
        ]
        self._stacks = {buffer.id: _stack(memory.frames(buffer)) for buffer in self._forward}
        self._around_loop = self._find_around_loops()
        self._is_numbered = any(_NUMBERED.search(buffer.op_name or "") for buffer in self._forward)

    def _find_around_loops(self) -> dict[str, set[_Name]]:
        """The functions around each loop: those on the stacks of all that its body does."""
        around: dict[str, set[_Name]] = {}
        for buffer in self._memory.buffers:
            name = buffer.op_name or ""
            if not is_forward(name):
                continue
            stack = self._stacks.get(buffer.id) or _stack(self._memory.frames(buffer))
            names = {_Name(frame.file, frame.function) for frame in stack}
            for match in _WHILE.finditer(name) if names else ():
                loop = name[: match.end()]
                around[loop] = around[loop] & names if loop in around else set(names)
        return around

    def levels(self) -> list[list[LayerFunction]]:
        below: dict[_Name, list[Buffer]] = {}
        for buffer in self._forward:
            for name in {_Name(frame.file, frame.function) for frame in self._stacks[buffer.id]}:
                below.setdefault(name, []).append(buffer)
        total = sum(buffer.size for buffer in self._forward)
        found: dict[_Name, LayerFunction] = {}
        around_single = self._around_program(below)
        for name, buffers in below.items():
            if sum(buffer.size for buffer in buffers) < _SHARE * total:
                continue
            layer = self._layer(name, buffers)
            if layer is not None:
                found[name] = layer
            else:
                around_single |= self._around(name, buffers)
        found = {name: layer for name, layer in found.items() if name not in around_single}
        if not self._counted:
            found = self._without_holders(found, below, total)
        levels: list[list[LayerFunction]] = []
        while found:
            outer = [name for name in found if not self._is_nested(name, below[name], found)]
            outer = outer or list(found)
            levels.append(sorted((found.pop(name) for name in outer), key=lambda one: -one.size))
        return levels

    def _without_holders(
        self,
        found: dict[_Name, LayerFunction],
        below: Mapping[_Name, Sequence[Buffer]],
        total: int,
    ) -> dict[_Name, LayerFunction]:
        """Functions but for those that compute all, if one below them computes most of it."""
        inner = [name for name, layer in found.items() if layer.size >= _MOST * total]
        holders = {
            name
            for name, layer in found.items()
            if layer.size >= _ALL * total and not layer.is_in_loop
            if any(self._is_nested(one, below[one], [name]) for one in inner if one != name)
        }
        return {name: layer for name, layer in found.items() if name not in holders}

    def _around_program(self, below: Mapping[_Name, Sequence[Buffer]]) -> set[_Name]:
        """The function that the program is made of, and its callers: they run once."""
        module = self._memory.module
        program = "" if module is None else module.name.removeprefix("jit_")
        own = [name for name in below if name.function.rpartition(".")[2] == program]
        return {*own, *(caller for name in own for caller in self._around(name, below[name]))}

    def _layer(self, name: _Name, buffers: Sequence[Buffer]) -> LayerFunction | None:
        is_in_loop = any(self._is_in_loop(name, buffer) for buffer in buffers)
        calls = self._calls(name, buffers)
        if calls < 2 and not is_in_loop:
            return None
        stack, place = next(
            (stack, place)
            for buffer in buffers
            for stack in [self._stacks[buffer.id]]
            for place, frame in enumerate(stack)
            if _Name(frame.file, frame.function) == name
        )
        caller = stack[place + 1] if place + 1 < len(stack) else None
        return LayerFunction(
            file=name.file,
            name=name.function,
            line=stack[place].line,
            caller=f"{last_parts(caller.file)}:{caller.line}" if caller else "",
            calls=calls,
            is_in_loop=is_in_loop,
            size=sum(buffer.size for buffer in buffers),
            is_linen=_is_linen(name.function, buffers),
        )

    def _around(self, name: _Name, buffers: Iterable[Buffer]) -> set[_Name]:
        """The callers of a function; of one that runs once, they run once."""
        found: set[_Name] = set()
        for buffer in buffers:
            names = [_Name(frame.file, frame.function) for frame in self._stacks[buffer.id]]
            found |= set(names[names.index(name) + 1 :])
        return found

    def _is_in_loop(self, name: _Name, buffer: Buffer) -> bool:
        """Whether a function runs in the body of a loop, and does not call the loop."""
        operation = buffer.op_name or ""
        loops = [operation[: match.end()] for match in _WHILE.finditer(operation)]
        return any(
            loop != operation and loop in self._around_loop and name not in self._around_loop[loop]
            for loop in loops
        )

    def _calls(self, name: _Name, buffers: Iterable[Buffer]) -> int:
        """How often a function is called, as counted, or as far as what it computed tells."""
        counted = self._counted.get(f"{name.file}::{name.function}", 0)
        if counted > 1:
            return counted
        scope = f"jit({name.function.rpartition('.')[2]})"  # jitted within: traced but once
        is_jitted = any((buffer.op_name or "").find(scope) > 0 for buffer in buffers)
        return 1 if counted and not is_jitted else self._inferred_calls(name, buffers)

    def _inferred_calls(self, name: _Name, buffers: Iterable[Buffer]) -> int:
        """How often the lines of a function computed something, summed over its callers.

        Where scopes are numbered, as linen does, what has the same name is the same.
        """
        units: dict[tuple[tuple[Frame, ...], tuple[Frame, ...], str], set[str]] = {}
        for buffer in buffers:
            if buffer.opcode in MOVES or _WHILE.search(buffer.op_name or ""):
                continue
            stack = self._stacks[buffer.id]
            place = [_Name(frame.file, frame.function) for frame in stack].index(name)
            name_of_one = buffer.op_name or ""
            unit = name_of_one if self._is_numbered else f"{buffer.id}"
            kind = name_of_one.rpartition("/")[2] + buffer.shape
            units.setdefault((stack[place + 1 :], stack[: place + 1], kind), set()).add(unit)
        of_line: dict[tuple[Frame, ...], dict[int, int]] = {}
        for (outside, inside, _), found in units.items():
            lines = of_line.setdefault(outside, {})
            lines[inside[-1].line] = max(lines.get(inside[-1].line, 0), len(found))
        return sum(_calls_by_line(list(lines.values())) for lines in of_line.values())

    def _is_nested(self, name: _Name, buffers: Iterable[Buffer], others: Iterable[_Name]) -> bool:
        """Whether most of a function runs below another one."""
        wanted = set(others) - {name}
        inside = whole = 0
        for buffer in buffers:
            names = [_Name(frame.file, frame.function) for frame in self._stacks[buffer.id]]
            whole += buffer.size
            if not wanted.isdisjoint(names[names.index(name) + 1 :]):
                inside += buffer.size
        return inside >= _NESTED * whole

    def loops(self) -> list[Loop]:
        found: dict[tuple[str, str, int], list[Buffer]] = {}
        for buffer in self._forward:
            name = buffer.op_name or ""
            match = _WHILE.search(name)
            stack = self._stacks[buffer.id]
            if match is None or buffer.role != "stacked by a loop":
                continue
            around = self._around_loop.get(name[: match.end()], set())
            frame = next((f for f in stack if _Name(f.file, f.function) in around), None)
            if frame is not None:
                found.setdefault((frame.file, frame.function, frame.line), []).append(buffer)
        loops = [Loop(*place, *_stacked(buffers)) for place, buffers in found.items()]
        return sorted(loops, key=lambda loop: -loop.size)


def _calls_by_line(counts: list[int]) -> int:
    """How often a function was called whose lines computed something so often.

    One or two lines that repeat among others call layers in a loop; most lines of a layer repeat.
    """
    repeated = [count for count in counts if count > 1]
    others = len(counts) - len(repeated)
    is_single = len(repeated) <= others or (others and len(repeated) <= _FEW_LINES)
    return 1 if is_single else min(repeated)


def _stacked(buffers: Iterable[Buffer]) -> tuple[int, int]:
    """The bytes that buffers stack, and how many of them each does."""
    sizes = {(buffer.allocation, buffer.offset): buffer.size for buffer in buffers}
    lengths: Counter[int] = Counter()
    for buffer in buffers:
        first = re.match(r"\w+\[(\d+)", buffer.shape)
        lengths[int(first[1]) if first else 0] += buffer.size
    return sum(sizes.values()), max(lengths, key=lambda length: lengths[length])


def _stack(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The frames of the user's code, innermost first; JAX may repeat them for a loop's body."""
    found: dict[Frame, None] = {}
    for frame in frames:
        if _OURS.search(frame.file):
            break
        if frame in found:
            break
        is_named = frame.function and frame.function != "<module>"
        if is_named and not frame.file.startswith("<") and not is_installed(frame.file):
            found[frame] = None
    return tuple(found)


def _is_linen(function: str, buffers: Iterable[Buffer]) -> bool:
    """Whether the scopes of operations have the name of a method's class, as linen writes them."""
    scope, _, method = function.rpartition(".")
    own = re.escape(scope.rpartition(".")[2])
    if method != "__call__" or not own:
        return False
    named = re.compile(rf"[/(]{own}(_\d+)?[/)]|jvp\([A-Z]\w*\)/")
    return any(named.search(buffer.op_name or "") for buffer in buffers)


def last_parts(file: str) -> str:
    """The last two parts of a file's path."""
    return "/".join(file.replace("\\", "/").split("/")[-2:])
