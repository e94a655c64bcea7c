"""Expressions of the user's source while they are evaluated: noted, and one of them changed.

`Levers` is called in place of each (`instrument.py`). A change is a word and, after a colon, what
it is about: `spec:P('x')`, `same:P('x')>P()`, `axis:x`, `axes:x,y`, `none:`, `text:name`,
`every:name>name`, `add:name`, `drop:name`, `swap:name>name`, `flip:`, `true:`, `false:`,
`number:1024`, `least:1`, `regather:`, `unname:name`, `search:`, `skip:`.
"""

from __future__ import annotations

import builtins
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from hlomem.advice.code import DROPPED_PRIMITIVES
from hlomem.jax.compile.decisions import read_spec, spec_text
from hlomem.jax.compile.frames import is_users
from hlomem.jax.probes.instrument import CALLEE, LEVER, TEST, USE, read_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

ValueKind: TypeAlias = Literal[
    "spec",
    "sharding",
    "text",
    "none",
    "flag",
    "test",
    "number",
    "names",
    "rules",
    "policy",
    "match",
    "form",
]
_MAX_ITEMS = 64
_MAX_SITES = 8
_ANONYMOUS = re.compile(r"(\.<locals>\.<[a-z]+>)+$")
"""The end of a lambda's or a comprehension's qualified name."""
SWAPPED = ">"
"""Between the names of two rules that give each other's axes, or a word and another."""
SPEC = "*"
"""Instead of an axis, where a rule gives a spec."""


class Seen(Struct, frozen=True, kw_only=True):
    """An expression that was evaluated."""

    key: str
    kind: ValueKind
    text: str
    """The spec, the word, or the items, one a line; after a tab, the axis a rule gives. Of a test
    all answers."""
    last: int
    """The number of its last evaluation among all."""
    sites: tuple[str, ...] = ()
    """The lines that call the function it stands in; empty outside of functions."""


class Levers:
    """The function that stands around the levers of the user's source."""

    def __init__(self, key: str = "", change: str = "", site: str = "") -> None:
        """With a key, the value there is changed, for calls from a site; else all are noted."""
        self._key = key
        self._site = site
        self._word, _, self._about = change.partition(":")
        self._count = 0
        self._seen: dict[str, Seen] = {}
        self.is_changed = False

    def install(self) -> None:
        """From now on, evaluate levers by this."""
        setattr(builtins, LEVER, self)

    def __call__(self, key: str, value: Any) -> Any:
        if self._key:
            is_meant = key == self._key and (not self._site or self._site == calling_line())
            is_meant = is_meant or (self._word == "every" and self._is_said(value))
            is_meant = is_meant or (self._word == "same" and self._is_at_same_line(key, value))
            return self._changed(value) if is_meant else value
        if key.endswith(CALLEE):
            return self._watched(key, value)
        if key.endswith(USE) and not _is_layout(value):
            return value
        is_test = key.endswith(TEST)
        plain = _plain(value)
        if is_test and not isinstance(plain, bool):
            return value
        self._count += 1
        kind, text = ("test", str(plain)) if is_test else _described(plain)
        if key.endswith(USE) and (shardings := _shardings_of(value)):
            kind, text = "sharding", spec_text(shardings[0])
        if kind is not None:
            known = self._seen.get(key)
            if is_test and known is not None and text not in known.text:
                text = f"{known.text}\n{text}"
            elif is_test and known is not None:
                text = known.text
            sites = dict.fromkeys(() if known is None else known.sites)
            sites.update(
                {site: None} if len(sites) < _MAX_SITES and (site := calling_line()) else {}
            )
            self._seen[key] = Seen(
                key=key, kind=kind, text=text, last=self._count, sites=tuple(sites)
            )
        return value

    def _watched(self, key: str, function: Any) -> Any:
        """A function, or one that does the same and notes whether it only changes leaves."""
        if isinstance(function, type) or not callable(function):
            return function

        def watched(tree: Any) -> Any:
            made = function(tree)
            if _is_tree(tree) and _is_same_form(tree, made):
                self._count += 1
                self._seen[key] = Seen(key=key, kind="form", text="", last=self._count)
            return made

        return watched

    @property
    def seen(self) -> tuple[Seen, ...]:
        return tuple(self._seen.values())

    def _is_at_same_line(self, key: str, value: Any) -> bool:
        """Whether a sharding is handed on at the same line as the one that is changed."""
        if not (_is_spec(value) or _is_sharding(value)):
            return False
        (one, other), known = map(read_key, (key, self._key)), self._about.partition(SWAPPED)[2]
        is_same = (one.file, one.line, one.syntax) == (other.file, other.line, other.syntax)
        return is_same and spec_text(value) == known

    def _is_said(self, value: Any) -> bool:
        """Whether a value is the word that another is to stand for everywhere."""
        return isinstance(value, str) and value == self._about.partition(SWAPPED)[0]

    def _changed(self, value: Any) -> Any:
        self.is_changed = True
        match self._word:
            case "spec" | "same":
                return _with_spec(value, self._about.partition(SWAPPED)[0])
            case "axis" | "text":
                return self._about
            case "every":
                return self._about.partition(SWAPPED)[2] if isinstance(value, str) else value
            case "axes":
                return tuple(self._about.split(","))
            case "least":
                return type(value)(self._about)
            case "none":
                return None
            case "flip":
                return not value
            case "true" | "false":
                return self._word == "true" if isinstance(_plain(value), bool) else value
            case "number":
                return int(self._about)
            case "add":
                return _with_item(value, self._about)
            case "drop":
                return _without_item(value, self._about)
            case "swap":
                return _with_swapped(value, *self._about.split(SWAPPED))
            case "search":
                return re.search
            case "skip":
                return lambda tree: tree
            case "regather":
                return _without_gathered(value)
            case "unname":
                return _without_name(value, self._about)
            case _:
                return value


