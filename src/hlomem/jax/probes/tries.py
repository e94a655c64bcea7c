"""The changes that may tell which expression of the source decides how arrays are split."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.sharding import bare_spec
from hlomem.jax.probes.choices import choices_of, kept_names
from hlomem.jax.probes.doubtful import doubtful_words, words_together
from hlomem.jax.probes.instrument import USE, read_key
from hlomem.jax.probes.levers import SPEC, SWAPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.jax.probes.doubtful import Doubtful
    from hlomem.jax.probes.levers import Seen
    from hlomem.jax.probes.messages import Traced

ARGUMENT, CONSTRAINT = "argument ", "constraint "
"""The beginnings of names of `Placed`."""
_MAX_WANTED = 3
_MAX_PATHS = 3
_MAX_CHOICES = 60
_MAX_FORMS = 20
_MAX_WORDS = 60
_MAX_MEANT = 3
_PATTERN = re.compile(r"\\[.bdw]|\(.*\)|\.\*|\$$")
"""Of regular expressions."""
_MARKS = ("/", ".", "[")
"""Of paths."""


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


def tries_of(base: Traced, fault: Fault, axes: Sequence[str]) -> Iterator[tuple[Seen, str]]:
    """The changes to try of expressions that were evaluated, the likeliest first."""
    tries = _Tries(base, fault, axes)
    kinds = (
        tries.numbers,
        tries.specs,
        tries.names,
        tries.choices,
        tries.limits,
        tries.answers,
        tries.forms,
        tries.words,
    )
    for some in kinds:
        for seen in base.seen:
            for change in dict.fromkeys(some(seen)):
                yield seen, change


class _Tries:
    def __init__(self, base: Traced, fault: Fault, axes: Sequence[str]) -> None:
        self._seen = base.seen
        self._numbers = fault.numbers
        self._wanted = list(dict.fromkeys(fault.wanted.values()))[:_MAX_WANTED]
        self._joined = list(dict.fromkeys([some for one in self._wanted for some in _joined(one)]))
        self._used = [axis for axis in axes if any(repr(axis) in spec for spec in self._wanted)]
        self._axes = list(dict.fromkeys([*self._used, *axes]))
        names = [one.removeprefix(ARGUMENT) for one in fault.wanted if one.startswith(ARGUMENT)]
        self._paths = list(dict.fromkeys(_paths(names[0]))) if names else []
        self._own = {part for name in names for part in _parts(name)}
        self._every = "|".join([re.escape("/".join(_parts(name)[1:])) for name in names])
        self._words = _words(base, axes)
        self._patterns = {word for word, axis in rules_of(base) if axis == SPEC}
        self._tables = [read_key(seen.key) for seen in base.seen if seen.kind == "rules"]
        self._ruled = {word for word, _ in rules_of(base)}
        self._unmatched = unmatched(base, axes)
        self._is_kept = fault.is_kept
        self._is_of_spec = fault.is_of_spec
        texts = [seen for seen in base.seen if seen.kind == "text"]
        self._first = {seen.text: seen.key for seen in texts[::-1]}
        self._repeated = {
            text for text, count in Counter(one.text for one in texts).items() if count > 1
        }
        every = [one.name for one in base.arrays if one.name.startswith(ARGUMENT)]
        self._parts = {part for name in every for part in _parts(name.removeprefix(ARGUMENT))}
        self._no_axes = {*axes, *self._parts}
        self._choices = choices_of(base.seen) if self._wanted else {}
        self._choices_left = _MAX_CHOICES
        self._forms_left = _MAX_FORMS
        self._words_left = _MAX_WORDS
        self._doubtful = doubtful_of(base, axes)

    def numbers(self, seen: Seen) -> Iterator[str]:
        """Another size of a dimension, where the size is made."""
        if seen.kind == "number" and float(seen.text) in self._numbers:
            yield f"number:{self._numbers[int(seen.text)]}"

    def choices(self, seen: Seen) -> Iterator[str]:
        """Another word that may stand there: a row of the same table, a value of the same field."""
        for word in self._choices.get(seen.key, ())[: self._choices_left]:
            self._choices_left -= 1
            yield f"text:{word}"

    def limits(self, seen: Seen) -> Iterator[str]:
        """One instead of a number, which may be the size from which on arrays are split."""
        if seen.kind == "number" and self._wanted and float(seen.text) not in self._numbers:
            yield "least:1"

    def answers(self, seen: Seen) -> Iterator[str]:
        """The other answer to what is asked, always."""
        if seen.kind == "test":
            yield from [f"{other.lower()}:" for other in ("True", "False") if seen.text != other]

    def forms(self, seen: Seen) -> Iterator[str]:
        """A call left out, where it only gives a tree another form."""
        if seen.kind == "form" and self._paths and self._forms_left > 0:
            self._forms_left -= 1
            yield "skip:"

    def words(self, seen: Seen) -> Iterator[str]:
        """An axis instead of a word that may be meant for one, as a field of a configuration."""
        is_word = seen.kind == "text" and seen.text.isidentifier() and bool(self._wanted)
        is_word &= seen.text not in self._no_axes | self._ruled
        if is_word and seen.key not in self._doubtful:
            yield from [f"axis:{axis}" for axis in self._used[: self._words_left]]
            self._words_left -= len(self._used)

    def specs(self, seen: Seen) -> Iterator[str]:
        """Other axes, where specs are written."""
        if seen.kind in ("spec", "sharding"):
            yield from [
                f"spec:{one}" for one in self._wanted if bare_spec(one) != bare_spec(seen.text)
            ]
            yield from [f"spec:P({axis!r})" for axis in self._axes if not bare_spec(seen.text)]
            if self._is_first_of_line(seen):
                yield from [f"same:{one}{SWAPPED}{seen.text}" for one in self._wanted]
        elif seen.kind == "none":
            yield from [f"axis:{axis}" for axis in (*self._axes, *self._words)]
        elif seen.kind == "text" and seen.key in self._doubtful:
            yield from [f"axis:{axis}" for axis in self._doubtful[seen.key].meant]
        elif seen.kind == "text" and seen.text in self._axes:
            yield "none:"
            yield from [f"axis:{axis}" for axis in self._axes if axis != seen.text]
            yield from [f"axes:{','.join(some)}" for some in self._joined if seen.text in some]
        elif seen.kind == "names" and set(seen.text.split("\n")) <= {"", *self._axes}:
            yield from [f"spec:{one}" for one in self._wanted]

    def _is_first_of_line(self, seen: Seen) -> bool:
        """Whether the same sharding is handed on at this line again, by its name."""
        own = read_key(seen.key)
        alike = [
            one
            for one in self._seen
            if one.text == seen.text and (its := read_key(one.key))[:2] == own[:2]
            if its.syntax == own.syntax
        ]
        return own.syntax in (USE, "name") and len(alike) > 1 and alike[0] is seen

    def names(self, seen: Seen) -> Iterator[str]:
        """Other names, where arrays are told apart by theirs, and switches."""
        items = seen.text.split("\n")
        if seen.kind == "flag":
            yield "flip:"
        elif seen.kind == "policy" and self._is_kept:
            yield from ["regather:", *[f"unname:{name}" for name in kept_names(self._seen)]]
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
        elif seen.kind == "rules" and self._is_of_spec:
            yield from self._swaps([item.partition("\t") for item in items])

    def _swaps(self, rules: Sequence[tuple[str, str, str]]) -> Iterator[str]:
        """The axis of one name for another that has none, and the other way round."""
        names = [name for name, _, _ in rules]
        if len(set(names)) == len(names):
            given = [name for name, _, axis in rules if axis in self._axes]
            free = [name for name, _, axis in rules if not axis]
            yield from [f"swap:{one}{SWAPPED}{other}" for one in given for other in free]

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
            is_lost = not is_key and seen.text in self._repeated - self._ruled
            if is_lost and seen.key == self._first[seen.text]:
                yield from [f"every:{seen.text}{SWAPPED}{word}" for word in self._words]

    def _is_key(self, seen: Seen) -> bool:
        """Whether a word stands in a table that has axes for words."""
        return any(map(read_key(seen.key).is_in, self._tables))


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
    for word, axis in rules_of(base):
        if axis in axes and word not in axes:
            words.setdefault(axis, word)
    return list(words.values())


def unmatched(base: Traced, axes: Iterable[str]) -> list[str]:
    """The names used with those of tables, and that no table has."""
    known = {word for word, _ in rules_of(base)}
    together = [
        word
        for seen in base.seen
        if seen.kind == "names" and not known.isdisjoint(words := seen.text.split("\n"))
        for word in words
    ]
    return [word for word in dict.fromkeys(together) if word and word not in {*known, *axes}]


def unused_rows(base: Traced) -> dict[str, tuple[str, ...]]:
    """The names of a table's rows that nothing uses, by their keys, with those that no row has."""
    tables = [read_key(one.key) for one in base.seen if one.kind == "rules"]
    others = tuple(_missing(base))
    return {
        one.key: _likest_first(one.text, others)
        for one in base.seen
        if others and one.kind == "text" and any(map(read_key(one.key).is_in, tables))
        if one.text in dict(rules_of(base)) and is_of_no_use(base, one)
    }


