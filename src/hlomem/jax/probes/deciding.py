"""The line that decides how arrays are split, found by tracing the program with other values there.

In: the arrays at fault, and how they should be split. Out: the expression of the source where
another value changes these and no others; of several, one that splits them as wanted, evaluated
last.
"""

from __future__ import annotations

import ast
import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.sharding import bare_spec
from hlomem.jax.probes.instrument import USE, read_key
from hlomem.jax.probes.levers import SPEC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.jax.probes.instrument import Key
    from hlomem.jax.probes.levers import Seen
    from hlomem.jax.probes.messages import Placed, Traced
    from hlomem.jax.probes.parent import Prober

_ARGUMENT = "argument "
_MAX_PROBES = 300
_MAX_WANTED = 3
_MAX_PATHS = 3
_PATTERN = re.compile(r"\\[.bdw]|\(.*\)|\.\*|\$$")
"""Of regular expressions."""
_MARKS = ("/", ".", "[")
"""Of paths."""
_MOST = 0.5
"""The share of the arrays at fault, by bytes, that a place must decide."""
_FEW = 0.1
"""The share of their bytes that others may have which it decides, too."""
_LESS = 0.95
"""The share of what loops keep that is left, at most, where that is at fault."""


class Fault(NamedTuple):
    """Arrays that are split wrongly."""

    wanted: Mapping[str, str]
    """The specs they should have, by the names of `Placed`; empty where none is known."""
    numbers: Mapping[int, int]
    """Sizes of dimensions that an axis does not divide, and the next that it does."""
    is_kept: bool = False
    """Whether they are what loops keep."""
    is_of_spec: bool = False
    """Whether all that is split as they are is at fault, too, whatever its size."""


class Decided(NamedTuple):
    """The expression that decides, and the change that was seen to matter."""

    key: Key
    change: str
    is_wanted: bool
    """Whether the arrays are split as wanted after the change."""
    site: str = ""
    """The line that calls the function it is in, where others do so, too, and are not at fault."""

    @property
    def line(self) -> str:
        return self.site or f"{self.key.file}:{self.key.line}"


class _Effect(NamedTuple):
    """The effect of a change at one place."""

    seen: Seen
    change: str
    is_wanted: bool
    others: float
    """Bytes of other arrays, as a share of those at fault."""
    arrays: int = 0
    """The number of these."""
    kept: int = 0
    """Bytes that loops keep after the change, where that is at fault."""
    is_possible: bool = True
    """Whether these have the dimensions that the change splits."""
    is_unknown: bool = False
    """Whether it is another name for one that no table has."""

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, int, int, int, bool, int]:
        word, _, about = self.change.partition(":")
        is_by_name = self.is_unknown or (word == "add" and "=" not in about)
        return (
            self.others <= _FEW,
            word in ("number", "drop", "least", "search"),  # no other says what is too much
            self.is_wanted and self.is_possible,
            word not in ("flip", "true", "false"),  # what is switched or asked is written elsewhere
            -self.arrays,
            -self.kept,
            # With a sharding that the program has already; not a name instead of another.
            2 if is_by_name else 1 if word != "text" else 0,
            word != "add",
            -self.seen.last if word == "number" else self.seen.last,
        )


def decide(prober: Prober, base: Traced, fault: Fault, axes: Mapping[str, int]) -> Decided | None:
    """The expression that decides a fault alone; None if there was not one.

    `axes` are those of the mesh, with their sizes.
    """
    effects = _effects(prober, base, fault, axes, is_used=False)
    if not any(one.is_wanted and one.is_possible for one in effects):
        effects += _effects(prober, base, fault, axes, is_used=True)
    best = max(effects, key=lambda effect: effect.rank, default=None)
    if best is None or best.others > _FEW:
        return None
    best = _asked_before(best, effects)
    site = _site(prober, base, fault, axes, best)
    return Decided(_key(base, best), best.change, best.is_wanted, site)