def _is_tree(value: Any) -> bool:
    """Whether a value is a tree of arrays, and not one of them."""
    if hasattr(value, "dtype"):
        return False
    try:
        return len(import_module("jax").tree.leaves(value)) > 1
    except (TypeError, ValueError):  # keys that have no order
        return False


def _is_same_form(tree: Any, made: Any) -> bool:
    """Whether two trees have as many arrays, though they are others, or kept otherwise."""
    if made is tree or not _is_tree(made):
        return False
    leaves = import_module("jax").tree.leaves
    shapes, others = ([getattr(one, "shape", None) for one in leaves(its)] for its in (tree, made))
    return shapes == others


def calling_line() -> str:
    """The line that calls the named function around a lever; empty if there is not one."""
    frame: FrameType | None = sys._getframe(2)
    around = ""
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename):
            name = _ANONYMOUS.sub("", code.co_qualname)
            if not around:
                around = name
            elif name != around and not name.startswith(f"{around}.<locals>"):
                return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _plain(value: Any) -> Any:
    """A value with numpy's own types for truth and whole numbers as those of Python."""
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_numpy and value.dtype.kind in "bi" else value


def _described(value: Any) -> tuple[ValueKind | None, str]:
    if value is None:
        return "none", ""
    if isinstance(value, bool):
        return "flag", str(value)
    if isinstance(value, int | float):
        return "number", str(value)
    if isinstance(value, str):
        return "text", value
    if _is_spec(value):
        return "spec", spec_text(value)
    if value is import_module("jax").sharding.PartitionSpec:  # as what makes a default
        return "spec", "P()"
    if _is_sharding(value):
        return "sharding", spec_text(value)
    if _is_policy(value):
        return "policy", ""
    if value is re.match:
        return "match", ""
    return _described_items(value)


def _described_items(value: Any) -> tuple[ValueKind | None, str]:
    if type(value) not in (tuple, list, set, frozenset, dict) or not 0 < len(value) <= _MAX_ITEMS:
        return None, ""
    if all(isinstance(one, str) or one is None for one in value):
        if isinstance(value, dict) and not all(map(_is_placing, value.values())):
            return None, ""
        if isinstance(value, dict):
            return "rules", _rule_lines(value.items())
        return "names", "\n".join(["" if one is None else one for one in value])
    if all(_is_rule(one) for one in value):
        return "rules", _rule_lines(value)
    return None, ""


