"""Size changes: batch, sequence, width, number of layers, sharding, loops versus unrolled code.

A buffer shows a changed dimension if its element count grew by a power of the same factor. Layers
are numbered scopes and arguments, or a stacked first dimension.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.report.data.causes.cause import CauseKind, Finding
from hlomem.report.data.causes.comparison import (
    ArgumentPair,
    Comparison,
    is_model,
    is_stored,
    listed,
    name_arguments,
)
from hlomem.report.data.causes.ledger import AFTER, BEFORE
from hlomem.report.data.causes.program import FLOATS, ComparedProgram, array_of_buffer, scopes
from hlomem.report.data.sharding.comparing import compare_shardings
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.report.data.causes.ledger import Entry
    from hlomem.report.data.causes.operations import Array
    from hlomem.report.data.causes.program import ProgramArgument
    from hlomem.report.data.memory import Buffer


_MAX_POWER = 4


class _Resize(NamedTuple):
    old: int
    new: int


def find_dimensions(comparison: Comparison) -> Iterator[Finding]:
    """One finding per changed dimension of the arguments; inputs before the model."""
    groups: dict[_Resize, list[ArgumentPair]] = {}
    for pair in comparison.resized:
        changed = dict(pair.changed_dimensions)
        if 0 in changed and changed[0] in (comparison.stacked, comparison.length):
            del changed[0]  # more layers, or steps
        for sizes in dict.fromkeys(changed.values()):
            groups.setdefault(_Resize(*sizes), []).append(pair)
    found = _merge_factors(comparison, _merge_neighbours(groups))
    for (kind, _), resizes in sorted(found.items(), key=lambda item: item[0][0] == "width"):
        resize = _main(kind, resizes)
        shown = {pair.after.name: pair.after for pairs in resizes.values() for pair in pairs}
        names = name_arguments(list(shown.values()), comparison.after.arguments.values())
        yield Finding(
            kind=kind,
            text=f"{kind} {resize.old} became {resize.new} (arguments: {names})",
            claims=_follows(resize, frozenset(shown)),
            shows_count=True,
        )


_Resizes: TypeAlias = "dict[_Resize, list[ArgumentPair]]"


def _main(kind: CauseKind, resizes: _Resizes) -> _Resize:
    """The extent others are made of: the smallest of a width, else what most dimensions have."""
    stored = [resize for resize, pairs in resizes.items() if any(is_stored(p.after) for p in pairs)]
    if kind == "width" and stored:
        return min([resize for resize in stored if not _is_part(resize, stored, resizes)] or stored)
    inputs = [r for r, pairs in resizes.items() if not all(is_stored(p.after) for p in pairs)]

    def uses(resize: _Resize) -> tuple[int, int]:
        changed = [sizes for p in resizes[resize] for sizes in p.changed_dimensions.values()]
        return changed.count((resize.old, resize.new)), -resize.old

    return max(inputs or resizes, key=uses)


def _is_part(resize: _Resize, others: Sequence[_Resize], resizes: _Resizes) -> bool:
    """Whether it is a part of another extent, as a head is, wherever it stands."""
    wholes = {Fraction(other.old, resize.old) for other in others if other.old > resize.old}
    sides = [
        (dimensions[position - 1] if position else 0)
        for pair in resizes[resize]
        for position, sizes in pair.changed_dimensions.items()
        if sizes == resize
        for dimensions in [pair.after.array.dimensions]
    ]
    return bool(sides) and all(side in wholes for side in sides)


def _merge_factors(
    comparison: Comparison, groups: _Resizes
) -> dict[tuple[CauseKind, Fraction], _Resizes]:
    """Merges 256 → 512 with 1024 → 2048 if both are widths, and what a sequence entails with it."""
    merged: dict[tuple[CauseKind, Fraction], _Resizes] = {}
    for resize, pairs in groups.items():
        kind = _kind(comparison, resize, pairs)
        is_of_tokens = kind == "sequence" and _is_of_tokens(pairs)
        shown = _computed(comparison, resize) if is_of_tokens else resize
        key = kind, Fraction(shown.new, max(shown.old, 1))
        merged.setdefault(key, {}).setdefault(shown, []).extend(pairs)
    for kind, factor in [key for key in merged if key[0] == "width"]:
        whole = _sequence_behind(factor, merged[kind, factor], merged)
        if whole is not None:
            merged[whole] |= merged.pop((kind, factor))
        elif _is_of_caches(merged.get(("sequence", factor), {})):  # their heads
            merged[kind, factor] |= merged.pop(("sequence", factor))
    return merged


def _is_of_caches(resizes: _Resizes) -> bool:
    pairs = [pair for pairs in resizes.values() for pair in pairs]
    return bool(pairs) and all(is_stored(pair.after) for pair in pairs)


def _sequence_behind(
    factor: Fraction,
    resizes: _Resizes,
    merged: dict[tuple[CauseKind, Fraction], _Resizes],
) -> tuple[CauseKind, Fraction] | None:
    """The sequence that extents follow: other inputs by its factor, a model's as the area does."""
    pairs = [pair for pairs in resizes.values() for pair in pairs]
    for kind, sides in merged:
        is_of_model = all(is_model(pair.after) for pair in pairs)
        is_of_inputs = not any(is_model(pair.after) for pair in pairs)
        follows = (is_of_model and factor == sides**2) or (is_of_inputs and factor == sides)
        if kind == "sequence" and follows:
            return kind, sides
    return None