def _asked_before(best: _Effect, effects: Sequence[_Effect]) -> _Effect:
    """The question that arrays at fault are to pass as others do, where the rest is left whole."""
    if best.seen.kind not in ("spec", "sharding") or bare_spec(best.seen.text):
        return best
    end = read_key(best.seen.key)
    asked = [
        one
        for one in effects
        if one.change == "true:" and one.is_wanted and one.is_possible and "True" in one.seen.text
        if one.others <= _FEW and not set(one.seen.sites).isdisjoint(best.seen.sites)
        if (its := read_key(one.seen.key)).file == end.file and its.begin < end.begin
    ]
    return max(asked, key=lambda one: read_key(one.seen.key).begin, default=best)


def _key(base: Traced, best: _Effect) -> Key:
    """The expression of a change; of an item that is too much, its own."""
    key = read_key(best.seen.key)
    word, _, item = best.change.partition(":")
    inside = [
        its
        for seen in base.seen
        if word == "drop" and seen.kind == "text" and seen.text == item
        if (its := read_key(seen.key)).file == key.file and key.begin <= its.begin <= key.end
    ]
    return inside[0] if inside else key


def _effects(
    prober: Prober, base: Traced, fault: Fault, axes: Mapping[str, int], *, is_used: bool
) -> list[_Effect]:
    """The effects of changes where values are made, or where they are used by a name."""
    every = _tries(base, fault, list(axes))
    tries = [one for one in every if one[0].key.endswith(USE) == is_used][:_MAX_PROBES]
    traced = prober.trace([(seen.key, change) for seen, change in tries])
    return [
        effect
        for (seen, change), one in zip(tries, traced, strict=True)
        if one is not None and (effect := _effect(base, one, fault, axes, seen, change)) is not None
    ]


def _site(
    prober: Prober, base: Traced, fault: Fault, axes: Mapping[str, int], best: _Effect
) -> str:
    """The only call, of several, of the function that decides for which it does; else empty."""
    seen, change = best.seen, best.change
    if len(seen.sites) < 2:
        return ""
    traced = prober.trace([(seen.key, change, site) for site in seen.sites])
    found = [
        site
        for site, one in zip(seen.sites, traced, strict=True)
        if one is not None
        and (effect := _effect(base, one, fault, axes, seen, change)) is not None
        and effect.is_wanted >= best.is_wanted
    ]
    return found[0] if len(found) == 1 else ""


def _effect(
    base: Traced,
    traced: Traced,
    fault: Fault,
    axes: Mapping[str, int],
    seen: Seen,
    change: str,
) -> _Effect | None:
    """The effect of a change; None where the arrays at fault stay."""
    is_argument = any(name.startswith(_ARGUMENT) for name in fault.wanted)
    if not traced.is_changed or (traced.problem and not is_argument):
        return None
    before, after = _by_name(base), _by_name(traced)
    if traced.problem:  # its arguments are known all the same
        before = {name: one for name, one in before.items() if name.startswith(_ARGUMENT)}
    changed = {
        name for name, one in before.items() if name not in after or after[name].spec != one.spec
    }
    if is_argument and not fault.wanted.keys() & before.keys() <= after.keys():
        return None  # they are not handed over, which splits nothing
    if fault.is_kept:
        is_same = not changed and traced.products >= base.products
        if not is_same or traced.kept >= _LESS * base.kept:
            return None
        return _Effect(seen, change, is_wanted=True, others=0.0, kept=traced.kept)
    own = fault.wanted.keys() & before.keys()
    size = sum(before[name].size for name in own)
    if not size or sum(before[name].size for name in own & changed) < _MOST * size:
        return None
    ends = tuple([end for name in own if (end := _end_of(name))])
    alike = {_look(before[name], fault) for name in own}
    others = [
        before[name].size
        for name in changed - own
        if (
            name.startswith(_ARGUMENT) and not name.endswith(ends)
            if is_argument
            else _look(before[name], fault) not in alike
        )
    ]
    is_wanted = all(
        name in after
        and _parts_by(after[name].spec, axes) >= _parts_by(fault.wanted[name], axes) > 1
        for name in own
    )
    is_possible = not any(
        0 < before[name].dimensions < _dimensions(after[name].spec)
        for name in changed - own
        if name in after
    )
    if change.startswith(("least:", "drop:")) and not is_wanted:
        return None
    is_unknown = change.startswith("text:") and seen.text not in {name for name, _ in _rules(base)}
    share = sum(others) / size
    return _Effect(
        seen,
        change,
        is_wanted,
        share,
        arrays=len(others),
        is_possible=is_possible,
        is_unknown=is_unknown,
    )


