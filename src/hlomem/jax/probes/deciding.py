"""The line that decides how arrays are split, found by tracing the program with other values there.

In: the arrays at fault, and how they should be split. Out: the expression of the source where
another value changes these and no others; of several, one that splits them as wanted, evaluated
last.
"""

from __future__ import annotations

import ast
import re
from math import inf, prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.sharding import bare_spec
from hlomem.jax.probes.closures import is_in_closure
from hlomem.jax.probes.instrument import USE, read_key
from hlomem.jax.probes.levers import SWAPPED
from hlomem.jax.probes.names import name_of, words_of
from hlomem.jax.probes.tries import (
    ARGUMENT,
    CONSTRAINT,
    is_of_no_use,
    matches_nothing,
    rules_of,
    tries_of,
    unmatched,
    uses_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.jax.probes.instrument import Key
    from hlomem.jax.probes.levers import Seen
    from hlomem.jax.probes.messages import Placed, Traced
    from hlomem.jax.probes.parent import Prober
    from hlomem.jax.probes.tries import Fault

_MAX_PROBES = 300
_MOST = 0.5
"""The share of the arrays at fault, by bytes, that a place must decide."""
_FEW = 0.1
"""The share of their bytes that others may have which it decides, too."""
_SOME = 0.25
"""The same where nothing decides them alone."""
_LESS = 0.95
"""The share of what loops keep that is left, at most, where that is at fault."""


class Decided(NamedTuple):
    """The expression that decides, and the change that was seen to matter."""

    key: Key
    """Of an item, where another word of a collection is at fault, that of the item."""
    change: str
    seen: Seen
    """The whole expression."""
    is_wanted: bool
    """Whether the arrays are split as wanted after the change."""
    is_alone: bool = True
    """Whether it decides hardly any others."""
    site: str = ""
    """The line that calls the function it is in, where others do so, too, and are not at fault."""
    specs: Mapping[str, str] = MappingProxyType({})
    """Those that arrays then have which had another, by the names of `Placed`."""
    why: str = ""
    """The name that no table has an axis for, or the rule that matches nothing, if that is why."""

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
    """Whether it is another name for one that no table, or not the mesh, has."""
    is_missing: bool = False
    """Whether it gives a row that nothing uses, or a rule that matches nothing, what is missing."""
    acts: int = 0
    """The number of constraints that it changes in addition to what is at fault."""
    specs: Mapping[str, str] = MappingProxyType({})
    is_exact: bool = False
    """Whether they then have the very shardings that are wanted, not others into as many parts."""

    @property
    def is_handed_in(self) -> bool:
        """Whether a value is given a name in a function that others make, for several callers."""
        key = read_key(self.seen.key)
        return len(self.seen.sites) > 1 and key.syntax in ("name", USE) and is_in_closure(key)

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, int, int, bool, int, bool, int, bool, int]:
        word, _, about = self.change.partition(":")
        is_by_name = self.is_unknown or (word == "add" and "=" not in about)
        return (
            self.others <= _FEW,
            word in ("number", "drop", "least", "search"),  # no other says what is too much
            self.is_wanted and self.is_possible,
            word not in ("flip", "true", "false"),  # what is switched or asked is written elsewhere
            -self.arrays,
            -self.kept,
            not self.is_handed_in,  # it is said where that function is made
            # With a sharding that the program has already; not a name instead of another.
            3 if self.is_missing else 2 if is_by_name else 1 if word != "text" else 0,
            word != "add",
            -self.acts,
            self.is_exact,
            -self.seen.last if word == "number" else self.seen.last,
        )


def decide(
    prober: Prober, base: Traced, fault: Fault, axes: Mapping[str, int]
) -> Iterator[Decided]:
    """The expressions that decide a fault alone, each at another line, the likeliest first.

    Where there is none, the one that decides little else.
    `axes` are those of the mesh, with their sizes.
    """
    effects = _effects(prober, base, fault, axes, is_used=False)
    if effects is not None and (most := _most_arrays(base, fault, effects)):
        used = _effects(prober, base, fault, axes, is_used=True)
        fewer = None if used is None else [one for one in used if one.arrays < most]
        effects = None if fewer is None else effects + fewer
    is_alone = any(one.others <= _FEW for one in effects or ())
    while effects:
        best = max(effects, key=lambda effect: effect.rank)
        if best.others > (_FEW if is_alone else _SOME):
            return
        best = _chosen(base, fault, _asked_before(best, effects), effects)
        yield Decided(
            key=_key(base, best),
            change=best.change,
            seen=best.seen,
            is_wanted=best.is_wanted,
            specs=best.specs,
            site=_site(prober, base, fault, axes, best),
            why=_why(base, best, axes),
            is_alone=is_alone,
        )
        if not is_alone:
            return
        effects = [one for one in effects if _line(one) != _line(best)]


