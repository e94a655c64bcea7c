"""Values as text: the native writer beside the one in Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.native import kernel
from hlomem.dump.values import Layout, Style
from hlomem.write.value_lines import Places, format_in_python, format_values

_native = kernel("hlomem.write._value_lines", "format")
needs_native = pytest.mark.skipif(_native is None, reason="_value_lines.c was not built")

TEXT = st.text(st.characters(), max_size=6)  # lone surrogates, too: bytes that were no UTF-8
INDEX = st.lists(st.integers(0, 30), max_size=3).map(tuple)
FORM = ("none", "from ", "\n")


def find_numbers(user: Any, operand: Any) -> list[int]:
    return [number for number, other in enumerate(user.operands) if other is operand]


@st.composite
def values(draw: st.DrawFn) -> tuple[tuple[Any, ...], ...]:
    """Values, names, readers and texts; instructions of any number of operands."""
    count = draw(st.integers(1, 5))
    instructions = [
        SimpleNamespace(name=draw(TEXT), shape=SimpleNamespace(is_tuple=draw(st.booleans())))
        for _ in range(count)
    ]
    instruction = st.sampled_from(instructions)
    for made in instructions:
        made.operands = tuple(draw(st.lists(instruction, max_size=20)))
    position = st.tuples(instruction, INDEX)
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        positions = draw(st.lists(position, max_size=3))
        readers = [draw(st.lists(instruction, max_size=3)) for _ in positions]
        rows.append((SimpleNamespace(positions=positions), draw(TEXT), readers, draw(TEXT)))
    return tuple(zip(*rows, strict=True)) if rows else ((), (), (), ())


@needs_native
@given(values())
def test_the_native_writer_writes_what_that_in_python_writes(lists: tuple[Any, ...]) -> None:
    assert _native is not None
    arguments: Any = (Places(), FORM, find_numbers)
    assert _native(*lists, *arguments) == format_in_python(*lists, *arguments)


def test_a_value_shows_its_positions_before_its_uses() -> None:
    whole: Any = SimpleNamespace(name="t", shape=SimpleNamespace(is_tuple=True), operands=())
    user = SimpleNamespace(name="u", shape=whole.shape, operands=(whole, user_of(whole), whole))
    value: Any = SimpleNamespace(positions=[(whole, (1,)), (user, (0, 2))])
    unused: Any = SimpleNamespace(positions=[(user_of(whole), ())])
    layout = Layout(Style())
    readers: Any = [[[user], []], [[]]]
    arguments = (Places(), layout, find_numbers)
    shown = format_values([value, unused], ["<0 t>", "<1 n>"], readers, ["%t", "%n"], *arguments)
    assert shown == (
        "<0 t>\n positions:\n  t {1}\n  u {0,2}\n"
        " uses:\n  u, operand 0 {1}\n  u, operand 2 {1}\n from instruction: %t\n"
        "<1 n>\n positions:\n  n\n uses:\n  (none)\n from instruction: %n\n"
    )


def user_of(whole: Any) -> Any:
    return SimpleNamespace(name="n", shape=SimpleNamespace(is_tuple=False), operands=(whole,))


VALUE = SimpleNamespace(positions=[])
HOLDER = SimpleNamespace(name="h", shape=SimpleNamespace(is_tuple=False), operands=())


@needs_native
@pytest.mark.parametrize(
    ("lists", "form", "error"),
    [
        (([VALUE], ("n",), ([],), ("t",)), FORM, TypeError),
        (((VALUE,), ("n", "m"), ([],), ("t",)), FORM, ValueError),
        (((VALUE,), (b"n",), ([],), ("t",)), FORM, TypeError),
        (((VALUE,), ("n",), ([],), (3,)), FORM, TypeError),
        (((VALUE,), ("n",), ([[]],), ("t",)), FORM, TypeError),
        (((VALUE,), ("n",), (None,), ("t",)), FORM, TypeError),
        (((None,), ("n",), ([],), ("t",)), FORM, AttributeError),
        (((VALUE,), ("n",), ([],), ("t",)), ("a", "b"), TypeError),
        (((VALUE,), ("n",), ([],), ("t",)), (1, 2, 3), TypeError),
        (((SimpleNamespace(positions=[3]),), ("n",), ([[]],), ("t",)), FORM, TypeError),
        (((SimpleNamespace(positions=[(HOLDER,)]),), ("n",), ([[]],), ("t",)), FORM, TypeError),
        (
            ((SimpleNamespace(positions=[(HOLDER, ())]),), ("n",), ([7],), ("t",)),
            FORM,
            TypeError,
        ),
        (
            ((SimpleNamespace(positions=[(HOLDER, ())]),), ("n",), ([[7]],), ("t",)),
            FORM,
            AttributeError,
        ),
    ],
)
def test_the_native_writer_refuses_what_it_was_not_made_for(
    lists: Any, form: Any, error: type[Exception]
) -> None:
    assert _native is not None
    with pytest.raises(error):
        _native(*lists, Places(), form, find_numbers)


@needs_native
def test_an_error_while_places_and_numbers_are_found_is_that_error() -> None:
    assert _native is not None
    many = SimpleNamespace(name="m", operands=(HOLDER,) * 20)
    parts = SimpleNamespace(name="p", shape=SimpleNamespace(is_tuple=True))
    for holder, readers in ((HOLDER, [many]), (parts, [])):
        value = SimpleNamespace(positions=[(holder, (1,))])
        with pytest.raises(ZeroDivisionError):
            _native((value,), ("n",), ([readers],), ("t",), _Failing(), FORM, _fail)


class _Failing(dict[Any, Any]):
    def __missing__(self, key: object) -> object:
        return _fail(key)


def _fail(*_: object) -> object:
    raise ZeroDivisionError
