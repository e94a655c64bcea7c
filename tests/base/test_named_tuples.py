"""Named tuples beside those of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert not hasattr(ours, "__dict__")


def test_classes_say_what_those_of_typing_say() -> None:
    names = ("__doc__", "__module__", "_fields", "_field_defaults", "__match_args__")
    for name in names:
        assert getattr(Ours, name) == getattr(Theirs, name), name
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert Ours.__mro__[1:] == Theirs.__mro__[1:]
    assert Ours.__new__.__qualname__ == "Ours.__new__"


_ARGUMENTS = st.tuples(
    st.lists(st.integers(), max_size=13),
    st.dictionaries(st.sampled_from([f"field{number}" for number in range(13)]), st.integers()),
)


@given(st.integers(1, 12), st.integers(0, 12), _ARGUMENTS)
def test_every_number_of_fields_takes_what_that_of_collections_takes(
    count: int, defaults: int, arguments: tuple[list[int], dict[str, int]]
) -> None:
    fields = [f"field{number}" for number in range(count)]
    given_by_default = range(min(defaults, count))
    theirs = namedtuple("theirs", fields, defaults=given_by_default)  # type: ignore[misc]
    body = dict(zip(fields[::-1], reversed(given_by_default), strict=False))
    names = dict.fromkeys(fields, "int")
    head: dict[str, object] = {"__module__": __name__, "__qualname__": "theirs"}
    maker: typing.Any = type(named_tuples.NamedTuple)
    bases = (named_tuples.NamedTuple,)
    ours = maker("theirs", bases, {**head, **body, "__annotations__": names})
    assert _outcome(ours, arguments) == _outcome(theirs, arguments)


def _outcome(make: typing.Callable[..., typing.Any], arguments: typing.Any) -> object:
    """A new tuple in all its forms, or the error that there was."""
    items, by_name = arguments
    try:
        made = make(*items, **by_name)
    except TypeError as error:
        return str(error)
    fields = [getattr(made, field) for field in made._fields]
    return fields, made._asdict(), repr(made), tuple(made._make(made)), tuple(made._replace())


def test_a_tuple_of_too_few_items_and_an_unknown_field_are_refused() -> None:
    with pytest.raises(TypeError, match="Expected 2 arguments, got 1"):
        Ours._make([1])
    with pytest.raises(ValueError, match="Got unexpected field names: \\['third'\\]"):
        Ours(1)._replace(third=3)  # type: ignore[call-arg]