def _line(effect: _Effect) -> tuple[str, int]:
    key = read_key(effect.seen.key)
    return key.file, key.line


def _most_arrays(base: Traced, fault: Fault, effects: Sequence[_Effect]) -> float:
    """The number of other arrays that a use of a layout must have fewer of; 0 not to look at uses.

    Any where nothing does what is wanted where layouts are made.
    """
    if not any(one.is_wanted and one.is_possible for one in effects):
        return inf
    best = max(effects, key=lambda effect: effect.rank)
    is_handed_in = any(one.is_handed_in and one.arrays == best.arrays for one in effects)
    if is_handed_in or (best.others <= _FEW and _is_choice(base, fault, best)):
        return best.arrays + 1
    is_layout = best.others <= _FEW and best.seen.kind in ("spec", "sharding", "names")
    return best.arrays if is_layout else 0


def _chosen(base: Traced, fault: Fault, best: _Effect, effects: Sequence[_Effect]) -> _Effect:
    """The last use of a layout by its name, where what is wanted has another name already."""
    if not _is_choice(base, fault, best):
        return best
    name = name_of(read_key(best.seen.key))
    uses = [
        one
        for one in effects
        if one.is_wanted and one.is_possible and one.others <= _FEW and one.arrays <= best.arrays
        if read_key(one.seen.key).syntax == USE or one.seen.text == name
    ]
    return max(uses, key=lambda one: one.seen.last, default=best)


def _is_choice(base: Traced, fault: Fault, best: _Effect) -> bool:
    """Whether a layout is not called after the arrays at fault, and another is what they want.

    Where another name has the same layout, names are those of arrays.
    """
    key = read_key(best.seen.key)
    name = name_of(key)
    if not name or best.seen.kind not in ("spec", "sharding", "names"):
        return False
    paths = [one for one in fault.wanted if not one.startswith(CONSTRAINT)]
    if not words_of([name]).isdisjoint(words_of(paths)):
        return False
    tables = [
        its for one in base.seen if one.kind == "rules" and key.is_in(its := read_key(one.key))
    ]
    others = [
        bare_spec(one.text)
        for one in base.seen
        if one.kind in ("spec", "sharding") and (its := read_key(one.key)) != key and name_of(its)
        if all(map(its.is_in, tables))
    ]
    wanted = {bare_spec(spec) for spec in fault.wanted.values()}
    return bare_spec(best.seen.text) not in others and not wanted.isdisjoint(others)


def _why(base: Traced, best: _Effect, axes: Iterable[str]) -> str:
    """Why nothing splits the arrays at fault: no rule is for them; empty for another reason."""
    word, _, about = best.change.partition(":")
    if word == "axis" and best.seen.kind == "text" and best.seen.text not in axes:
        return f"the mesh has no axis {best.seen.text!r}"
    if word not in ("text", "every"):
        return ""
    if matches_nothing(base, best.seen):
        return f"the rule {best.seen.text!r} matches nothing"
    name = about.rpartition(SWAPPED)[2]
    known = {one for one, _ in rules_of(base)}
    if name in known and best.seen.text not in known:
        return f"no rule has {best.seen.text!r}"
    return f"no rule has {name!r}" if name in unmatched(base, axes) else ""


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
    """The expression of a change; of an item that is too much, or has another's axis, its own."""
    key = read_key(best.seen.key)
    word, _, about = best.change.partition(":")
    item = about.partition(SWAPPED)[0]
    inside = [
        its
        for seen in base.seen
        if word in ("drop", "swap") and seen.kind == "text" and seen.text == item
        if (its := read_key(seen.key)).file == key.file and key.begin <= its.begin <= key.end
    ]
    return inside[0] if inside else key