def names_without_row(base: Traced) -> dict[str, tuple[str, ...]]:
    """The words that stand next to names of rows, and have no row, with those that they may mean.

    By the key of the first; one that the mesh has for an axis may be meant for that.
    """
    rows = [word for word, axis in rules_of(base) if axis]
    missing = _missing(base)
    found: dict[str, tuple[str, ...]] = {}
    for one in base.seen:
        if one.kind == "text" and one.text in missing:
            missing.remove(one.text)
            found[one.key] = _likest_first(one.text, rows)
    return found


def _missing(base: Traced) -> list[str]:
    """The words that stand next to names of rows, and have no row."""
    known = {word for word, _ in rules_of(base)}
    groups = [
        group
        for file in dict.fromkeys(read_key(one.key).file for one in base.seen)
        for group in words_together(file)
        if not known.isdisjoint(group)
    ]
    return list(dict.fromkeys([word for group in groups for word in group if word not in known]))


def _likest_first(word: str, others: Iterable[str]) -> tuple[str, ...]:
    def unlikeness(other: str) -> float:
        return -SequenceMatcher(None, word, other).ratio()

    return tuple(sorted(dict.fromkeys(others), key=unlikeness)[:_MAX_MEANT])


def doubtful_of(base: Traced, axes: Iterable[str]) -> dict[str, Doubtful]:
    """The expressions that were evaluated and have no effect as they stand, by their keys."""
    names = tuple(axes)
    found = {}
    for seen in base.seen if names else ():
        if seen.kind in ("text", "none"):
            key = read_key(seen.key)
            for one in doubtful_words(key.file, names):
                if one.begin == key.begin:
                    found[seen.key] = one
    return found