def _merge_neighbours(groups: _Resizes) -> _Resizes:
    """Merges 512 and 513, a sequence and its shifted targets, under the exact multiple."""
    merged: _Resizes = {}
    order = sorted(
        groups, key=lambda resize: (resize.new % resize.old != 0, -len(groups[resize]), resize)
    )
    for resize in order:
        near = next((known for known in merged if _is_near(known, resize)), resize)
        merged.setdefault(near, []).extend(groups[resize])
    return merged


def _is_near(one: _Resize, other: _Resize) -> bool:
    return abs(one.old - other.old) <= 1 and abs(one.new - other.new) <= 1


def _is_of_tokens(pairs: Sequence[ArgumentPair]) -> bool:
    return any(pair.after.array.dtype not in FLOATS for pair in pairs)


def _computed(comparison: Comparison, resize: _Resize) -> _Resize:
    """Of 513 tokens, and 1025, the 512 and 1024 that most of what is computed has."""
    seen = Counter(_inner_resizes(comparison))
    less = _Resize(resize.old - 1, resize.new - 1)
    return less if seen[less] > seen[resize] else resize


def _kind(comparison: Comparison, resize: _Resize, pairs: Sequence[ArgumentPair]) -> CauseKind:
    """The kind of a dimension by where it stands in inputs; one that only a model has is a width.

    The first that no loop runs over is the batch, unless the model has it elsewhere. Both sides of
    a field, an inner dimension, and the last one unless it holds features, are the sequence.
    """
    inputs = [pair for pair in pairs if not is_stored(pair.after)]
    models = [pair for pair in pairs if is_model(pair.after)]
    if not inputs:
        return "width" if 2 * len(models) > len(pairs) else "sequence"  # of caches
    simplest = min(inputs, key=lambda pair: len(pair.after.array.dimensions))
    positions = _positions(simplest, resize)
    if positions == [comparison.leading(simplest)]:
        return "width" if any(_positions(pair, resize)[-1:] != [0] for pair in models) else "batch"
    array = simplest.after.array
    is_last = positions == [len(array.dimensions) - 1] and array.dtype in FLOATS
    return "width" if is_last and (models or not comparison.has_model) else "sequence"


def _positions(pair: ArgumentPair, resize: _Resize) -> list[int]:
    changed = pair.changed_dimensions.items()
    return [position for position, sizes in changed if _is_near(_Resize(*sizes), resize)]


def _follows(resize: _Resize, arguments: frozenset[str] = frozenset()) -> Callable[[Entry], bool]:
    """Claims the given arguments and buffers whose element count grew by a power of the factor."""
    factor = Fraction(resize.new, max(resize.old, 1))
    powers = {factor**power for power in range(1, _MAX_POWER + 1)}

    def claims(entry: Entry) -> bool:
        before, after = entry.change.before, entry.change.after
        if entry.buffer.opcode == "parameter":
            return entry.buffer.parameter in arguments
        old = array_of_buffer(before) if before else None
        new = array_of_buffer(after) if after else None
        if old is None or new is None:
            return False
        counts = prod(old.dimensions), prod(new.dimensions)
        return counts[0] > 0 and Fraction(counts[1], counts[0]) in powers

    return claims


def _inner_resizes(comparison: Comparison) -> Iterator[_Resize]:
    """Each dimension that changed in buffers, arguments excepted."""
    for entry in comparison.entries:
        if entry.side and entry.buffer.opcode != "parameter":
            yield from _resizes_of(entry)


def _resizes_of(entry: Entry) -> set[_Resize]:
    before, after = entry.change.before, entry.change.after
    old = array_of_buffer(before) if before else None
    new = array_of_buffer(after) if after else None
    if not old or not new or len(old.dimensions) != len(new.dimensions):
        return set()
    pairs = zip(old.dimensions, new.dimensions, strict=True)
    return {_Resize(a, b) for a, b in pairs if a != b}


