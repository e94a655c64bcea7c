"""Another batch, sequence or width: a dimension of arguments, and all that is computed from it.

The dimension that changed is found in the arguments. A buffer shows the change if its elements grew
by that factor, once or several times: 8 that became 16 is 2048 that became 4096 where a batch of 8
and a sequence of 256 are one dimension.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data.causes.cause import CauseKind, Finding
from hlomem.report.data.causes.comparison import ArgumentPair, Comparison, is_model, name_arguments
from hlomem.report.data.causes.program import FLOATS, array_of_buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.report.data.causes.ledger import Entry

_MAX_POWER = 4


class _Resize(NamedTuple):
    """A dimension before and after."""

    old: int
    new: int


def find_dimensions(comparison: Comparison) -> Iterator[Finding]:
    """One finding for each dimension of arguments that changed."""
    groups: dict[_Resize, list[ArgumentPair]] = {}
    for pair in comparison.resized:
        if comparison.stacked and pair.changed_dimensions == {0: comparison.stacked}:
            continue  # more layers
        for sizes in dict.fromkeys(pair.changed_dimensions.values()):
            groups.setdefault(_Resize(*sizes), []).append(pair)
    for (kind, _), resizes in _merge_factors(_merge_neighbours(groups)).items():
        resize = min(resizes)
        changed = {pair.after.name: pair.after for pairs in resizes.values() for pair in pairs}
        names = name_arguments(list(changed.values()), comparison.after.arguments.values())
        yield Finding(
            kind=kind,
            text=f"{kind} {resize.old} became {resize.new} (arguments: {names})",
            claims=_follows(resize, frozenset(changed)),
            shows_count=True,
        )


def _merge_factors(
    groups: dict[_Resize, list[ArgumentPair]],
) -> dict[tuple[CauseKind, Fraction], dict[_Resize, list[ArgumentPair]]]:
    """One group for 256 that became 512 and 1024 that became 2048, where both are widths."""
    merged: dict[tuple[CauseKind, Fraction], dict[_Resize, list[ArgumentPair]]] = {}
    for resize, pairs in groups.items():
        key = _kind(resize, pairs), Fraction(resize.new, max(resize.old, 1))
        merged.setdefault(key, {})[resize] = pairs
    return merged


def _merge_neighbours(
    groups: dict[_Resize, list[ArgumentPair]],
) -> dict[_Resize, list[ArgumentPair]]:
    """One group for 512 and 513: a sequence and its targets are shifted by one.

    The exact multiple names it, or what more arguments have.
    """
    merged: dict[_Resize, list[ArgumentPair]] = {}
    order = sorted(
        groups, key=lambda resize: (resize.new % resize.old != 0, -len(groups[resize]), resize)
    )
    for resize in order:
        near = next((known for known in merged if _is_near(known, resize)), resize)
        merged.setdefault(near, []).extend(groups[resize])
    return {_rounded(resize): pairs for resize, pairs in merged.items()}


def _is_near(one: _Resize, other: _Resize) -> bool:
    return abs(one.old - other.old) <= 1 and abs(one.new - other.new) <= 1


def _rounded(resize: _Resize) -> _Resize:
    """513 that became 1025 is a sequence of 512 and one token more."""
    less = _Resize(resize.old - 1, resize.new - 1)
    is_shifted = resize.old % 2 == resize.new % 2 == 1 and less.old > 1
    larger, smaller = max(less), max(min(less), 1)
    return less if is_shifted and larger % smaller == 0 else resize


def _kind(resize: _Resize, pairs: Sequence[ArgumentPair]) -> CauseKind:
    """A dimension of the model is a width, as is the last one of features.

    The first one of inputs is the batch, another one the sequence.
    """
    models = sum(is_model(pair.after) for pair in pairs)
    if 2 * models > len(pairs):
        return "width"
    inputs = [pair for pair in pairs if not is_model(pair.after)] or list(pairs)
    simplest = min(inputs, key=lambda pair: len(pair.after.array.dimensions))
    positions = [
        position
        for position, sizes in simplest.changed_dimensions.items()
        if _is_near(_Resize(*sizes), resize)
    ]
    if positions[:1] == [0]:
        return "batch"
    array = simplest.after.array
    is_last = positions[:1] == [len(array.dimensions) - 1]
    return "width" if is_last and array.dtype in FLOATS else "sequence"


def _follows(resize: _Resize, arguments: frozenset[str] = frozenset()) -> Callable[[Entry], bool]:
    """A test of buffers: one of the arguments, or its elements grew by a power of the factor."""
    factor = Fraction(resize.new, max(resize.old, 1))
    powers = {factor**power for power in range(1, _MAX_POWER + 1)}

    def claims(entry: Entry) -> bool:
        before, after = entry.change.before, entry.change.after
        if entry.buffer.opcode == "parameter" and entry.buffer.parameter in arguments:
            return True
        old = array_of_buffer(before) if before else None
        new = array_of_buffer(after) if after else None
        if old is None or new is None:
            return False
        counts = prod(old.dimensions), prod(new.dimensions)
        return counts[0] > 0 and Fraction(counts[1], counts[0]) in powers

    return claims


def find_inner_dimensions(comparison: Comparison) -> Iterator[Finding]:
    """A dimension of what is computed, where no argument changed; likely, as none says so."""
    if not comparison.has_same_arguments:
        return
    weights: Counter[_Resize] = Counter()
    for entry in comparison.entries:
        before, after = entry.change.before, entry.change.after
        old = array_of_buffer(before) if before else None
        new = array_of_buffer(after) if after else None
        if entry.side and old and new and len(old.dimensions) == len(new.dimensions):
            pairs = zip(old.dimensions, new.dimensions, strict=True)
            changed = {_Resize(a, b) for a, b in pairs if a != b}
            if len(changed) == 1:
                weights[changed.pop()] += abs(entry.change.delta)
    for resize, _ in weights.most_common(1):
        if resize.old and resize.new:
            yield Finding(
                kind="dimension",
                text=f"dimension {resize.old} became {resize.new} in what is computed",
                claims=_follows(resize),
                is_certain=False,
                takes_rest=False,
            )
