"""Another number of layers.

Either scopes and arguments are numbered (`block_0`, `params[0]`) and some numbers are new or gone;
or the layers' arguments are stacked, their first dimension is another, and so is the number of
times a loop runs; TPUs' programs do not say that, there a loop has to take slices of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.program import Program, array_of_buffer, scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlomem.report.data.causes.comparison import Comparison
    from hlomem.report.data.causes.ledger import Entry

_NUMBERED = re.compile(r"([A-Za-z][A-Za-z_]*?)_?(\d{1,4})$")
_MAX_DIGITS = 4
_KEYS = re.compile(r"[^\[\].'\"]+")


class _Layer(NamedTuple):
    """A numbered scope: `block_2` is the layer 2 of `block`."""

    stem: str
    number: int


def find_layers(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if there are more or fewer layers."""
    if comparison.stacked is not None:
        old, new = comparison.stacked
        yield Finding(
            kind="layers",
            text=f"{old} layers became {new} (the first dimension of their stacked arguments)",
            claims=_is_stacked(old, new),
        )
        return
    before, after = map(_count_layers, comparison.programs)
    for stem in sorted(after.keys() & before.keys(), key=lambda key: -len(after[key])):
        more, fewer = after[stem] - before[stem], before[stem] - after[stem]
        if bool(more) != bool(fewer):
            yield _finding(stem, len(before[stem]), len(after[stem]), more or fewer)
            return


def _is_stacked(old: int, new: int) -> Callable[[Entry], bool]:
    def claims(entry: Entry) -> bool:
        arrays = [array_of_buffer(b) for b in (entry.change.before, entry.change.after) if b]
        leading = [array.dimensions[0] for array in arrays if array and array.dimensions]
        return leading == [old, new]

    return claims


def _count_layers(program: Program) -> dict[str, frozenset[int]]:
    """The numbers of each stem that names both scopes or arguments in full: 0, 1, 2 …"""
    found: dict[str, set[int]] = {}
    for layer in _layers(program):
        found.setdefault(layer.stem, set()).add(layer.number)
    return {
        stem: frozenset(numbers)
        for stem, numbers in found.items()
        if numbers in (set(range(len(numbers))), set(range(1, len(numbers) + 1)))
    }


def _layers(program: Program) -> Iterator[_Layer]:
    for argument in program.arguments.values():
        yield from _of_parts(_KEYS.findall(argument.name))
    for name in program.operation_names:
        yield from _of_parts(scopes(name)[:-1])


def _of_parts(parts: Iterable[str]) -> Iterator[_Layer]:
    """Layers, and the parts of layers that have numbers of their own."""
    previous = ""
    for part in parts:
        if part.isdecimal() and len(part) <= _MAX_DIGITS:
            yield _Layer(previous, int(part))
        elif (numbered := _NUMBERED.fullmatch(part)) is not None:
            yield _Layer(numbered[1], int(numbered[2]))
        previous = part


def _finding(stem: str, old: int, new: int, changed: frozenset[int]) -> Finding:
    wanted = {_Layer(stem, number) for number in changed}

    def claims(entry: Entry) -> bool:
        buffer = entry.buffer
        parts = scopes(buffer.op_name or "")
        keys = _KEYS.findall(buffer.parameter or "")
        return not wanted.isdisjoint((*_of_parts(parts), *_of_parts(keys)))

    names = f"{stem} {min(changed)}" if len(changed) == 1 else f"{len(changed)} of {stem}"
    word = "new" if new > old else "gone"
    return Finding(
        kind="layers",
        text=f"{old} layers became {new}: {names} {'is' if len(changed) == 1 else 'are'} {word}",
        claims=claims,
        adds_operations=True,
    )
