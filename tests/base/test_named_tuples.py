"""Named tuples beside those of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing

from hlomem.base import named_tuples


class Ours(named_tuples.NamedTuple):
    """A class."""

    first: int
    second: str = "two"
    """A field."""

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    """A class."""

    first: int
    second: str = "two"
    """A field."""

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


def test_instances_are_those_of_typing() -> None:
    ours, theirs = Ours(1), Theirs(1)
    assert tuple(ours) == tuple(theirs) == (1, "two")
    assert ours.both == theirs.both
    assert ours._replace(second="x")._asdict() == theirs._replace(second="x")._asdict()
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert pickle.loads(pickle.dumps(ours)) == ours  # noqa: S301 - our own
    assert type(copy.copy(ours)) is Ours


def test_classes_say_what_those_of_typing_say() -> None:
    names = ("__doc__", "__module__", "_fields", "_field_defaults", "__match_args__")
    for name in names:
        assert getattr(Ours, name) == getattr(Theirs, name), name
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert Ours.__mro__[1:] == Theirs.__mro__[1:]