def matches_nothing(base: Traced, seen: Seen) -> bool:
    """Whether a word is the pattern of a rule that gives a spec, and no argument's path has it."""
    is_of_spec = seen.text in {word for word, axis in rules_of(base) if axis == SPEC}
    if not is_of_spec or not is_of_no_use(base, seen):  # used elsewhere, it is a layout's name
        return False
    try:
        pattern = re.compile(seen.text)
    except re.error:
        return False
    names = [one.name for one in base.arrays if one.name.startswith(ARGUMENT)]
    paths = [_parts(name.removeprefix(ARGUMENT)) for name in names]
    written = [mark.join(path[at:]) for path in paths for mark in "/." for at in range(len(path))]
    return not any(map(pattern.search, written))


def is_of_no_use(base: Traced, seen: Seen) -> bool:
    """Whether a word names a row of a table, and nothing else that was evaluated."""
    tables = [read_key(one.key) for one in base.seen if one.kind == "rules"]
    words = [read_key(one.key) for one in base.seen if one.kind == "text" and one.text == seen.text]
    return all(any(map(word.is_in, tables)) for word in words)


def uses_of(base: Traced, word: str) -> int:
    """The number of places where a word is used."""
    return sum(one.kind == "text" and one.text == word for one in base.seen)


def rules_of(base: Traced) -> Iterator[tuple[str, str]]:
    for seen in base.seen:
        for line in seen.text.split("\n") if seen.kind == "rules" else ():
            word, _, axis = line.partition("\t")
            yield word, axis