def _rule_lines(rules: Iterable[tuple[Any, Any]]) -> str:
    """A line for each rule: what it is for, and the axis that it gives, or SPEC."""
    return "\n".join(
        [
            f"{name}\t{to if isinstance(to, str) else '' if to is None else SPEC}"
            for name, to in rules
        ]
    )


def _is_rule(one: Any) -> bool:
    is_pair = isinstance(one, tuple) and len(one) == 2
    return is_pair and isinstance(one[0], str) and _is_placing(one[1])


def _is_placing(one: Any) -> bool:
    """Whether a value says how an array is split."""
    if isinstance(one, tuple):
        return all(part is None or isinstance(part, str) for part in one)
    return one is None or isinstance(one, str) or _is_spec(one) or _is_sharding(one)


def _is_layout(value: Any) -> bool:
    return _is_spec(value) or _is_sharding(value) or _is_axes(value) or bool(_shardings_of(value))


def _shardings_of(value: Any) -> list[Any]:
    """The shardings of a tree of nothing else; empty for other values."""
    leaves = import_module("jax").tree.leaves(value) if _is_tree(value) else []
    return leaves if all(map(_is_sharding, leaves)) else []


def _is_axes(value: Any) -> bool:
    """Whether a value may be the parts of a spec."""
    return isinstance(value, tuple) and value != () and _is_placing(value)


def _is_spec(value: Any) -> bool:
    return isinstance(value, import_module("jax").sharding.PartitionSpec)


def _is_sharding(value: Any) -> bool:
    return isinstance(value, import_module("jax").sharding.NamedSharding)


def _is_policy(value: Any) -> bool:
    """Whether a value is a policy of `jax.checkpoint`, and not a function that makes one."""
    policies = import_module("jax").checkpoint_policies
    is_of_jax = getattr(value, "__module__", "") == policies.nothing_saveable.__module__
    if not callable(value) or not is_of_jax or isinstance(value, type):
        return False
    name = getattr(value, "__name__", "_saveable")  # an object that was made, else
    return "<locals>" in getattr(value, "__qualname__", "") or name.endswith("_saveable")


def _without_gathered(policy: Any) -> Any:
    """A policy that keeps what another keeps, but nothing that is gathered."""

    def keeps(primitive: Any, *given: Any, **options: Any) -> Any:
        return primitive.name not in DROPPED_PRIMITIVES and policy(primitive, *given, **options)

    return keeps


def _without_name(policy: Any, name: str) -> Any:
    """A policy that keeps what another keeps, but no value of a name."""

    def keeps(primitive: Any, *given: Any, **options: Any) -> Any:
        is_named = primitive.name == "name" and options.get("name") == name
        return not is_named and policy(primitive, *given, **options)

    return keeps


def _with_spec(value: Any, text: str) -> Any:
    """Another spec, as what the value is: a sharding, a spec, a tuple, a function; a word stays."""
    if isinstance(value, str):
        return value
    spec = read_spec(text)
    if isinstance(value, type):
        return lambda: spec
    if _shardings_of(value):
        return import_module("jax").tree.map(lambda one: _with_spec(one, text), value)
    if _is_sharding(value):
        return import_module("jax").sharding.NamedSharding(value.mesh, spec)
    return spec if _is_spec(value) else type(value)(spec)


def _with_item(value: Any, item: str) -> Any:
    """A collection with another name; of rules `name=spec` comes first."""
    name, _, spec = item.partition("=")
    if isinstance(value, dict):
        some = next((one for one in value.values() if one is not None), ())
        return {name: _with_spec(some, spec), **value}
    if isinstance(value, set | frozenset):
        return value | {name}
    if value and _is_rule(next(iter(value))):
        some = next((one[1] for one in value if one[1] is not None), ())
        return type(value)([(name, _with_spec(some, spec)), *value])
    return type(value)([*value, name])


def _without_item(value: Any, item: str) -> Any:
    return type(value)([one for one in value if one != item])


def _with_swapped(value: Any, one: str, other: str) -> Any:
    """Rules of which two give each other's axes."""
    rules = value if isinstance(value, dict) else dict(value)
    swapped = {**rules, one: rules[other], other: rules[one]}
    return swapped if isinstance(value, dict) else type(value)(list(swapped.items()))