def find_inner_dimensions(comparison: Comparison) -> Iterator[Finding]:
    """A changed dimension of intermediate values where no argument changed; only likely."""
    if not comparison.has_same_arguments:
        return
    weights: Counter[_Resize] = Counter()
    for entry in comparison.entries:
        changed = _resizes_of(entry) if entry.side else set()
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


def find_arguments(comparison: Comparison) -> Iterator[Finding]:
    """Arguments of one program only, by their paths; moved or stacked ones excluded."""
    sides = [program.arguments for program in comparison.programs]
    alone = _without_moved(
        *(
            [argument for name, argument in mine.items() if name not in others]
            for mine, others in (sides, sides[::-1])
        )
    )
    elements = [sum(prod(argument.array.dimensions) for argument in side) for side in alone]
    is_named = not any(name.startswith("parameter ") for side in sides for name in side)
    if elements[0] == elements[1] or not is_named or not sides[0].keys() & sides[1].keys():
        return
    for side, word in ((BEFORE, "gone"), (AFTER, "new")):
        if alone[side]:
            gone = frozenset(argument.name for argument in alone[side])
            trees = _subtrees(gone, [name for name in sides[side] if name not in gone])
            verb = "is" if len(trees) == 1 else "are"
            count = plural(len(gone), "array")
            yield Finding(
                kind="arguments",
                text=f"{listed(trees)} {verb} {word}: {count} among the arguments",
                claims=lambda entry, gone=gone: entry.buffer.parameter in gone,  # type: ignore[misc]
                adds_operations=True,
            )


_STEP = re.compile(r"^[^\[.]+|\[[^\]]*\]|\.[^\[.]+")


def _without_moved(
    before: Sequence[ProgramArgument], after: Sequence[ProgramArgument]
) -> tuple[list[ProgramArgument], list[ProgramArgument]]:
    """Arguments but for those that moved in their trees: of one array, and one end of the path."""
    waiting: dict[tuple[Array, str], list[ProgramArgument]] = {}
    for argument in after:
        waiting.setdefault((argument.array, _steps(argument)[-1]), []).append(argument)
    gone = []
    for argument in before:
        steps = _steps(argument)
        found = waiting.get((argument.array, steps[-1]))
        if not found:
            gone.append(argument)
            continue
        found.remove(max(found, key=lambda other: _common_end(steps, _steps(other))))
    return gone, [argument for found in waiting.values() for argument in found]


def _steps(argument: ProgramArgument) -> list[str]:
    return _STEP.findall(argument.name) or [argument.name]


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _subtrees(names: frozenset[str], others: Sequence[str]) -> list[str]:
    """The shortest paths that lead to these names and to no other."""
    found: dict[str, None] = {}
    for name in sorted(names):
        path = ""
        for step in _STEP.findall(name):
            path += step
            if not any(other.startswith(path) for other in others):
                break
        found[path or name] = None
    return list(found)


_NUMBERED = re.compile(r"([A-Za-z][A-Za-z_]*?)_?(\d{1,4})$")
_MAX_DIGITS = 4
_KEYS = re.compile(r"[^\[\].'\"]+")


class _Layer(NamedTuple):
    """A numbered scope: `block_2` is layer 2 of `block`."""

    stem: str
    number: int