def _effects(
    prober: Prober, base: Traced, fault: Fault, axes: Mapping[str, int], *, is_used: bool
) -> list[_Effect] | None:
    """The effects of changes where values are made, or where they are used by a name.

    None if not all were traced in time: another may be likelier.
    """
    every = tries_of(base, fault, list(axes))
    tries = [one for one in every if one[0].key.endswith(USE) == is_used][:_MAX_PROBES]
    traced = prober.trace([(seen.key, change) for seen, change in tries])
    done = [(one, seen, change) for (seen, change), one in zip(tries, traced, strict=True) if one]
    if len(done) < len(tries):
        return None
    found = [_effect(base, one, fault, axes, seen, change) for one, seen, change in done]
    return [effect for effect in found if effect is not None]


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
    is_argument = any(name.startswith(ARGUMENT) for name in fault.wanted)
    if not traced.is_changed or (traced.problem and not is_argument):
        return None
    before, after = _by_name(base), _by_name(traced)
    if traced.problem:  # its arguments are known all the same
        before = {name: one for name, one in before.items() if name.startswith(ARGUMENT)}
    changed = {
        name for name, one in before.items() if name not in after or after[name].spec != one.spec
    }
    if is_argument and not fault.wanted.keys() & before.keys() <= after.keys():
        return None  # they are not handed over, which splits nothing
    if fault.is_kept:
        return None if changed else _effect_on_kept(base, traced, seen, change)
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
            name.startswith(ARGUMENT) and not _is_repeated(name, ends)
            if is_argument
            else _look(before[name], fault) not in alike
        )
    ]
    is_wanted = all(
        name in after
        and _parts_by(after[name].spec, axes) >= _parts_by(fault.wanted[name], axes) > 1
        for name in own
    )
    is_exact = all(
        name in after and bare_spec(after[name].spec) == bare_spec(fault.wanted[name])
        for name in own
    )
    is_possible = not any(
        0 < before[name].dimensions < _dimensions(after[name].spec)
        for name in changed - own
        if name in after
    )
    if change.startswith(("least:", "drop:")) and not is_wanted:
        return None
    return _Effect(
        seen,
        change,
        is_wanted,
        others=sum(others) / size,
        arrays=len(others),
        is_possible=is_possible,
        is_unknown=_is_unknown(base, seen, change, axes),
        is_missing=_is_missing(base, seen, change),
        is_exact=is_exact,
        specs=traced.changed(base),
        acts=sum(name.startswith(CONSTRAINT) for name in changed - own),
    )


def _effect_on_kept(base: Traced, traced: Traced, seen: Seen, change: str) -> _Effect | None:
    """The effect on what loops and gradients keep: of arguments as placed, where they keep such."""
    kept, before = traced.kept, base.kept
    if base.kept_as_placed >= _FEW * base.kept:
        kept, before = traced.kept_as_placed, base.kept_as_placed
    if traced.products < base.products or kept >= _LESS * before:
        return None
    return _Effect(seen, change, is_wanted=True, others=0.0, kept=kept)


def _is_unknown(base: Traced, seen: Seen, change: str, axes: Mapping[str, int]) -> bool:
    """Whether a change is another name for one that no table, or not the mesh, has."""
    known = {name for name, _ in rules_of(base)}
    if change.startswith("axis:"):
        return seen.kind == "text" and seen.text not in axes
    return change.startswith(("text:", "every:")) and seen.text not in known


def _is_missing(base: Traced, seen: Seen, change: str) -> bool:
    """Whether a change gives a row that nothing uses, or a rule that matches nothing, a use."""
    if not change.startswith("text:"):
        return False
    known, word = {name for name, _ in rules_of(base)}, change.removeprefix("text:")
    is_other_row = seen.text in known and word not in known
    is_used = is_other_row and uses_of(base, word) > 1 and is_of_no_use(base, seen)
    return is_used or matches_nothing(base, seen)


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
    return name[name.index("[") :] if name.startswith(ARGUMENT) and "[" in name else ""


def _is_repeated(name: str, ends: tuple[str, ...]) -> bool:
    """Whether an argument repeats one of others in its tree, or one of them repeats it."""
    own = _end_of(name)
    return name.endswith(ends) or (own != "" and any(end.endswith(own) for end in ends))


def _by_name(traced: Traced) -> dict[str, Placed]:
    return {one.name: one for one in traced.arrays}