def _look(placed: Placed, fault: Fault) -> tuple[str, int]:
    """That by which an array is taken for one of those at fault."""
    return bare_spec(placed.spec), 0 if fault.is_of_spec else placed.size


def _parts_by(spec: str, axes: Mapping[str, int]) -> int:
    """The parts that a spec splits an array into."""
    return prod(axes.get(axis, 1) for axis in re.findall(r"'([^']*)'", spec))


def _dimensions(spec: str) -> int:
    """The number of dimensions that a spec is about."""
    try:
        return len(ast.literal_eval(f"[{bare_spec(spec)}]"))
    except (SyntaxError, ValueError):  # of several arrays
        return 0


def _end_of(name: str) -> str:
    """The path of an argument in its tree, which trees that repeat it end in."""
    return name[name.index("[") :] if name.startswith(_ARGUMENT) and "[" in name else ""


def _by_name(traced: Traced) -> dict[str, Placed]:
    return {one.name: one for one in traced.arrays}


def _tries(base: Traced, fault: Fault, axes: Sequence[str]) -> Iterator[tuple[Seen, str]]:
    """The changes to try of expressions that were evaluated, the likeliest first."""
    tries = _Tries(base, fault, axes)
    for some in (tries.numbers, tries.specs, tries.names, tries.limits, tries.answers):
        for seen in base.seen:
            for change in dict.fromkeys(some(seen)):
                yield seen, change


class _Tries:
    def __init__(self, base: Traced, fault: Fault, axes: Sequence[str]) -> None:
        self._numbers = fault.numbers
        self._wanted = list(dict.fromkeys(fault.wanted.values()))[:_MAX_WANTED]
        self._joined = list(dict.fromkeys([some for one in self._wanted for some in _joined(one)]))
        used = [axis for axis in axes if any(repr(axis) in spec for spec in self._wanted)]
        self._axes = list(dict.fromkeys([*used, *axes]))
        names = [one.removeprefix(_ARGUMENT) for one in fault.wanted if one.startswith(_ARGUMENT)]
        self._paths = list(dict.fromkeys(_paths(names[0]))) if names else []
        self._own = {part for name in names for part in _parts(name)}
        self._every = "|".join([re.escape("/".join(_parts(name)[1:])) for name in names])
        self._words = _words(base, axes)
        self._patterns = {word for word, axis in _rules(base) if axis == SPEC}
        self._tables = [read_key(seen.key) for seen in base.seen if seen.kind == "rules"]
        self._unmatched = _unmatched(base, axes)
        self._is_kept = fault.is_kept
        every = [one.name for one in base.arrays if one.name.startswith(_ARGUMENT)]
        self._parts = {part for name in every for part in _parts(name.removeprefix(_ARGUMENT))}
        self._no_axes = {*axes, *self._parts}

    def numbers(self, seen: Seen) -> Iterator[str]:
        """Another size of a dimension, where the size is made."""
        if seen.kind == "number" and float(seen.text) in self._numbers:
            yield f"number:{self._numbers[int(seen.text)]}"

    def limits(self, seen: Seen) -> Iterator[str]:
        """One instead of a number, which may be the size from which on arrays are split."""
        if seen.kind == "number" and self._wanted and float(seen.text) not in self._numbers:
            yield "least:1"

    def answers(self, seen: Seen) -> Iterator[str]:
        """The other answer to what is asked, always."""
        if seen.kind == "test":
            yield from [f"{other.lower()}:" for other in ("True", "False") if seen.text != other]

    def specs(self, seen: Seen) -> Iterator[str]:
        """Other axes, where specs are written."""
        if seen.kind in ("spec", "sharding"):
            yield from [
                f"spec:{one}" for one in self._wanted if bare_spec(one) != bare_spec(seen.text)
            ]
            yield from [f"spec:P({axis!r})" for axis in self._axes if not bare_spec(seen.text)]
        elif seen.kind == "none":
            yield from [f"axis:{axis}" for axis in (*self._axes, *self._words)]
        elif seen.kind == "text" and seen.text in self._axes:
            yield "none:"
            yield from [f"axis:{axis}" for axis in self._axes if axis != seen.text]
            yield from [f"axes:{','.join(some)}" for some in self._joined if seen.text in some]
        elif seen.kind == "names" and set(seen.text.split("\n")) <= {"", *self._axes}:
            yield from [f"spec:{one}" for one in self._wanted]

    def names(self, seen: Seen) -> Iterator[str]:
        """Other names, where arrays are told apart by theirs, and switches."""
        items = seen.text.split("\n")
        if seen.kind == "flag":
            yield "flip:"
        elif seen.kind == "policy" and self._is_kept:
            yield "regather:"
        elif seen.kind == "match" and self._paths:
            yield "search:"
        elif seen.kind == "text":
            yield from self._texts(seen)
        elif seen.kind == "names":
            if any(item.strip("./") in self._parts for item in items):
                yield from [f"add:{path}" for path in self._paths if _is_like(path, items)]
            yield from [
                f"drop:{one}" for one in items if one and (self._is_kept or one in self._own)
            ]
        elif seen.kind == "rules" and any(item.partition("\t")[2] == SPEC for item in items):
            words = [item.partition("\t")[0] for item in items]
            paths = [path for path in self._paths if _is_like(path, words)][:_MAX_PATHS]
            yield from [f"add:{path}={spec}" for path in paths for spec in self._wanted[:1]]

    def _texts(self, seen: Seen) -> Iterator[str]:
        if seen.text in self._patterns and self._every:
            yield f"text:{self._every}"
            yield from [f"text:{path}" for path in self._paths if "/" not in path][:1]
        elif _PATTERN.search(seen.text):
            yield from [f"text:{seen.text}|{path}" for path in self._paths if path.isidentifier()]
        elif self._words and seen.text.isidentifier() and seen.text not in self._no_axes:
            is_key = self._is_key(seen)
            words = (*self._words, *(self._unmatched if is_key else ()))
            yield from [f"text:{word}" for word in words if word != seen.text]
            if not is_key:
                yield "none:"

    def _is_key(self, seen: Seen) -> bool:
        """Whether a word stands in a table that has axes for words."""
        key = read_key(seen.key)
        return any(
            table.file == key.file and table.begin <= key.begin and key.end <= table.end
            for table in self._tables
        )