def find_layers(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding: more layers, or fewer."""
    if comparison.stacked is not None:
        old, new = comparison.stacked
        yield Finding(
            kind="layers",
            text=f"{old} layers became {new} (the first dimension of their stacked arguments)",
            claims=is_stacked(old, new),
        )
        return
    before, after = map(_count_layers, comparison.programs)
    common = sorted(after.keys() & before.keys(), key=lambda key: (-len(after[key]), key))
    for stem in common:
        fewer, more = before[stem] - after[stem], after[stem] - before[stem]
        if bool(fewer) != bool(more):
            sides = before[stem], after[stem]
            alike = [one for one in common if (before[one], after[one]) == sides]
            yield _layers_finding(alike, *sides)
            return


def is_stacked(old: int, new: int) -> Callable[[Entry], bool]:
    def claims(entry: Entry) -> bool:
        arrays = [array_of_buffer(b) for b in (entry.change.before, entry.change.after) if b]
        leading = [array.dimensions[0] for array in arrays if array and array.dimensions]
        return leading == [old, new]

    return claims


def _count_layers(program: ComparedProgram) -> dict[str, frozenset[int]]:
    """The numbers of each stem that is numbered without gaps, from 0 or 1."""
    found: dict[str, set[int]] = {}
    for layer in _layers(program):
        found.setdefault(layer.stem, set()).add(layer.number)
    return {
        stem: frozenset(numbers)
        for stem, numbers in found.items()
        if numbers in (set(range(len(numbers))), set(range(1, len(numbers) + 1)))
    }


def _layers(program: ComparedProgram) -> Iterator[_Layer]:
    for argument in program.arguments.values():
        yield from _of_parts(_KEYS.findall(argument.name))
    for name in program.operation_names:
        yield from _of_parts(scopes(name)[:-1])


def _of_parts(parts: Iterable[str]) -> Iterator[_Layer]:
    previous = ""
    for part in parts:
        if part.isdecimal() and len(part) <= _MAX_DIGITS:
            yield _Layer(previous, int(part))
        elif (numbered := _NUMBERED.fullmatch(part)) is not None:
            yield _Layer(numbered[1], int(numbered[2]))
        previous = part


def _layers_finding(stems: Sequence[str], old: frozenset[int], new: frozenset[int]) -> Finding:
    changed = old ^ new
    wanted = {_Layer(stem, number) for stem in stems for number in changed}

    def claims(entry: Entry) -> bool:
        buffer = entry.buffer
        parts = scopes(buffer.op_name or "")
        keys = _KEYS.findall(buffer.parameter or "")
        return not wanted.isdisjoint((*_of_parts(parts), *_of_parts(keys)))

    is_one = len(changed) == 1
    names = listed([f"{stem} {min(changed)}" for stem in stems] if is_one else stems)
    names = names if is_one else f"{len(changed)} of {names}"
    verb = "is" if len(wanted) == 1 else "are"
    word = "new" if new > old else "gone"
    return Finding(
        kind="layers",
        text=f"{len(old)} layers became {len(new)}: {names} {verb} {word}",
        claims=claims,
        adds_operations=True,
    )


def find_sharding(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding: another number of partitions, or arguments split differently."""
    old, new = (program.memory.device_count for program in comparison.programs)
    if old != new:
        text = f"split over {plural(new, 'device')} instead of {old}"
        yield _split_finding(comparison, f"{text}{_arguments(comparison)}", certain=True)
        return
    if new == 1:
        return
    if resharded := compare_shardings(comparison.before.memory, comparison.after.memory):
        text = f"split differently over {plural(new, 'device')}: {resharded}"
        yield _split_finding(comparison, text, certain=True)
        return
    if not comparison.resized:
        return
    if not all(_is_resharded(pair, new) for pair in comparison.resized):
        return
    has_other_collectives = comparison.before.collectives != comparison.after.collectives
    if has_other_collectives or _is_local(comparison, new):
        text = f"split differently over {plural(new, 'device')}{_arguments(comparison)}"
        yield _split_finding(comparison, text, certain=has_other_collectives)


def _is_local(comparison: Comparison, partitions: int) -> bool:
    """Whether intermediates did not change, too, as they would with a larger batch."""
    return not any(
        _is_split(entry.change.before, entry.change.after, partitions)
        for entry in comparison.entries
        if entry.buffer.opcode != "parameter"
    )


def _split_finding(comparison: Comparison, text: str, *, certain: bool) -> Finding:
    count = max(program.memory.device_count for program in comparison.programs)

    def claims(entry: Entry) -> bool:
        change = entry.change
        return _is_split(change.before, change.after, count)

    return Finding(
        kind="sharding", text=text, claims=claims, is_certain=certain, adds_operations=True
    )


def _is_resharded(pair: ArgumentPair, partitions: int) -> bool:
    return all(_is_factor(a, b, partitions) for a, b in pair.changed_dimensions.values())


def _is_factor(one: int, other: int, partitions: int) -> bool:
    small, large = sorted((one, other))
    return small > 0 and large % small == 0 and partitions % (large // small) == 0


def _is_split(one: Buffer | None, other: Buffer | None, partitions: int) -> bool:
    return (
        one is not None
        and other is not None
        and one.size != other.size
        and _is_factor(one.size, other.size, partitions)
    )


def _arguments(comparison: Comparison) -> str:
    parts = []
    for word, pairs in (
        ("less", [p for p in comparison.resized if p.after.size < p.before.size]),
        ("more", [p for p in comparison.resized if p.after.size > p.before.size]),
    ):
        if pairs:
            everything = comparison.after.arguments.values()
            names = name_arguments([pair.after for pair in pairs], everything)
            parts.append(f"{word} of {names}")
    return f": each device holds {' and '.join(parts)}" if parts else ""
