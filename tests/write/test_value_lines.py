"""Values as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hlomem.dump.values import Layout, Style
from hlomem.write.value_lines import Places, format_values


def find_numbers(user: Any, operand: Any) -> list[int]:
    return [number for number, other in enumerate(user.operands) if other is operand]


def user_of(whole: Any) -> Any:
    return SimpleNamespace(name="n", shape=SimpleNamespace(is_tuple=False), operands=(whole,))


def test_a_value_shows_its_positions_before_its_uses() -> None:
    whole: Any = SimpleNamespace(name="t", shape=SimpleNamespace(is_tuple=True), operands=())
    user = SimpleNamespace(name="u", shape=whole.shape, operands=(whole, user_of(whole), whole))
    value: Any = SimpleNamespace(positions=[(whole, (1,)), (user, (0, 2))])
    unused: Any = SimpleNamespace(positions=[(user_of(whole), ())])
    rows: Any = [(value, "<0 t>", [[user], []], "%t"), (unused, "<1 n>", [[]], "%n")]
    assert format_values(rows, Places(), Layout(Style()), find_numbers) == (
        "<0 t>\n positions:\n  t {1}\n  u {0,2}\n"
        " uses:\n  u, operand 0 {1}\n  u, operand 2 {1}\n from instruction: %t\n"
        "<1 n>\n positions:\n  n\n uses:\n  (none)\n from instruction: %n\n"
    )