def _joined(spec: str) -> list[tuple[str, ...]]:
    """The axes of each dimension that several split."""
    parts = re.findall(r"\(('[^()]*)\)", bare_spec(spec))
    found = [tuple(re.findall(r"'([^']*)'", part)) for part in parts]
    return [some for some in found if len(some) > 1]


def _parts(path: str) -> list[str]:
    """The words of an argument's path."""
    return [word for word in re.split(r"[\[\].']+", path) if word]


def _paths(path: str) -> Iterator[str]:
    """An argument's path, its end and its parts, as programs write them."""
    parts = _parts(path)
    yield from ("/".join(parts), "/".join(parts[1:]), path)
    for part in parts[::-1]:
        if not part.isdigit():
            yield from (part, f".{part}")


def _is_like(path: str, texts: Sequence[str]) -> bool:
    """Whether a path is written as some of these are: with slashes, dots or brackets."""
    return any([one in path for one in _MARKS] == [one in text for one in _MARKS] for text in texts)


def _words(base: Traced, axes: Sequence[str]) -> list[str]:
    """A name for each axis, by tables that have names for axes."""
    words: dict[str, str] = {}
    for word, axis in _rules(base):
        if axis in axes and word not in axes:
            words.setdefault(axis, word)
    return list(words.values())


def _unmatched(base: Traced, axes: Sequence[str]) -> list[str]:
    """The names that stand beside those of tables, and that no table has."""
    known = {word for word, _ in _rules(base)}
    beside = [
        word
        for seen in base.seen
        if seen.kind == "names" and not known.isdisjoint(words := seen.text.split("\n"))
        for word in words
    ]
    return [word for word in dict.fromkeys(beside) if word and word not in {*known, *axes}]


def _rules(base: Traced) -> Iterator[tuple[str, str]]:
    for seen in base.seen:
        for line in seen.text.split("\n") if seen.kind == "rules" else ():
            word, _, axis = line.partition("\t")
            yield word, axis
