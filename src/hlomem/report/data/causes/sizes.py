"""Size changes: batch, sequence, width, number of layers, sharding, loops versus unrolled code.

A buffer shows a changed dimension if its element count grew by a power of the same factor. Layers
are numbered scopes and arguments, or a stacked first dimension.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import CauseKind, Finding
from hlomem.report.data.causes.comparison import (
    ArgumentPair,
    Comparison,
    at_line,
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
    from hlomem.report.data.memory import Buffer


_MAX_POWER = 4


class _Resize(NamedTuple):
    old: int
    new: int


def find_dimensions(comparison: Comparison) -> Iterator[Finding]:
    """One finding per changed dimension of the arguments."""
    groups: dict[_Resize, list[ArgumentPair]] = {}
    for pair in comparison.resized:
        changed = dict(pair.changed_dimensions)
        if 0 in changed and changed[0] in (comparison.stacked, comparison.length):
            del changed[0]  # more layers, or steps
        for sizes in dict.fromkeys(changed.values()):
            groups.setdefault(_Resize(*sizes), []).append(pair)
    for (kind, _), resizes in _merge_factors(comparison, _merge_neighbours(groups)).items():
        resize = _main(resizes)
        shown = {pair.after.name: pair.after for pairs in resizes.values() for pair in pairs}
        names = name_arguments(list(shown.values()), comparison.after.arguments.values())
        yield Finding(
            kind=kind,
            text=f"{kind} {resize.old} became {resize.new} (arguments: {names})",
            claims=_follows(resize, frozenset(shown)),
            shows_count=True,
        )


def _main(resizes: dict[_Resize, list[ArgumentPair]]) -> _Resize:
    """The extent others are made of: a model's smallest, else what most dimensions have."""
    models = [resize for resize, pairs in resizes.items() if any(is_model(p.after) for p in pairs)]
    if models:
        return min(models)

    def uses(resize: _Resize) -> tuple[int, int]:
        changed = [sizes for p in resizes[resize] for sizes in p.changed_dimensions.values()]
        return changed.count((resize.old, resize.new)), -resize.old

    return max(resizes, key=uses)


def _merge_factors(
    comparison: Comparison,
    groups: dict[_Resize, list[ArgumentPair]],
) -> dict[tuple[CauseKind, Fraction], dict[_Resize, list[ArgumentPair]]]:
    """Merges 256 → 512 with 1024 → 2048 if both are widths."""
    merged: dict[tuple[CauseKind, Fraction], dict[_Resize, list[ArgumentPair]]] = {}
    for resize, pairs in groups.items():
        key = _kind(comparison, resize, pairs), Fraction(resize.new, max(resize.old, 1))
        merged.setdefault(key, {})[resize] = pairs
    return merged


def _merge_neighbours(
    groups: dict[_Resize, list[ArgumentPair]],
) -> dict[_Resize, list[ArgumentPair]]:
    """Merges 512 and 513, a sequence and its shifted targets, under the exact multiple."""
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
    """Treats 513 → 1025 as a sequence of 512 plus one token."""
    less = _Resize(resize.old - 1, resize.new - 1)
    is_shifted = resize.old % 2 == resize.new % 2 == 1 and less.old > 1
    larger, smaller = max(less), max(min(less), 1)
    return less if is_shifted and larger % smaller == 0 else resize


def _kind(comparison: Comparison, resize: _Resize, pairs: Sequence[ArgumentPair]) -> CauseKind:
    """A model dimension, both sides of a square or the last dimension of features is a width.

    The first dimension of inputs that no loop runs over is the batch, any other the sequence.
    """
    models = sum(is_model(pair.after) for pair in pairs)
    if 2 * models > len(pairs):
        return "width"
    inputs = [pair for pair in pairs if not is_stored(pair.after)]
    if not inputs:
        return "sequence"  # of caches
    simplest = min(inputs, key=lambda pair: len(pair.after.array.dimensions))
    positions = [
        position
        for position, sizes in simplest.changed_dimensions.items()
        if _is_near(_Resize(*sizes), resize)
    ]
    if positions[:1] == [comparison.leading(simplest)]:
        return "batch" if len(positions) == 1 else "width"
    array = simplest.after.array
    is_last = positions[:1] == [len(array.dimensions) - 1]
    return "width" if is_last and array.dtype in FLOATS else "sequence"


def _follows(resize: _Resize, arguments: frozenset[str] = frozenset()) -> Callable[[Entry], bool]:
    """Claims the given arguments and buffers whose element count grew by a power of the factor."""
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
    """A changed dimension of intermediate values where no argument changed; only likely."""
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


def find_lengths(comparison: Comparison) -> Iterator[Finding]:
    """At most one finding: a loop of more steps, or fewer."""
    if comparison.length is None:
        return
    old, new = comparison.length
    over = [p.after for p in comparison.resized if p.changed_dimensions.get(0) == (old, new)]
    names = name_arguments(over, comparison.after.arguments.values())
    yield Finding(
        kind="length",
        text=f"a loop of {old} steps became one of {new} (run over {names})",
        claims=_is_stacked(old, new),
    )


def find_arguments(comparison: Comparison) -> Iterator[Finding]:
    """Arguments of one program only, by their paths; renamed ones excluded."""
    sides = [program.arguments for program in comparison.programs]
    alone = [
        [argument for name, argument in mine.items() if name not in others]
        for mine, others in (sides, sides[::-1])
    ]
    arrays = [sorted(argument.array for argument in side) for side in alone]
    is_named = not any(name.startswith("parameter ") for side in sides for name in side)
    if arrays[0] == arrays[1] or not is_named or not sides[0].keys() & sides[1].keys():
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
            claims=_is_stacked(old, new),
        )
        return
    before, after = map(_count_layers, comparison.programs)
    for stem in sorted(after.keys() & before.keys(), key=lambda key: -len(after[key])):
        more, fewer = after[stem] - before[stem], before[stem] - after[stem]
        if bool(more) != bool(fewer):
            yield _layers_finding(stem, len(before[stem]), len(after[stem]), more or fewer)
            return


def _is_stacked(old: int, new: int) -> Callable[[Entry], bool]:
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


def _layers_finding(stem: str, old: int, new: int, changed: frozenset[int]) -> Finding:
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


_OF_LOOPS = frozenset({roles.STACKED, roles.CARRIED})


def find_loops(comparison: Comparison) -> Iterator[Finding]:
    before, after = comparison.programs
    added, dropped = after.loops - before.loops, before.loops - after.loops
    if bool(added) == bool(dropped):  # none, or replaced by others
        return
    line = _loop_line(after if added else before)
    scan = f"(lax.scan{at_line(line, ' at ')})"
    text = f"runs in a loop {scan}" if added else f"no longer runs in a loop {scan}, but unrolled"
    yield Finding(
        kind="loop",
        text=text,
        claims=lambda entry: entry.buffer.role in _OF_LOOPS,
        source=line,
        adds_operations=True,
    )


def _loop_line(program: ComparedProgram) -> str | None:
    for operation in program.operations:
        if operation.opcode == "while" and (line := program.line(operation)):
            return line
    return None
